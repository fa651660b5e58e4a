"""watch: what was, what becomes, bookmarks between, and an end as soon as the caller may no longer look."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import orjson

from gateway.filters.standing import begin, require_beginning
from gateway.handlers.reading import PART, fallen_back_on, read_whole, revision_of
from gateway.http.errors import as_event, as_status_error
from gateway.http.messages import Request, Stream
from gateway.http.negotiation import Accept, negotiate
from gateway.process.runtime import Runtime
from gateway.process.streams import OpenStream, Recheck
from gateway.resources import writeoptions
from gateway.resources.kinds import Kind
from gateway.resources.objects import encode_anew, encode_in_version, keep_shown
from gateway.resources.selection import Selection, decoded, selection
from kube.objects import tables
from kube.requests.fielderrors import forbidden
from kube.requests.status import StatusError
from store.types import Event, EventType, Stored, StoreError

logger = logging.getLogger(__name__)

_SHORTEST: Final = 1800.0
_LONGEST: Final = 3600.0
"""Watches that name no end live for 30 to 60 minutes, spread so that they do not all come back at once."""

_PIECE: Final = 256 * 1024
"""About how much is put together for a client at a time: what waits for one that does not read is no copy of all there is."""

_INITIAL_END: Final = "k8s.io/initial-events-end"


@dataclass(slots=True)
class _Start:
    """Where a watch begins: the objects to show first, until they are shown, and the revision after which events follow."""

    initial: Sequence[Stored]
    since: int


async def watch(runtime: Runtime, request: Request, kind: Kind, recheck: Recheck) -> Stream:
    """Open a watch. Errors of the request itself are raised; later ones become the stream's last event.

    Raises ``RateLimited`` where as many streams are open as may be, once it has waited for its beginning, and
    ``ServiceUnavailable`` while the end of the right to it would not be heard.
    """
    return Stream((await prepared(runtime, request, kind, recheck)).chunks())


async def prepared(runtime: Runtime, request: Request, kind: Kind, recheck: Recheck) -> Watching:
    """A watch that may begin now. Raises as ``watch``."""
    accept = negotiate(request)
    chosen = selection(request, kind)
    bookmarks = writeoptions.flag(request.query.get("allowWatchBookmarks"))
    initial_events = initial_events_of(request)
    seconds = _timeout(request)
    start = await _start(runtime, request, chosen, initial_events=initial_events)
    await require_beginning(runtime, request.principal)
    return Watching(
        runtime=runtime,
        request=request,
        chosen=chosen,
        encoder=Encoder(request, kind, accept),
        start=start,
        recheck=recheck,
        seconds=seconds,
        bookmarks=bookmarks,
        mark_initial=initial_events is True and bookmarks,
    )


def initial_events_of(request: Request) -> bool | None:
    """Whether ``sendInitialEvents`` asks for what is there (``None``: unsaid). Raises ``Invalid``."""
    query, field = request.query, "resourceVersionMatch"
    value, match = query.get("sendInitialEvents"), query.get(field, "")
    # kube-apiserver lets a watch that says nothing begin with the objects that are there, as if it had been asked to.
    unsaid = value is None and not match and query.get("resourceVersion", "") in ("", "0")
    causes = []
    if value is not None and match != "NotOlderThan":
        causes.append(forbidden(field, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"))
    if match and value is None:
        text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(forbidden(field, text))
    if match and match != "NotOlderThan":
        causes.append(writeoptions.unsupported(field, match, ("NotOlderThan",)))
    if (match or unsaid) and query.get("continue"):
        causes.append(forbidden(field, "resourceVersionMatch is forbidden when continue is provided"))
    if causes:
        raise writeoptions.invalid_options("ListOptions", causes)
    return None if value is None else writeoptions.flag(value)


def _timeout(request: Request) -> float:
    text = request.query.get("timeoutSeconds", "")
    if not text or text == "0":
        return random.uniform(_SHORTEST, _LONGEST)  # noqa: S311 - jitter
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise writeoptions.not_a_number(text)
    return min(float(text), _LONGEST)


async def _start(runtime: Runtime, request: Request, chosen: Selection, *, initial_events: bool | None) -> _Start:
    version = request.query.get("resourceVersion", "")
    revision = revision_of(version) if version else None
    if initial_events is None and revision:
        return _Start((), revision)
    if initial_events is False and not revision:
        listing = await runtime.store.list(chosen.range, limit=1)
        return _Start((), listing.revision)
    if initial_events is False and revision:
        return _Start((), revision)
    page = await read_whole(runtime, request, chosen, cached=revision == 0, at_least=revision or None)
    items, more = page.items, await fallen_back_on(runtime, chosen)
    if more:
        items = sorted((*items, *more), key=lambda item: item.key.name)
    return _Start(items, page.revision)


class Encoder:
    """Turns events into lines in the negotiated form."""

    def __init__(self, request: Request, kind: Kind, accept: Accept) -> None:
        self._request = request
        self._kind = kind
        self._accept = accept
        self._headers = True
        self._include = request.query.get("includeObject") or "Metadata"
        if accept.is_table:
            tables.check_included(self._include)

    @property
    def definition(self) -> str:
        """The uid of the CRD that the kind rests on."""
        return self._kind.resource.definition

    @property
    def is_plain(self) -> bool:
        """Whether objects are shown by their bytes."""
        return not self._accept.kind and self._kind.is_stored_version

    def is_long(self, data: bytes) -> bool:
        """Whether it takes long to have an object in the kind's version, and nobody has had it yet."""
        return len(data) > PART and not self._kind.is_stored_version and data not in self._kind.shown

    async def prepare(self, runtime: Runtime, data: bytes) -> None:
        """Have a long object made beside the loop, in the tenant's turn, once for all who wait. Raises ``TooManyRequests``."""
        kind, in_turn = self._kind, self._request.in_turn
        async with runtime.conversions.of((*kind.resource.place, kind.version)):
            if self.is_long(data) and in_turn is not None:
                keep_shown(data, await in_turn(partial(asyncio.to_thread, encode_anew, data, kind)), kind)

    def line(self, type_: str, data: bytes) -> bytes:
        """One event in the negotiated form, ended by a line feed; ``data`` is the object as JSON."""
        data = encode_in_version(data, self._kind)
        if not self._accept.kind:
            return b'{"type":"' + type_.encode() + b'","object":' + data + b"}\n"
        return orjson.dumps({"type": type_, "object": self._form(decoded(data))}) + b"\n"

    def bookmark(self, revision: int, *, initial: bool = False) -> bytes:
        """A bookmark: the watcher knows everything up to ``revision``."""
        metadata: dict[str, Any] = {"resourceVersion": str(revision), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {_INITIAL_END: "true"}
        body: dict[str, Any] = {"kind": self._kind.name, "apiVersion": self._kind.api_version, "metadata": metadata}
        if self._accept.is_table:
            body = {
                "kind": "Table",
                "apiVersion": f"meta.k8s.io/{self._accept.version}",
                "metadata": {"resourceVersion": str(revision)},
                "columnDefinitions": None,
                "rows": [
                    {"cells": [], "object": {**body, "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}}
                ],
            }
        elif self._accept.is_partial:
            body = tables.partial_object(body, self._accept.version)
        return orjson.dumps({"type": "BOOKMARK", "object": body}) + b"\n"

    def _form(self, body: dict[str, Any]) -> dict[str, Any]:
        if self._accept.is_table:
            table = tables.table(
                self._kind.table_convertor,
                [body],
                now=self._request.now,
                include_object=self._include,
                metadata={"resourceVersion": body["metadata"].get("resourceVersion", "")},
                headers=self._headers,
                version=self._accept.version,
            )
            self._headers = False
            return table
        return tables.partial_object(body, self._accept.version)


@dataclass(frozen=True, slots=True, kw_only=True)
class Watching:
    """A watch of the store's objects that may begin."""

    runtime: Runtime
    request: Request
    chosen: Selection
    encoder: Encoder
    start: _Start
    recheck: Recheck
    seconds: float
    bookmarks: bool
    mark_initial: bool

    async def chunks(self, within: OpenStream | None = None) -> AsyncIterator[bytes]:
        """The lines as they come; ``within`` a stream that has begun, or registered as one of its own."""
        # 1. The watch is registered before anything is shown: from here on every revocation finds it and marks it ended.
        stream = within or await begin(self.runtime, self.request, self.recheck, definition=self.encoder.definition)
        # 2. The source begins at the revision of what is shown first. The log fills whatever happens until it is live, so
        #    no event is lost or shown twice between the list and the watch.
        source = self.runtime.store.watch(self.chosen.range, since=self.start.since)
        expired = asyncio.Event()
        stream.ended.add_done_callback(lambda _: source.interrupt())

        def expire() -> None:
            expired.set()
            source.interrupt()

        timer = asyncio.get_running_loop().call_later(self.seconds, expire)

        def at_once(event: Event) -> bool:
            try:
                seen = _seen(event, self.chosen)
                if seen is not None and self.encoder.is_long(seen[1]):
                    # Then it waits in the buffer, until it is made.
                    return False
                line = self.encoder.line(*seen) if seen is not None else b""
            except Exception as error:
                logger.exception("an event cannot be shown")
                stream.end(as_status_error(error))
                return False
            return not stream.ended.done() and (not line or self.request.write(line))

        try:
            # 3. Asked before each piece is shown, which is written before anything else happens: nothing is sent of what the
            #    caller may no longer see.
            async for lines in self._initial():
                if stream.ended.done():
                    break
                yield lines
            # Nothing that was shown stays for as long as nothing happens.
            self.start.initial, lines = (), b""
            # 4. Only now may events go straight to the connection: the beginning has been handed over before them. The
            #    source uses the sink only while this reader waits with nothing buffered, so the order of events holds.
            source.sink = at_once
            batches = aiter(source)
            while not stream.ended.done():
                batch = await anext(batches, None)
                if batch is None or stream.ended.done():
                    break
                events, revision = batch
                async for lines in self._lines(filter(None, (_seen(event, self.chosen) for event in events))):
                    if stream.ended.done():
                        break
                    yield lines
                    del lines
                if self.bookmarks and not events and not expired.is_set():
                    yield self.encoder.bookmark(revision)
                if expired.is_set():
                    return
            if stream.ended.done() and (last_word := stream.last_word) is not None:
                yield orjson.dumps(as_event(last_word)) + b"\n"
        except (StoreError, StatusError) as error:
            yield orjson.dumps(as_event(as_status_error(error))) + b"\n"
        finally:
            # 5. Reached by every end, the client's going included (the generator is closed): nothing stays registered.
            timer.cancel()
            if within is None:
                self.runtime.open_streams.close(stream)
            await source.aclose()

    async def _initial(self) -> AsyncIterator[bytes]:
        """What is there already, and the mark behind it."""
        if not self.encoder.is_plain:
            self.request.charge_bytes(sum(len(item.data) for item in self.start.initial))
        async for lines in self._lines(("ADDED", item.data) for item in self.start.initial):
            yield lines
        if self.mark_initial:
            yield self.encoder.bookmark(self.start.since, initial=True)

    async def _lines(self, shown: Iterable[tuple[str, bytes]]) -> AsyncIterator[bytes]:
        """Their lines in order, short ones together; one piece at least, where there are none.

        Of what is taken apart first no more comes at a time than others can wait for.
        """
        some: list[bytes] = []
        size, most = 0, _PIECE if self.encoder.is_plain else PART
        for type_, data in shown:
            if self.encoder.is_long(data):
                await self.encoder.prepare(self.runtime, data)
            some.append(self.encoder.line(type_, data))
            size += max(len(data), len(some[-1]))
            if size >= most:
                piece, some, size = b"".join(some), [], 0
                yield piece
                del piece
                if not self.encoder.is_plain:
                    await asyncio.sleep(0)
        yield b"".join(some)


def _seen(event: Event, chosen: Selection) -> tuple[str, bytes] | None:
    """The event as this watcher must see it: what comes into its selection is added, what leaves it is deleted."""
    if chosen.is_whole:
        return event.type, event.data
    now = event.type is not EventType.DELETED and chosen.matches(event.key, event.data)
    before = event.previous if event.previous is not None else event.data if event.type is EventType.DELETED else None
    was = before is not None and chosen.matches(event.key, before)
    if now:
        return "MODIFIED" if was else "ADDED", event.data
    if not was:
        return None
    return "DELETED", event.data if event.previous is None else _as_it_was(event.previous, event.revision)


def _as_it_was(data: bytes, revision: int) -> bytes:
    """The last state that a watcher selected, with the revision of what took it out of the selection."""
    body = orjson.loads(data)
    body["metadata"]["resourceVersion"] = str(revision)
    return orjson.dumps(body)
