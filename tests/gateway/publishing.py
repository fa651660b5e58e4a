"""A worker of published objects that is hurt while operators and tenants write, and what must be true afterwards (AZ8).

Writes go into the store as the API server would write them. The worker is a process of its own, to be killed at any
instant, frozen, and cut off from the database. What must be there in the end is told here anew, from the objects alone.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import random
import signal
import uuid
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final, Self

import orjson
import psycopg

from store.engine import Engine, Options
from store.types import AllSpaces, Create, Delete, Key, Operation, PreconditionFailed, Stored, StoreError, Update
from tests.gateway.callers import PATIENCE

PUBLISHED: Final = "multi-tenancy.k8s.io/published"
TO: Final = "multi-tenancy.k8s.io/published-to"
REPORT: Final = "multi-tenancy.k8s.io/publication"
ORIGIN: Final = "multi-tenancy.k8s.io/published-from"

MAPS: Final = ("", "configmaps", "ConfigMap", "v1")
ROLES: Final = ("rbac.authorization.k8s.io", "clusterroles", "ClusterRole", "rbac.authorization.k8s.io/v1")
PLACES: Final = ((MAPS, "default", "a"), (MAPS, "default", "b"), (MAPS, "extra", "a"), (ROLES, "", "a"))
"""Where operators publish, and where tenants write what is their own."""

TENANTS: Final = ("t0", "t1", "t2")
TIERS: Final = (None, "gold", "silver")
SELECTORS: Final = (None, "tier", "tier=gold", "tier!=gold")

Body = dict[str, Any]
_METHOD: Final = multiprocessing.get_context("forkserver")
_METHOD.set_forkserver_preload(["tests.gateway.publishingworker"])


class Torment:
    """Two workers, of which one leads, and whoever writes beside them. Use as ``async with``."""

    def __init__(self, conninfo: str, seed: int, owner: str = "") -> None:
        self._conninfo = conninfo
        self._owner = owner or conninfo
        self.chance = random.Random(seed)
        self.faults = 0
        self._workers: list[Any] = []
        self._store = Engine(conninfo, Options(poll_seconds=0.05))

    async def __aenter__(self) -> Self:
        await self._store.start()
        for name in TENANTS[:2]:
            await self.begin_tenant(name)
        for name in ("default", "extra"):
            with suppress(PreconditionFailed):
                await self._store.commit(Create(_namespace_key("root", name), _namespace(name)))
        for _ in range(2):
            self._start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()
            worker.join()
        await self._store.stop()

    # Faults.

    def _start(self) -> None:
        from tests.gateway.publishingworker import work

        worker = _METHOD.Process(target=work, args=(self._conninfo,), daemon=True)
        worker.start()
        self._workers.append(worker)

    async def kill(self) -> None:
        """End one at any instant; another begins."""
        worker = self._workers.pop(0)
        worker.kill()
        worker.join()
        self._start()
        self.faults += 1

    async def freeze(self) -> None:
        """Stop one at any instant, and let it go on when another may have taken its place."""
        worker = self.chance.choice(self._workers)
        os.kill(worker.pid, signal.SIGSTOP)
        await asyncio.sleep(self.chance.uniform(0, 0.1))
        os.kill(worker.pid, signal.SIGCONT)
        self.faults += 1

    async def cut(self) -> None:
        """End sessions in the middle of whatever they do."""
        statement = (
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid() AND random() < 0.5"
        )

        def terminate() -> None:
            with psycopg.connect(self._owner, autocommit=True) as connection:
                connection.execute(statement)

        await asyncio.to_thread(terminate)
        self.faults += 1

    async def hurt(self) -> None:
        """One fault, at any moment of the work under way."""
        await asyncio.sleep(self.chance.uniform(0, 0.05))
        await self.chance.choices((self.kill, self.freeze, self.cut), (4, 2, 1))[0]()

    # Writes.

    async def publish(self, place: int, selector: int, value: int) -> None:
        """An object of the system space is published to some, or changed."""
        (group, resource, kind, version), namespace, name = PLACES[place]
        annotations = {PUBLISHED: "true"} | ({TO: SELECTORS[selector]} if SELECTORS[selector] else {})

        def wanted(before: Body | None) -> Body:
            metadata = dict(before["metadata"]) if before else _metadata(namespace, name)
            said = {k: v for k, v in metadata.get("annotations", {}).items() if k == REPORT}
            return {
                "apiVersion": version,
                "kind": kind,
                "metadata": {**metadata, "annotations": {**said, **annotations}},
                "data": {"v": str(value)},
            }

        await self._write(Key("root", group, resource, namespace, name), wanted)

    async def unpublish(self, place: int) -> None:
        def wanted(before: Body | None) -> Body | None:
            if before is None:
                return None
            kept = {k: v for k, v in before["metadata"].get("annotations", {}).items() if k == REPORT}
            return {**before, "metadata": {**before["metadata"], "annotations": kept}}

        await self._write(_place_in("root", place), wanted)

    async def delete_source(self, place: int) -> None:
        await self._write(_place_in("root", place), lambda _: None)

    async def begin_tenant(self, name: str) -> None:
        """A tenant with its first namespace."""
        tenant = {"apiVersion": "v1", "kind": "Tenant", "metadata": _metadata("", name)}
        made = [Create(_tenant_key(name), tenant)]
        made.append(Create(_namespace_key(f"root:{name}", "default"), _namespace("default")))
        await self._until_written(lambda: _as_it_is(made), self._is_there(_tenant_key(name)))

    async def label(self, name: str, tier: int) -> None:
        def wanted(before: Body | None) -> Body | None:
            if before is None:
                return None
            labels = {"tier": TIERS[tier]} if TIERS[tier] else {}
            return {**before, "metadata": {**before["metadata"], "labels": labels}}

        await self._write(_tenant_key(name), wanted)

    async def end_tenant(self, name: str) -> None:
        """As the product does: marked, emptied, gone."""

        def marked(before: Body | None) -> Body | None:
            stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
            return None if before is None else {**before, "metadata": {**before["metadata"], **stamp}}

        await self._write(_tenant_key(name), marked)
        while rows := [stored for stored in await self._everything() if stored.key.space == f"root:{name}"]:
            for stored in rows:
                await self._write(stored.key, lambda _: None)
        await self._write(_tenant_key(name), lambda _: None)

    async def take_name(self, tenant: str, place: int) -> None:
        """A tenant makes something of its own, unless the name is taken, its namespace is not there, or ends."""
        key = _place_in(f"root:{tenant}", place)
        holds = [_tenant_key(tenant), *([_namespace_key(key.space, key.namespace)] if key.namespace else ())]
        found = await self._store.current([key, *holds])
        if key in found or any(each not in found or _ends(found[each]) for each in holds):
            return
        (_, _, kind, version), namespace, name = PLACES[place]
        own = {"apiVersion": version, "kind": kind, "metadata": _metadata(namespace, name), "data": {"own": tenant}}
        try:
            await self._store.commit(Create(key, own))
        except StoreError:
            return

    async def give_up_name(self, tenant: str, place: int) -> None:
        """It takes away what is its own; copies it cannot."""
        await self._write(
            _place_in(f"root:{tenant}", place), lambda before: before if before and _origin(before) else None
        )

    async def begin_namespace(self, tenant: str) -> None:
        key = _namespace_key(f"root:{tenant}", "extra")
        found = await self._store.current([_tenant_key(tenant), key])
        if key in found or _tenant_key(tenant) not in found or _ends(found[_tenant_key(tenant)]):
            return
        await self._until_written(lambda: _as_it_is([Create(key, _namespace("extra"))]), self._is_there(key))

    async def end_namespace(self, tenant: str) -> None:
        """Marked, as by its deletion; the collector empties it."""

        def marked(before: Body | None) -> Body | None:
            stamp = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
            return None if before is None else {**before, "metadata": {**before["metadata"], **stamp}}

        await self._write(_namespace_key(f"root:{tenant}", "extra"), marked)

    # What must be true.

    async def settled(self) -> None:
        """Wait until everything is as it must be; what is not is the error."""
        wrong: object = "nothing was looked at"
        try:
            async with asyncio.timeout(PATIENCE * 2):
                while wrong:
                    try:
                        wrong = differences(await self._everything())
                    except StoreError as error:
                        wrong = error
                    await asyncio.sleep(0.02)
        except TimeoutError:
            raise AssertionError(wrong) from None

    async def _everything(self) -> list[Stored]:
        kinds = [("", "tenants"), ("", "namespaces"), MAPS[:2], ROLES[:2]]
        found = [await self._store.list(AllSpaces(*kind)) for kind in kinds]
        return [stored for listing in found for stored in listing.items]

    async def _write(self, key: Key, wanted: Callable[[Body | None], Body | None]) -> None:
        """Bring an object into a state, whatever happens meanwhile."""

        async def operations() -> list[Operation]:
            stored = (await self._store.current([key])).get(key)
            before = orjson.loads(stored.data) if stored else None
            after = wanted(before)
            if stored is None or before is None:
                return [Create(key, after)] if after is not None else []
            if after is None:
                return [Delete(key, stored.revision, before)]
            return [Update(key, stored.revision, after)] if after != before else []

        async def never() -> bool:
            return False

        await self._until_written(operations, never)

    async def _until_written(
        self, operations: Callable[[], Awaitable[list[Operation]]], done: Callable[[], Awaitable[bool]]
    ) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                with suppress(StoreError):
                    if not await done() and (wanted := await operations()):
                        await self._store.commit(*wanted)
                    return
                await asyncio.sleep(0.01)

    def _is_there(self, key: Key) -> Callable[[], Awaitable[bool]]:
        async def there() -> bool:
            return key in await self._store.current([key])

        return there


def differences(objects: Iterable[Stored]) -> dict[str, object]:
    """What is missing, stale or orphaned, and reports that say otherwise; nothing when all is as it must be."""
    bodies = {stored.key: orjson.loads(stored.data) for stored in objects}
    tenants = {key.name: body for key, body in bodies.items() if key[1:3] == ("", "tenants")}
    wanted: dict[Key, object] = {}
    reports: dict[Key, object] = {}
    for key, source in bodies.items():
        annotations = source["metadata"].get("annotations") or {}
        if key.space != "root" or annotations.get(PUBLISHED) != "true":
            if key.space == "root" and REPORT in annotations:
                reports[key] = (None, annotations[REPORT])
            continue
        meant = has = 0
        for name, tenant in tenants.items():
            labels = tenant["metadata"].get("labels") or {}
            if "deletionTimestamp" in tenant["metadata"] or not _chosen(annotations.get(TO), labels):
                continue
            meant += 1
            place = key._replace(space=f"root:{name}")
            namespace = bodies.get(_namespace_key(place.space, key.namespace))
            homeless = key.namespace and (namespace is None or "deletionTimestamp" in namespace["metadata"])
            taken = place in bodies and not _origin(bodies[place])
            if not homeless and not taken:
                has += 1
                wanted[place] = (source["metadata"]["uid"], source["data"])
        told = orjson.loads(annotations.get(REPORT) or "{}")
        if (told.get("tenants"), told.get("missing")) != (meant, meant - has):
            reports[key] = (meant, has, told)
    copies = {key: (_origin(body), body["data"]) for key, body in bodies.items() if _origin(body)}
    wrong: dict[str, object] = {
        "missing": {key: value for key, value in wanted.items() if key not in copies},
        "stale": {key: value for key, value in copies.items() if key in wanted and wanted[key] != value},
        "orphaned": {key: value for key, value in copies.items() if key not in wanted},
        "reports": reports,
    }
    return {name: found for name, found in wrong.items() if found}


def _chosen(selector: str | None, labels: Mapping[str, str]) -> bool:
    tier = labels.get("tier")
    return {None: True, "tier": tier is not None, "tier=gold": tier == "gold", "tier!=gold": tier != "gold"}[selector]


def _origin(body: Body) -> str:
    return str((body["metadata"].get("labels") or {}).get(ORIGIN) or "")


def _ends(stored: Stored) -> bool:
    return "deletionTimestamp" in orjson.loads(stored.data)["metadata"]


def _metadata(namespace: str, name: str) -> Body:
    return {"name": name, "uid": str(uuid.uuid4()), **({"namespace": namespace} if namespace else {})}


def _namespace(name: str) -> Body:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": _metadata("", name),
        "spec": {"finalizers": ["kubernetes"]},
    }


def _tenant_key(name: str) -> Key:
    return Key("root", "", "tenants", "", name)


def _namespace_key(space: str, name: str) -> Key:
    return Key(space, "", "namespaces", "", name)


def _place_in(space: str, place: int) -> Key:
    (group, resource, _, _), namespace, name = PLACES[place]
    return Key(space, group, resource, namespace, name)


async def _as_it_is(operations: list[Operation]) -> list[Operation]:
    return operations


async def step(torment: Torment) -> None:
    """Anything that anybody may do."""
    chance = torment.chance
    place, tenant = chance.randrange(len(PLACES)), chance.choice(TENANTS)
    await chance.choice(
        (
            lambda: torment.publish(place, chance.randrange(len(SELECTORS)), chance.randrange(9)),
            lambda: torment.publish(place, chance.randrange(len(SELECTORS)), chance.randrange(9)),
            lambda: torment.unpublish(place),
            lambda: torment.delete_source(place),
            lambda: torment.begin_tenant(tenant),
            lambda: torment.label(tenant, chance.randrange(len(TIERS))),
            lambda: torment.end_tenant(tenant),
            lambda: torment.take_name(tenant, place),
            lambda: torment.give_up_name(tenant, place),
            lambda: torment.begin_namespace(tenant),
            lambda: torment.end_namespace(tenant),
        )
    )()
