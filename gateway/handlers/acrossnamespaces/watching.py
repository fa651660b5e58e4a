"""A watch across namespaces that are stored and namespaces that are on clusters (GW4).

1. It begins with a version of each part: those that the client's number stands for, or those of a list whose objects are
   shown first. So nothing between a list and its watch is lost or shown twice.
2. Each part has a reader of its own. It puts whole events where they wait for the client, in its own order and for as long as
   there is room (``turns``); a client that does not read holds all of them back. A reader whose cluster hangs up goes on
   behind the last event that it has put there.
3. The number of a bookmark stands for what has been shown of every part, so that a client goes on from there on this
   process. Behind the events of each turn comes one, where the client takes them: an event's own version is its
   cluster's, and means nothing to the others.
4. A namespace that comes is listed and then read like the others. One that a version stands for and that is not shown any
   more has the client list anew, whether it goes while the watch is open or has gone before it was opened again: nobody else
   would tell that its objects are gone.
5. The whole is registered and ends with the right to it: what waits then is shown to nobody. The store's part
   is an ordinary watch within it, which ends with the time. When it ends, all end.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from gateway.filters.standing import begin
from gateway.handlers import watching
from gateway.handlers.acrossnamespaces.columns import Columns
from gateway.handlers.acrossnamespaces.listing import scope_of
from gateway.handlers.acrossnamespaces.parts import (
    CHANGED,
    STORED,
    Part,
    Query,
    is_open,
    lacks,
    placed_request,
    read_all,
    read_placed,
    refusal,
    stored_request,
    with_each,
)
from gateway.handlers.acrossnamespaces.turns import ROOM, Turn, Turns
from gateway.handlers.placednamespaces import forwarding
from gateway.handlers.reading import head_of, revision_of
from gateway.http.errors import as_event, as_status_error
from gateway.http.messages import Request, Stream
from gateway.http.negotiation import Accept, negotiate
from gateway.process.runtime import Runtime
from gateway.process.streams import Recheck
from gateway.resources import writeoptions
from gateway.resources.kinds import Kind
from gateway.resources.selection import selection
from gateway.upstream.answers import EVENTS, Room, decode, lines, version_of
from gateway.upstream.client import BadGateway, ShareTaken
from gateway.upstream.placements import Placement
from gateway.upstream.versions import given_at
from kube.objects.tables import aligned_rows
from kube.requests.status import Expired, Forbidden, StatusError, Timeout
from store.types import Range, StoreError

logger = logging.getLogger(__name__)

_LONG: Final = 256 * 1024
_BYTES_A_SECOND: Final = 4 * 1024 * 1024
"""How fast the long events of one namespace are taken."""
_TOLD: Final = frozenset({410})
"""What a client is told as its cluster says it: a watch names a version. That a watch is wrong would have been found before."""
_PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds before a cluster that has hung up is asked again; the later ones while it keeps failing."""
_BOOKMARK_SECONDS: Final = 1.0
"""A part's bookmarks that come faster say nothing that is worth a turn."""
_BEGINNING_SECONDS: Final = 60.0
"""How long a client may take for a beginning that is longer than what waits for it later."""
_BRIEF_SECONDS: Final = 5.0
"""A watch that a cluster ends sooner is a failure: each costs a token, a connection and its handshake."""
_FORGIVEN_SECONDS: Final = 60.0
"""A cluster that has been followed for so long has not kept failing."""


@dataclass(slots=True)
class _Merger:
    """One watch while it is open."""

    runtime: Runtime
    request: Request
    kind: Kind
    accept: Accept
    given: float
    """When the versions that it begins with were given, in Unix seconds."""
    turns: Turns = field(default_factory=Turns)
    readers: dict[str, tuple[Placement, asyncio.Task[None]]] = field(default_factory=dict)
    """By the names of their namespaces."""
    head: Mapping[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.head = head_of(self.request, self.kind, self.accept)

    async def follow_stored(self, stream: AsyncIterator[bytes]) -> None:
        """The store's part, bookmarks turned into versions; when it ends all end."""
        async for chunk in stream:
            for line in chunk.splitlines(keepends=True):
                type_, version = _told(orjson.loads(line))
                # An error is the last thing that it says.
                await self.turns.put(Turn(STORED, version, b"" if type_ == "BOOKMARK" else line, ends=type_ == "ERROR"))
        await self.turns.put(Turn(ends=True))

    async def follow_placed(self, placement: Placement, version: str) -> None:
        """A placed namespace's part behind ``version``; without one what is there comes first. Raises ``ShareTaken``."""
        versions, scope = self.runtime.merged_versions, scope_of(self.request, self.kind)
        loop, given, failures = asyncio.get_running_loop(), self.given, 0
        while True:
            since = loop.time()
            try:
                if not version:
                    given = time.time()
                    version = await self._beginning(placement)
                    if not version:
                        return
                async with aclosing(self._events(placement, version)) as turns:
                    async for turn in turns:
                        version = turn.version
                        await self.turns.put(turn)
                        del turn
                if loop.time() - since < _BRIEF_SECONDS:
                    raise BadGateway(f'the cluster "{placement.cluster}" ends its watches as soon as they begin')
                failures = 0
            except ShareTaken:
                # The tenant's own doing: nobody waits for a cluster that would answer.
                raise
            except (StatusError, _NotThere) as error:
                gone = isinstance(error, Expired | Forbidden | _NotThere)
                if gone and versions.expire(scope, placement.workspace, given):
                    raise (error if isinstance(error, Expired) else Expired(CHANGED)) from None
                # A cluster that is away holds nobody else up, and what happens meanwhile is told when it is back.
                failures = 1 + (failures if loop.time() - since < _FORGIVEN_SECONDS else 0)
                self.runtime.metrics.count_pause(placement.cluster)
                logger.info("the watch of %s pauses: %s", placement.namespace, error)
            if not await self._is_shown(placement):
                raise Expired(CHANGED)
            await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES) - 1)])

    async def _beginning(self, placement: Placement) -> str:
        """The version up to which a namespace that has come was shown, empty where the kind is not there."""
        with forwarding.room_for(self.runtime, self.request) as room:
            part = await read_placed(self.runtime, self.request, placement, self.accept, {}, room)
            if part is None:
                return ""
            shown, version = added(part, self.head, self.kind, self.accept), part.version
            del part
            if len(shown) > ROOM:
                # It is for lists to be long: nothing of this size waits for a client that may not read.
                raise Expired(CHANGED)
            await self.turns.put(Turn(placement.workspace, version, shown))
        return version

    async def _events(self, placement: Placement, version: str) -> AsyncGenerator[Turn, None]:
        query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version}
        asked = placed_request(self.request, placement, self.accept, query)
        role = await forwarding.role_of(self.runtime, asked.principal, asked.info, placement)
        answer = await forwarding.ask(self.runtime, asked, placement, role, follows=True)
        loop = asyncio.get_running_loop()
        columns = Columns(self.head) if self.accept.is_table else None
        marked = float("-inf")
        try:
            if answer.status == 404:
                with forwarding.room_for(self.runtime, self.request) as room:
                    if await lacks(self.runtime, asked, placement, room):
                        raise _NotThere
            if answer.status != 200:
                raise refusal(answer.status, b"", placement, _TOLD)
            held = forwarding.share_for(self.runtime, self.request)
            async with aclosing(lines(answer, placement.cluster, held)) as found:
                async for line in found:
                    said, told = self._read(line, placement, columns)
                    if _is_older(told, version):
                        raise BadGateway(f'the resourceVersion of the cluster "{placement.cluster}" goes back')
                    version = told
                    if len(line) > _LONG:
                        # One of these takes the loop for as long as it takes: most of it is left to everybody else.
                        await asyncio.sleep(len(line) / _BYTES_A_SECOND)
                    del line
                    if said or loop.time() - marked >= _BOOKMARK_SECONDS:
                        marked = loop.time()
                        yield Turn(placement.workspace, version, said)
                        del said
        finally:
            answer.close()

    def _read(self, line: bytes, placement: Placement, columns: Columns | None) -> tuple[bytes, str]:
        """What is told of an event, and its version; nothing that was decoded waits with it. Raises what an error says."""
        event = decode(line, placement.cluster)
        type_, version = _checked(event, placement, self.kind, self.accept)
        if type_ == "ERROR":
            code = event["object"].get("code")
            known = type(code) is int and 400 <= code < 600
            said = event["object"].get("message")
            told = orjson.dumps({"message": said}) if isinstance(said, str) else b""
            raise refusal(code if known else 500, told, placement, _TOLD)
        if columns is None:
            return b"" if type_ == "BOOKMARK" else line + b"\n", version
        try:
            return columns.shown(line, event), version
        except (ValueError, KeyError, TypeError, AttributeError):
            raise BadGateway(f'the cluster "{placement.cluster}" sends rows that are none of a table') from None

    async def _is_shown(self, placement: Placement) -> bool:
        now = await self.runtime.placements.of(placement.space, placement.namespace)
        return now is not None and now.workspace == placement.workspace and is_open(self.request, now)

    async def follow_namespaces(self, since: int) -> None:
        """Begin to read what comes. Raises ``Expired`` once something is not shown any more that was."""
        info = self.request.info
        source = self.runtime.store.watch(Range(info.cluster, "", "namespaces"), since=since)
        try:
            async for events, _ in source:
                for event in events:
                    name = event.key.name
                    if name in self.readers:
                        if not await self._is_shown(self.readers[name][0]):
                            raise Expired(CHANGED)
                        continue
                    placement = await self.runtime.placements.of(info.cluster, name)
                    if placement is not None and is_open(self.request, placement):
                        self.begin(placement, "")
        finally:
            await source.aclose()

    def begin(self, placement: Placement, version: str) -> None:
        """Read a placed namespace's part."""
        reader = asyncio.create_task(self._ending_all(self.follow_placed(placement, version)))
        self.readers[placement.namespace] = placement, reader

    async def _ending_all(self, work: Any) -> None:
        """A reader that fails must not leave a watch that looks whole."""
        try:
            await work
        except Exception as error:
            if not isinstance(error, StatusError | StoreError):
                logger.exception("a part of a watch cannot be read")
            await self.turns.put(Turn(lines=_line(as_status_error(error)), ends=True))

    async def chunks(
        self, stored: watching.Watching, parts: dict[str, str], initial: deque[bytes], room: Room, since: int,
        placements: Iterable[Placement], encoder: watching.Encoder, *, bookmarks: bool, mark_initial: bool,
    ) -> AsyncIterator[bytes]:  # fmt: skip
        """The lines of all parts as they come, for as long as the right to them stands; ``room`` holds the ``initial`` ones."""
        scope, loop = scope_of(self.request, self.kind), asyncio.get_running_loop()

        def bookmark(*, initial: bool = False) -> bytes:
            return encoder.bookmark(int(self.runtime.merged_versions.number(scope, parts)), initial=initial)

        begins = {placement.namespace: placement for placement in placements if placement.workspace in parts}

        def shown() -> Iterable[Placement]:
            """What it begins with, and the namespaces that are read: not those whose kind is not there, or not for the caller."""
            read = {name: placement for name, (placement, reader) in self.readers.items() if not reader.done()}
            return (begins | read).values()

        recheck = with_each(self.runtime, self.request, stored.recheck, shown)
        stream = await begin(self.runtime, self.request, recheck, definition=encoder.definition)
        late = Timeout("the client does not take what the watch begins with")
        timer = loop.call_later(_BEGINNING_SECONDS, stream.end, late)
        others: list[asyncio.Task[None]] = []
        try:
            if mark_initial:
                initial.append(bookmark(initial=True))
            while initial and not stream.ended.done():
                # It is written before anything else happens: nothing comes between the question and what is shown.
                yield initial.popleft()
            timer.cancel()
            room.close()
            if not stream.ended.done():
                # The store's part hears of the end, and wakes whoever waits here.
                others.append(asyncio.create_task(self._ending_all(self.follow_stored(stored.chunks(stream)))))
                others.append(asyncio.create_task(self._ending_all(self.follow_namespaces(since))))
                for placement in placements:
                    self.begin(placement, parts.get(placement.workspace, ""))
            while not stream.ended.done():
                turns = await self.turns.take()
                if stream.ended.done():
                    break
                end = next((number for number, turn in enumerate(turns, 1) if turn.ends), 0)
                # Nothing comes behind the end, nor another one: clients take an error for the last word.
                said = b"".join([turn.lines for turn in (turns[:end] if end else turns)])
                if end:
                    if said:
                        yield said
                    return
                parts |= {turn.name: turn.version for turn in turns if turn.version}
                del turns
                yield said + bookmark() if bookmarks else said
                del said
            if (last_word := stream.last_word) is not None:
                yield _line(last_word)
        finally:
            timer.cancel()
            room.close()
            self.runtime.open_streams.close(stream)
            tasks = (*others, *(task for _, task in self.readers.values()))
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def watch(
    runtime: Runtime, request: Request, kind: Kind, recheck: Recheck, placements: Sequence[Placement], since: int
) -> Stream:
    """Open a watch; ``placements`` are those of revision ``since``. Raises ``StatusError`` for what cannot begin."""
    given, accept, query = time.time(), negotiate(request), request.query
    placements = [placement for placement in placements if is_open(request, placement)]
    selection(request, kind)
    bookmarks = writeoptions.flag(query.get("allowWatchBookmarks"))
    initial_events = watching.initial_events_of(request)
    encoder = watching.Encoder(request, kind, accept)
    version, places = query.get("resourceVersion", ""), {STORED, *(placement.workspace for placement in placements)}
    initial: deque[bytes] = deque()
    known = None
    if version not in ("", "0"):
        revision_of(version)
        known = runtime.merged_versions.parts(scope_of(request, kind), version)
        if known is None and initial_events is not True:
            raise Expired(f"too old resource version: {version}")
    with ExitStack() as failing:
        room = failing.enter_context(forwarding.room_for(runtime, request))
        if known is not None and initial_events is not True:
            if not places.issuperset(known):
                raise Expired(CHANGED)
            given, parts = given_at(version), dict(known)
        else:
            shown = initial_events is not False
            read = await _read(runtime, request, kind, accept, placements, {} if shown else {"limit": "1"}, room)
            parts = {name: part.version for name, part in read.items()}
            head = head_of(request, kind, accept)
            initial.extend(added(part, head, kind, accept) for part in read.values() if shown)
            del read
        asked = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": parts[STORED]}
        if "timeoutSeconds" in query:
            asked["timeoutSeconds"] = query["timeoutSeconds"]
        inner = await stored_request(runtime, request, accept, asked)
        stored = await watching.prepared(runtime, inner, kind, recheck)
        if sum(map(len, initial)) > ROOM:
            # So much is counted until it is shown.
            failing.pop_all()
    merger = _Merger(runtime, request, kind, accept, given)
    # What was not there for tenants when the list was read is not looked for.
    read_on = [placement for placement in placements if known is not None or placement.workspace in parts]
    return Stream(
        merger.chunks(
            stored,
            parts,
            initial,
            room,
            since,
            read_on,
            encoder,
            bookmarks=bookmarks,
            mark_initial=initial_events is True and bookmarks,
        )
    )


async def _read(
    runtime: Runtime,
    request: Request,
    kind: Kind,
    accept: Accept,
    placements: Sequence[Placement],
    query: Query,
    room: Room,
) -> dict[str, Part]:
    """Every part, whole. Raises the failure of any: a watch that begins with less would be taken for the whole."""
    places = {placement.workspace: placement for placement in placements}
    read = await read_all(runtime, request, kind, accept, places, dict.fromkeys((STORED, *places), query), room)
    for part in read.values():
        if isinstance(part, StatusError):
            raise part
    return {name: part for name, part in read.items() if isinstance(part, Part)}


class _NotThere(Exception):
    """The cluster does not know the kind."""


def added(part: Part, head: Mapping[str, Any], kind: Kind, accept: Accept) -> bytes:
    """What is there already, as events; rows under the columns of ``head``. Raises ``BadGateway`` for what cannot be written."""
    lines = []
    name, version = _named(kind, accept)
    of_kind = {"kind": name, "apiVersion": version}
    for found in aligned_rows(part.objects, part.head, head) if accept.is_table else part.objects:
        shown = found
        if accept.is_table:
            shown = {**head, "metadata": {"resourceVersion": part.version}, "rows": [found]}
        # Of the kind, whatever a cluster calls it: no client goes on behind an event that it cannot read.
        event = {"type": "ADDED", "object": of_kind | shown | of_kind}
        try:
            lines.append(orjson.dumps(event) + b"\n")
        except TypeError:
            raise BadGateway("a cluster answers with values in too many others") from None
    return b"".join(lines)


def _is_older(version: str, than: str) -> bool:
    """Whether a version cannot follow another: those of Kubernetes are numbers that grow."""
    return version.isdigit() and than.isdigit() and int(version) < int(than)


def _told(event: Mapping[str, Any]) -> tuple[str, str]:
    """The type of an event, and the version up to which its part is known with it (empty for an error)."""
    type_, shown = event["type"], event["object"]
    if type_ == "ERROR":
        return type_, ""
    if shown["kind"] != "Table":
        return type_, str(shown["metadata"]["resourceVersion"])
    version = shown["metadata"].get("resourceVersion") or shown["rows"][0]["object"]["metadata"]["resourceVersion"]
    return type_, str(version)


def _named(kind: Kind, accept: Accept) -> tuple[str, str]:
    """The kind and API version of what events of the negotiated form hold."""
    if accept.is_table or accept.is_partial:
        return "Table" if accept.is_table else "PartialObjectMetadata", f"{accept.group}/{accept.version}"
    return kind.name, kind.api_version


def _checked(event: Mapping[str, Any], placement: Placement, kind: Kind, accept: Accept) -> tuple[str, str]:
    """As ``_told``, of a cluster's event. Raises ``BadGateway`` for none, and for one of something else.

    Of another namespace, or of another kind: clients end a watch whose events they cannot read.
    """
    type_, shown = event.get("type"), event.get("object")
    try:
        if type_ not in EVENTS or not isinstance(shown, dict):
            raise ValueError("no event")
        if type_ == "ERROR":
            return "ERROR", ""
        is_table = shown["kind"] == "Table"
        metadata = shown["metadata"]
        if is_table and not metadata.get("resourceVersion"):
            metadata = shown["rows"][0]["object"]["metadata"]
        version = version_of(metadata, placement.cluster)
        if type_ != "BOOKMARK":
            if (shown["kind"], shown["apiVersion"]) != _named(kind, accept):
                raise ValueError("another kind's")
            objects = [row["object"] for row in shown["rows"]] if is_table else [shown]
            # Rows without objects name nobody.
            if any(each is not None and each["metadata"]["namespace"] != placement.namespace for each in objects):
                raise ValueError("another namespace's")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        raise BadGateway(f'the cluster "{placement.cluster}" sends events that are none of this namespace') from None
    return str(type_), version


def _line(error: StatusError) -> bytes:
    return orjson.dumps(as_event(error)) + b"\n"
