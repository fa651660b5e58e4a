"""Discovery of a space: what kubectl reads before anything else (TS10, TS15)."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import orjson

from gateway.http.messages import Request, Response
from gateway.http.negotiation import Accept, negotiate, respond
from gateway.process.runtime import Runtime
from kube.kinds.resources import Catalog
from kube.openapi import discovery
from kube.requests.requestinfo import not_found
from kube.requests.status import NoSuchPage

_CACHE_MAX: Final = 512
_documents: dict[tuple[int, str, str], tuple[Catalog, bytes]] = {}


def is_discovery(path: str) -> bool:
    """Whether a non-resource path is one of discovery's."""
    parts = path.strip("/").split("/")
    return (parts[0] == "api" and len(parts) <= 2) or (parts[0] == "apis" and len(parts) <= 3)


def is_version(path: str) -> bool:
    """Whether it is ``/api`` or a version's own document: these alone refuse other methods than GET."""
    parts = path.strip("/").split("/")
    return (parts[0] == "api" and len(parts) <= 2) or (parts[0] == "apis" and len(parts) == 3)


async def discover(runtime: Runtime, request: Request) -> Response:
    """``/api``, ``/api/v1``, ``/apis``, ``/apis/<group>`` and ``/apis/<group>/<version>``."""
    return answer(request, runtime.catalogs.of(request.info.cluster), request.info.path.rstrip("/"))


def answer(request: Request, catalog: Catalog, path: str) -> Response:
    """The document of a catalog at a path of discovery. Raises ``NotFound``."""
    accept = negotiate(request, forms=False, aggregated=path in ("/api", "/apis"))
    host = request.headers.get(b"host", b"").decode("latin-1")
    data = _document(catalog, path, accept, host)
    if not accept.is_aggregated:
        return respond(request, data, accept=accept)
    etag = b'"' + hashlib.sha256(data).hexdigest().encode() + b'"'
    if request.headers.get(b"if-none-match") == etag:
        return Response(304, b"", headers=((b"etag", etag), (b"vary", b"Accept")))
    response = respond(request, data, accept=Accept(accept.media))
    response.media = discovery.aggregated_media_type(accept.version).encode()
    response.headers = (*response.headers, (b"etag", etag), (b"vary", b"Accept"))
    return response


def _document(catalog: Catalog, path: str, accept: Accept, host: str) -> bytes:
    form = accept.version if accept.is_aggregated else host if path == "/api" else ""
    key = (id(catalog), path, form)
    known = _documents.get(key)
    # The catalog is kept with its document, so that another one cannot take its identity.
    if known is not None and known[0] is catalog:
        return known[1]
    body = _build(catalog, path, accept, host)
    if body is None:
        group = path.split("/")[2]
        raise not_found() if path.startswith("/api/") or group in catalog.groups() else NoSuchPage()
    data = orjson.dumps(body)
    if len(_documents) >= _CACHE_MAX:
        _documents.clear()
    _documents[key] = (catalog, data)
    return data


def _build(catalog: Catalog, path: str, accept: Accept, host: str) -> dict[str, Any] | None:
    parts = path[1:].split("/")
    if accept.is_aggregated:
        return discovery.aggregated(catalog, core=parts[0] == "api", version=accept.version)
    if path == "/api":
        return discovery.api_versions(host)
    if path == "/apis":
        return discovery.api_group_list(catalog)
    if parts[0] == "api":
        return discovery.api_resource_list(catalog, "", parts[1])
    if len(parts) == 2:
        return discovery.api_group(catalog, parts[1])
    return discovery.api_resource_list(catalog, parts[1], parts[2])
