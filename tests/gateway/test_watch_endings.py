"""How watches and chunked lists end, and that what they hold meanwhile is bounded (TS15)."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.databases import ROOT, migrated
from tests.gateway.callers import Caller, config_map, eventually
from tests.gateway.conftest import Server, start, stop, tenant_named

LARGE, ROUNDS = "x" * 900_000, 20


@pytest.fixture(scope="module")
def apart(new_database_apart: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose log may be compacted without anybody else minding."""
    running = start(tmp_path_factory.mktemp("apart") / "data", new_database_apart)
    yield running
    stop(running)


@pytest.fixture(scope="module")
def new_database_apart() -> Iterator[str]:
    with migrated("watch_endings") as url:
        yield url


def manage(database: str, *words: str) -> None:
    environment = {**os.environ, "DATABASE_URL": database}
    subprocess.run([sys.executable, "manage.py", *words], cwd=ROOT, env=environment, check=True, capture_output=True)


@pytest.fixture(scope="module")
def owner(apart: Server) -> Caller:
    return apart.user(tenant_named(apart, "endings"), "otto", "tenantry:owner")


MAPS = "/api/v1/namespaces/default/configmaps"


def resident(process: int) -> int:
    """Bytes of memory that a process has."""
    fields = Path(f"/proc/{process}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_watcher_that_does_not_read_is_ended_and_not_buffered_for(apart: Server, owner: Caller) -> None:
    """The bookmarks of an idle watch come meanwhile, without being asked again."""
    idle = owner.watch("/api/v1/namespaces/default/secrets", allowWatchBookmarks="true", resourceVersion="1")
    revision = owner.get(MAPS).body["metadata"]["resourceVersion"]
    response = owner.open("GET", f"{MAPS}?watch=true&resourceVersion={revision}")
    response.connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 18)
    assert owner.post(MAPS, config_map("large")).status == 201
    before = resident(apart.process.pid)
    for number in range(ROUNDS):
        assert owner.patch(f"{MAPS}/large", {"data": {"a": f"{number}{LARGE}"}}).status == 200
    # What was written is twice what the server holds for this watcher and the kernel for its connection.
    assert resident(apart.process.pid) - before < 120 * 1024 * 1024
    seen = [json.loads(line) for line in response]
    assert seen[-1]["type"] == "ERROR"
    assert (seen[-1]["object"]["code"], seen[-1]["object"]["reason"]) == (410, "Expired")
    assert len(seen) < ROUNDS
    for bookmark in idle:
        assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "Secret")
        if int(bookmark["object"]["metadata"]["resourceVersion"]) >= int(revision) + ROUNDS:
            break
    idle.close()


def test_what_was_compacted_is_gone_for_watches_and_exact_lists_and_continues_as_it_is_now(
    apart: Server, owner: Caller
) -> None:
    for name in ("c1", "c2", "c3"):
        assert owner.post(MAPS, config_map(name)).status == 201
    first = owner.get(MAPS, limit=1).body
    old, token = first["metadata"]["resourceVersion"], first["metadata"]["continue"]
    assert owner.get(MAPS, limit=1, **{"continue": token}).status == 200
    # The log goes by whole partitions: make this one the past.
    apart.sql("UPDATE store_revision SET revision = 110000")
    manage(apart.database, "store_compact", "--minutes", "0")
    assert owner.post(MAPS, config_map("c4")).status == 201

    def gone() -> bool:
        return owner.get(MAPS, resourceVersion=old, resourceVersionMatch="Exact").status == 410

    assert eventually(gone)
    with owner.watch(MAPS, resourceVersion=old) as watch:
        (event,) = watch.until_end()
        assert (event["type"], event["object"]["code"], event["object"]["reason"]) == ("ERROR", 410, "Expired")
    answer = owner.get(MAPS, limit=2, **{"continue": token})
    assert (answer.status, answer.reason) == (410, "Expired")
    assert answer.body["message"].startswith("The provided continue parameter is too old to display a consistent list")
    now = answer.body["metadata"]["continue"]
    rest = owner.get(MAPS, limit=2, **{"continue": now}).body
    assert [item["metadata"]["name"] for item in rest["items"]] == ["c2", "c3"]
    last = owner.get(MAPS, limit=2, **{"continue": rest["metadata"]["continue"]}).body
    assert next(item["metadata"]["name"] for item in last["items"]) == "c4"


def test_a_watch_lasts_as_long_as_it_was_asked_to(owner: Caller) -> None:
    begun = time.monotonic()
    with (
        owner.watch(MAPS, timeoutSeconds=600, resourceVersion="0") as kept,
        owner.watch(MAPS, timeoutSeconds=1, resourceVersion="0") as watch,
    ):
        assert all(event["type"] == "ADDED" for event in watch.until_end())
        assert time.monotonic() - begun > 0.8
        assert not kept.ended
