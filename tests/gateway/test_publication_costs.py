"""What a change for many tenants costs: questions to the database by the hundred of copies, not by the copy (AZ8)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import orjson
import pytest
from psycopg.pq.abc import PGresult

from access.admission.kubernetes.resourcequota import ResourceQuota
from access.admission.tenancy.tenantquota import TenantQuotaAdmission
from gateway.controllers.manager import QuotaController
from gateway.controllers.publications import PublicationController
from gateway.http.certificates import prepare
from gateway.options import Options
from gateway.process import ratereports
from gateway.process.runtime import Runtime
from gateway.server.assembly import build_runtime
from store.garbagecollection import GarbageCollector
from store.postgresql.dedicatedconnection import DedicatedConnection
from store.postgresql.statements import FOLLOW, LEASE_RENEW, NOTIFY, STATE
from store.supervision import Supervised
from store.types import Create, Delete, Event, EventType, Key, PreconditionFailed, Update
from tests.databases import migrated
from tests.gateway.publishing import PUBLISHED, REPORT

MANY = 300
MOST = 40
"""Questions for one change of one source: two swarms, each read and written at once, its report, and those who look on."""

STEADY = {STATE, FOLLOW, LEASE_RENEW, NOTIFY, ratereports.TELL}
"""Asked of what is stored every so often, whatever is written."""


@pytest.fixture
async def asked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each statement about what is stored was sent to the database.

    Who looks every so often at locks, credentials or clusters does so however long a change takes.
    """
    sent: Counter[str] = Counter()
    ask = DedicatedConnection.ask

    async def counted(self: DedicatedConnection, statement: str, *rest: Any, **more: Any) -> PGresult:
        if "store_" in statement and statement not in STEADY:
            sent[statement] += 1
        return await ask(self, statement, *rest, **more)

    monkeypatch.setattr(DedicatedConnection, "ask", counted)
    return sent


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """Many tenants, and everybody who looks at what comes and goes in their namespaces."""
    with migrated("publishing") as database:
        options = Options(database_url=database, data_folder=tmp_path)
        async with build_runtime(options, prepare(options), background=False) as made, AsyncExitStack() as stack:
            store = made.store
            for name in (f"many-{number}" for number in range(MANY)):
                namespace = Key(f"root:{name}", "", "namespaces", "", "default")
                made_now = (
                    Create(Key("root", "", "tenants", "", name), _body(name)),
                    Create(namespace, _body("default")),
                )
                await store.commit(*made_now)
            of_namespaces = ResourceQuota(store, lambda _: (), lambda *_: None)
            of_tenants = TenantQuotaAdmission(store, _nothing, (), lambda *_: None)
            recounts = QuotaController(store, of_namespaces, of_tenants, made.custom)
            stack.callback(store.subscribe(recounts.on_events))
            resource_of = made.custom.resource_of
            workers = {
                "published": PublicationController(store, database, resource_of, frozenset()).run,
                "lifecycle": GarbageCollector(store, database, resource_of, lambda *_: False).run,
                "quotas": recounts.run,
            }
            for name, run in workers.items():
                task = Supervised(name, run)
                task.start()
                stack.push_async_callback(task.stop)
            yield made


async def _nothing(_cluster: str) -> Sequence[tuple[str, str, str]]:
    return ()


def _body(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, **more}


class Source:
    """A published ConfigMap, and who has it."""

    def __init__(self, runtime: Runtime, name: str) -> None:
        self._store = runtime.store
        self.key = Key("root", "", "configmaps", "default", name)
        self._has: dict[str, str] = {}
        self._changed = asyncio.Event()
        self._store.subscribe(self._note)

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.key.name == self.key.name and event.key.space != "root":
                self._has.pop(event.key.space, None)
                if event.type is not EventType.DELETED:
                    self._has[event.key.space] = orjson.loads(event.data)["data"]["v"]
            self._changed.set()

    async def _until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(300):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def publish(self, value: str) -> None:
        """Write it, and wait until every tenant has it and the source says so."""
        while True:
            stored = await self._store.get(self.key)
            metadata = {**_body(self.key.name)["metadata"], "namespace": "default", "annotations": {PUBLISHED: "true"}}
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": value}}
            try:
                await self._store.commit(
                    Update(self.key, stored.revision, body) if stored is not None else Create(self.key, body)
                )
                break
            except PreconditionFailed:
                continue
        await self._until(lambda: len(self._has) == MANY and set(self._has.values()) == {value})
        await self._until(lambda: (kept := self._store.peek(self.key)) is not None and REPORT.encode() in kept.data)

    async def delete(self) -> None:
        stored = await self._store.get(self.key)
        assert stored is not None
        await self._store.commit(Delete(self.key, stored.revision, orjson.loads(stored.data)))
        await self._until(lambda: not self._has)


async def test_a_source_that_changes_or_goes_costs_no_question_a_tenant(runtime: Runtime, asked: Counter[str]) -> None:
    """Neither the copies themselves, nor those who look at what goes in a namespace."""
    source, later = Source(runtime, "published"), Source(runtime, "later")
    await source.publish("1")
    asked.clear()
    await source.publish("2")
    assert asked.total() <= MOST, asked
    asked.clear()
    await source.delete()
    # Its report comes after whatever the deletions have set off.
    await later.publish("1")
    assert asked.total() <= 2 * MOST, asked
