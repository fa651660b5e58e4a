"""The objects that this process holds in memory: one cache for each resource of a space in use.

Nothing here waits or asks the database; ``store.engine`` fills caches and keeps them right with the log.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence

from store.types import AllSpaces, Event, EventType, FullListing, Place, Range, Stored

ListKey = tuple[str, str, str]
"""Where an object stands in a listing: (space, namespace, name)."""

OVERHEAD_BYTES = 500
"""What an object costs in memory besides its data: key, strings, dictionary and order entries."""

EMPTY_BYTES = 1_000
"""What a cache costs without any object: nobody needs a right to have one of a space that is not there loaded."""

_LAST = "\U0010ffff"

_NOTHING = FullListing()
"""Of any namespace without objects: whoever asks may name as many as there are names."""


class ResourceCache:
    """The objects of one resource, of one space or of all, in the order of listings."""

    __slots__ = ("_listings", "_order", "bytes", "changed", "items", "used")

    def __init__(self, objects: Iterable[Stored], changed: int = 0) -> None:
        self.items: dict[ListKey, Stored] = {list_key_of(stored): stored for stored in objects}
        self._order: list[ListKey] = sorted(self.items)
        self._listings: dict[str | None, FullListing] = {}
        self.bytes = EMPTY_BYTES + sum(map(_weight, self.items.values()))
        self.used = 0.0
        self.changed = changed
        """Since this revision nothing has."""

    def apply(self, event: Event) -> int:
        """Take one event in; returns by how many bytes the cache grew. Repeating an event changes nothing."""
        key = event.key
        place = (key.space, key.namespace, key.name)
        before = self.items.get(place)
        growth = -_weight(before) if before is not None else 0
        if event.type is EventType.DELETED:
            if before is not None:
                del self.items[place]
                del self._order[bisect_left(self._order, place)]
        else:
            if before is None:
                insort(self._order, place)
            stored = self.items[place] = Stored(key, event.revision, event.data)
            growth += _weight(stored)
        if self._listings:
            # They are given out as they are, and must stay what they were: the next listing is made anew.
            self._listings.clear()
        self.bytes += growth
        self.changed = max(self.changed, event.revision)
        return growth

    def listing(self, selection: Range | AllSpaces, after: ListKey | None, limit: int) -> tuple[Sequence[Stored], int]:
        """The objects of a selection behind ``after``, ``limit`` at most (0: all), and how many more follow."""
        order = self._order
        start, stop = self._bounds(selection, after)
        if start == stop:
            return _NOTHING, 0
        if after is None and (not limit or limit >= stop - start):
            cached = selection.namespace if isinstance(selection, Range) else None
            whole = self._listings.get(cached)
            if whole is None:
                whole = self._listings[cached] = FullListing([self.items[place] for place in order[start:stop]])
            return whole, 0
        end = min(start + limit, stop) if limit else stop
        return [self.items[place] for place in order[start:end]], stop - end

    def places(self, selection: Range | AllSpaces, after: ListKey | None) -> tuple[Iterator[ListKey], int]:
        """Where the objects of a selection stand behind ``after``, in order and as far as is asked, and how many."""
        start, stop = self._bounds(selection, after)
        return map(self._order.__getitem__, range(start, stop)), stop - start

    def _bounds(self, selection: Range | AllSpaces, after: ListKey | None) -> tuple[int, int]:
        order = self._order
        start, stop = 0, len(order)
        if isinstance(selection, Range) and selection.namespace is not None:
            start = bisect_left(order, (selection.space, selection.namespace, ""))
            stop = bisect_right(order, (selection.space, selection.namespace, _LAST))
        if after is not None:
            start = min(max(start, bisect_right(order, after)), stop)
        return start, stop


def _weight(stored: Stored) -> int:
    """The bytes of memory that an object may take: its data stands in a joined listing a second time."""
    return 2 * len(stored.data) + OVERHEAD_BYTES


class Cache:
    """The caches, least recently used first, and how much memory they take.

    One that would leave no room for any other takes none of theirs: the last such is held beside them, alone, for each
    look at one of its objects would load it again.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._caches: OrderedDict[Place, ResourceCache] = OrderedDict()
        self._beside: Place | None = None
        self._loading: dict[Place, list[Event]] = {}
        self.bytes = 0

    def find(self, selection: Place, now: float) -> ResourceCache | None:
        """The cache of a whole resource, if it is held."""
        cache = self._caches.get(selection)
        if cache is not None:
            cache.used = now
            self._caches.move_to_end(selection)
        return cache

    def buffer_events(self, selection: Range | AllSpaces) -> list[Event]:
        """Collect the events of a selection from now on, because its cache is being loaded."""
        return self._loading.setdefault(selection, [])

    def stop_buffering(self, selection: Range | AllSpaces) -> None:
        """The cache is loaded, or will not be: let go of what was collected for it."""
        self._loading.pop(selection, None)

    def put(self, selection: Range | AllSpaces, cache: ResourceCache, now: float) -> None:
        """Hold a cache, and let the least recently used go where memory runs out."""
        cache.used = now
        if cache.bytes > self._limit:
            if self._beside is not None:
                self._drop(self._beside)
            self._beside = selection
        else:
            self.bytes += cache.bytes
        self._caches[selection] = cache
        self._trim()

    def apply(self, event: Event) -> None:
        """Take one event into whatever caches it concerns."""
        space, group, resource, _, _ = event.key
        selections: tuple[Place, ...] = ((space, group, resource, None), (group, resource))
        for selection in selections:
            cache = self._caches.get(selection)
            if cache is not None:
                growth = cache.apply(event)
                if selection != self._beside:
                    self.bytes += growth
                    if cache.bytes > self._limit:
                        self._drop(selection)
            elif selection in self._loading:
                self._loading[selection].append(event)
        if self.bytes > self._limit:
            self._trim()

    def drop_idle(self, before: float) -> None:
        """Let go what nobody has used since ``before`` (monotonic seconds)."""
        for selection, cache in list(self._caches.items()):
            if cache.used >= before:
                break
            self._drop(selection)

    def clear(self) -> None:
        """Forget everything, loads under way included."""
        self._caches.clear()
        self._loading.clear()
        self._beside = None
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._caches)

    def _drop(self, selection: Place) -> None:
        cache = self._caches.pop(selection)
        if selection == self._beside:
            self._beside = None
        else:
            self.bytes -= cache.bytes

    def _trim(self) -> None:
        while self.bytes > self._limit:
            self._drop(next(selection for selection in self._caches if selection != self._beside))


def list_key_of(stored: Stored) -> ListKey:
    """Where an object stands in a listing."""
    key = stored.key
    return key.space, key.namespace, key.name
