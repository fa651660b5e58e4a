"""Who is told of the change log, and of which of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, NamedTuple

from store.types import Event

logger = logging.getLogger(__name__)

Heard = Callable[[Sequence[Event]], None]

_COMBINATIONS_MAX: Final = 1_024
"""Combinations of resources in a batch of which it is remembered whom they concern."""


class _Listener(NamedTuple):
    heard: Heard
    lost: Callable[[], None] | None
    resources: frozenset[tuple[str, str]] | None


class Listeners:
    """Those of one store, in the order in which they came."""

    def __init__(self) -> None:
        self._all: dict[object, _Listener] = {}
        self._concerned: dict[frozenset[tuple[str, str]], Sequence[Heard]] = {}
        """Who is called with a batch, by the resources in it: one look-up for most."""

    def add(
        self, heard: Heard, lost: Callable[[], None] | None, resources: Collection[tuple[str, str]] | None
    ) -> Callable[[], None]:
        """See ``subscribe`` of ``store.interface.Store``."""
        token = object()
        self._all[token] = _Listener(heard, lost, None if resources is None else frozenset(resources))
        self._concerned.clear()

        def undo() -> None:
            self._all.pop(token, None)
            self._concerned.clear()

        return undo

    def tell(self, events: Sequence[Event]) -> None:
        """Call those whom a batch concerns."""
        resources = frozenset([event.key[1:3] for event in events])
        concerned = self._concerned.get(resources)
        if concerned is None:
            concerned = self._concerned_by(resources)
        for heard in concerned:
            try:
                heard(events)
            except Exception:
                logger.exception("a listener of the change log failed")

    def tell_lost(self) -> None:
        """Tell all that the log does not continue."""
        for listener in list(self._all.values()):
            if listener.lost is not None:
                listener.lost()

    def _concerned_by(self, resources: frozenset[tuple[str, str]]) -> Sequence[Heard]:
        if len(self._concerned) >= _COMBINATIONS_MAX:
            self._concerned.clear()
        concerned = self._concerned[resources] = tuple(
            each.heard
            for each in self._all.values()
            if each.resources is None or not each.resources.isdisjoint(resources)
        )
        return concerned
