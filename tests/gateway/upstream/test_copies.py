"""Copies of what operators publish, on clusters of which one means harm or is away (AZ8)."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import orjson
import pytest

from gateway.upstream.placed import copies
from gateway.upstream.placed.copies import PlacedCopies
from gateway.upstream.placements import workspace_of
from kube.objects.publications import PLACED_COPIES
from store.types import Create, Key, PreconditionFailed, Update
from tests.databases import migrated
from tests.gateway.upstream.following import EVIL, NAMESPACES, SPACE, Following, at_work, following
from tests.gateway.upstream.rawcluster import Visit


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("copies") as url:
        yield url


async def ended(visit: Visit) -> None:
    await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


async def going(there: Following, namespace: str, name: str) -> Key:
    """What is kept of a copy in a placed namespace that is to be taken away."""
    placed = await there.store.get(Key(SPACE, "", "namespaces", "", namespace))
    assert placed is not None
    spec = {"cluster": NAMESPACES[namespace], "workspace": workspace_of(orjson.loads(placed.data))}
    metadata = {"name": name, "namespace": namespace, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    body = {"metadata": metadata, "spec": {**spec, "apiVersion": "v1"}, "status": {"reason": "OnItsWay"}}
    key = Key(SPACE, *PLACED_COPIES, namespace, name)
    await there.store.commit(Create(key, body))
    return key


async def test_a_cluster_that_is_away_is_asked_for_a_copy_at_one_pace_however_often_that_was_due(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AZ8: what looks at it meanwhile, an event or the round of each minute, leaves no further attempts behind."""
    monkeypatch.setattr(copies, "REST_SECONDS", 0.1)

    def asked(cluster: str) -> int:
        return sum(path.endswith("/configmaps/motd") for path in there.heard[cluster])

    async with following(database, lambda _path: ended, lambda _path: ended) as there:
        keys = [await going(there, namespace, "|configmaps|motd") for namespace in ("acme-0", EVIL)]
        work = PlacedCopies(there.store, there, there.tokens, database)
        undo = there.store.subscribe(work.on_events)

        async def more(cluster: str, than: int) -> bool:
            return asked(cluster) > than

        async with at_work(work.run()):
            for number in range(30):
                before, found = asked("evil"), await there.store.get(keys[1])
                assert found is not None
                touched = orjson.loads(found.data)
                touched["metadata"]["labels"] = {"touched": str(number)}
                with contextlib.suppress(PreconditionFailed):
                    await there.store.commit(Update(keys[1], found.revision, touched))
                await there.until(partial(more, "evil", before))
            begun = {cluster: asked(cluster) for cluster in there.heard}
            await there.until(partial(more, "good", begun["good"] + 20))
        undo()
        evil, good = (asked(cluster) - begun[cluster] for cluster in ("evil", "good"))
    assert evil <= 3 * good, f"asked {evil} times where another was {good} times"


async def test_a_copy_is_gone_where_the_cluster_says_so_and_not_where_anybody_answers_404(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AZ8: a balancer before a cluster that is away answers 404 as well, and the copy may be one of a Secret."""
    monkeypatch.setattr(copies, "REST_SECONDS", 0.1)
    gone = json.dumps({"kind": "Status", "reason": "NotFound", "code": 404, "metadata": {}}).encode()

    def saying(body: bytes) -> Callable[[str], Any]:
        async def said(visit: Visit) -> None:
            head = f"HTTP/1.1 404 Not Found\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n"
            await visit.say(head.encode() + body)

        return lambda _path: said

    async with following(database, saying(b"404 page not found"), saying(gone)) as there:
        keys = [await going(there, namespace, "|secrets|pull") for namespace in ("acme-0", EVIL)]

        async def settled() -> bool:
            return await there.store.get(keys[0]) is None and len(there.heard["evil"]) > 2

        async with at_work(PlacedCopies(there.store, there, there.tokens, database).run()):
            await there.until(settled)
            assert await there.store.get(keys[1]) is not None
