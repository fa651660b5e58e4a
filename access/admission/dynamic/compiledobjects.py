"""Objects of the system space that requests are judged by: compiled once, kept right by the change log (TS15)."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, TypeVar

import orjson

from kube.admissionpolicies.matching import GROUP
from kube.requests.logicalclusters import ROOT
from store.interface import Reader
from store.types import Event, Range

T = TypeVar("T")
logger: Final = logging.getLogger(__name__)


class CompiledObjects(Generic[T]):
    """All objects of one resource of ``admissionregistration.k8s.io``, by name, as ``read`` makes them.

    What a write changes is compiled again with the next request, all else stays.
    """

    def __init__(self, store: Reader, plural: str, read: Callable[[Mapping[str, Any]], T]) -> None:
        self._store = store
        self.resource = (GROUP, plural)
        self._read = read
        self._kept: dict[tuple[str, str, int], T] = {}
        self._changes = 0
        self._lock = asyncio.Lock()
        self.known: Mapping[str, T] | None = None
        """All of them, where nothing has changed since they were last asked for."""

    def on_events(self, events: Sequence[Event]) -> None:
        """Read anew what was written; called by the store with every batch of its log."""
        for event in events:
            key = event.key
            if key[1:3] == self.resource and key.space == ROOT:
                self.forget()
                return

    def forget(self) -> None:
        """Look again at what there is."""
        self._changes += 1
        self.known = None

    async def all(self) -> Mapping[str, T]:
        """All of them by their names, in that order. Raises what ``read`` raises of an object that it cannot read."""
        known = self.known
        if known is not None:
            return known
        async with self._lock:
            if self.known is not None:
                return self.known
            # 1. What is written while this reads makes it void for others, not for this request, which came before it.
            # 2. What a definition's generation has not changed is not compiled again.
            changes = self._changes
            listing = await self._store.list(Range(ROOT, *self.resource), cached=True)
            kept: dict[tuple[str, str, int], T] = {}
            found: dict[str, T] = {}
            for item in listing.items:
                body = orjson.loads(item.data)
                metadata = body["metadata"]
                mark = (metadata["name"], metadata["uid"], int(metadata.get("generation") or item.revision))
                if mark not in self._kept:
                    await asyncio.sleep(0)
                    self._kept[mark] = self._read(body)
                found[item.key.name] = kept[mark] = self._kept[mark]
            self._kept = kept
            if changes == self._changes:
                self.known = found
            return found
