"""What no admission settles is counted afresh, whatever others write at the same moment (AD2)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import orjson
import pytest

from access.admission.kubernetes.resourcequota import ResourceQuota
from access.admission.tenancy.tenantquota import TenantQuotaAdmission
from gateway.controllers.manager import QuotaController
from gateway.http.certificates import prepare
from gateway.options import Options
from gateway.server.assembly import build_runtime
from kube.quota.tenantquotas import NAME, TENANT_QUOTAS
from store.supervision import Supervised
from store.types import Create, Event, EventType, Key
from tests.databases import migrated

WAIT_SECONDS = 30.0


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
