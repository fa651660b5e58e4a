"""What a deletion sets off waits where people are let in to read, or not at all, and goes on when the door opens (GW5, GW28)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import psycopg
import pytest

from gateway.controllers.definitions import DefinitionController
from gateway.http.certificates import prepare
from gateway.options import Options
from gateway.process.runtime import Runtime
from gateway.server.assembly import build_runtime
from kube.workspaces.types import Phase
from store.garbagecollection import FOREGROUND, ORPHAN, GarbageCollector
from store.types import Create, Key
from tenants.clusters.objects import NAMESPACE
from tests.databases import OWNER, migrated, url_of
from tests.gateway.test_fair_controllers import DELETED, _binding, _bindings, _definition, _namespace, _tree, _workspace

SPACE, PLACE, OURS = "root:acme", "team", "tenant-0123456789abcdef"
Made = tuple[Key, dict[str, Any]]

WORKERS = {
    "lifecycle": "waits",
    "definitions": "waits",
    "apibindings": "waits",
    "workspaces": "waits",
    "quotas": "counts what is there, and deletes nothing",
    "clusterroles": "writes rules that follow from labels, and deletes nothing",
    "namespaces": "gives what the server itself owns, and deletes nothing",
    "policytypes": "says of operators' policies what their kinds have against them, and deletes nothing",
    "published": "writes and takes away operators' objects, none of people's",
    "rights": "looks on clusters at what operators allow people there, and deletes nothing",
    "opened": "keeps in memory what clusters open to tenants",
    "placed quota": "counts what is there, and deletes nothing",
    "copies": "writes and takes away operators' objects, none of people's",
}
"""What each worker does where people may not write; one that is new has to be looked at for it."""


@asynccontextmanager
async def served(folder: Path, *, background: bool) -> AsyncIterator[tuple[Runtime, str]]:
    with migrated("closed") as database:
        options = Options(database_url=database, data_folder=folder)
        async with build_runtime(options, prepare(options), background=background) as made:
            yield made, database


def door(database: str, kind: str, namespace: str, *, closed: bool) -> None:
    """As ``tenants.suspensions`` closes and opens it."""
    owner = url_of(str(psycopg.conninfo.conninfo_to_dict(database)["dbname"]), OWNER)
    with psycopg.connect(owner) as connection:
        if not closed:
            connection.execute("DELETE FROM locks")
            connection.execute("DELETE FROM freezes")
        elif kind == "lock":
            connection.execute(
                "INSERT INTO locks (space, namespace, reason, created_at) VALUES (%s, %s, 'audit', now())",
                [SPACE, namespace],
            )
        else:
            connection.execute(
                "INSERT INTO tenants (name, display_name, state, suspended_reason, suspended_by, policies, managed_by, created_at)"
                " VALUES ('acme', '', 'active', '', '', '{}', '', now())"
            )
            connection.execute(
                "INSERT INTO freezes (id, tenant_id, space, namespace, reason, frozen_by, frozen_at)"
                " VALUES (gen_random_uuid(), 'acme', %s, %s, 'audit', 'ops', now())",
                [SPACE, namespace],
            )
        connection.execute("NOTIFY tenantry_locks")


def owner(name: str, **more: Any) -> Made:
    body = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": []}
    return Key(SPACE, "rbac.authorization.k8s.io", "clusterroles", "", name), {
        **body,
        "metadata": {"name": name, "uid": f"uid-{name}", **more},
    }


def config_map(name: str, *owners: str, space: str = SPACE, namespace: str = PLACE) -> Made:
    references = [
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "name": each,
            "uid": f"uid-{each}",
            "blockOwnerDeletion": True,
        }
        for each in owners
    ]
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "ownerReferences": references}
    return Key(space, "", "configmaps", namespace, name), {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
    }


def of_a_kind() -> list[Made]:
    key, crd = _definition(SPACE, "gadget", **DELETED)
    names = crd["spec"]["names"]
    kept = f"{names['plural']}:{crd['metadata']['uid']}"
    one = {"apiVersion": f"{crd['spec']['group']}/v1", "kind": names["kind"], "metadata": {"name": "one", "uid": "one"}}
    return [(Key(SPACE, crd["spec"]["group"], kept, PLACE, "one"), one), (key, crd)]


def of_a_binding() -> list[Made]:
    key, body = _binding(SPACE, "bound", finalizers=["apis.kcp.io/apibinding-finalizer"], **DELETED)
    return [(key, body)]


def of_a_workspace() -> list[Made]:
    key, body = _workspace(SPACE, "one", **DELETED)
    return [config_map("inside", space=f"{SPACE}:one"), (key, {**body, "status": {"phase": Phase.DELETING}})]


def lifecycle(runtime: Runtime) -> GarbageCollector:
    return GarbageCollector(
        runtime.store,
        runtime.options.database_url,
        runtime.custom.resource_of,
        runtime.suspensions.holds,
        is_workspaces=NAMESPACE.fullmatch,
    )


DELETIONS: dict[str, tuple[Callable[[Runtime], Any], Callable[[], list[Made]], tuple[str, ...]]] = {
    "an owner is gone": (lifecycle, lambda: [config_map("left", "gone")], ("", PLACE)),
    "one of two owners is gone": (lifecycle, lambda: [owner("there"), config_map("l", "gone", "there")], ("", PLACE)),
    "an owner waits for its dependents": (
        lifecycle,
        lambda: [config_map("left", "going"), owner("going", finalizers=[FOREGROUND], **DELETED)],
        ("", PLACE),
    ),
    "an owner lets go of its dependents": (
        lifecycle,
        lambda: [config_map("left", "going"), owner("going", finalizers=[ORPHAN], **DELETED)],
        ("", PLACE),
    ),
    "a namespace ends": (lifecycle, lambda: [config_map("left"), _namespace(SPACE, PLACE, **DELETED)], ("", PLACE)),
    "a kind ends": (
        lambda runtime: DefinitionController(runtime.store, runtime.suspensions.holds),
        of_a_kind,
        ("", PLACE),
    ),
    "a binding ends": (_bindings, of_a_binding, ("",)),
    "a workspace ends": (_tree, of_a_workspace, ("",)),
}


@asynccontextmanager
async def working(runtime: Runtime, worker: Any) -> AsyncIterator[asyncio.Task[None]]:
    undos = [runtime.suspensions.subscribe(worker.on_doors)]
    if hasattr(worker, "on_events"):
        undos.append(runtime.store.subscribe(worker.on_events))
    work = asyncio.create_task(worker.run())
    try:
        yield work
    finally:
        work.cancel()
        for undo in undos:
            undo()
        with contextlib.suppress(asyncio.CancelledError):
            await work


@pytest.mark.parametrize("kind", ["lock", "freeze"])
@pytest.mark.parametrize(
    ("deletion", "namespace"), [(name, where) for name, (_, _, places) in DELETIONS.items() for where in places]
)
async def test_a_deletion_goes_no_further_until_the_door_opens(
    tmp_path: Path, deletion: str, namespace: str, kind: str
) -> None:
    make, seeds, _ = DELETIONS[deletion]
    async with served(tmp_path, background=False) as (runtime, database):
        door(database, kind, namespace, closed=True)
        async with asyncio.timeout(300):
            while not runtime.suspensions.holds(SPACE, PLACE):
                await asyncio.sleep(0.01)
            made = seeds()
            await runtime.store.commit(*(Create(*each) for each in made))
            worker = make(runtime)
            seeded, due = [each[0] for each in made], made[-1][0]
            async with working(runtime, worker) as work:
                while not any(due in keys for keys in worker._queue._aside.values()):
                    assert not work.done()
                    assert len(await runtime.store.current(seeded)) == len(seeded)
                    await asyncio.sleep(0.01)
                before = await runtime.store.current(seeded)
                assert before.keys() == set(seeded)
                for key, body in made:
                    kept = orjson.loads(before[key].data)["metadata"]
                    assert kept.get("ownerReferences") == body["metadata"].get("ownerReferences")
                    assert kept.get("deletionTimestamp") == body["metadata"].get("deletionTimestamp")
                door(database, kind, namespace, closed=False)
                while (found := await runtime.store.current(seeded)) and not (
                    found.keys() != set(seeded) and due not in found
                ):
                    if deletion.startswith("one of two") and len(_owners(found[due].data)) == 1:
                        break
                    await asyncio.sleep(0.01)


def _owners(data: bytes) -> list[Any]:
    owners: list[Any] = orjson.loads(data)["metadata"]["ownerReferences"]
    return owners


async def test_a_workspace_that_is_deleted_ends_behind_its_own_closed_door(tmp_path: Path) -> None:
    """Nobody but the product ends it: what its people left for its end to wait on holds nothing up."""
    async with served(tmp_path, background=False) as (runtime, database):
        door(database, "lock", OURS, closed=True)
        door(database, "freeze", "", closed=True)
        held, body = config_map("held", "gone", namespace=OURS)
        body["metadata"] |= {**DELETED, "finalizers": [FOREGROUND]}
        namespace = _namespace(SPACE, OURS, **DELETED)
        async with asyncio.timeout(300):
            while not runtime.suspensions.holds(SPACE, OURS):
                await asyncio.sleep(0.01)
            await runtime.store.commit(Create(held, body), Create(*namespace))
            async with working(runtime, lifecycle(runtime)):
                while await runtime.store.current([held, namespace[0]]):
                    await asyncio.sleep(0.01)


async def test_every_worker_is_looked_at_for_what_it_does_behind_a_door(tmp_path: Path) -> None:
    names = []
    for background in (False, True):
        async with served(tmp_path / str(background), background=background):
            names.append({task.get_name() for task in asyncio.all_tasks()})
    assert {name for name in names[1] - names[0] if not name.startswith("Task-")} == set(WORKERS)
