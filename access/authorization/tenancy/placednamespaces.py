"""Namespaces on clusters: what their accounts there do not hold, no right of the space gives (GW4, GW19).

Judged by what the store keeps of the cluster's roles, so that everything that asks about rights says what the door says.
Until something is kept of a namespace, the door alone judges, which asks the cluster.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Final, NamedTuple, Protocol

import orjson

from access.authorization.base import NO_RULES, RuleSet, deny, passes
from access.authorization.modes.rbac import PolicyCache
from access.authorization.tenancy.isolation import Grants
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.authorization.leastrole import WorkspaceRoles
from kube.authorization.placedrights import (
    ACCOUNT_ROLES,
    is_judged,
    membership_of,
    needed,
    placed_on,
    roles_kept,
    without_membership,
)
from kube.authorization.placedrules import held_in_placed
from kube.authorization.rbac import Role, Rule
from kube.authorization.rbacindex import PolicyIndex
from kube.objects.publications import NAMESPACES
from kube.requests.logicalclusters import ClusterKind, tenant_of
from kube.requests.requestinfo import RequestInfo
from store.interface import Reader
from store.types import Event, EventType, Key, Stored
from tenants.clusters.objects import TIER_ANNOTATION, tier_of_namespace
from tenants.policies import TIER_PROXIES, kept_proxies, tier_proxies_key

STEP: Final = "placed-namespaces"
_LEAST: Final = ACCOUNT_ROLES[0]
_TIER: Final = TIER_ANNOTATION.encode()
_KNOWN_MAX: Final = 4096
_STORED: Final = passes(STEP, "not in a namespace on a cluster")
_COVERED: Final = passes(STEP, "an account of the workspace covers it, and the user may have it")


class Rest(Protocol):
    """The steps that come after this one."""

    def decide(self, principal: Principal, request: RequestInfo) -> Decision | None:
        """What they decide without waiting, or ``None``."""
        ...

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """What they decide."""
        ...

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """What they give, and whether that is all."""
        ...


class Accounts(NamedTuple):
    """The accounts of a placed namespace: on which cluster, and what they hold."""

    cluster: str
    roles: WorkspaceRoles
    proxies: bool
    """Whether the tier opens the proxy into pods and services."""


class _Known(NamedTuple):
    """A namespace as it was looked at last: what is kept of its cluster's roles, its object, and what both say.

    ``cluster`` is empty for one that is not placed.
    """

    kept: tuple[Role, ...]
    stored: Stored
    roles: WorkspaceRoles
    cluster: str
    tier: str


async def opens_proxies(store: Reader, tier: str) -> bool:
    """Whether a tier opens the proxy into its placed namespaces, as this process has seen it last."""
    kept = await store.get(tier_proxies_key(tier), cached=True) if tier else None
    return kept_proxies(kept.data if kept is not None else None)


def may_close_proxies(event: Event) -> bool:
    """Whether the proxy may be closed by what has happened: a tier opens it no more, or a namespace has another tier."""
    place = event.key[1:3]
    if place != NAMESPACES:
        return place == TIER_PROXIES and (event.type is EventType.DELETED or not kept_proxies(event.data))
    if event.previous is None or _TIER not in event.previous:
        return False
    before, now = (tier_of_namespace(orjson.loads(data), None) for data in (event.previous, event.data))
    return before != now


class KeptAccounts:
    """The accounts of placed namespaces, from what is kept of their clusters' RBAC."""

    def __init__(self, store: Reader, policies: PolicyCache) -> None:
        self._store = store
        self.policies = policies
        self._known: OrderedDict[tuple[str, str], _Known] = OrderedDict()

    async def of(self, cluster: str, namespace: str) -> Accounts | None:
        """Those of a namespace; ``None`` for a stored one, and where nothing is kept yet."""
        kept = self._kept((await self.policies.policies_for(cluster)).local, namespace)
        stored = await self._store.get(_object(cluster, namespace), cached=True) if kept is not None else None
        if kept is None or stored is None:
            return None
        known = self._looked_at(kept, stored)
        if not known.cluster:
            return None
        return Accounts(known.cluster, known.roles, await opens_proxies(self._store, known.tier))

    def peek(self, index: PolicyIndex, cluster: str, namespace: str) -> Accounts | None:
        """The same without waiting, as far as nobody asks for the proxy; ``None`` also where somebody is to be waited for."""
        kept = self._kept(index, namespace)
        stored = self._store.peek(_object(cluster, namespace)) if kept is not None else None
        if kept is None or stored is None:
            return None
        known = self._looked_at(kept, stored)
        return Accounts(known.cluster, known.roles, proxies=False) if known.cluster else None

    def _kept(self, index: PolicyIndex, namespace: str) -> tuple[Role, ...] | None:
        kept = tuple([role for name in ACCOUNT_ROLES if (role := index.roles.get((namespace, name))) is not None])
        return kept if len(kept) == len(ACCOUNT_ROLES) else None

    def _looked_at(self, kept: tuple[Role, ...], stored: Stored) -> _Known:
        place = stored.key.space, stored.key.name
        known = self._known.get(place)
        alike = known is not None and known.kept == kept
        if known is not None and alike and known.stored is stored:
            return known
        # Anybody may give a Role of theirs such a name: what is placed the Namespace says.
        body = orjson.loads(stored.data)
        roles = known.roles if known is not None and alike else roles_kept(kept)
        found = self._known[place] = _Known(kept, stored, roles, placed_on(body), tier_of_namespace(body, None))
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
        return found


def _object(cluster: str, namespace: str) -> Key:
    return Key(cluster, "", "namespaces", "", namespace)


class PlacedNamespaces:
    """Denies what the door would refuse, with the remedy; whatever else decides comes after it.

    ``rest`` are the steps after it: what goes beyond somebody's membership they must give without it.
    """

    name = STEP

    def __init__(self, accounts: KeptAccounts, rest: Rest) -> None:
        self._accounts = accounts
        self._rest = rest
        self._policies_for = accounts.policies.cached_policies_for

    def applies_to(self, *, operator: bool, cluster_kind: ClusterKind) -> bool:  # noqa: ARG002
        """Only in tenants' spaces."""
        return cluster_kind is ClusterKind.TENANT

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY what no account covers, or none of the user's; otherwise no opinion."""
        if not is_judged(request):
            return _STORED
        accounts = await self._accounts.of(request.cluster, request.namespace)
        if accounts is None:
            return _STORED
        wanted = needed(accounts.roles, accounts.cluster, principal, request, proxies=accounts.proxies)
        if wanted.refusal:
            return deny(self.name, wanted.refusal)
        if wanted.beyond and not (await self._rest.authorize(without_membership(principal), request)).allowed:
            return deny(self.name, wanted.beyond)
        return _COVERED

    def decide(self, principal: Principal, request: RequestInfo) -> Decision | None:
        """The same without waiting, where all of it is known: nearly every request, but for the proxy."""
        namespace = request.namespace
        if not namespace:
            return _STORED
        policies = self._policies_for(request.cluster)
        if policies is None:
            return None
        if (namespace, _LEAST) not in policies.local.roles or not is_judged(request):
            return _STORED
        accounts = self._accounts.peek(policies.local, request.cluster, namespace)
        if accounts is None or request.subresource == "proxy":
            return None
        wanted = needed(accounts.roles, accounts.cluster, principal, request)
        if wanted.refusal:
            return deny(self.name, wanted.refusal)
        if wanted.beyond:
            otherwise = self._rest.decide(without_membership(principal), request)
            if otherwise is None or not otherwise.allowed:
                return None if otherwise is None else deny(self.name, wanted.beyond)
        return _COVERED

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """In a placed namespace, all that the steps after it leave: as far as the accounts go."""
        accounts = await self._accounts.of(cluster, namespace) if namespace else None
        if accounts is None:
            return NO_RULES
        given = await self._rest.rules_for(principal, cluster, namespace)
        membership = membership_of(principal, tenant_of(cluster))
        bound: tuple[Rule, ...] = ()
        if membership:
            bound = (await self._rest.rules_for(without_membership(principal), cluster, namespace)).rules
        held, exact = held_in_placed(accounts.roles, membership, given.rules, bound, proxies=accounts.proxies)
        return replace(given, rules=held, complete=given.complete and exact, final=True)

    async def limited(self, rules: tuple[Rule, ...], principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """What the accounts of a placed namespace leave of rules that somebody holds there by name."""
        accounts = await self._accounts.of(cluster, namespace) if namespace else None
        if accounts is None:
            return RuleSet(rules)
        membership = membership_of(principal, tenant_of(cluster))
        held, exact = held_in_placed(accounts.roles, membership, rules, rules, proxies=accounts.proxies)
        return RuleSet(held, complete=exact)


class GrantsWithinPlacements:
    """Cross-tenant grants, which give no more in a placed namespace than its accounts hold there either."""

    def __init__(self, grants: Grants, placed: PlacedNamespaces) -> None:
        self._grants = grants
        self._placed = placed

    async def find_grant(self, principal: Principal, request: RequestInfo) -> Decision | None:
        """The ALLOW of a grant, or the DENY of what it cannot open."""
        granted = await self._grants.find_grant(principal, request)
        if granted is None or not granted.allowed:
            return granted
        judged = await self._placed.authorize(principal, request)
        return granted if judged.verdict is _COVERED.verdict else judged

    async def rules(self, principal: Principal, cluster: str, namespace: str) -> tuple[Rule, ...]:
        """What grants give as far as the accounts go."""
        rules = await self._grants.rules(principal, cluster, namespace)
        return (await self._placed.limited(rules, principal, cluster, namespace)).rules if rules else rules
