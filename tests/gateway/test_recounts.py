"""What no admission settles is counted afresh, whatever others write at the same moment (AD2)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any

import orjson
import pytest

from access.admission.base import UPDATE, Attributes
from access.admission.kubernetes.resourcequota import ResourceQuota
from access.admission.tally import Tally
from access.admission.tenancy.tenantquota import TenantQuotaAdmission
from gateway.controllers.manager import QuotaController
from gateway.filters.requestinfo import resolve
from gateway.http.certificates import prepare
from gateway.options import Options
from gateway.server.assembly import build_runtime
from kube.authentication.identity import Principal
from kube.kinds.builtins import BUILTINS
from kube.quota.quantities import Quantity
from kube.quota.tenantquotas import NAME, TENANT_QUOTAS, TenantQuota
from store.supervision import Supervised
from store.types import Create, Delete, Event, EventType, Key, Update
from tests.databases import migrated

WAIT_SECONDS = 300.0


def _quota(tenant: str) -> Create:
    """One that says of a pod which has gone that it is there."""
    body = {"metadata": {"name": NAME}, "spec": {"hard": {"pods": "5"}}, "status": {"used": {"pods": "1"}}}
    return Create(Key(f"root:{tenant}", *TENANT_QUOTAS, "", NAME), body)


async def _nothing(_cluster: str) -> Sequence[tuple[str, str, str]]:
    return ()


def _event(kind: EventType, key: Key, body: dict[str, object]) -> Event:
    return Event(kind, key, 1, orjson.dumps(body))


@pytest.mark.parametrize(("kind", "other"), list(product((EventType.ADDED, EventType.DELETED), EventType)))
async def test_a_neighbours_quota_settles_nothing_of_ones_own(
    tmp_path: Path, kind: EventType, other: EventType
) -> None:
    with migrated("recounts") as database:
        options = Options(database_url=database, data_folder=tmp_path)
        async with build_runtime(options, prepare(options), background=False) as made:
            own, neighbours = _quota("own"), _quota("neighbour")
            await made.store.commit(own, neighbours)
            of_namespaces = ResourceQuota(made.store, lambda _: (), lambda *_: None)
            of_tenants = TenantQuotaAdmission(made.store, _nothing, (), lambda *_: None)
            recounts = QuotaController(made.store, of_namespaces, of_tenants, made.custom)
            task = Supervised("quotas", recounts.run)
            task.start()
            try:
                pod = Key("root:own", "", "pods", "default", "p")
                recounts.on_events(
                    [
                        _event(kind, pod, {"metadata": {"name": "p"}}),
                        _event(other, neighbours.key, neighbours.body),
                    ]
                )
                async with asyncio.timeout(WAIT_SECONDS):
                    while True:
                        stored = await made.store.get(own.key)
                        if stored is not None and orjson.loads(stored.data)["status"]["used"] == {"pods": "0"}:
                            break
                        await asyncio.sleep(0.05)
            finally:
                await task.stop()


def _pod(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", **metadata}}


def _going(tenant: str, old: dict[str, Any], now: float) -> Attributes:
    """The change that takes its finalizers off what is being deleted."""
    resource = BUILTINS.by_group_resource("", "pods")
    assert resource is not None
    return Attributes(
        principal=Principal(name="olga", tenant=tenant, authenticator="test"),
        info=resolve("PATCH", b"/api/v1/namespaces/default/pods/p", b"", tenant),
        resource=resource,
        schema=None,
        operation=UPDATE,
        namespace="default",
        name="p",
        object={**old, "metadata": {**old["metadata"], "finalizers": []}},
        old=old,
        now=now,
    )


async def test_what_goes_gives_back_what_a_count_finds(tmp_path: Path) -> None:
    """AD2: whenever it was marked, counted and let go, by whichever clock, nothing is left, or missing."""
    now = time.time()
    marked = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    waits = _pod("p", deletionTimestamp=marked, deletionGracePeriodSeconds=0, finalizers=["example.com/held"])
    hard, used = {"pods": "5", "count/pods": "5"}, {"pods": "2", "count/pods": "2"}
    body = {"metadata": {"name": NAME}, "spec": {"hard": hard}, "status": {"hard": hard, "used": used}}
    with migrated("recounts") as database:
        options = Options(database_url=database, data_folder=tmp_path)
        async with build_runtime(options, prepare(options), background=False) as made:
            store = made.store

            async def served(_cluster: str) -> Sequence[tuple[str, str, str]]:
                return [("", "pods", "pods")]

            plugin = TenantQuotaAdmission(store, served, (), lambda *_: None)
            for number, (late, counted) in enumerate(product((-9.0, 0.0, 9.0), (False, True))):
                tenant = f"own-{number}"
                place = Key(f"root:{tenant}", "", "pods", "default", "p")
                kept, *_ = await store.commit(
                    Create(place, waits),
                    Create(place._replace(name="q"), _pod("q")),
                    Create(Key(place.space, *TENANT_QUOTAS, "", NAME), body),
                )
                if counted:
                    await plugin.recount(tenant)
                settled = await plugin.validate(_going(tenant, waits, now + late))
                await store.commit(Delete(place, kept.revision, waits), *settled)
                assert not await plugin.recount(tenant), (late, counted)


async def test_what_goes_while_somebody_counts_is_counted_again(tmp_path: Path) -> None:
    """The log has its end right before the quota that was counted with it."""
    with migrated("recounts") as database:
        options = Options(database_url=database, data_folder=tmp_path)
        async with build_runtime(options, prepare(options), background=False) as made:
            store, own, events = made.store, _quota("own"), list[Event]()
            pod = Create(Key("root:own", "", "pods", "default", "p"), {"metadata": {"name": "p"}})
            body = {**own.body, "status": {"used": {"pods": "5"}}}
            kept = (await store.commit(pod, Create(own.key, body)))[0]
            store.subscribe(events.extend)
            going = [Delete(kept.key, kept.revision, pod.body)]

            async def served(_cluster: str) -> Sequence[tuple[str, str, str]]:
                return [("", "pods", "pods"), ("", "services", "services")]

            class Between(TenantQuotaAdmission):
                """Somebody collects what was listed before the count is kept."""

                async def look(self, space: str, quota: TenantQuota, tally: Tally) -> tuple[dict[str, Quantity], bool]:
                    looked = await super().look(space, quota, tally)
                    while going:
                        await store.commit(going.pop())
                    return looked

            of_namespaces = ResourceQuota(store, lambda _: (), lambda *_: None)
            recounts = QuotaController(store, of_namespaces, Between(store, served, (), lambda *_: None), made.custom)
            task = Supervised("quotas", recounts.run)
            task.start()
            try:
                recounts.on_events([_event(EventType.DELETED, pod.key._replace(name="older"), {"metadata": {}})])
                async with asyncio.timeout(WAIT_SECONDS):
                    while sum(event.key[1:3] == TENANT_QUOTAS for event in events) < 1:
                        await asyncio.sleep(0.05)
                    recounts.on_events(events[:2])
                    while orjson.loads((await store.get(own.key)).data)["status"]["used"] != {"pods": "0"}:  # type: ignore[union-attr]
                        await asyncio.sleep(0.05)
            finally:
                await task.stop()


@pytest.mark.parametrize("of", ["tenant", "namespace"])
async def test_what_comes_while_somebody_bounds_it_anew_is_counted(tmp_path: Path, of: str) -> None:
    """AD1, AD2: whoever wrote it was told of no bound, and the new one was counted before it was there."""
    with migrated("recounts") as database:
        options = Options(database_url=database, data_folder=tmp_path)
        async with build_runtime(options, prepare(options), background=False) as made:
            place = TENANT_QUOTAS if of == "tenant" else ("", "resourcequotas")
            key = Key("root:own", *place, "" if of == "tenant" else "default", NAME)
            body = {
                "metadata": {"name": NAME},
                "spec": {"hard": {"services": "5"}},
                "status": {"used": {"services": "0"}},
            }

            async def served(_cluster: str) -> Sequence[tuple[str, str, str]]:
                return [("", "pods", "pods")]

            of_namespaces = ResourceQuota(made.store, lambda _: [("", "pods", "pods")], lambda *_: None)
            of_tenants = TenantQuotaAdmission(made.store, served, (), lambda *_: None)
            recounts = QuotaController(made.store, of_namespaces, of_tenants, made.custom)
            kept = (await made.store.commit(Create(key, body)))[0]
            events = list[Event]()
            made.store.subscribe(events.extend)
            task = Supervised("quotas", recounts.run)
            task.start()
            try:
                pod = Create(Key("root:own", "", "pods", "default", "p"), {"metadata": {"name": "p"}})
                bound = {"hard": {"pods": "5"}}
                counted = {**body, "spec": bound, "status": {**bound, "used": {"pods": "0"}}}
                await made.store.commit(pod)
                await made.store.commit(Update(key, kept.revision, counted))
                async with asyncio.timeout(WAIT_SECONDS):
                    while len(events) < 2:
                        await asyncio.sleep(0.05)
                    # As a process hears of what others have done.
                    recounts.on_events(events[:2])
                    while orjson.loads((await made.store.get(key)).data)["status"]["used"] != {"pods": "1"}:  # type: ignore[union-attr]
                        await asyncio.sleep(0.05)
            finally:
                await task.stop()
