"""What programs around an API server need in ``kube-system`` and ``kube-public`` alone, as Roles of the bootstrap policy.

The system space begins with them. A tenant's space has none: no token joins a node to it, no cloud is behind it, and the
programs' own leases are in their ClusterRoles.
"""

from __future__ import annotations

from typing import Any, Final

from kube.authorization.bootstrap.components import CONTROLLER_MANAGER, SCHEDULER
from kube.authorization.policyobjects import EVENTS, READ, binding, role, rule

_SYSTEM: Final = "kube-system"
_PUBLIC: Final = "kube-public"
_SIGNER: Final = "system:controller:bootstrap-signer"
_READER: Final = "extension-apiserver-authentication-reader"
_CONTROLLER_MANAGER_LOCK: Final = "system::leader-locking-kube-controller-manager"
_SCHEDULER_LOCK: Final = "system::leader-locking-kube-scheduler"

_LOCKING: Final = tuple(
    rule("create get list update watch", "coordination.k8s.io", kind) for kind in ("leases", "leasecandidates")
)

NAMESPACED_ROLES: Final[tuple[dict[str, Any], ...]] = (
    role(
        _SIGNER,
        rule(READ, "", "configmaps"),
        rule("update", "", "configmaps", names=("cluster-info",)),
        EVENTS,
        namespace=_PUBLIC,
    ),
    role(_READER, rule(READ, "", "configmaps", names=("extension-apiserver-authentication",)), namespace=_SYSTEM),
    role(_CONTROLLER_MANAGER_LOCK, *_LOCKING, namespace=_SYSTEM),
    role(_SCHEDULER_LOCK, *_LOCKING, namespace=_SYSTEM),
    role(_SIGNER, rule(READ, "", "secrets"), namespace=_SYSTEM),
    role("system:controller:cloud-provider", rule("create get list watch", "", "configmaps"), namespace=_SYSTEM),
    role("system:controller:token-cleaner", rule("delete get list watch", "", "secrets"), EVENTS, namespace=_SYSTEM),
)
"""The Roles as objects."""

NAMESPACED_BINDINGS: Final[tuple[dict[str, Any], ...]] = (
    binding(f"system::{_READER}", _READER, CONTROLLER_MANAGER, SCHEDULER, kind="User", namespace=_SYSTEM),
    binding(_CONTROLLER_MANAGER_LOCK, _CONTROLLER_MANAGER_LOCK, CONTROLLER_MANAGER, kind="User", namespace=_SYSTEM),
    binding(_SCHEDULER_LOCK, _SCHEDULER_LOCK, SCHEDULER, kind="User", namespace=_SYSTEM),
)
"""The RoleBindings of users. No service account is bound, for the reason given at ``COMPONENT_BINDINGS``."""
