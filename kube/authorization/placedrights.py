"""Rights of people in a namespace on a cluster, as RBAC of their space: what is kept of the cluster's own RBAC (GW19).

A membership gives the rules of its account's role on that cluster. Of the namespace's own RoleBindings count those to
users, who are the tenant's, ``tenantry:ann`` as ``ann``: that one is nobody to the cluster itself, so tenants may bind it.
Service accounts of a cluster are nobody here, and groups there are not the space's.

A request goes on to the cluster with the token of the least account that covers it. What no account covers nobody can
ask for, and what is beyond the account of somebody's membership only whom a binding gave it: ``needed`` says which, to
whoever asks about rights and to the door itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final

import orjson

from kube.authentication.identity import Principal
from kube.authorization.leastrole import ROLES, WorkspaceRoles, at_most
from kube.authorization.rbac import GROUP, Attributes, Binding, Role, Rule
from kube.requests.requestinfo import RequestInfo

CLUSTER_LABEL: Final = "tenantry.io/cluster"
WORKSPACE_LABEL: Final = "tenantry.io/workspace"
"""Of a Namespace that is placed: on which cluster, and the UID of its workspace. The product alone writes them."""

PREFIX: Final = "tenantry:"
"""Of users whom no cluster knows. Roles and RoleBindings of this prefix are the memberships': a cluster's own of such a
name count for nothing."""

MEMBERS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"viewer": ("tenantry:viewer",), "editor": ("tenantry:editor",), "admin": ("tenantry:admin", "tenantry:owner")}
)
"""The groups of the space's members by the account of theirs."""

_ACCOUNT_OF: Final[Mapping[str, str]] = MappingProxyType(
    {group: account for account, groups in MEMBERS.items() for group in groups}
)
REVIEWS: Final = "authorization.k8s.io"
"""Questions about rights are answered here, for placed namespaces as for stored ones."""

REQUESTS: Final = frozenset({"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"})
"""The verbs of requests. Others, such as ``escalate``, servers ask about by themselves: a cluster asks its account."""

GIVING: Final = frozenset({"create", "update", "patch", "deletecollection", "bind", "escalate", "*"})
"""The verbs by which Roles and RoleBindings give rights away, and whatever is asked of them all."""

PROXY_ACCOUNT: Final = "editor"
"""Whose account the proxy is bound to where a tier opens it: the most that can bind nobody else."""

ACCOUNT_ROLES: Final = tuple(f"{PREFIX}{account}" for account in ROLES)
"""The Roles that are kept of what the accounts hold, from least to most."""

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


@dataclass(frozen=True, slots=True)
class Needed:
    """What a request into a placed namespace needs: the account whose token it carries, and of whom.

    ``membership`` is the highest account that the caller's membership gives. ``refusal`` is why nothing helps, and
    ``beyond`` why only a binding does, that gives it without the membership; both name the remedy, and are empty otherwise.
    """

    account: str
    membership: str
    refusal: str = ""
    beyond: str = ""


def placed_on(namespace: Mapping[str, Any]) -> str:
    """The cluster that a kept Namespace is on; empty for a stored one."""
    labels = namespace["metadata"].get("labels") or {}
    return str(labels.get(CLUSTER_LABEL) or "") if labels.get(WORKSPACE_LABEL) else ""


def roles_kept(kept: Sequence[Role]) -> WorkspaceRoles:
    """What the accounts hold, from the Roles that are kept of it, in the order of ``ACCOUNT_ROLES``."""
    return WorkspaceRoles.of({account: role.rules for account, role in zip(ROLES, kept, strict=True)}, {})


def is_for_cluster(info: RequestInfo) -> bool:
    """Whether a cluster answers the request where its namespace is placed."""
    if not info.namespace or info.all_tenants or info.group == REVIEWS:
        return False
    return info.resource != "namespaces" or bool(info.group)


def is_judged(info: RequestInfo) -> bool:
    """Whether ``needed`` has anything to say where the namespace is placed: whatever the verb."""
    return info.is_resource and is_for_cluster(info)


def needed(
    roles: WorkspaceRoles, cluster: str, principal: Principal, info: RequestInfo, *, proxies: bool = False
) -> Needed:
    """What a request needs where the accounts of workspaces on ``cluster`` hold ``roles``.

    ``proxies`` says whether the namespace's tier opens the proxy into its pods and services.
    """
    membership = membership_of(principal, info.tenant)
    if info.subresource == "proxy" and not (proxies and info.is_proxied):
        closed = (
            f'"{info.resource}/proxy" is closed in placed namespaces unless an operator opens it for their tier: '
            "kubectl port-forward reaches the same"
        )
        return Needed("", membership, closed)
    # A cluster asks for ``create`` on connections into pods, whatever the method.
    asked = Attributes.of(replace(info, verb="create") if info.connects and info.verb in REQUESTS else info)
    account = PROXY_ACCOUNT if info.is_proxied else roles.least(asked)
    if account is None:
        return Needed(
            "",
            membership,
            f'no role of workspaces on the cluster "{cluster}" covers this: an operator opens kinds there by ClusterRoles '
            "with the label tenantry.io/aggregate-to-view, -edit or -admin",
        )
    if info.group == GROUP and info.verb in GIVING and membership != "admin":
        # Anybody else could give away what only the account holds that the cluster judges by.
        return Needed(
            account,
            membership,
            f'rights in the namespace "{info.namespace}" are given by admins and owners of the tenant: let one of them do it',
        )
    if membership and not at_most(account, membership):
        return Needed(
            account,
            membership,
            beyond=f'on the cluster "{cluster}" this needs the role {account}, and yours in the tenant gives {membership}: '
            f"an admin of the tenant raises it, or binds a role there to {PREFIX}{principal.name}",
        )
    return Needed(account, membership)


def membership_of(principal: Principal, tenant: str) -> str:
    """The highest account that the caller's membership in a tenant gives, empty for none."""
    if principal.tenant != tenant:
        return ""
    held = {_ACCOUNT_OF[group] for group in principal.groups if group in _ACCOUNT_OF}
    return next((account for account in reversed(ROLES) if account in held), "")


def without_membership(principal: Principal) -> Principal:
    """The same person, with what bindings give by name and by other groups alone."""
    return replace(principal, groups=tuple(group for group in principal.groups if group not in _ACCOUNT_OF))


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
        said = kept_binding(binding, rbac.cluster_roles)
        if said is not None and room.holds(said):
            used.add(said["roleRef"]["name"])
            found["rolebindings", binding.name] = said
    for own in _bounded(rbac.roles):
        # Those that nobody here is bound to say nothing.
        if own.name in used:
            said = {"rules": [rule.as_dict() for rule in own.rules if not rule.urls]}
            if room.holds(said):
                found["roles", own.name] = said
    return found


def kept_binding(binding: Binding, cluster_roles: Mapping[str, str]) -> dict[str, Any] | None:
    """What counts of a RoleBinding of a cluster, without metadata; ``None`` for one that gives nobody here anything."""
    role = cluster_roles.get(binding.role) if binding.role_kind == "ClusterRole" else None
    name = f"{PREFIX}{role}" if role else binding.role
    users = [subject.name.removeprefix(PREFIX) for subject in binding.subjects if subject.kind == "User"]
    subjects = [
        {"apiGroup": GROUP, "kind": "User", "name": user} for user in users if user and not user.startswith(_SYSTEM)
    ]
    if not subjects or (binding.role_kind != "Role" and role is None) or (not role and name.startswith(PREFIX)):
        return None
    return {"roleRef": _role(name), "subjects": subjects}


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
