"""Rights of people in a namespace on a cluster, as RBAC of their space: what is kept of the cluster's own RBAC (GW19).

A membership gives the rules of its account's role on that cluster. Of the namespace's own RoleBindings count those to
users, who are the tenant's, ``tenantry:ann`` as ``ann``: that one is nobody to the cluster itself, so tenants may bind it.
Service accounts of a cluster are nobody here, and groups there are not the space's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import orjson

from kube.authorization.leastrole import ROLES
from kube.authorization.rbac import GROUP, Binding, Role, Rule

PREFIX: Final = "tenantry:"
"""Of users whom no cluster knows. Roles and RoleBindings of this prefix are the memberships': a cluster's own of such a
name count for nothing."""

MEMBERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"viewer": ("tenantry:viewer",), "editor": ("tenantry:editor",), "admin": ("tenantry:admin", "tenantry:owner")}
)
"""The groups of the space's members by the account of theirs."""

_SYSTEM: Final = "system:"
_EACH_MOST: Final = 500
_NAME_MOST: Final = 253
BYTES_MOST: Final = 1024 * 1024
"""What a namespace's own RBAC may take, all of it, as it is kept: more than any namespace needs."""


@dataclass(frozen=True, slots=True)
class ClusterRbac:
    """The RBAC of one namespace of a cluster, and the ClusterRoles that its workspaces' accounts are bound to.

    ``accounts`` are the rules by account, ``cluster_roles`` the accounts by the ClusterRole's name.
    """

    accounts: Mapping[str, Sequence[Rule]]
    cluster_roles: Mapping[str, str]
    roles: Sequence[Role] = ()
    bindings: Sequence[Binding] = ()


def placed_rights(rbac: ClusterRbac) -> dict[tuple[str, str], dict[str, Any]]:
    """What belongs into the space's namespace, by plural and name, without metadata."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for account in ROLES:
        name = f"{PREFIX}{account}"
        found["roles", name] = {"rules": [rule.as_dict() for rule in rbac.accounts.get(account, ())]}
        groups = [{"apiGroup": GROUP, "kind": "Group", "name": group} for group in MEMBERS[account]]
        found["rolebindings", name] = {"roleRef": _role(name), "subjects": groups}
    used, room = set(), _Room(BYTES_MOST)
    for binding in _bounded(rbac.bindings):
        role = rbac.cluster_roles.get(binding.role) if binding.role_kind == "ClusterRole" else None
        name = f"{PREFIX}{role}" if role else binding.role
        users = [subject.name.removeprefix(PREFIX) for subject in binding.subjects if subject.kind == "User"]
        subjects = [
            {"apiGroup": GROUP, "kind": "User", "name": user} for user in users if user and not user.startswith(_SYSTEM)
        ]
        if not subjects or (binding.role_kind != "Role" and role is None) or (not role and name.startswith(PREFIX)):
            continue
        said = {"roleRef": _role(name), "subjects": subjects}
        if room.holds(said):
            used.add(name)
            found["rolebindings", binding.name] = said
    for own in _bounded(rbac.roles):
        # Those that nobody here is bound to say nothing.
        if own.name in used:
            said = {"rules": [rule.as_dict() for rule in own.rules if not rule.urls]}
            if room.holds(said):
                found["roles", own.name] = said
    return found


class _Room:
    """What is left of so many bytes. What does not fit is left out: it gives no right."""

    def __init__(self, size: int) -> None:
        self._left = size

    def holds(self, said: Mapping[str, Any]) -> bool:
        """Whether it fits, and then takes its room."""
        size = len(orjson.dumps(said))
        if size > self._left:
            return False
        self._left -= size
        return True


def _role(name: str) -> dict[str, str]:
    return {"apiGroup": GROUP, "kind": "Role", "name": name}


def _bounded(items: Iterable[Any]) -> Iterator[Any]:
    """What a cluster says may be anything: names that can be kept, and not more of them than a namespace needs."""
    kept = 0
    for item in items:
        if kept < _EACH_MOST and 0 < len(item.name) <= _NAME_MOST and item.name.isprintable():
            if item.name.startswith(PREFIX):
                continue
            kept += 1
            yield item
