"""One tenant's swarm stands before nobody else's first object, whichever controller has to look at it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from access.tenantlimits import StoredBounds, TenantTiers
from gateway.controllers.apibindings import BindingController
from gateway.controllers.definitions import DefinitionController
from gateway.controllers.workspaces import WorkspaceController
from gateway.http.certificates import prepare
from gateway.options import Options
from gateway.process.runtime import Runtime
from gateway.server.assembly import build_runtime
from kube.customresources.definitions import CLEANUP, CRDS
from kube.workspaces.apiexports import BINDINGS
from kube.workspaces.types import FINALIZER, WORKSPACES
from store.garbagecollection import GarbageCollector
from store.types import Create, Event, EventType, Key
from tests.databases import migrated
from tests.gateway.definitions import definition
from tests.gateway.organization import workspace
from tests.gateway.test_apis import binding

MANY = 300
BEFORE = 30
"""Objects of the many after which the other tenant's one comes."""

OVERTAKING = MANY // 4
"""How many of the many may be finished before it: those at work already, and those that a quicker
neighbour finishes while its own round trips last. First come first served would be all that are left."""

DELETED = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    with migrated("fair") as database:
        options = Options(database_url=database, data_folder=tmp_path)
        async with build_runtime(options, prepare(options), background=False) as made:
            yield made


def _metadata(name: str, **more: Any) -> dict[str, Any]:
    return {"name": name, "uid": str(uuid4()), **more}


def _workspace(space: str, name: str, **more: Any) -> tuple[Key, dict[str, Any]]:
    body = workspace(name)
    body["spec"] = {"type": {"path": "root", "name": "universal"}}
    return Key(space, *WORKSPACES, "", name), {**body, "metadata": _metadata(name, finalizers=[FINALIZER], **more)}


def _binding(space: str, name: str, **more: Any) -> tuple[Key, dict[str, Any]]:
    body = binding(name, "root:nobody:nothing")
    return Key(space, *BINDINGS, "", name), {**body, "metadata": _metadata(name, **more)}


def _definition(space: str, name: str, **more: Any) -> tuple[Key, dict[str, Any]]:
    body = definition(name.capitalize())
    metadata = _metadata(body["metadata"]["name"], finalizers=[CLEANUP], **more)
    return Key(space, *CRDS, "", metadata["name"]), {**body, "metadata": metadata}


def _namespace(space: str, name: str, **more: Any) -> tuple[Key, dict[str, Any]]:
    body = {"apiVersion": "v1", "kind": "Namespace", "spec": {"finalizers": ["kubernetes"]}}
    return Key(space, "", "namespaces", "", name), {**body, "metadata": _metadata(name, **more)}


def _lifecycle(runtime: Runtime) -> GarbageCollector:
    return GarbageCollector(
        runtime.store, runtime.options.database_url, runtime.custom.resource_of, runtime.suspensions.holds
    )


def _tree(runtime: Runtime) -> WorkspaceController:
    room = StoredBounds(TenantTiers(runtime.store), runtime.options.stored_mebibytes).room
    return WorkspaceController(
        runtime.store, runtime.options.database_url, "https://127.0.0.1", runtime.suspensions.holds, room
    )


def _bindings(runtime: Runtime) -> BindingController:
    room = StoredBounds(TenantTiers(runtime.store), runtime.options.stored_mebibytes).room
    return BindingController(runtime.store, runtime.suspensions.holds, room)


CASES: list[tuple[str, Callable[..., tuple[Key, dict[str, Any]]], Callable[[Runtime], Any], dict[str, Any]]] = [
    ("workspaces made", _workspace, _tree, {}),
    ("workspaces deleted", _workspace, _tree, DELETED),
    ("bindings", _binding, _bindings, {}),
    (
        "definitions deleted",
        _definition,
        lambda runtime: DefinitionController(runtime.store, runtime.suspensions.holds),
        DELETED,
    ),
    ("namespaces deleted", _namespace, _lifecycle, DELETED),
]


@pytest.mark.parametrize(("make", "controller", "more"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
async def test_a_swarm_delays_nobody_else(
    runtime: Runtime, make: Callable[..., Any], controller: Callable[[Runtime], Any], more: dict[str, Any]
) -> None:
    """Counted in objects that are finished before another tenant's one, not in seconds."""
    finished: list[str] = []
    progress = asyncio.Event()
    swarm = [make("root:many", f"w{number}", **more) for number in range(MANY)]
    kinds = {key[1:3] for key, _ in swarm}

    def see(events: Sequence[Event]) -> None:
        for event in events:
            if event.key[1:3] in kinds and _is_finished(event, bool(more)):
                finished.append(event.key.space)
                progress.set()

    runtime.store.subscribe(see)
    worker = controller(runtime)
    if hasattr(worker, "on_events"):
        runtime.store.subscribe(worker.on_events)
    work = asyncio.create_task(worker.run())
    try:
        async with asyncio.timeout(400):
            # Both have been here before: what is read and connected for the first time is paid for by nobody's place.
            for space in ("root:other", "root:many"):
                key, body = make(space, "first", **more)
                await runtime.store.commit(Create(key, body))
                while space not in finished:
                    assert not work.done()
                    progress.clear()
                    await progress.wait()
            finished.clear()
            await runtime.store.commit(*(Create(key, body) for key, body in swarm))
            while len(finished) < BEFORE:
                progress.clear()
                await progress.wait()
            key, body = make("root:other", "mine", **more)
            await runtime.store.commit(Create(key, body))
            begun = len(finished)
            while "root:other" not in finished:
                assert not work.done()
                progress.clear()
                await progress.wait()
    finally:
        work.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await work
    assert finished.index("root:other") - begun <= OVERTAKING


def _is_finished(event: Event, deletion: bool) -> bool:
    if deletion:
        return event.type is EventType.DELETED
    return event.type is EventType.MODIFIED and (b'"phase":"Ready"' in event.data or b"APIExportNotFound" in event.data)
