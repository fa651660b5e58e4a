"""What the product itself reads of a cluster, with its own credential or a workspace's: lists page by page, and watches (GW12).

Never on anybody's behalf. A cluster may be hostile: what is no object is an error, and nothing is read without end.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import quote

from gateway.http.messages import LARGE
from gateway.upstream.answers import PAGE, Room, lines, says_not_found, token_of, version_of, whole
from gateway.upstream.client import Answer, BadGateway, Upstream
from gateway.upstream.clusters import Clusters
from gateway.upstream.placements import Placement
from gateway.upstream.tokens import WorkspaceTokens
from kube.requests.status import ServiceUnavailable

Found = TypeVar("Found")

WATCH_SECONDS: Final = 300
_LATE_SECONDS: Final = 30.0
"""How much later than it was asked to a cluster may end a watch: one that is frozen says nothing, and never ends it."""
_WORKERS: Final = ThreadPoolExecutor(2, "reading")
"""Of their own: what takes a moment does not wait behind those who wait for a cluster."""

_PAGES_MOST: Final = 1000
"""Of ``PAGE`` objects, which none may exceed: each costs whoever looks at it, and an empty one costs a cluster nothing."""


class Unaccepted(ServiceUnavailable):
    """The cluster does not take a token."""


class Unserved(ServiceUnavailable):
    """The cluster answers that it has no such collection; whether it is so its discovery tells (``served``)."""


class Way(NamedTuple):
    """The connections to one API server, and the token for it: neither goes with another's."""

    upstream: Upstream
    token: str


async def read_list(clusters: Clusters, cluster: str, path: str) -> tuple[list[dict[str, Any]], str]:
    """All objects of a collection, and the resource version of the list. Raises ``StatusError``."""
    return await _list(Way(*clusters.as_gateway(cluster)), cluster, path)


async def _list(way: Way, cluster: str, path: str) -> tuple[list[dict[str, Any]], str]:
    items: list[dict[str, Any]] = []
    more, room = "", Room()
    for _ in range(_PAGES_MOST):
        answer = _require_done(await _get(way, f"{path}?limit={PAGE}{more}"))
        found, metadata = await _decoded(answer, cluster, room, _page)
        items += found
        following = token_of(metadata, cluster)
        if not following:
            return items, version_of(metadata, cluster)
        more = f"&continue={quote(following)}"
    raise BadGateway("its list does not end")


async def read_list_as(
    clusters: Clusters, tokens: WorkspaceTokens, placement: Placement, role: str, path: str
) -> list[dict[str, Any]]:
    """All objects of a collection in a placed namespace, with the workspace's own token. Raises ``StatusError``."""

    async def read(way: Way) -> list[dict[str, Any]]:
        return (await _list(way, placement.cluster, path))[0]

    return await _with_token(clusters, tokens, placement, role, read)


async def read_document(
    clusters: Clusters, cluster: str, path: str, *, room: Room | None = None, tenant: str = ""
) -> dict[str, Any]:
    """What a cluster says of itself at a path; counted against the ``tenant`` whose request needs it. Raises ``StatusError``."""
    answer = _require_done(await _get(Way(*clusters.as_gateway(cluster)), path, tenant=tenant))
    return await _decoded(answer, cluster, room or Room(), _checked)


async def read_object_as(
    clusters: Clusters, tokens: WorkspaceTokens, placement: Placement, role: str, path: str
) -> dict[str, Any] | None:
    """One object of a placed namespace, with the workspace's own token; ``None`` where there is none.

    Raises ``StatusError``, ``Unserved`` for a 404 that says of no object that it is not there.
    """
    answer = await _with_token(clusters, tokens, placement, role, lambda way: _get(way, path))
    if answer.status == 404:
        if says_not_found(await whole(answer, placement.cluster, Room())):
            return None
        raise Unserved("it answers 404")
    return await _decoded(_require_done(answer), placement.cluster, Room(), _object)


async def read_events(
    clusters: Clusters, cluster: str, path: str, since: str
) -> AsyncGenerator[tuple[str, dict[str, Any]], None]:
    """What happens in a collection after a resource version, until the cluster ends it. Raises ``StatusError``.

    It ends within ``WATCH_SECONDS``, by whomever: what nobody has said since then is not taken for what is.
    A watch brings no more than a list may: whoever keeps what it brings lists anew then, and lets go what is no more.
    """
    query = f"watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={quote(since)}"
    way, until = Way(*clusters.as_gateway(cluster)), asyncio.get_running_loop().time() + WATCH_SECONDS + _LATE_SECONDS
    answer = _require_done(await _get(way, f"{path}?{query}", long_running=True))
    room = Room()
    async with contextlib.aclosing(answer.chunks), contextlib.aclosing(lines(answer, cluster)) as found:  # type: ignore[type-var]
        while (line := await _next(found, until)) is not None:
            room.take(len(line), cluster)
            event = await _beside(len(line), partial(_read, line, cluster, room, _checked))
            item = event.get("object")
            if not isinstance(item, dict) or not (event.get("type") in ("ERROR", "BOOKMARK") or _is_object(item)):
                raise BadGateway("an event is none")
            yield str(event.get("type")), item


async def _next(found: AsyncGenerator[bytes, None], until: float) -> bytes | None:
    """The next line, ``None`` at the end. Raises ``ServiceUnavailable`` where neither comes by then."""
    try:
        async with asyncio.timeout_at(until):
            return await anext(found, None)
    except TimeoutError:
        raise ServiceUnavailable("it does not end its watch") from None


async def _decoded(answer: Answer, cluster: str, room: Room, read: Callable[[dict[str, Any]], Found]) -> Found:
    """What ``read`` makes of an answer."""
    data = await whole(answer, cluster, room)
    return await _beside(len(data), partial(_read, data, cluster, room, read))


def _read(data: bytes, cluster: str, room: Room, read: Callable[[dict[str, Any]], Found]) -> Found:
    return read(room.decode(data, cluster))


async def _beside(size: int, work: Callable[[], Found]) -> Found:
    """What comes of work at so many bytes, in a thread where they are many."""
    return await asyncio.get_running_loop().run_in_executor(_WORKERS, work) if size > LARGE else work()


def _page(body: dict[str, Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The objects of a list, and its metadata."""
    metadata, found = _checked(body).get("metadata") or {}, body.get("items") or []
    if not isinstance(found, list) or not all(_is_object(item) for item in found):
        raise BadGateway("its list is none")
    if len(found) > PAGE:
        raise BadGateway(f"it answers with {len(found)} objects where {PAGE} are asked for")
    return found, metadata


def _object(body: dict[str, Any]) -> dict[str, Any]:
    if not _is_object(_checked(body)):
        raise BadGateway("its object is none")
    return body


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(body.get("metadata") or {}, dict):
        raise BadGateway("it answers with something else")
    return body


def _is_object(item: object) -> bool:
    """Whether the parts that every object has are what they must be."""
    if not isinstance(item, dict) or not isinstance(item.get("metadata"), dict):
        return False
    metadata = item["metadata"]
    texts = [metadata.get("name"), metadata.get("namespace") or ""]
    labels = metadata.get("labels") or {}
    return (
        all(isinstance(text, str) for text in texts)
        and isinstance(labels, dict)
        and all(isinstance(value, str) for value in labels.values())
    )


async def _with_token(
    clusters: Clusters,
    tokens: WorkspaceTokens,
    placement: Placement,
    role: str,
    read: Callable[[Way], Awaitable[Found]],
) -> Found:
    """What ``read`` brings with the workspace's own token; once more with another where that one is not accepted."""
    upstream = clusters.upstream(placement.cluster)
    upstream.require_there()
    token = await tokens.get(placement, upstream.cluster, role)
    try:
        return await read(Way(upstream, token))
    except Unaccepted:
        # A resume makes new accounts.
        return await read(Way(upstream, await tokens.after_refusal(placement, upstream.cluster, role, token)))


async def _get(way: Way, target: str, *, long_running: bool = False, tenant: str = "") -> Answer:
    headers = ((b"accept", b"application/json"), (b"user-agent", b"tenantry"))
    answer = await way.upstream.request(
        "GET",
        target.encode("ascii"),
        headers,
        b"",
        token=way.token,
        audit_id=str(uuid.uuid4()),
        long_running=long_running,
        tenant=tenant,
    )
    if answer.status == 401:
        answer.close()
        raise Unaccepted("it does not accept the token")
    return answer


def _require_done(answer: Answer) -> Answer:
    if answer.status == 404:
        answer.close()
        raise Unserved("it does not serve the kind")
    if answer.status != 200:
        answer.close()
        raise ServiceUnavailable(f"it answers {answer.status}: its gateway-role.yaml may be an older one")
    return answer
