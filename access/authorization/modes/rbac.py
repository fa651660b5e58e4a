"""RBAC of each logical cluster, compiled when first needed and kept right by the change log (AZ2, AZ9, KC7, KC8)."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from sys import intern
from typing import Any, Final

import orjson

from access.authorization.base import RuleSet
from kube.authentication.identity import Principal
from kube.authorization import bootstrappolicy, effectivepolicy
from kube.authorization.decisions import Decision
from kube.authorization.effectivepolicy import Policies, may_be_bound_in
from kube.authorization.rbac import GROUP, Attributes, Binding, binding_from, role_from
from kube.authorization.rbacindex import CACHE_BUDGET, EffectiveRules, PolicyIndex, decide, intern_all, weight_of_held
from kube.authorization.tenantreferences import refers_to, tenant_of_group, tenants_named
from kube.requests.caches import Cache
from kube.requests.logicalclusters import ROOT, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.requestinfo import RequestInfo
from store.interface import Reader
from store.pace import Pace
from store.types import Event, EventType, Key, Range

_ROLES: Final = ("roles", "clusterroles")
_BINDINGS: Final = ("rolebindings", "clusterrolebindings")
SPACES_MAX: Final = 4096
"""Compiled policies in memory: those of the spaces in use. A space that comes back is compiled again."""

_Home = tuple[str, str, tuple[str, ...], str]
"""A logical cluster, a user with groups, and a namespace."""


_MET_MAX: Final = 16_384
"""Who has been asked about once, before all of them are forgotten."""


class PolicyCache:
    """The compiled policy of every logical cluster in use."""

    resources: Final = (("", "tenants"), *((GROUP, resource) for resource in (*_ROLES, *_BINDINGS)))
    """What ``on_events`` looks at."""

    def __init__(self, store: Reader, spaces_max: int = SPACES_MAX) -> None:
        self._store = store
        self.spaces_max = spaces_max
        self._indexes: OrderedDict[str, PolicyIndex] = OrderedDict()
        self._loads: dict[str, asyncio.Task[PolicyIndex]] = {}
        self._touched: set[str] = set()
        self._tenant_labels: dict[str, tuple[tuple[str, str], ...]] = {}
        self._named: dict[str, set[str]] = {}
        """The tenants of elsewhere that bindings of compiled logical clusters name, by the logical cluster."""
        self._around: dict[str, Policies] = {}
        self.cached_policies_for: Final = self._around.get
        """``policies_for`` for a logical cluster in use, without waiting; ``None`` for one that is not compiled."""
        self._changes = 0
        self._held: Cache[_Home, EffectiveRules] = Cache(CACHE_BUDGET)
        self._held_in: dict[str, list[_Home]] = {}
        self.home_rules: Final = self._held.get
        """What a principal holds in a namespace of its home, as far as it is known from earlier requests."""

    def remember_home_rules(self, home: _Home, held: EffectiveRules) -> None:
        """Know this until the RBAC of the logical cluster changes."""
        cluster, name, groups, namespace = home
        # One copy of each word: less memory, and what is compared is mostly in the processor's cache.
        home = (intern(cluster), intern(name), intern_all(groups), intern(namespace))
        self._held.keep(home, held, weight_of_held(name, groups, namespace, held))
        if home not in self._held:
            return
        if len(self._held) == 1:
            # There was no room, and all before it went.
            self._held_in.clear()
        self._held_in.setdefault(cluster, []).append(home)

    async def of(self, cluster: str) -> PolicyIndex:
        """The policy of a logical cluster. Concurrent first callers share one load."""
        index = self._indexes.get(cluster)
        if index is not None:
            return index
        load = self._loads.get(cluster)
        if load is None:
            load = self._loads[cluster] = asyncio.create_task(self._load(cluster))
            load.add_done_callback(lambda _: self._loads.pop(cluster, None))
        return await asyncio.shield(load)

    async def policies_for(self, cluster: str) -> Policies:
        """The policies that a decision in one logical cluster looks at."""
        known = self._around.get(cluster)
        if known is not None:
            return known
        # Three reads that wait, and the log goes on meanwhile: put together only if no event touched RBAC between the first
        # and the last of them. ``_changes`` counts on this thread alone, so nothing comes between the check and the use.
        while True:
            changes = self._changes
            local = await self.of(cluster)
            system = local if cluster == ROOT else await self.of(ROOT)
            labels = await self._labels_of(tenant_of(cluster))
            if changes == self._changes:
                break
        found = Policies(cluster, local, system, bootstrappolicy.INDEX, labels)
        if len(self._around) >= self.spaces_max:
            self._around.clear()
        self._around[cluster] = found
        return found

    async def _labels_of(self, tenant: str) -> tuple[tuple[str, str], ...]:
        if tenant == SYSTEM_TENANT:
            return ()
        labels = self._tenant_labels.get(tenant)
        if labels is None:
            stored = await self._store.get(Key(ROOT, "", "tenants", "", tenant), cached=True)
            labels = _labels(stored.data) if stored else ()
            if len(self._tenant_labels) >= self.spaces_max:
                self._tenant_labels.clear()
            self._tenant_labels[tenant] = labels
        return labels

    def on_events(self, events: Sequence[Event]) -> None:
        """Keep what is in memory right; called by the store with every batch of its log."""
        for event in events:
            key = event.key
            if key.group == GROUP:
                self._apply(event)
                self._forget_around(key.space)
            elif key.resource == "tenants" and key.space == ROOT and not key.group:
                self._tenant_labels.pop(key.name, None)
                # Whom its name lets in depends on whose it is.
                self._touched.update(self._loads)
                for cluster in [cluster for cluster, named in self._named.items() if key.name in named]:
                    self._drop(cluster)
                    self._forget_around(cluster)
                self._forget_around(ROOT)

    def forget(self) -> None:
        """Compile everything anew: the log does not continue where this process stopped."""
        self._touched.update(self._loads)
        self._indexes.clear()
        self._named.clear()
        self._tenant_labels.clear()
        self._held.clear()
        self._held_in.clear()
        self._forget_around(ROOT)

    def _drop(self, cluster: str) -> None:
        self._indexes.pop(cluster, None)
        self._named.pop(cluster, None)

    def _forget_around(self, cluster: str) -> None:
        """What is compiled around a cluster is void; the system space is part of what is around every other."""
        # Whatever was remembered of this cluster goes with the first event, before anybody can ask again: events are
        # applied and questions answered on one thread, and a lost memory costs only a compilation.
        self._changes += 1
        for home in self._held_in.pop(cluster, ()):
            self._held.pop(home, None)
        if cluster == ROOT:
            self._around.clear()
        else:
            self._around.pop(cluster, None)

    def _apply(self, event: Event) -> None:
        key = event.key
        if key.space in self._loads:
            self._touched.add(key.space)
        index = self._indexes.get(key.space)
        if index is None:
            return
        gone = event.type is EventType.DELETED
        if key.resource in _BINDINGS and not gone and tenants_named(orjson.loads(event.data), key.space):
            # Who is meant by them is to be looked up: with the next question.
            self._drop(key.space)
            return
        if key.resource in _ROLES:
            index = (
                index.without_role(key.namespace, key.name)
                if gone
                else index.with_role(role_from(orjson.loads(event.data), scoped=key.space == ROOT))
            )
        elif key.resource in _BINDINGS:
            index = (
                index.without_binding(key.namespace, key.name)
                if gone
                else index.with_binding(binding_from(orjson.loads(event.data)))
            )
        self._indexes[key.space] = index

    async def _load(self, cluster: str) -> PolicyIndex:
        # 1. Note that nothing has happened yet; 2. read; 3. what ``on_events`` has seen for this cluster since makes the
        # reading void: it may hold the old state of one object and the new one of another. 4. Only then publish it;
        # from here ``_apply`` keeps it right, event by event, in the order of the log.
        while True:
            self._touched.discard(cluster)
            self._named.pop(cluster, None)
            index = PolicyIndex.build(bootstrap=bootstrappolicy.INDEX)
            async for body in self._read(cluster, _ROLES):
                index = index.with_role(role_from(body, scoped=cluster == ROOT))
            async for body in self._read(cluster, _BINDINGS):
                index = index.with_binding(await self._binding(cluster, body))
            if cluster not in self._touched:
                break
        self._indexes[cluster] = index
        while len(self._indexes) > self.spaces_max:
            self._drop(next(iter(self._indexes)))
        return index

    async def _binding(self, cluster: str, body: Mapping[str, Any]) -> Binding:
        """The binding without the tenants that only bear the names of those who were meant."""
        binding = binding_from(body)
        strangers = set()
        for tenant in tenants_named(body, cluster):
            self._named.setdefault(cluster, set()).add(tenant)
            stored = await self._store.get(Key(ROOT, "", "tenants", "", tenant), cached=True)
            if not refers_to(body, tenant, orjson.loads(stored.data)["metadata"]["uid"] if stored else None):
                strangers.add(tenant)
        if not strangers:
            return binding
        meant = (s for s in binding.subjects if s.kind != "Group" or tenant_of_group(s.name, cluster) not in strangers)
        return replace(binding, subjects=tuple(meant))

    async def _read(self, cluster: str, plurals: Sequence[str]) -> AsyncIterator[dict[str, Any]]:
        pace = Pace()
        for plural in plurals:
            listing = await self._store.list(Range(cluster, GROUP, plural), cached=True)
            # What others write in their turns makes the reading void, as while it was listed.
            async for item in pace.over(listing.items):
                yield orjson.loads(item.data)


class RbacAuthorizer:
    """Asks the policies of the space, of the system space and of the bootstrap cluster (``kube.authorization.effectivepolicy``)."""

    name = "RBAC"

    def __init__(self, policies: PolicyCache) -> None:
        self._policies = policies
        self._met: set[int] = set()

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """ALLOW with the binding that allowed, or no opinion."""
        return effectivepolicy.authorize(
            principal, Attributes.of(request), await self._policies.policies_for(request.cluster)
        )

    def decide(self, principal: Principal, request: RequestInfo) -> Decision | None:
        """The same without waiting, where the policy of the logical cluster is compiled."""
        attributes = Attributes.of(request)
        if principal.tenant != request.tenant or not may_be_bound_in(principal, request.cluster):
            policies = self._policies.cached_policies_for(request.cluster)
            return None if policies is None else effectivepolicy.authorize(principal, attributes, policies)
        home = (request.cluster, principal.name, principal.groups, request.namespace)
        held = self._policies.home_rules(home)
        if held is None:
            policies = self._policies.cached_policies_for(request.cluster)
            if policies is None:
                return None
            held = effectivepolicy.home_rules(principal, request.namespace, policies)
            if self._comes_again(home):
                self._policies.remember_home_rules(home, held)
        return decide(held, attributes)

    def _comes_again(self, home: _Home) -> bool:
        """Whether somebody has been asked about before: to remember what one holds costs more than to gather it once."""
        mark = hash(home)
        if mark in self._met:
            return True
        if len(self._met) >= _MET_MAX:
            self._met.clear()
        self._met.add(mark)
        return False

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """What bindings give the principal in a namespace; roles that are not there are an error of the answer."""
        rules, error = effectivepolicy.rules_for(principal, namespace, await self._policies.policies_for(cluster))
        return RuleSet(rules, error=error)


def _labels(data: bytes) -> tuple[tuple[str, str], ...]:
    labels = orjson.loads(data).get("metadata", {}).get("labels") or {}
    return tuple(sorted(labels.items()))
