"""A list across namespaces that are stored and namespaces that are on clusters (GW4).

The parts are read at the same time. What is there of the whole is one list with one resource version; a chunk takes some
of every part, and its token says where each goes on. A part that cannot be read is an error, for whoever keeps a list
(an informer) must never take some of it for the whole; only people, who read tables, get the rest with a warning.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import zlib
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import Any, Final

import orjson

from gateway.filters.standing import require_standing
from gateway.handlers.acrossnamespaces.parts import CHANGED, STORED, Part, Query, at, is_open, read_all, with_each
from gateway.handlers.placednamespaces import forwarding
from gateway.handlers.reading import binding_of, check_options, head_of, limit_of, read_token, revision_of
from gateway.http.messages import Request, Response
from gateway.http.negotiation import Accept, negotiate, respond
from gateway.process.runtime import Runtime
from gateway.process.streams import PROMPT_SECONDS, Recheck
from gateway.resources.kinds import Kind
from gateway.resources.selection import selection
from gateway.upstream.client import BadGateway, ShareTaken
from gateway.upstream.placements import Placement
from gateway.upstream.versions import Scope
from kube.objects.tables import aligned_rows
from kube.requests.status import BadRequest, Expired, StatusError

_EXPIRED: Final = "The resourceVersion for the provided list is too old."
_BEGINNING: Final = "eJ"
"""What is compressed begins with it, and no token of the store's own lists does."""

_TOKEN_MAX: Final = 256 * 1024


def scope_of(request: Request, kind: Kind) -> Scope:
    """What resource versions of such a list are about."""
    group, kept = kind.resource.place
    return request.info.cluster, group, kept


def is_token(token: str) -> bool:
    """Whether a list across placed namespaces may have given it."""
    return token.startswith(_BEGINNING)


async def list_(
    runtime: Runtime, request: Request, kind: Kind, recheck: Recheck, placements: Sequence[Placement]
) -> Response:
    """The list, or a chunk of it; nothing of it is shown on a decision older than a moment. Raises ``StatusError``."""
    since = asyncio.get_running_loop().time()
    accept, query = negotiate(request), request.query
    selection(request, kind)
    check_options(query)
    version, binding = query.get("resourceVersion", ""), binding_of(request, kind)
    limit = 0 if version == "0" else limit_of(query.get("limit", ""))
    places = {placement.workspace: placement for placement in placements if is_open(request, placement)}
    token = query.get("continue", "")
    if token:
        if version not in ("", "0"):
            raise BadRequest("specifying resource version is not allowed when using continue")
        if not is_token(token):
            # The list that it is of was the store's alone: no namespace was placed then.
            read_token(token, binding)
            raise Expired(CHANGED)
        number, queries = _read_token(token, binding, {STORED, *places})
    else:
        number, queries = "", _queries(runtime, request, kind, places, exact=bool(limit))
    share = {"limit": str(max(1, limit // max(1, len(queries))))} if limit else {}
    queries = {name: {**asked, **share} for name, asked in queries.items()}
    with forwarding.room_for(runtime, request) as room:
        parts = await read_all(runtime, request, kind, accept, places, queries, room)
        found = {name: part for name, part in parts.items() if isinstance(part, Part)}
        if asyncio.get_running_loop().time() - since > PROMPT_SECONDS:
            shown = [places[name] for name in found if name != STORED]
            await require_standing(runtime, request.principal, with_each(runtime, request, recheck, lambda: shown))
        failures = {name: part for name, part in parts.items() if isinstance(part, StatusError)}
        if failures:
            _excuse(request, accept, places, failures, something=any(part.objects for part in found.values()))
        if not token:
            versions = {name: part.version for name, part in found.items()}
            number = runtime.merged_versions.number(scope_of(request, kind), versions)
        try:
            return await _shown(request, kind, accept, found, queries, number, limit, binding)
        except TypeError:
            size = sum(len(part.objects) for part in found.values()) * 1024
            unfit = await request.in_thread(size, _unfit, found, places)
            if not unfit:
                raise
        fit = {name: part for name, part in found.items() if name not in unfit}
        _excuse(request, accept, places, unfit, something=any(part.objects for part in fit.values()))
        return await _shown(request, kind, accept, fit, queries, number, limit, binding)


def _queries(
    runtime: Runtime, request: Request, kind: Kind, places: Mapping[str, Placement], *, exact: bool
) -> dict[str, Query]:
    """What each part is asked for, at which version. Raises ``Expired`` for one that nobody knows any more."""
    version, match = request.query.get("resourceVersion", ""), request.query.get("resourceVersionMatch", "")
    names = (STORED, *places)
    if version in ("", "0"):
        asked = {"resourceVersion": version} if version else {}
        return {name: asked | ({"resourceVersionMatch": match} if match else {}) for name in names}
    revision_of(version)
    exact = match == "Exact" or (not match and exact)
    known = runtime.merged_versions.parts(scope_of(request, kind), version)
    if known is None:
        if exact:
            raise Expired(_EXPIRED)
        # What is there now is not older.
        return {name: {} for name in names}
    if exact and not set(names).issuperset(known):
        raise Expired(CHANGED)
    match = "Exact" if exact else "NotOlderThan"
    parts = {name: at(known[name], match) for name in names if name in known}
    return parts if exact else {name: parts.get(name, {}) for name in names}


def _excuse(
    request: Request,
    accept: Accept,
    places: Mapping[str, Placement],
    failures: Mapping[str, StatusError],
    *,
    something: bool,
) -> None:
    """Say what is missing, to people; raise the failure for everybody else, and where there is nothing but failures."""
    for error in failures.values():
        # That there is too much under way is nothing that is missing: it is there for whoever asks again.
        if not accept.is_table or not something or isinstance(error, ShareTaken):
            raise error
    what = "the rest of the namespace" if "continue" in request.query else "the namespace"
    for name, error in failures.items():
        request.warnings.append(f'{what} "{places[name].namespace}" is missing: {error.message}')


def _unfit(found: Mapping[str, Part], places: Mapping[str, Placement]) -> dict[str, StatusError]:
    """The parts whose values are in too many others: those that are read are not written that far in."""
    unfit: dict[str, StatusError] = {}
    for name in found.keys() & places.keys():
        try:
            orjson.dumps({"items": found[name].objects})
        except TypeError:
            unfit[name] = BadGateway(f'the cluster "{places[name].cluster}" answers with values in too many others')
    return unfit


async def _shown(
    request: Request,
    kind: Kind,
    accept: Accept,
    found: Mapping[str, Part],
    queries: Mapping[str, Query],
    number: str,
    limit: int,
    binding: str,
) -> Response:
    objects: list[dict[str, Any]] = []
    following: dict[str, Query] = {}
    # The kind's own: what one cluster says of its part is not said of the others'.
    head = head_of(request, kind, accept)
    for name, part in found.items():
        if limit and objects and len(objects) + len(part.objects) > limit:
            # There are more parts than room: this one comes later, from where it was or as it is now.
            asked = queries[name]
            following[name] = {"continue": asked["continue"]} if "continue" in asked else at(part.version, "Exact")
            continue
        objects += aligned_rows(part.objects, part.head, head) if accept.is_table else part.objects
        if part.token:
            following[name] = {"continue": part.token}
    metadata: dict[str, Any] = {"resourceVersion": number}
    if following or kind.resource.custom:
        metadata["continue"] = _token_of(number, following, binding) if following else ""
    body = {**head, "metadata": metadata, "rows" if accept.is_table else "items": objects}
    return await request.in_thread(len(objects) * 1024, partial(respond, request, body, accept=Accept(accept.media)))


def _token_of(number: str, following: Mapping[str, Query], binding: str) -> str:
    packed = zlib.compress(orjson.dumps([number, following, binding]))
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def _read_token(token: str, binding: str, parts: AbstractSet[str]) -> tuple[str, dict[str, Query]]:
    """The version and what follows of each part. It leads only to parts that the caller may read: it needs no signature.

    Raises ``Expired`` for other parts than these, before it looks at what follows of each.
    """
    try:
        unpacking = zlib.decompressobj()
        packed = base64.urlsafe_b64decode(token[: _TOKEN_MAX // 4] + "===")
        number, following, bound = orjson.loads(unpacking.decompress(packed, _TOKEN_MAX))
        fits = bound == binding and isinstance(number, str) and isinstance(following, dict)
    except (binascii.Error, zlib.error, ValueError, TypeError):
        fits = False
    if fits and not parts >= following.keys():
        raise Expired(CHANGED)
    if not fits or not all(map(_is_query, following.values())):
        raise BadRequest("invalid continue token: continue key is not valid")
    return number, following


def _is_query(query: Any) -> bool:
    names = {"continue", "resourceVersion", "resourceVersionMatch"}
    return isinstance(query, dict) and names.issuperset(query) and all(isinstance(text, str) for text in query.values())
