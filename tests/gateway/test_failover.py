"""The database's primary dies while people write and watch, and the same API server goes on with the standby (TS4)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException

import pytest

from tests.apiserver import OwnApiserver, running
from tests.databases import OWNER
from tests.speaking import Speaker
from tests.store.replication import Pair

MAPS = "/api/v1/namespaces/default/configmaps"
LAST = "last"


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    try:
        pair.start()
        yield pair
    finally:
        pair.stop()


class Story:
    """Somebody who writes, somebody who follows as an informer does, and all that they were told."""

    def __init__(self, server: OwnApiserver) -> None:
        self.owner = server.tenant("acme")
        self.acknowledged: list[tuple[str, int]] = []
        self.refused = 0
        self.known: dict[str, int] = {}
        self.events: list[tuple[str, str, int]] = []
        self.relists = 0
        self.enough = threading.Event()
        self.failed = threading.Event()
        self._more = threading.Condition()

    def write(self) -> None:
        """Make one after the other; what came without a yes may be there or not."""
        for number in range(100_000):
            if self.enough.is_set():
                return
            name = f"m-{number}"
            try:
                answer = self.owner.send("POST", MAPS, {"metadata": {"name": name}})
            except (OSError, HTTPException):
                self.refused += 1
                continue
            if answer.status == 201:
                with self._more:
                    self.acknowledged.append((name, int(answer.revision)))
                    self._more.notify_all()
            else:
                assert answer.status in (409, 500, 503, 504), answer
                self.refused += 1

    def follow(self, reader: Speaker) -> None:
        """List, watch from there, and list anew when the history is gone; until what is written last is known."""
        while LAST not in self.known and not self.failed.is_set():
            answer = reader.send("GET", MAPS)
            if answer.status != 200:
                continue
            self.relists += 1
            self.known = {
                item["metadata"]["name"]: int(item["metadata"]["resourceVersion"]) for item in answer["items"]
            }
            self._watch(reader, answer.revision)

    def _watch(self, reader: Speaker, since: str) -> None:
        path = f"{MAPS}?watch=true&allowWatchBookmarks=true&resourceVersion={since}&timeoutSeconds=60"
        try:
            with reader.watch(path) as events:
                for event in events:
                    if event["type"] == "ERROR":
                        assert (event["object"]["code"], event["object"]["reason"]) == (410, "Expired")
                        return
                    if event["type"] == "BOOKMARK":
                        continue
                    name = event["object"]["metadata"]["name"]
                    revision = int(event["object"]["metadata"]["resourceVersion"])
                    self.events.append((event["type"], name, revision))
                    self.known[name] = revision
                    if name == LAST:
                        return
        except (AssertionError, OSError, HTTPException):
            # The watch could not be begun, or its connection broke: an informer lists anew.
            return

    def until_more(self, more: int) -> None:
        """Return once that many more writes were acknowledged."""
        with self._more:
            wanted = len(self.acknowledged) + more
            assert self._more.wait_for(lambda: len(self.acknowledged) >= wanted, timeout=300)


def test_an_api_server_goes_on_with_the_standby_that_was_promoted(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a synchronous standby every 201 is kept, once and as it was told; the watch is told 410 and misses nothing."""
    monkeypatch.setenv(OWNER, pair.url())
    with running(pair.url(user="tenantry_product")) as server, ThreadPoolExecutor(2) as pool:
        pair.follow(synchronous=True)
        story = Story(server)
        try:
            writing = pool.submit(story.write)
            following = pool.submit(story.follow, story.owner.at(story.owner.prefix))
            story.until_more(10)
            before = story.acknowledged[-1][1]
            pair.kill_primary()
            pair.promote()
            story.until_more(20)
            story.enough.set()
            writing.result()
            assert story.owner.send("POST", MAPS, {"metadata": {"name": LAST}}).status == 201
            following.result(timeout=300)
        finally:
            story.enough.set()
            story.failed.set()

        there = {
            item["metadata"]["name"]: int(item["metadata"]["resourceVersion"])
            for item in story.owner.send("GET", MAPS)["items"]
        }
        assert dict(story.acknowledged).items() <= there.items()
        revisions = [revision for _, revision in story.acknowledged]
        assert revisions == sorted(set(revisions)), "a resource version went back, or was given twice"
        # What was followed is what is there, and each event is of an object that is.
        assert story.known == there
        assert {(name, revision) for _, name, revision in story.events} <= there.items()
        assert len(story.events) == len(set(story.events))
        assert {kind for kind, _, _ in story.events} == {"ADDED"}
        assert story.relists >= 2
        # Nobody begins in the numbers of before; and the product's other half has come along.
        with story.owner.watch(f"{MAPS}?watch=true&resourceVersion={before}") as events:
            assert next(events)["object"]["reason"] == "Expired"
        assert server.tenant("beta").send("GET", MAPS).status == 200
        assert "tenantry_store_histories_replaced_total 1\n" in server.admin.send("GET", "/metrics").body
        story.owner.close()
