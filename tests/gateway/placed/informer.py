"""An informer as client-go has it: reflector and delta store."""

from __future__ import annotations

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
Event = tuple[str, str, str, str]
"""In which namespace a watch tells of what, with which UID and version."""


class Gone(Exception):
    """410: the version is not known any more."""


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
        self.told: list[Event] = []
        self.repeated: list[dict[str, Any]] = []
        self.counts: Counter[str] = Counter()
        self._version = ""
        self._over = threading.Event()

    def stop(self) -> None:
        self._over.set()
        self.join(300)

    def known(self) -> dict[Key, tuple[str, str]]:
        """What is there, in which version."""
        return {key: version_of(found) for key, found in dict(self.store).items()}

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
        """What one event of a watch means. One that says what is known already, or what was before, is repeated."""
        item, self._version = event["object"], event["object"]["metadata"]["resourceVersion"]
        if event["type"] == "BOOKMARK":
            return False
        key = key_of(item)
        known = self.store.get(key)
        fits = {"ADDED": known is None, "DELETED": known is not None}.get(
            event["type"], known is not None and number_of(known) < number_of(item)
        )
        self.told.append((key[0], event["type"], *version_of(item)))
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


def number_of(item: dict[str, Any]) -> int:
    """Where the version stands among those of its object."""
    return int(item["metadata"]["resourceVersion"])
