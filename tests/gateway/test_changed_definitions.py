"""What objects of a changed definition cost to be shown: each is made once for all who look (TS15, DOS-03)."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import orjson
import pytest

from gateway.handlers import dispatch
from gateway.http.certificates import prepare
from gateway.http.messages import Request, Response, Stream
from gateway.options import Options
from gateway.process.runtime import Runtime
from gateway.server.assembly import build_runtime
from kube.authentication.identity import Principal
from kube.customresources.definitions import CRDS, crd_status
from kube.objects import fieldvalidation
from kube.requests.requestinfo import parse, resolve
from kube.workspaces.apiexports import EXPORTS, SCHEMAS, bound_definition
from store.types import Create, Key, Update
from tests.databases import migrated
from tests.gateway.apiexports import export, schema
from tests.gateway.definitions import definition

ANNA = Principal(name="anna", groups=("system:authenticated",), tenant="acme", authenticator="test")
SPACE = "root:acme"
TABLE = b"application/json;as=Table;v=v1;g=meta.k8s.io"
WATCHERS = 64
NOTES = "/apis/example.com/v1/namespaces/default/notes"
KNOWN: dict[str, Any] = {"type": "object", "properties": {"text": {"type": "string"}}}
PLACE = Key(SPACE, "example.com", "notes:u", "default", "n")


@pytest.fixture
async def runtime(tmp_path: Path) -> AsyncIterator[Runtime]:
    """The parts of a server in whose tenant a definition has lost a field."""
    with migrated("changed") as database:
        options = Options(database_url=database, data_folder=tmp_path)
        async with build_runtime(options, prepare(options), background=False) as made:
            crd = definition("Note", KNOWN)
            crd["spec"]["names"] |= {"singular": "note", "listKind": "NoteList"}
            crd["metadata"] |= {"uid": "u", "generation": 2}
            crd["status"] = crd_status(crd, (), now="2026-01-01T00:00:00Z")
            await made.store.commit(Create(Key(SPACE, *CRDS, "", crd["metadata"]["name"]), crd))
            yield made


@pytest.fixture
def conversions(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Objects that were looked through for what their schema does not know: whether beside the loop."""
    found, prune = list[bool](), fieldvalidation.prune

    def noted(value: Any, schema: Any) -> Any:
        found.append(threading.current_thread() is not threading.main_thread())
        return prune(value, schema)

    monkeypatch.setattr(fieldvalidation, "prune", noted)
    return found


def note(size: int) -> dict[str, Any]:
    metadata = {"name": "n", "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"}
    spec = {"text": "x" * size, "lost": "y"}
    return {"apiVersion": "example.com/v1", "kind": "Note", "metadata": metadata, "spec": spec}


async def ask(
    runtime: Runtime, query: str = "", accept: bytes = b"", written: list[bytes] | None = None, path: str = NOTES
) -> Any:
    """Behind authorization; what a watch has to say at once is ``written``."""
    parsed = parse("GET", path.encode(), query.encode())
    request = Request(
        principal=ANNA,
        info=resolve(parsed, ANNA.tenant),
        query={name: values[0] for name, values in parsed.parameters.items()},
        headers={b"accept": accept or b"application/json"},
        body=b"",
        now=time.time(),
    )
    if written is not None:
        request.write = lambda lines: not written.append(lines)  # type: ignore[func-returns-value]
    return await dispatch.dispatch(runtime, request, _no_recheck)


async def _no_recheck() -> None:
    return


async def watching(runtime: Runtime, accept: bytes = b"", path: str = NOTES) -> tuple[list[bytes], asyncio.Task[None]]:
    """A watch that has begun behind what is there, and what its client gets."""
    got: list[bytes] = []
    stream = await ask(runtime, f"watch=true&resourceVersion={runtime.store.revision}", accept, got, path)
    assert isinstance(stream, Stream)

    async def read() -> None:
        async for lines in stream.chunks:
            if lines:
                got.append(lines)

    return got, asyncio.create_task(read())


async def told(
    runtime: Runtime, watches: Sequence[tuple[list[bytes], asyncio.Task[None]]], place: Key, body: dict[str, Any]
) -> list[dict[str, Any]]:
    """What these watches say of a change, each once."""
    try:
        async with asyncio.timeout(300):
            while len(runtime.open_streams) < len(watches):
                await asyncio.sleep(0.01)
            kept = await runtime.store.get(place)
            assert kept is not None
            await runtime.store.commit(Update(place, kept.revision, body))
            while not all(got for got, _ in watches):
                await asyncio.sleep(0.01)
    finally:
        for _, task in watches:
            task.cancel()
        await asyncio.gather(*(task for _, task in watches), return_exceptions=True)
    return [orjson.loads(b"".join(got)) for got, _ in watches]


@pytest.mark.parametrize("accept", [b"application/json", TABLE], ids=["objects", "tables"])
@pytest.mark.parametrize("size", [10, 100_000], ids=["short", "long"])
async def test_an_event_is_made_once_for_all_who_watch(
    runtime: Runtime, conversions: list[bool], size: int, accept: bytes
) -> None:
    """A long one beside the loop."""
    await runtime.store.commit(Create(PLACE, note(size)))
    watches = [await watching(runtime, accept) for _ in range(WATCHERS + 1)]
    for event in await told(runtime, watches, PLACE, note(size)):
        assert event["type"] == "MODIFIED"
        assert b'"lost"' not in orjson.dumps(event)
    assert conversions == [size > 50_000]


async def test_an_event_is_made_once_for_all_who_watch_through_an_export(
    runtime: Runtime, conversions: list[bool]
) -> None:
    """Each of them has read the schema for itself."""
    one = schema("Widget")
    one["metadata"] |= {"uid": "s"}
    offered = {**export("x", one["metadata"]["name"]), "status": {"identityHash": "h"}}
    await runtime.store.commit(Create(Key(SPACE, *SCHEMAS, "", one["metadata"]["name"]), one))
    await runtime.store.commit(Create(Key(SPACE, *EXPORTS, "", "x"), offered))
    crd = bound_definition(one, path="root:b", binding="b", export=f"{SPACE}:x", identity="h", others=(), now="")
    place = Key("root:b", "example.org", f"widgets:{crd['metadata']['uid']}", "default", "n")
    kept = {**note(10), "apiVersion": "example.org/v1", "kind": "Widget", "spec": {"size": 1, "lost": "y"}}
    await runtime.store.commit(Create(place, kept))
    path = f"/services/apiexport/{SPACE}/x/clusters/*/apis/example.org/v1/widgets"
    watches = [await watching(runtime, path=path) for _ in range(WATCHERS)]
    for event in await told(runtime, watches, place, kept):
        assert (event["type"], event["object"]["spec"]) == ("MODIFIED", {"size": 1})
    assert conversions == [False]


async def test_an_object_that_is_read_again_is_not_made_again(runtime: Runtime, conversions: list[bool]) -> None:
    await runtime.store.commit(Create(PLACE, note(10)))
    for _ in range(3):
        answer = await ask(runtime)
        assert isinstance(answer, Response)
        assert orjson.loads(answer.body)["items"][0]["spec"] == {"text": "x" * 10}
    assert conversions == [False]
