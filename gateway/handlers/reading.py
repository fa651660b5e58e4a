"""get and list: bytes from the store, in the form that the client asks for."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final, TypeVar

import orjson

from gateway.http.messages import JSON, LONG, LONG_YAML, Request, Response
from gateway.http.negotiation import PLAIN, Accept, negotiate, respond, respond_at_length
from gateway.process.runtime import Runtime
from gateway.resources import bootstrappolicy, writeoptions
from gateway.resources.kinds import Kind
from gateway.resources.objects import converted, encode_in_version, key_of
from gateway.resources.selection import Selection, require_selected, selection
from kube.objects import tables
from kube.requests.fielderrors import forbidden
from kube.requests.jsonsyntax import syntax_error
from kube.requests.status import BadRequest, Expired, NotAcceptable, NotFound, TooManyRequests
from store.types import FullListing, Key, RevisionTooOld, Spaces, Stored

_LIMIT_MAX: Final = 1 << 31
_PAGE: Final = 500
_NOW: Final = -1
"""In a token: continue with what is there now, at no revision of the past."""
_INCONSISTENT: Final = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)

_SPACE_BYTES: Final = 2 * 1024
"""Bytes of objects whose reading costs about as much as a look into a space that has none."""

PART: Final = 16 * 1024
"""Bytes of objects that are taken apart at a time: the next part waits until the others have had their turn."""

T = TypeVar("T")

Place = tuple[str, str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A list, or a chunk of one: at most ``limit`` items behind ``after``; ``remaining`` is how many follow it.

    Nothing follows where that is 0, and an unknown number where it is ``None``. ``binding`` says whose chunk it is.
    """

    items: Sequence[Stored]
    revision: int
    remaining: int | None
    limit: int
    after: Place | None
    binding: str

    @property
    def token(self) -> str:
        """The token for what follows; empty where nothing does."""
        if self.remaining == 0 or not self.items:
            return ""
        return _encode_token(self.revision, self.items[-1].key, self.binding)

    def with_more(self, others: Sequence[Stored]) -> Page:
        """This chunk of the list that has these items of the same range too."""
        if not others:
            return self
        after = self.after[2] if self.after else ""
        listed = {item.key.name for item in self.items}
        more = [item for item in others if after < item.key.name and item.key.name not in listed]
        if not more:
            return self
        items = sorted((*self.items, *more), key=lambda item: item.key.name)
        beyond = len(items) - self.limit if self.limit else 0
        if beyond <= 0:
            return replace(self, items=items)
        counted = None if self.remaining is None else self.remaining + beyond
        return replace(self, items=items[: self.limit], remaining=counted)


def not_found(kind: Kind, name: str) -> NotFound:
    """``configmaps "x" not found``."""
    resource = kind.resource
    return NotFound(
        f'{resource.qualified_name} "{name}" not found', group=resource.group, kind=resource.plural, name=name
    )


async def find(runtime: Runtime, key: Key, kind: Kind) -> Stored:
    """The stored object. Raises ``NotFound``."""
    return _found(await runtime.store.get(key), key, kind)


def _found(stored: Stored | None, key: Key, kind: Kind) -> Stored:
    stored = stored or bootstrappolicy.found(key)
    if stored is None:
        raise not_found(kind, key.name)
    return stored


def revision_of(text: str) -> int:
    """A ``resourceVersion`` parameter as a number. Raises ``BadRequest``."""
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        problem = "value out of range" if text.isascii() and text.isdigit() else "invalid syntax"
        shown = text[:64]
        raise BadRequest(f'resourceVersion: Invalid value: "{shown}": strconv.ParseUint: parsing "{shown}": {problem}')
    return int(text)


async def get(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """One object. ``resourceVersion=0`` may be answered from what this process has seen."""
    info = request.info
    version = request.query.get("resourceVersion", "")
    if version not in ("", "0"):
        await runtime.store.list(selection(request, kind).range, limit=1, at_least=revision_of(version))
    key = key_of(info, kind.resource, info.name)
    stored = _found(await runtime.store.get(key, cached=version == "0"), key, kind)
    require_selected(request, kind, stored)
    return await show(request, kind, stored)


def _require_light(request: Request, kind: Kind, stored: Stored, accept: Accept) -> None:
    """Raise ``TooHeavy`` for an object that takes long to be shown in this form: a custom table looks for each column."""
    times = len(kind.served.columns) if accept.is_table else 1
    bound = LONG if accept.media is JSON else LONG_YAML
    request.require_light(heavy=len(stored.data) * times > bound)


async def show(request: Request, kind: Kind, stored: Stored, *, status: int = 200) -> Response:
    """One object in the negotiated form."""
    accept = negotiate(request)
    if accept == PLAIN and kind.is_stored_version:
        return Response(status, stored.data)
    request.charge_bytes(len(stored.data))
    if request.is_reading:
        _require_light(request, kind, stored, accept)
    try:
        return _shown(request, kind, stored, accept, status)
    except (NotAcceptable, TooManyRequests):
        if request.is_reading:
            raise
        # It has been done: nobody must be told that it was refused.
        return Response(status, encode_in_version(stored.data, kind))


def _shown(request: Request, kind: Kind, stored: Stored, accept: Accept, status: int) -> Response:
    data = encode_in_version(stored.data, kind)
    if not accept.kind:
        return Response(status, data) if accept.media is JSON else respond(request, data, status=status, accept=accept)
    rows, head = _formed(request, kind, [stored], accept)
    if accept.is_partial:
        return respond(request, rows[0], status=status)
    revision = orjson.loads(data)["metadata"].get("resourceVersion")
    metadata = {"resourceVersion": revision} if revision else {}
    return respond(request, {**head, "metadata": metadata, "rows": rows}, status=status)


async def list_(runtime: Runtime, request: Request, kind: Kind) -> Response:
    """A list, or a chunk of one (limit, continue), at the asked revision (resourceVersion, resourceVersionMatch)."""
    accept = negotiate(request)
    chosen = selection(request, kind)
    page = await read_list(runtime, request, kind, chosen)
    page = page.with_more(await fallen_back_on(runtime, chosen))
    return await show_list(request, kind, page, accept)


async def fallen_back_on(runtime: Runtime, chosen: Selection) -> list[Stored]:
    """What is selected of the policy that a space falls back on, without what it keeps itself."""
    return [
        stored
        for stored in bootstrappolicy.objects_in(chosen.range).values()
        if chosen.matches(stored.key, stored.data) and await runtime.store.get(stored.key, cached=True) is None
    ]


async def show_list(request: Request, kind: Kind, page: Page, accept: Accept) -> Response:
    """A list, or a chunk of one, in the negotiated form."""
    items = page.items
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.token or (kind.resource.custom and not accept.kind):
        # Lists of custom objects say that nothing follows.
        metadata["continue"] = page.token
        if page.token and page.remaining is not None:
            metadata["remainingItemCount"] = page.remaining
    if accept != PLAIN or not kind.is_stored_version:
        for item in items:
            _require_light(request, kind, item, accept)
    if accept.media is not JSON:
        request.require_light(heavy=sum(len(item.data) for item in items) > LONG_YAML)
    head = head_of(request, kind, accept)
    if accept.kind:
        member = "rows" if accept.is_table else "items"
        parts = [part async for part in in_parts(request, items, partial(_encoded, request, kind, accept))]
    else:
        member = "items"
        if kind.is_stored_version:
            whole = items.joined if isinstance(items, FullListing) else b",".join([item.data for item in items])
            parts = [whole] if whole else []
        else:
            parts = [part async for part in in_parts(request, items, partial(_joined, kind))]
    start = orjson.dumps({**head, "metadata": metadata})[:-1]
    data = b"".join((start, b',"', member.encode(), b'":[', b",".join(parts), b"]}"))
    return await respond_at_length(request, data, accept=Accept(accept.media))


def head_of(request: Request, kind: Kind, accept: Accept) -> dict[str, Any]:
    """What a list in the negotiated form says of itself, beside its metadata."""
    return _formed(request, kind, (), accept)[1] if accept.kind else kind.list_prefix()


async def in_parts(
    request: Request, items: Sequence[Stored], made: Callable[[Sequence[Stored]], T]
) -> AsyncIterator[T]:
    """What ``made`` makes of the items, as many at a time as others can wait for. Raises ``TooManyRequests``."""
    request.charge_bytes(sum(len(item.data) for item in items))
    part: list[Stored] = []
    size = 0
    for item in items:
        request.require_light(heavy=len(item.data) > LONG)
        part.append(item)
        size += len(item.data)
        if size > PART:
            yield made(part)
            await asyncio.sleep(0)
            part, size = [], 0
    if part:
        yield made(part)


async def selected(request: Request, chosen: Selection, items: Sequence[Stored]) -> Sequence[Stored]:
    """The selected ones of these, in order."""
    if chosen.is_whole:
        return items
    if not chosen.by_key:
        return [item async for part in in_parts(request, items, chosen.filter) for item in part]
    found: list[Stored] = []
    for begin in range(0, len(items), _PAGE):
        if begin:
            await asyncio.sleep(0)
        found += chosen.filter(items[begin : begin + _PAGE])
    return found


def _joined(kind: Kind, items: Sequence[Stored]) -> bytes:
    return b",".join([encode_in_version(item.data, kind) for item in items])


def _encoded(request: Request, kind: Kind, accept: Accept, items: Sequence[Stored]) -> bytes:
    return orjson.dumps(_formed(request, kind, items, accept)[0])[1:-1]


async def read_list(runtime: Runtime, request: Request, kind: Kind, chosen: Selection) -> Page:
    """What the request asks for of the store's objects."""
    query = request.query
    limit = limit_of(query.get("limit", ""))
    if query.get("resourceVersion") == "0" and query.get("resourceVersionMatch") != "Exact":
        # What may be old comes whole, as from kube-apiserver's own cache.
        limit = 0
    token = query.get("continue", "")
    version = query.get("resourceVersion", "")
    match = query.get("resourceVersionMatch", "")
    check_options(query)
    binding = binding_of(request, kind)
    at_least: int | None = None
    exact: int | None = None
    after: Place | None = None
    cached = False
    if token:
        if version not in ("", "0"):
            raise BadRequest("specifying resource version is not allowed when using continue")
        exact, after = read_token(token, binding)
    elif version == "0":
        cached = match != "Exact"
    elif version:
        try:
            revision = revision_of(version)
        except BadRequest as error:
            raise BadRequest(f"invalid resource version: {error.message}") from None
        if match == "Exact" or (not match and limit):
            exact = revision
        else:
            at_least = revision
    try:
        return await _pages(runtime, request, chosen, binding, limit, at_least, exact, after, cached=cached)
    except RevisionTooOld:
        if after is None:
            raise Expired("The resourceVersion for the provided list is too old.") from None
        raise Expired(_INCONSISTENT, token=_token_of(_NOW, after, binding)) from None


async def read_whole(
    runtime: Runtime, request: Request, chosen: Selection, *, cached: bool, at_least: int | None
) -> Page:
    """All that is selected."""
    return await _pages(runtime, request, chosen, "", 0, at_least, None, None, cached=cached)


async def _pages(
    runtime: Runtime,
    request: Request,
    chosen: Selection,
    binding: str,
    limit: int,
    at_least: int | None,
    exact: int | None,
    after: Place | None,
    *,
    cached: bool,
) -> Page:
    made = partial(Page, limit=limit, after=after, binding=binding)
    across = len(chosen.range.spaces) if isinstance(chosen.range, Spaces) else None
    if across is not None:
        # Each is looked at, whether or not it holds any; what they hold is charged page by page.
        request.charge_bytes(across * _SPACE_BYTES)
    elif chosen.is_whole or not limit:
        listing = await runtime.store.list(
            chosen.range, at_least=at_least, exact=exact, after=after, limit=limit, cached=cached
        )
        items = await selected(request, chosen, listing.items)
        return made(items=items, revision=listing.revision, remaining=listing.remaining)
    found: list[Stored] = []
    while True:
        listing = await runtime.store.list(
            chosen.range, at_least=at_least, exact=exact, after=after, limit=_PAGE, cached=cached
        )
        if across is not None and chosen.by_key:
            request.charge_bytes(sum(len(item.data) for item in listing.items))
        found += await selected(request, chosen, listing.items)
        if limit and len(found) > limit:
            return made(items=found[:limit], revision=listing.revision, remaining=None)
        if not listing.remaining:
            return made(items=found, revision=listing.revision, remaining=0)
        exact, cached, at_least = listing.revision, False, None
        after = _place(listing.items[-1].key)
        await asyncio.sleep(0)


def limit_of(text: str) -> int:
    """A ``limit`` parameter, 0 for none. Raises ``BadRequest`` for what is no number."""
    if not text:
        return 0
    if not text.isascii() or not text.removeprefix("-").isdigit() or len(text) > 18:
        raise writeoptions.not_a_number(text)
    return min(max(int(text), 0), _LIMIT_MAX)


def check_options(query: Mapping[str, str]) -> None:
    """Raises ``Invalid`` for revisions that cannot be asked for together, ``BadRequest`` for what is no number."""
    version, match = query.get("resourceVersion", ""), query.get("resourceVersionMatch", "")
    seconds = query.get("timeoutSeconds", "")
    if seconds and not (seconds.isascii() and seconds.removeprefix("-").isdigit()):
        raise writeoptions.not_a_number(seconds)
    causes = []
    field = "resourceVersionMatch"
    if match and not version:
        causes.append(forbidden(field, f"{field} is forbidden unless resourceVersion is provided"))
    if match and query.get("continue"):
        causes.append(forbidden(field, f"{field} is forbidden when continue is provided"))
    if match and match not in ("Exact", "NotOlderThan"):
        causes.append(writeoptions.unsupported(field, match, ("Exact", "NotOlderThan", "")))
    if match == "Exact" and version == "0":
        causes.append(forbidden(field, f'{field} "exact" is forbidden for resourceVersion "0"'))
    if "sendInitialEvents" in query:
        causes.append(forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if causes:
        raise writeoptions.invalid_options("ListOptions", causes)


def binding_of(request: Request, kind: Kind) -> str:
    """What a continue token is good for: this space, resource, selectors and caller, and nothing else (TS3)."""
    info, query = request.info, request.query
    parts = (
        info.cluster,
        str(info.all_tenants),
        *kind.resource.place,
        info.namespace,
        query.get("labelSelector", ""),
        query.get("fieldSelector", ""),
        request.principal.name,
        request.principal.tenant or "",
    )
    return hashlib.sha256(orjson.dumps(parts)).hexdigest()[:32]


def _place(key: Key) -> Place:
    return key.space, key.namespace, key.name


def _encode_token(revision: int, key: Key, binding: str) -> str:
    return _token_of(revision, _place(key), binding)


def _token_of(revision: int, place: Place, binding: str) -> str:
    return base64.urlsafe_b64encode(orjson.dumps([revision, *place, binding])).decode().rstrip("=")


def read_token(token: str, binding: str) -> tuple[int | None, Place]:
    """The revision and place of a token. Its place only moves within the request's own range, so it needs no signature."""
    invalid = "invalid continue token: continue key is not valid"
    try:
        decoded = base64.urlsafe_b64decode(token[:4096] + "===")
        wrong = syntax_error(decoded)
        if wrong:
            raise BadRequest(f"{invalid}: {wrong}")
        revision, space, namespace, name, bound = orjson.loads(decoded)
        fits = isinstance(revision, int) and (revision == _NOW or 0 < revision < 1 << 63)
        fits = fits and all(isinstance(part, str) for part in (space, namespace, name))
    except (binascii.Error, ValueError, TypeError):
        raise BadRequest(invalid) from None
    if not fits or bound != binding:
        raise BadRequest(invalid)
    return None if revision == _NOW else revision, (space, namespace, name)


def _formed(
    request: Request, kind: Kind, items: Sequence[Stored], accept: Accept
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of a table, or the items of a list of metadata; and everything else but the list's own metadata."""
    bodies = [converted(orjson.loads(item.data), kind) for item in items]
    if accept.is_table:
        include = request.query.get("includeObject") or "Metadata"
        shown = tables.table(
            kind.table_convertor, bodies, now=request.now, include_object=include, version=accept.version
        )
        return shown.pop("rows"), shown
    shown = tables.partial_list(bodies, {}, accept.version)
    return shown.pop("items"), shown
