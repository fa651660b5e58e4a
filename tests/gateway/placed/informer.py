"""An informer as client-go has it (reflector and delta store), and a way to the API server that breaks when told to."""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import Counter
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from typing import Any
from urllib.parse import urlencode

from tests.gateway.callers import Caller

Key = tuple[str, str]
Delta = tuple[str, str, str, str]
"""What happened, to which UID, in which version, and the word that the object says."""


class Gone(Exception):
    """410: the version is not known any more."""


class Relay:
    """A port in front of a server: it may be another server's next, and all that is open may be lost."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.listens = 0
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(300)

    def lose(self) -> None:
        """Cut every connection, without a word."""
        self._loop.call_soon_threadsafe(self._cut)

    def close(self) -> None:
        self.lose()
        self._loop.call_soon_threadsafe(self._server.close)
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.listens = self._server.sockets[0].getsockname()[1]

    def _cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, there[1]}
        ways = [asyncio.ensure_future(_pass(reader, there[1])), asyncio.ensure_future(_pass(there[0], writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, there[1]):
            each.close()
            self._open.discard(each)
        await asyncio.wait(ways)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


class Informer(threading.Thread):
    """Keeps what there is of a kind in all namespaces, and notes what it tells its handlers.

    1. It lists, or has a watch begin with what is there (``streams``, client-go's ``WatchListClient``).
    2. It watches from the version of the list, then from that of the newest event or bookmark.
    3. Whatever ends a watch, it watches on from there; where the version is not known any more it begins anew, and tells of
       the difference.
    """

    def __init__(self, caller: Caller, path: str, selector: str, *, streams: bool) -> None:
        super().__init__(daemon=True)
        self._caller, self._path, self._selector, self._streams = caller, path, selector, streams
        self.store: dict[Key, dict[str, Any]] = {}
        self.deltas: list[Delta] = []
        self.repeated: list[dict[str, Any]] = []
        self.counts: Counter[str] = Counter()
        self._version = ""
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()
        self.join(300)

    def words(self) -> dict[Key, str]:
        """What is there, as far as it knows."""
        return {key: found["data"]["word"] for key, found in dict(self.store).items()}

    def run(self) -> None:
        begun = False
        while not self._over.is_set():
            try:
                if not begun:
                    self._begin()
                    begun = True
                self.counts["watches"] += 1
                self._watch({"resourceVersion": self._version}, self._apply)
            except Gone:
                begun = False
            except (OSError, HTTPException, ValueError):
                self.counts["failures"] += 1
            if self._over.wait(0.1):
                return

    def _begin(self) -> None:
        self.counts["lists"] += 1
        if self._streams:
            found: dict[Key, dict[str, Any]] = {}
            complete = self._watch(
                {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"},
                lambda event: self._collect(found, event),
            )
            if not complete:
                raise OSError("the initial events broke off")
        else:
            answer = self._ask({"limit": "500"})
            body = json.loads(answer.read())
            self._version = body["metadata"]["resourceVersion"]
            assert not body["metadata"].get("continue")
            found = {key_of(item): item for item in body["items"]}
        self._replace(found)

    def _collect(self, found: dict[Key, dict[str, Any]], event: dict[str, Any]) -> bool:
        metadata = event["object"]["metadata"]
        self._version = metadata["resourceVersion"]
        if event["type"] == "BOOKMARK":
            return bool(metadata.get("annotations", {}).get("k8s.io/initial-events-end") == "true")
        found.pop(key_of(event["object"]), None)
        if event["type"] != "DELETED":
            found[key_of(event["object"])] = event["object"]
        return False

    def _replace(self, found: dict[Key, dict[str, Any]]) -> None:
        for key in self.store.keys() - found.keys():
            self._note("DELETED", self.store.pop(key))
        for key, item in found.items():
            known = self.store.get(key)
            if known is None or version_of(known) != version_of(item):
                self._note("ADDED" if known is None else "MODIFIED", item)
            self.store[key] = item

    def _apply(self, event: dict[str, Any]) -> bool:
        """What one event of a watch means. One that says what is known already is repeated."""
        item, self._version = event["object"], event["object"]["metadata"]["resourceVersion"]
        if event["type"] == "BOOKMARK":
            return False
        key = key_of(item)
        known = self.store.get(key)
        fits = {"ADDED": known is None, "DELETED": known is not None}.get(
            event["type"], known is not None and version_of(known) != version_of(item)
        )
        if not fits:
            self.repeated.append(event)
        if event["type"] == "DELETED":
            self.store.pop(key, None)
        else:
            self.store[key] = item
        self._note(event["type"], item)
        return False

    def _note(self, what: str, item: dict[str, Any]) -> None:
        self.deltas.append((what, *version_of(item), item["data"]["word"]))

    def _watch(self, query: dict[str, str], tell: Callable[[dict[str, Any]], bool]) -> bool:
        """Until ``tell`` has enough, which is true, or the stream ends. Raises ``Gone``."""
        answer = self._ask({"watch": "true", "allowWatchBookmarks": "true", **query})
        try:
            for line in answer:
                event = json.loads(line)
                if event["type"] == "ERROR":
                    raise Gone if event["object"]["code"] == 410 else OSError(str(event["object"]))
                if tell(event) or self._over.is_set():
                    return True
        finally:
            answer.connection.close()  # type: ignore[attr-defined]
        return False

    def _ask(self, query: dict[str, str]) -> HTTPResponse:
        query = {"labelSelector": self._selector, **query}
        answer = self._caller.open("GET", f"{self._path}?{urlencode(query)}", timeout=10)
        if answer.status == 410:
            raise Gone
        if answer.status != 200:
            raise OSError(answer.status)
        return answer


def key_of(item: dict[str, Any]) -> Key:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def version_of(item: dict[str, Any]) -> tuple[str, str]:
    return item["metadata"]["uid"], item["metadata"]["resourceVersion"]
