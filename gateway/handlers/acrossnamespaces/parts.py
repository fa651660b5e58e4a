"""Lists of one kind, one place at a time: the store's part of a space, and each of its placed namespaces (GW4).

What a cluster answers is checked as far as it is relied on: a list, of one version, of this namespace and no other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from gateway.handlers import reading
from gateway.handlers.placednamespaces import forwarding
from gateway.http.messages import Request
from gateway.http.negotiation import Accept
from gateway.process.runtime import Runtime
from gateway.process.streams import Recheck
from gateway.resources.kinds import Kind
from gateway.upstream.answers import PAGE, Room, decode, token_of, version_of, whole
from gateway.upstream.client import BadGateway, ShareTaken
from gateway.upstream.placements import Placement
from gateway.upstream.served import is_served
from kube.requests.status import BadRequest, Expired, Forbidden, StatusError, TooManyRequests
from store.types import Key

STORED: Final = ""
"""The name of the store's part; a placed namespace's is its workspace's UID."""

CHANGED: Final = "what can be seen of the namespaces has changed, please list again"
"""What a version or a token is worth that stands for a namespace which is closed or gone: its objects are not told of any more."""

_VERSIONLESS: Final = "0"
"""In place of the version of what is measured or computed, as by metrics.k8s.io: it is what there is now."""

_PAGES_MAX: Final = 1000
_SELECTORS: Final = frozenset({"labelSelector", "fieldSelector"})
_PASSED_ON: Final = (*sorted(_SELECTORS), "includeObject")
_OURS: Final = frozenset({b"accept", b"accept-encoding"})

Query = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Part:
    """One place's answer: the rows or items, the version, and where it goes on (empty: it does not)."""

    head: Mapping[str, Any]
    objects: Sequence[dict[str, Any]]
    version: str
    token: str


def at(version: str, match: str) -> Query:
    """How a part is asked for at a version of its own; what has none as it is."""
    return {"resourceVersion": version, "resourceVersionMatch": match} if version != _VERSIONLESS else {}


def media_of(accept: Accept) -> bytes:
    """What a part is asked for as: JSON, in the form that the client wants."""
    form = f";as={accept.kind};v={accept.version};g={accept.group}" if accept.kind else ""
    return b"application/json" + form.encode("ascii")


async def stored_request(runtime: Runtime, request: Request, accept: Accept, query: Query) -> Request:
    """The request for the store's part."""
    info = request.info
    headers = {name: value for name, value in request.headers.items() if name not in _OURS}
    among = await runtime.placements.shown((info.group, info.resource), request.scope_filter, spaces=[info.cluster])
    return replace(
        request,
        query={**_passed_on(request), **query},
        headers={**headers, b"accept": media_of(accept)},
        scope_filter=among,
        write=lambda _: False,
    )


def placed_request(request: Request, placement: Placement, accept: Accept, query: Query) -> Request:
    """The request for a placed namespace's part."""
    query = {**_passed_on(request), **query}
    headers = tuple(pair for pair in request.raw_headers if pair[0] not in _OURS)
    return replace(
        request,
        info=replace(request.info, namespace=placement.namespace),
        query=query,
        parameters={name: (value,) for name, value in query.items()},
        raw_headers=(*headers, (b"accept", media_of(accept))),
    )


def _passed_on(request: Request) -> dict[str, str]:
    return {name: request.query[name] for name in _PASSED_ON if name in request.query}


async def read_stored(runtime: Runtime, request: Request, kind: Kind, accept: Accept, query: Query) -> Part:
    """The store's part. Raises as ``reading.list_``."""
    answer = await reading.list_(runtime, await stored_request(runtime, request, accept, query), kind)
    return _part(orjson.loads(answer.body), accept)


async def read_placed(
    runtime: Runtime, request: Request, placement: Placement, accept: Accept, query: Query, room: Room
) -> Part | None:
    """A placed namespace's part; ``None`` where the kind is not there, or not for tenants. Raises ``StatusError``."""
    told = _told_to(request, query)
    asked = placed_request(request, placement, accept, query)
    try:
        role = await forwarding.role_of(runtime, asked.principal, asked.info, placement)
    except Forbidden:
        return None
    if "limit" in query:
        return await _read_page(runtime, asked, placement, role, accept, room, told)
    # Whole, but not at once: only so much as a message may hold is decoded in one go. What is newest is not too old for
    # whoever takes anything, and only such a list comes in pages.
    if query.get("resourceVersion") == "0":
        query = {}
    first: Part | None = None
    objects: list[dict[str, Any]] = []
    for _ in range(_PAGES_MAX):
        asked = placed_request(request, placement, accept, {**query, "limit": str(PAGE)})
        page = await _read_page(runtime, asked, placement, role, accept, room, told)
        if page is None:
            return None
        first = first or page
        objects += page.objects
        if not page.token:
            return replace(first, objects=objects, token="")
        query = {"continue": page.token}
    raise BadGateway(f'the cluster "{placement.cluster}" answers with a list that does not end')


def _told_to(request: Request, query: Query) -> frozenset[int]:
    """The refusals that can be of what the client itself has named; any other is the cluster's failure, whoever asks."""
    if "continue" in query:
        return frozenset({400, 410})
    told = {410} if query.get("resourceVersionMatch") == "Exact" else set()
    if not _SELECTORS.isdisjoint(request.query):
        told.add(400)
    return frozenset(told)


async def _read_page(
    runtime: Runtime,
    asked: Request,
    placement: Placement,
    role: str,
    accept: Accept,
    room: Room,
    told: frozenset[int],
) -> Part | None:
    answer = await forwarding.ask(runtime, asked, placement, role, follows=False)
    data = await whole(answer, placement.cluster, room)
    if answer.status == 404 and not _goes_on(asked.query) and await lacks(runtime, asked, placement, room):
        return None
    if answer.status != 200:
        raise refusal(answer.status, data, placement, told)
    named = asked.query.get("includeObject") != "None"
    part = await asked.in_thread(len(data), lambda: _checked(data, placement, accept, room, named=named))
    if part.token and len(part.objects) > int(asked.query["limit"]):
        # What knows no limit has no pages.
        raise BadGateway(f'the cluster "{placement.cluster}" answers with more objects than it was asked for')
    return part


def _goes_on(query: Query) -> bool:
    """Whether some of the list has been shown: what is not there any more then is missing, and no kind that never was."""
    return "continue" in query or query.get("resourceVersionMatch") == "Exact"


async def lacks(runtime: Runtime, asked: Request, placement: Placement, room: Room) -> bool:
    """Whether a cluster that has answered 404 says by its discovery, too, that it has not the kind. Raises ``ShareTaken``."""
    info = asked.info
    kind, tenant = (info.group, info.version, info.resource), forwarding.holder(asked)
    try:
        return not await is_served(runtime.clusters, placement.cluster, kind, room=room, tenant=tenant)
    except ShareTaken:
        raise
    except StatusError:
        return False


def _checked(data: bytes, placement: Placement, accept: Accept, room: Room, *, named: bool) -> Part:
    body = room.decode(data, placement.cluster)
    metadata, objects = body.pop("metadata", None), body.pop("rows" if accept.is_table else "items", None) or []
    try:
        fits = (
            isinstance(metadata, dict) and isinstance(objects, list) and all(isinstance(row, dict) for row in objects)
        )
        if fits and accept.is_table:
            fits = is_table(body, objects)
        # Rows without objects name nobody: nothing that reads them could be led astray.
        if not fits or (named and any(_namespace_of(row, accept) != placement.namespace for row in objects)):
            raise ValueError("objects of other namespaces")
    except (ValueError, KeyError, TypeError, AttributeError):
        raise BadGateway(f'the cluster "{placement.cluster}" answered with something that is no such list') from None
    metadata = metadata if metadata.get("resourceVersion") else {**metadata, "resourceVersion": _VERSIONLESS}
    return Part(body, objects, version_of(metadata, placement.cluster), token_of(metadata, placement.cluster))


def is_table(head: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these are columns, and rows with a cell for each, where any are named."""
    columns = head.get("columnDefinitions") or []
    return (
        isinstance(columns, list)
        and all(isinstance(column, dict) and isinstance(column.get("name"), str) for column in columns)
        and all(
            isinstance(row.get("cells"), list) and len(row["cells"]) == len(columns or row["cells"]) for row in rows
        )
    )


def _part(body: dict[str, Any], accept: Accept) -> Part:
    """The store's."""
    metadata = body.pop("metadata")
    objects = body.pop("rows" if accept.is_table else "items") or []
    return Part(body, objects, str(metadata["resourceVersion"]), metadata.get("continue") or "")


def _namespace_of(row: dict[str, Any], accept: Accept) -> str:
    shown = row["object"] if accept.is_table else row
    return str(shown["metadata"]["namespace"])


def refusal(status: int, data: bytes, placement: Placement, told: frozenset[int]) -> StatusError:
    """What a cluster's refusal means to a client that asked about many places, and can be ``told`` some of them as they are.

    To be told 400 of what is right, or 410 of what nobody has named, would be the end of what the others have.
    """
    try:
        text = str(decode(data, placement.cluster).get("message", ""))[:500]
    except BadGateway:
        text = ""
    text = text or f'the cluster "{placement.cluster}" answered {status}'
    match status:
        case 400 if status in told:
            return BadRequest(text)
        case 410 if status in told:
            return Expired(text)
        case 429:
            return TooManyRequests(text, retry_after=1)
    return BadGateway(f'the cluster "{placement.cluster}" answered {status} for the namespace "{placement.namespace}"')


async def read_all(
    runtime: Runtime,
    request: Request,
    kind: Kind,
    accept: Accept,
    placements: Mapping[str, Placement],
    queries: Mapping[str, Query],
    room: Room,
) -> dict[str, Part | StatusError | None]:
    """Every part that is asked for by name, those of clusters at the same time, their failures among them.

    Raises as ``reading.list_``, before any cluster is asked.
    """
    found: dict[str, Part | StatusError | None] = {}
    if STORED in queries:
        found[STORED] = await read_stored(runtime, request, kind, accept, queries[STORED])

    async def read(name: str) -> Part | StatusError | None:
        try:
            return await read_placed(runtime, request, placements[name], accept, queries[name], room)
        except StatusError as error:
            return error

    async with asyncio.TaskGroup() as group:
        tasks = {name: group.create_task(read(name)) for name in queries if name != STORED}
    return found | {name: task.result() for name, task in tasks.items()}


def with_each(
    runtime: Runtime, request: Request, recheck: Recheck, shown: Callable[[], Iterable[Placement]]
) -> Recheck:
    """``recheck``, and the right to each namespace that is ``shown``: the request for all of them says nothing of one (CT-07).

    Raises ``Expired`` for one that may not be shown any more, for the others still may.
    """

    async def again() -> None:
        await recheck()
        for placement in list(shown()):
            info = replace(request.info, namespace=placement.namespace)
            try:
                await forwarding.role_of(runtime, request.principal, info, placement)
            except Forbidden:
                raise Expired(CHANGED) from None

    return again


def is_open(request: Request, placement: Placement) -> bool:
    """Whether the caller may see what is in a placed namespace: one that was just closed still looks as before."""
    key = Key(placement.space, request.info.group, request.info.resource, placement.namespace, "")
    return placement.is_active and (request.scope_filter is None or request.scope_filter.places(key))
