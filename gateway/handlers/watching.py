"""watch: what was, what becomes, bookmarks between, and an end as soon as the caller may no longer look."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson

from gateway import parameters
from gateway.errors import as_event, as_status_error
from gateway.exchange import Request, Stream
from gateway.handlers.reading import revision_of, with_bootstrap_policy
from gateway.kinds import Kind
from gateway.negotiation import Accept, negotiate
from gateway.objects import converted
from gateway.runtime import Runtime
from gateway.selection import Selection, selection
from gateway.streams import Recheck
from kube import tables
from kube.validation.causes import forbidden
from store.types import Event, EventType, Stored, StoreError

logger = logging.getLogger(__name__)

_SHORTEST: Final = 1800.0
_LONGEST: Final = 3600.0
"""Watches that name no end live for 30 to 60 minutes, spread so that they do not all come back at once."""

_INITIAL_END: Final = "k8s.io/initial-events-end"


@dataclass(frozen=True, slots=True)
class _Start:
    """Where a watch begins: the objects to show first, and the revision after which events follow."""

    initial: Sequence[Stored]
    since: int


async def watch(runtime: Runtime, request: Request, kind: Kind, recheck: Recheck) -> Stream:
    """Open a watch. Errors of the request itself are raised; later ones become the stream's last event."""
    accept = negotiate(request)
    chosen = selection(request, kind)
    bookmarks = parameters.flag(request.query.get("allowWatchBookmarks"))
    initial_events = _initial_events(request)
    seconds = _timeout(request)
    start = await _start(runtime, request, chosen, initial_events=initial_events)
    encoder = _Encoder(request, kind, accept)
    chunks = _chunks(
        runtime,
        request,
        chosen,
        encoder,
        start,
        recheck,
        seconds,
        bookmarks=bookmarks,
        mark_initial=initial_events is True and bookmarks,
    )
    return Stream(chunks)


def _initial_events(request: Request) -> bool | None:
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
        causes.append(parameters.unsupported(field, match, ("NotOlderThan",)))
    if (match or unsaid) and query.get("continue"):
        causes.append(forbidden(field, "resourceVersionMatch is forbidden when continue is provided"))
    if causes:
        raise parameters.invalid_options("ListOptions", causes)
    return None if value is None else parameters.flag(value)


def _timeout(request: Request) -> float:
    text = request.query.get("timeoutSeconds", "")
    if not text or text == "0":
        return random.uniform(_SHORTEST, _LONGEST)  # noqa: S311 - jitter
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise parameters.not_a_number(text)
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
    listing = await runtime.store.list(chosen.range, cached=revision == 0, at_least=revision or None)
    return _Start(await with_bootstrap_policy(runtime, chosen, chosen.filter(listing.items)), listing.revision)


class _Encoder:
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

    def line(self, type_: str, data: bytes) -> bytes:
        """One event."""
        if not self._accept.kind and self._kind.is_stored_version:
            return b'{"type":"' + type_.encode() + b'","object":' + data + b"}\n"
        return orjson.dumps({"type": type_, "object": self._form(orjson.loads(data))}) + b"\n"

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
        body = converted(body, self._kind)
        if self._accept.is_table:
            table = tables.table(
                self._kind.layout,
                [body],
                now=self._request.now,
                include_object=self._include,
                metadata={"resourceVersion": body["metadata"].get("resourceVersion", "")},
                headers=self._headers,
                version=self._accept.version,
            )
            self._headers = False
            return table
        return tables.partial_object(body, self._accept.version) if self._accept.is_partial else body


async def _chunks(
    runtime: Runtime,
    request: Request,
    chosen: Selection,
    encoder: _Encoder,
    start: _Start,
    recheck: Recheck,
    seconds: float,
    *,
    bookmarks: bool,
    mark_initial: bool,
) -> AsyncIterator[bytes]:
    stream = runtime.streams.open(
        request.principal, request.info, recheck, now=request.now, definition=encoder.definition
    )
    source = runtime.store.watch(chosen.range, since=start.since)
    expired = asyncio.Event()
    stream.ended.add_done_callback(lambda _: source.interrupt())

    def expire() -> None:
        expired.set()
        source.interrupt()

    timer = asyncio.get_running_loop().call_later(seconds, expire)

    def at_once(event: Event) -> bool:
        try:
            line = _seen(event, chosen, encoder)
        except Exception as error:
            logger.exception("an event cannot be shown")
            stream.end(as_status_error(error))
            return False
        return not stream.ended.done() and (not line or request.write(line))

    try:
        try:
            # What was taken away since the decision, while the beginning was waited for, has found no open stream.
            await recheck()
        except Exception as error:  # noqa: BLE001 - whatever happens, the stream must not go on
            yield orjson.dumps(as_event(as_status_error(error))) + b"\n"
            return
        yield b"".join(encoder.line("ADDED", item.data) for item in start.initial)
        if mark_initial:
            yield encoder.bookmark(start.since, initial=True)
        source.sink = at_once
        async for events, revision in source:
            if stream.ended.done():
                yield orjson.dumps(as_event(stream.ended.result())) + b"\n"
                return
            lines = b"".join(line for event in events if (line := _seen(event, chosen, encoder)))
            if not lines and bookmarks and not events and not expired.is_set():
                lines = encoder.bookmark(revision)
            if lines:
                yield lines
            if expired.is_set():
                return
    except StoreError as error:
        yield orjson.dumps(as_event(as_status_error(error))) + b"\n"
    finally:
        timer.cancel()
        runtime.streams.close(stream)
        await source.aclose()


def _seen(event: Event, chosen: Selection, encoder: _Encoder) -> bytes:
    """The event as this watcher must see it: what comes into its selection is added, what leaves it is deleted."""
    if chosen.is_whole:
        return encoder.line(event.type, event.data)
    now = event.type is not EventType.DELETED and chosen.matches(event.key, event.data)
    before = event.previous if event.previous is not None else event.data if event.type is EventType.DELETED else None
    was = before is not None and chosen.matches(event.key, before)
    if now:
        return encoder.line("MODIFIED" if was else "ADDED", event.data)
    if not was:
        return b""
    return encoder.line("DELETED", event.data if event.previous is None else _as_it_was(event.previous, event.revision))


def _as_it_was(data: bytes, revision: int) -> bytes:
    """The last state that a watcher selected, with the revision of what took it out of the selection."""
    body = orjson.loads(data)
    body["metadata"]["resourceVersion"] = str(revision)
    return orjson.dumps(body)
