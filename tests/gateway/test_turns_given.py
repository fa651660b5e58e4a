"""Whoever goes through all that is there gives the others their turns on the way, and goes no further than need be (DOS-03)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final
from uuid import uuid4

import orjson
import pytest

from access.admission.kubernetes import podsecurity
from access.admission.kubernetes.resourcequota import ResourceQuota
from access.admission.tenancy.tenantquota import TenantQuotaAdmission
from access.tenantlimits import StoredBounds, TenantTiers
from gateway.controllers.apibindings import BindingController
from gateway.controllers.manager import QuotaController
from gateway.controllers.workspaces import WorkspaceController
from gateway.filters.authorization import throttle
from gateway.http.messages import Response
from gateway.process.runtime import Runtime
from kube.customresources.definitions import CRDS
from kube.quota import storedbytes
from kube.quota.tenantquotas import NAME, TENANT_QUOTAS
from kube.requests.logicalclusters import ROOT
from kube.requests.requestinfo import parse, resolve
from kube.workspaces.apiexports import BINDING, BINDINGS
from store.garbagecollection import GarbageCollector
from store.supervision import Supervised
from store.types import Create, Delete, Event, EventType, Key, PreconditionFailed, Range
from tenants.clusters.objects import TIER_ANNOTATION, WORKSPACE_LABEL
from tenants.policies import TIER_LIMITS
from tests.gateway.apiexports import binding
from tests.gateway.definitions import definition
from tests.gateway.loopturns import Decodings
from tests.gateway.overloading import JSON, MERGE, OWNER, Expensive, ask, runtime

__all__ = ["runtime"]

MANY: Final = 240
"""Objects that are there, of some 4 KiB each."""

TOGETHER: Final = MANY // 4
"""Of which fewer are read in one turn."""

WAIT_SECONDS: Final = 400.0
PAD: Final = "x" * 4_000
POD: Final = {"containers": [{"name": "c", "image": "i", "securityContext": {"privileged": True}}]}

Go = Callable[[], Awaitable[object]]


class Filled:
    """A namespace of a tenant, and many objects of a kind there; all that is made goes again."""

    def __init__(self, runtime: Runtime, tenant: str = "") -> None:
        self.runtime = runtime
        self.tenant = tenant or f"turns-{uuid4().hex[:8]}"
        self.space = f"root:{self.tenant}"
        self.namespace = f"turns-{uuid4().hex[:8]}"
        self.made: list[Key] = []

    def key(self, group: str, plural: str, name: str, *, namespaced: bool = True) -> Key:
        return Key(self.space, group, plural, self.namespace if namespaced else "", name)

    async def keep(self, key: Key, api: str, kind: str, **more: Any) -> None:
        self.made.append(key)
        await self.runtime.store.commit(Create(key, _body(key, api, kind, **more)))

    async def fill(self, group: str, plural: str, api: str, kind: str, *, namespaced: bool = True, **more: Any) -> None:
        keys = [self.key(group, plural, f"o{number}", namespaced=namespaced) for number in range(MANY)]
        self.made += keys
        for first in range(0, MANY, 60):
            await self.runtime.store.commit(
                *(Create(key, _body(key, api, kind, **more)) for key in keys[first : first + 60])
            )

    async def begin(self) -> None:
        await self.keep(self.key("", "namespaces", self.namespace, namespaced=False), "v1", "Namespace", status=ACTIVE)

    async def end(self) -> None:
        for key in reversed(self.made):
            stored = await self.runtime.store.get(key)
            if stored is not None:
                with suppress(PreconditionFailed):
                    await self.runtime.store.commit(Delete(key, stored.revision, orjson.loads(stored.data)))

    async def ask(self, method: str, path: str, body: dict[str, Any], media: str = JSON) -> Response:
        asked = Expensive(path, method, path, media, orjson.dumps(body))
        answer = await ask(self.runtime, asked, replace(OWNER, tenant=self.tenant))
        assert answer.status in (200, 201), answer.body[:1000]
        return answer


ACTIVE: Final = {"phase": "Active"}
GOING: Final = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.org/held"]}


def _body(key: Key, api: str, kind: str, **more: Any) -> dict[str, Any]:
    metadata = {
        "name": key.name,
        "uid": f"{key.space}/{key.name}",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "annotations": {"pad": PAD, **more.pop("annotations", {})},
        **({"namespace": key.namespace} if key.namespace else {}),
        **more.pop("metadata", {}),
    }
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **more}


async def _maps(_cluster: str) -> Sequence[tuple[str, str, str]]:
    return [("", "secrets", "secrets")]


async def _quota_made(there: Filled) -> Go:
    await there.fill("", "secrets", "v1", "Secret")

    async def go() -> None:
        quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}}
        path = f"/api/v1/namespaces/{there.namespace}/resourcequotas?dryRun=All"
        await there.ask("POST", path, {**quota, "spec": {"hard": {"secrets": "500"}}})

    return go


async def _quota_counted(there: Filled) -> Go:
    await there.fill("", "secrets", "v1", "Secret")
    for number in range(4):
        key = there.key("", "resourcequotas", f"q{number}")
        await there.keep(key, "v1", "ResourceQuota", spec={"hard": {"secrets": "500"}})
    plugin = ResourceQuota(there.runtime.store, lambda _: [("", "secrets", "secrets")], lambda *_: None)

    async def go() -> None:
        assert await plugin.recount(there.space, there.namespace, None)
        for number in range(4):
            stored = await there.runtime.store.get(there.key("", "resourcequotas", f"q{number}"))
            assert stored is not None
            assert orjson.loads(stored.data)["status"]["used"] == {"secrets": str(MANY)}

    return go


async def _tenant_counted(there: Filled) -> Go:
    await there.fill("", "secrets", "v1", "Secret")
    key = there.key(*TENANT_QUOTAS, NAME, namespaced=False)
    await there.keep(key, "tenancy.tenantry.io/v1alpha1", "TenantQuota", spec={"hard": {"secrets": "500"}})
    plugin = TenantQuotaAdmission(there.runtime.store, _maps, (), lambda *_: None)

    async def go() -> None:
        assert await plugin.recount(there.tenant)
        stored = await there.runtime.store.get(key)
        assert stored is not None
        assert orjson.loads(stored.data)["status"]["used"] == {"secrets": str(MANY)}

    return go


RESTRICTED: Final = {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}


async def _labelled(there: Filled) -> Go:
    await there.fill("", "pods", "v1", "Pod", spec=POD)

    async def go() -> None:
        await there.ask("PATCH", f"/api/v1/namespaces/{there.namespace}?dryRun=All", RESTRICTED, MERGE)

    return go


async def _classless(there: Filled) -> Go:
    mark = {"ingressclass.kubernetes.io/is-default-class": "false"}
    await there.fill(
        "networking.k8s.io",
        "ingressclasses",
        "networking.k8s.io/v1",
        "IngressClass",
        namespaced=False,
        annotations=mark,
    )

    async def go() -> None:
        backend = {"service": {"name": "s", "port": {"number": 80}}}
        ingress = {"apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "i"}}
        path = f"/apis/networking.k8s.io/v1/namespaces/{there.namespace}/ingresses?dryRun=All"
        await there.ask("POST", path, {**ingress, "spec": {"defaultBackend": backend}})

    return go


async def _emptied(there: Filled) -> Go:
    """Nothing in it goes, for something holds all of it."""
    await there.fill("", "secrets", "v1", "Secret", metadata=GOING)
    key = there.key("", "namespaces", "ends", namespaced=False)
    ending = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    await there.keep(key, "v1", "Namespace", metadata=ending, spec={"finalizers": ["kubernetes"]})
    for number in range(MANY):
        held = Key(there.space, "", "secrets", "ends", f"o{number}")
        await there.keep(held, "v1", "Secret", metadata=GOING)
    collector = GarbageCollector(
        there.runtime.store, there.runtime.options.database_url, lambda *_: None, lambda *_: False
    )

    async def go() -> None:
        # The runtime's own collector may be at it as well.
        await collector._reconcile_safely(key)

    return go


def _collector(there: Filled) -> GarbageCollector:
    """One that does not run: it looks when it is told to, and knows of secrets and config maps."""
    plurals = {"Secret": ("secrets", True), "ConfigMap": ("configmaps", True)}
    url = there.runtime.options.database_url
    return GarbageCollector(there.runtime.store, url, lambda _space, _api, kind: plurals[kind], lambda *_: False)


async def _foreground(there: Filled) -> Go:
    """Each dependent is held by somebody else, and the owner waits for all of them."""
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    owner = there.key("", "configmaps", "owner")
    named = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": f"{there.space}/owner"}
    held = {"finalizers": ["example.org/held"], "ownerReferences": [{**named, "blockOwnerDeletion": True}]}
    await there.fill("", "secrets", "v1", "Secret", metadata={**going, **held})
    # The runtime's own collector lets an owner go that nobody names.
    await there.keep(owner, "v1", "ConfigMap", metadata={**going, "finalizers": ["foregroundDeletion"]})
    collector = _collector(there)
    for number in range(MANY):
        key = there.key("", "secrets", f"o{number}")
        collector._index(key, {"metadata": held})

    async def go() -> None:
        await collector._reconcile(owner)

    return go


async def _many_owners(there: Filled) -> Go:
    """Each of another name."""
    await there.fill("", "configmaps", "v1", "ConfigMap")
    owners = [
        {"apiVersion": "v1", "kind": "ConfigMap", "name": f"o{number}", "uid": f"{there.space}/o{number}"}
        for number in range(MANY)
    ]
    key = there.key("", "secrets", "owned")
    await there.keep(key, "v1", "Secret", metadata={"ownerReferences": owners})
    collector = _collector(there)

    async def go() -> None:
        await collector._reconcile(key)

    return go


async def _tiers_learnt(there: Filled) -> Go:
    await _gold(there)

    async def go() -> None:
        assert await StoredBounds(TenantTiers(there.runtime.store), 1).of(there.tenant) == GOLD_MEBIBYTES * 2**20

    return go


async def _binding_settled(there: Filled) -> Go:
    """Beside many definitions, which others have brought."""
    api, kind, spec = "apiextensions.k8s.io/v1", "CustomResourceDefinition", definition("Thing")["spec"]
    brought: dict[str, Any] = {"annotations": {BINDING: "other"}, "metadata": GOING}
    await there.fill(*CRDS, api, kind, namespaced=False, spec=spec, **brought)
    key = there.key(*BINDINGS, "b", namespaced=False)
    await there.keep(key, "apis.kcp.io/v1alpha2", "APIBinding", spec=BOUND["spec"])
    bindings = _bindings(there)

    async def go() -> None:
        await bindings._reconcile_safely(key)

    return go


async def _consumers_noted(there: Filled) -> Go:
    await there.fill(*BINDINGS, "apis.kcp.io/v1alpha2", "APIBinding", namespaced=False, spec=BOUND["spec"])
    bindings = _bindings(there)

    async def go() -> None:
        await bindings._note_consumers("root:nobody")
        assert not bindings._queue.is_idle

    return go


BOUND: Final = binding("b", "root:nobody:nothing")


def _bindings(there: Filled) -> BindingController:
    return BindingController(there.runtime.store, lambda *_: False, _no_bound)


async def _no_bound(_key: Key) -> None:
    return None


async def _workspace_emptied(there: Filled) -> Go:
    await there.fill("", "secrets", "v1", "Secret")
    options, store = there.runtime.options, there.runtime.store
    tree = WorkspaceController(store, options.database_url, options.url, lambda *_: False, _no_bound)

    async def go() -> None:
        await tree._delete_all(Range(there.space, "", "secrets"))
        assert not (await store.list(Range(there.space, "", "secrets"))).items

    return go


GOLD_MEBIBYTES: Final = 77


async def _gold(there: Filled) -> str:
    """Many namespaces of workspaces of a tier of the tenant's own."""
    tier = f"gold-{there.tenant}"
    said = {"metadata": {"name": tier}, "rules": {storedbytes.SETTING: GOLD_MEBIBYTES}}
    there.made.append(Key(ROOT, *TIER_LIMITS, "", tier))
    await there.runtime.store.commit(Create(there.made[-1], said))
    marks = {"metadata": {"labels": {WORKSPACE_LABEL: "w"}}, "annotations": {TIER_ANNOTATION: tier}}
    await there.fill("", "namespaces", "v1", "Namespace", namespaced=False, status=ACTIVE, **marks)
    return tier


PLACES: Final[dict[str, Callable[[Filled], Awaitable[Go]]]] = {
    "a quota is made": _quota_made,
    "a namespace's quotas are counted": _quota_counted,
    "a tenant's quota is counted": _tenant_counted,
    "a namespace is labelled": _labelled,
    "an ingress names no class": _classless,
    "a namespace is emptied": _emptied,
    "an owner waits for its dependents": _foreground,
    "a dependent has many owners": _many_owners,
    "a tenant's tiers are learnt": _tiers_learnt,
    "a binding is settled": _binding_settled,
    "a provider's consumers are noted": _consumers_noted,
    "a workspace is emptied": _workspace_emptied,
}


ASKED: Final = {"a quota is made", "a namespace is labelled", "an ingress names no class"}
"""What a person asks for."""


@pytest.mark.parametrize("place", PLACES)
async def test_who_reads_much_gives_turns_in_proportion(runtime: Runtime, place: str) -> None:
    """However much there is, no turn of the loop reads more than a part of it."""
    there = Filled(runtime, "acme" if place in ASKED else "")
    await there.begin()
    turns = Decodings()
    try:
        go = await PLACES[place](there)
        with turns.counting():
            await go()
    finally:
        await there.end()
    assert 0 < turns.most < TOGETHER


@pytest.mark.parametrize("state", [{}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}])
async def test_one_owner_is_read_once_for_all_who_are_said_to_be_it(runtime: Runtime, state: dict[str, str]) -> None:
    """DOS-03: of one name, and of many identities; whether its own dependents wait for it or it for them."""
    there = Filled(runtime)
    await there.begin()
    more = {"finalizers": ["foregroundDeletion"]} if state else {}
    owner, key = there.key("", "configmaps", "owner"), there.key("", "secrets", "owned")
    await there.keep(owner, "v1", "ConfigMap")
    named = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "blockOwnerDeletion": True}
    owners = [{**named, "uid": f"{there.space}/{number}"} for number in range(MANY)]
    of_itself = {"apiVersion": "v1", "kind": "Secret", "name": "owned", "uid": f"{there.space}/owned"}
    owners = [*owners, {**of_itself, "blockOwnerDeletion": True}]
    await there.keep(key, "v1", "Secret", metadata={**state, **more, "ownerReferences": owners})
    collector, turns = _collector(there), Decodings()
    collector._index(key, {"metadata": {"ownerReferences": owners}})
    try:
        with turns.counting():
            await collector._reconcile_safely(key)
    finally:
        await there.end()
    assert 0 < turns.most < 10


async def test_another_namespace_is_not_paid_for_by_reading_all(runtime: Runtime) -> None:
    """AD8: the tiers of a tenant are counted with what happens, and each of its requests looks at the count alone."""
    there = Filled(runtime)
    await there.begin()
    tier = await _gold(there)
    bounds, turns = StoredBounds(tiers := TenantTiers(runtime.store), 1), Decodings()
    undo = runtime.store.subscribe(bounds.on_events)
    info = resolve(parse("GET", b"/api/v1/namespaces/default/pods"), there.tenant)
    owner = replace(OWNER, tenant=there.tenant)
    assert await bounds.of(there.tenant) == GOLD_MEBIBYTES * 2**20
    await throttle(runtime, owner, info)
    for number in range(3):
        key = there.key("", "namespaces", f"n{number}", namespaced=False)
        await there.keep(key, "v1", "Namespace", status=ACTIVE)
        with turns.counting():
            await throttle(runtime, owner, info)
            assert await bounds.of(there.tenant) == GOLD_MEBIBYTES * 2**20
        # The tiers themselves, and the tenant.
        assert turns.most < TOGETHER
    for number in range(MANY):
        stored = await runtime.store.get(there.key("", "namespaces", f"o{number}", namespaced=False))
        assert stored is not None
        assert tier.encode() in stored.data
        assert await bounds.of(there.tenant) == GOLD_MEBIBYTES * 2**20
        await runtime.store.commit(Delete(stored.key, stored.revision, orjson.loads(stored.data)))
    assert await bounds.of(there.tenant) == 2**20
    assert await tiers.said(there.tenant) == []
    undo()
    await there.end()


async def test_no_more_pods_are_read_than_are_judged(runtime: Runtime, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever labels a namespace is told of those, and that there are more."""
    monkeypatch.setattr(podsecurity, "_PODS_MAX", 50)
    there = Filled(runtime, "acme")
    await there.begin()
    try:
        await there.fill("", "pods", "v1", "Pod", spec=POD)
        answer = await there.ask("PATCH", f"/api/v1/namespaces/{there.namespace}?dryRun=All", RESTRICTED, MERGE)
    finally:
        await there.end()
    said = b"\n".join(value for name, value in answer.headers if name.lower() == b"warning")
    assert f"only checked against the first 50 of {MANY} existing pods".encode() in said
    assert b"(and 49 other pods)" in said


SETTLED: Final = {"spec": {"hard": {"pods": "5"}}, "metadata": {"resourceVersion": "1"}}


def _gone(namespace: str) -> Event:
    key = Key("root:settled", "", "pods", namespace, "p")
    return Event(EventType.DELETED, key, 1, orjson.dumps({"metadata": {"name": "p"}}))


def _marked(namespace: str, *, plural: str = "pods", before: bool = False) -> Event:
    """A change of what is being deleted, by that or after it."""
    key = Key("root:settled", "", plural, namespace, "p")
    states = {"name": "p"}, {"name": "p", "deletionTimestamp": "2026-01-01T00:00:00Z"}
    previous, data = (orjson.dumps({"metadata": metadata}) for metadata in (states[before], states[1]))
    return Event(EventType.MODIFIED, key, 1, data, previous)


def _changed(namespace: str, **more: Any) -> Event:
    key = Key("root:settled", "", "resourcequotas", namespace, "q")
    after = {**SETTLED, "status": {"used": {"pods": "0"}}, "metadata": {"resourceVersion": "2"}, **more}
    return Event(EventType.MODIFIED, key, 2, orjson.dumps(after), orjson.dumps(SETTLED))


@pytest.mark.parametrize(
    ("events", "counted"),
    [
        ([_gone("a"), _changed("a")], False),
        ([_gone("a")], True),
        ([_gone("a"), _changed("b")], True),
        ([_gone("a"), _changed("a"), _gone("a")], True),
        ([_gone("a"), _changed("a", metadata={"labels": {"a": "b"}})], True),
        ([_changed("a"), _gone("a")], True),
        ([_marked("a")], True),
        ([_marked("a"), _changed("a")], True),
        ([_marked("a", before=True)], False),
        ([_marked("a", plural="services")], False),
    ],
)
async def test_what_the_admission_has_settled_is_not_counted_again(
    runtime: Runtime, events: Sequence[Event], *, counted: bool
) -> None:
    """AD2: what goes by anybody's order has changed the quotas in the same commit; only what the collector removes has not."""
    met: list[str] = []

    class Meeting(ResourceQuota):
        async def recount(self, space: str, namespace: str, lost: Collection[tuple[str, str]] | None) -> bool:
            met.append(namespace)
            return await super().recount(space, namespace, lost)

    store = runtime.store
    for namespace in ("a", "last"):
        key = Key("root:settled", "", "resourcequotas", namespace, "q")
        if await store.get(key) is None:
            await store.commit(Create(key, {"metadata": {"name": "q", "uid": "u"}, "spec": {"hard": {"pods": "5"}}}))
    of_namespaces = Meeting(store, lambda _: (), lambda *_: None)
    of_tenants = TenantQuotaAdmission(store, _maps, (), lambda *_: None)
    recounts = QuotaController(store, of_namespaces, of_tenants, runtime.custom)
    task = Supervised("quotas", recounts.run)
    task.start()
    try:
        recounts.on_events(events)
        recounts.on_events([_gone("last")])
        async with asyncio.timeout(WAIT_SECONDS):
            while "last" not in met:
                await asyncio.sleep(0.01)
        assert ("a" in met) == counted
    finally:
        await task.stop()
