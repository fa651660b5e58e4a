"""``/openapi/v2`` and ``/openapi/v3`` of a space: what kubectl validates and explains by (TS10, TS15).

What a definition brings to the documents is made beside the event loop when somebody first asks, and charged to him;
whoever asks afterwards has it put together. A document has the hash of its content as entity tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final

import orjson

from gateway.http.messages import COST_VALUES, JSON, LARGE, Headers, Request, Response
from gateway.http.negotiation import Accept, respond, respond_at_length
from gateway.process.runtime import Runtime
from gateway.resources.kinds import definitions
from kube.kinds.builtins import KUBERNETES_MINOR
from kube.kinds.resources import Resource
from kube.openapi import protobuf
from kube.openapi.documents import Document, Documents, Form
from kube.requests.status import NoSuchPage

_V2: Final[Mapping[bytes, Form]] = {
    JSON: Form.V2,
    protobuf.CONTENT_TYPE: Form.V2_PROTOBUF,
    protobuf.CONTENT_TYPE.replace(b"v2.v1.0", b"v2@v1.0"): Form.V2_PROTOBUF,
}
_V3: Final[Mapping[bytes, Form]] = {JSON: Form.V3}
_CLAUSES: Final = 32
_TAG: Final = re.compile(rb'(?:W/)?("[^"]*")|(\*)')
_VARY: Final[Headers] = ((b"vary", b"Accept"),)
_NOT_KEPT: Final[Headers] = ()
_FOR_EVER: Final[Headers] = ((b"cache-control", b"private, immutable, max-age=31536000"),)
"""Where the URL has the hash of the content. Not public: a space's definitions are its own."""


async def serve(runtime: Runtime, request: Request) -> Response:
    """One of the documents; for a group-version that the space does not serve a 404 without a word.

    Raises ``NoSuchPage`` for other paths, ``TooManyRequests`` where its tenant has asked for too much.
    """
    catalog, known, kept = runtime.catalogs.of(request.info.cluster), _documents(), _NOT_KEPT
    path = request.info.path
    if path == "/openapi/v3":
        await _make(request, known, catalog, Form.V3)
        return respond(request, orjson.dumps(known.v3_index(catalog)))
    if path == "/openapi/v2":
        form = _accepted(request, _V2)
        if form is None:
            return _empty(406, _VARY)
        await _make(request, known, catalog, form)
        answer = _condition(request, known.v2_hash(catalog))
        if answer is not None:
            return answer
        document: Document | None = await request.in_thread(LARGE + 1, known.v2, catalog, form)
    elif path.startswith("/openapi/v3/"):
        group, version = _named(path)
        resources = catalog.in_version(group, version)
        if not resources:
            return _empty(404)
        if _accepted(request, _V3) is None:
            return _empty(406, _VARY)
        form = Form.V3
        await _make(request, known, resources, form, version)
        tag = known.v3_hash(catalog, group, version) or ""
        answer = _elsewhere(request, tag) or _condition(request, tag)
        if answer is not None:
            return answer
        document = await request.in_thread(LARGE + 1, known.v3, catalog, group, version)
        kept = _FOR_EVER if request.query.get("hash") else kept
    else:
        raise NoSuchPage
    assert document is not None  # noqa: S101 - the catalog does not change
    media = Accept(protobuf.CONTENT_TYPE if form is Form.V2_PROTOBUF else JSON)
    response = await respond_at_length(request, document.body, accept=media)
    response.headers = (*response.headers, *_tagged(document.hash), *kept)
    return response


@lru_cache(maxsize=1)
def _documents() -> Documents:
    return Documents(definitions(), KUBERNETES_MINOR)


async def _make(
    request: Request, known: Documents, resources: Iterable[Resource], form: Form, version: str = ""
) -> None:
    """Make what is missing: one definition after the other, in turn with other tenants'."""
    missing = known.missing(resources, form, version)
    request.charge(sum(resource.weight for resource, _ in missing) // COST_VALUES)
    for resource, served in missing:
        await request.in_thread(LARGE + 1, known.make, resource, served, form)


def _named(path: str) -> tuple[str, str]:
    """The group and version that a path of version 3 names; an empty version where it names none."""
    match path.split("/")[3:]:
        case ["api", version]:
            return "", version
        case ["apis", group, version] if group:
            return group, version
    return "", ""


def _accepted(request: Request, forms: Mapping[bytes, Form]) -> Form | None:
    """The first form that the client takes, as kube-apiserver chooses it."""
    header = request.headers.get(b"accept", b"")
    if not header:
        return forms[JSON]
    wanted = []
    for clause in header.split(b",")[:_CLAUSES]:
        media, *parameters = (part.strip() for part in clause.split(b";"))
        quality = next(
            (value for name, _, value in (each.partition(b"=") for each in parameters) if name == b"q"), b"1"
        )
        try:
            wanted.append((-float(quality), media))
        except ValueError:
            continue
    for _, media in sorted(wanted, key=lambda each: each[0]):
        if media in (b"*/*", b"application/*"):
            return forms[JSON]
        if media in forms:
            return forms[media]
    return None


def _elsewhere(request: Request, tag: str) -> Response | None:
    """Where the document is, for a URL with the hash of another one."""
    asked = request.query.get("hash")
    if not asked or asked == tag:
        return None
    return _empty(301, (*_tagged(tag), (b"location", f"?hash={tag}".encode())))


def _condition(request: Request, tag: str) -> Response | None:
    """The answer where it depends on what the client has (RFC 9110, 13.2.2)."""
    own = f'"{tag}"'.encode()
    match, none_match = (request.headers.get(name) for name in (b"if-match", b"if-none-match"))
    if match is not None and not _names(match, own, weakly=False):
        return _empty(412, _tagged(tag))
    if none_match is not None and _names(none_match, own, weakly=True):
        return _empty(304, _tagged(tag))
    return None


def _names(header: bytes, own: bytes, *, weakly: bool) -> bool:
    found = _TAG.finditer(header)
    return any(each[2] or (each[1] == own and (weakly or not each[0].startswith(b"W/"))) for each in found)


def _tagged(tag: str) -> Headers:
    return ((b"etag", f'"{tag}"'.encode()), *_VARY)


def _empty(status: int, headers: Headers = ()) -> Response:
    return Response(status, b"", b"", headers)
