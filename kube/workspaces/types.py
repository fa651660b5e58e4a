"""The words of workspaces: their kinds, phases, annotations and groups, and the questions asked about them (KC1 to KC13).

A workspace is a logical cluster below a tenant's space. Its parent holds a ``Workspace`` object, it holds itself the
``LogicalCluster`` object ``cluster``. The tenant's space is the organisation.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from kube.authentication.identity import ACCESS_GROUPS, ADMIN_GROUPS, AUTHENTICATED, Principal
from kube.authorization import effectivepolicy
from kube.authorization.decisions import Decision
from kube.authorization.effectivepolicy import Policies
from kube.authorization.rbac import NO_OPINION, Attributes
from kube.authorization.rbacindex import TargetTenant
from kube.requests.logicalclusters import ROOT, parent_of, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT, is_dns_subdomain

TENANCY: Final = "tenancy.kcp.io"
CORE: Final = "core.kcp.io"
VERSION: Final = "v1alpha1"
WORKSPACES: Final = (TENANCY, "workspaces")
TYPES: Final = (TENANCY, "workspacetypes")
LOGICAL_CLUSTERS: Final = (CORE, "logicalclusters")
CLUSTER_NAME: Final = "cluster"
"""The name of the only ``LogicalCluster`` object in a logical cluster."""

REQUIRED_GROUPS: Final = "authorization.kcp.io/required-groups"
OWNER: Final = "experimental.tenancy.kcp.io/owner"
TYPE: Final = "internal.tenancy.kcp.io/type"
TYPE_UID: Final = "internal.tenancy.kcp.io/type-uid"
"""Which type of another tenant it is: one that takes its name later has no say."""

INACTIVE: Final = "core.kcp.io/inactive"
"""``true`` on a ``LogicalCluster`` closes the workspace for everything but that object and OpenAPI."""

FINALIZER: Final = "core.kcp.io/logicalcluster"
"""Holds a deleted ``Workspace`` until everything below it is gone."""

ORGANIZATION_TYPE: Final = f"{ROOT}:organization"
"""The type of tenants' spaces."""

DEFAULT_TYPE: Final = f"{ROOT}:universal"
"""The type of workspaces that name none, below parents whose type names none for its children."""

RESERVED_TYPES: Final = frozenset({"any", "system"})
"""Names that no type may have: they mean more than one type elsewhere."""

BASES_MAX: Final = 32
"""Types that one type may extend, all of theirs included."""

_VIRTUAL: Final = frozenset(ACCESS_GROUPS + ADMIN_GROUPS)


class Phase(StrEnum):
    """Where a workspace is in its life."""

    SCHEDULING = "Scheduling"
    INITIALIZING = "Initializing"
    READY = "Ready"
    INACTIVE = "Inactive"
    DELETING = "Deleting"


class RequiredGroupsSyntax(StrEnum):
    """How required groups are written (KC3)."""

    DOCUMENT = "document"
    """``;`` is and, ``,`` is or: ``a;b,c`` means (a and b) or c."""

    KCP = "kcp"
    """``,`` is and, ``;`` is or, as later versions of kcp read it."""


Alternatives = tuple[frozenset[str], ...]
"""Sets of groups, all of one of which are required."""


def required_groups(text: str, dialect: RequiredGroupsSyntax) -> Alternatives:
    """The alternatives that an annotation names. Raises ``ValueError`` for one with an empty group."""
    either, both = (",", ";") if dialect is RequiredGroupsSyntax.DOCUMENT else (";", ",")
    found = tuple(frozenset(group.strip() for group in part.split(both)) for part in text.split(either))
    if any("" in groups for groups in found):
        raise ValueError("a required group is empty")
    return found


def is_member(groups: Collection[str], alternatives: Alternatives) -> bool:
    """Whether these groups fulfil one of the alternatives."""
    held = frozenset(groups)
    return any(wanted <= held for wanted in alternatives)


@dataclass(frozen=True, slots=True)
class State:
    """What decisions need to know of a logical cluster. ``required`` is empty when no groups are required."""

    phase: str
    type: str
    type_uid: str = ""
    required: Alternatives | None = ()
    """``None`` for an annotation that cannot be understood: then nobody is a member."""

    @property
    def is_ready(self) -> bool:
        """Whether those with access may enter."""
        return self.phase == Phase.READY


def state_of(body: Mapping[str, Any], dialect: RequiredGroupsSyntax) -> State:
    """The state that a ``LogicalCluster`` object shows."""
    annotations = body["metadata"].get("annotations") or {}
    required: Alternatives | None = ()
    if REQUIRED_GROUPS in annotations:
        try:
            required = required_groups(annotations[REQUIRED_GROUPS], dialect)
        except ValueError:
            required = None
    phase = (body.get("status") or {}).get("phase") or Phase.SCHEDULING
    return State(phase, annotations.get(TYPE) or DEFAULT_TYPE, annotations.get(TYPE_UID) or "", required)


def phase_wanted(body: Mapping[str, Any]) -> str:
    """The phase of a ``LogicalCluster`` as its annotation has it: one that is ready is active or inactive (KC4)."""
    phase = str((body.get("status") or {}).get("phase") or Phase.SCHEDULING)
    if phase not in (Phase.READY, Phase.INACTIVE):
        return phase
    return Phase.INACTIVE if (body["metadata"].get("annotations") or {}).get(INACTIVE) == "true" else Phase.READY


def with_groups(principal: Principal, groups: tuple[str, ...]) -> Principal:
    """The principal as a member of virtual groups for one request; what it brought of that name does not count."""
    own = tuple(group for group in principal.groups if group not in _VIRTUAL)
    return replace(principal, groups=own + groups)


def tenant_group(tenant: str) -> str:
    """The group of everybody who comes from a tenant, as other logical clusters may name it."""
    return f"system:cluster:{space_of(tenant)}"


def cross_workspace_access(principal: Principal, attributes: Attributes, policies: Policies) -> Decision:
    """RBAC's answer about an object that the principal refers to without being there (``use``, ``bind``; KC10, KC11).

    Names of users and groups mean nothing in other tenants, nor do those of service accounts outside of their logical
    cluster, nor those that somebody acts as elsewhere: there a principal is one of ``system:authenticated`` and of its
    tenant's group. No access to the logical cluster is needed, and nothing of it is shown.
    """
    owner = tenant_of(policies.cluster)
    if principal.tenant is None:
        return NO_OPINION
    known = principal.is_system or principal.tenant == owner
    if known and effectivepolicy.may_be_bound_in(principal, policies.cluster):
        return effectivepolicy.authorize(principal, attributes, policies)
    target = TargetTenant(SYSTEM_TENANT) if owner == SYSTEM_TENANT else None
    return policies.local.authorize("", (AUTHENTICATED, tenant_group(principal.tenant)), attributes, target)


def may_use(name: str) -> Attributes:
    """The question whether a workspace of this type may be made (KC10)."""
    return Attributes("use", *TYPES, name=name)


def may_administer(name: str) -> Attributes:
    """The question, for the parent, whether a workspace may be entered while it initializes (KC4)."""
    return Attributes("admin", TENANCY, "workspaces/content", "content", name=name)


def may_enter(verb: str) -> Attributes:
    """The question, for the workspace, whether somebody has ``access`` to it, or is its ``admin`` (KC2)."""
    return Attributes(verb, path="/", is_resource=False)


def parent_cluster(path: str) -> tuple[str, str]:
    """The logical cluster that holds the ``Workspace`` object of a workspace, and its name."""
    parent = parent_of(path)
    if parent is None:
        raise ValueError("not the path of a workspace")
    return parent, path.rpartition(":")[2]


def depth_of(path: str) -> int:
    """How many workspaces deep a logical cluster lies below its tenant's space: 0 for the tenant's space itself."""
    return path.count(":") - 1


def split_type(name: str) -> tuple[str, str]:
    """The logical cluster and the name of a type written ``root:universal``."""
    path, _, short = name.rpartition(":")
    return path, short


def reference(value: Any) -> tuple[str, str]:
    """The path and name of a reference; the path may be empty. Raises ``ValueError`` for anything else."""
    fields = value if isinstance(value, Mapping) else {}
    path, name = fields.get("path") or "", fields.get("name") or fields.get("export") or ""
    if not isinstance(path, str) or not isinstance(name, str) or not is_dns_subdomain(name):
        raise ValueError("not a reference")
    return path, name
