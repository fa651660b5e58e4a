"""``/openapi/v2`` and ``/openapi/v3`` of a space: what kubectl validates and explains by (TS10, TS15)."""

from __future__ import annotations

import asyncio
from typing import Final

import orjson

from gateway.exchange import Headers, Request, Response
from gateway.kinds import definitions
from gateway.negotiation import respond
from gateway.runtime import Runtime
from kube import openapi
from kube.builtins import KUBERNETES_MINOR
from kube.openapi import Document
from kube.resources import Catalog
from kube.status import NoSuchPage

_KEPT: Final = 128
_known: dict[tuple[int, str], tuple[Catalog, Document]] = {}


async def serve(runtime: Runtime, request: Request) -> Response:
    """One of the documents; for a group-version that the space does not serve a 404 without a word.

    Raises ``NoSuchPage`` for other paths.
    """
    catalog = runtime.catalogs.of(request.info.cluster)
    path = request.info.path.rstrip("/")
    if path == "/openapi/v3":
        return respond(request, orjson.dumps(openapi.v3_index(catalog)))
    key = (id(catalog), path)
    known = _known.get(key)
    if known is not None and known[0] is catalog:
        document = known[1]
    else:
        # Making a document takes long enough to hold others up: a thread does it.
        made = await asyncio.to_thread(_make, catalog, path)
        if made is None:
            if path.startswith("/openapi/v3/"):
                return Response(404, b"", b"")
            raise NoSuchPage
        document = made
        if len(_known) >= _KEPT:
            _known.clear()
        _known[key] = (catalog, document)
    etag: Headers = ((b"etag", document.etag.encode()), (b"vary", b"Accept"))
    if request.headers.get(b"if-none-match") == document.etag.encode():
        return Response(304, b"", headers=etag)
    response = respond(request, document.body)
    response.headers = (*response.headers, *etag)
    return response


def _make(catalog: Catalog, path: str) -> Document | None:
    if path == "/openapi/v2":
        return openapi.v2_document(catalog, definitions(), f"v{KUBERNETES_MINOR}.0")
    if not path.startswith("/openapi/v3/"):
        return None
    parts = path.removeprefix("/openapi/v3/").split("/")
    if len(parts) == 2 and parts[0] == "api":
        return openapi.v3_document(catalog, definitions(), "", parts[1])
    if len(parts) == 3 and parts[0] == "apis":
        return openapi.v3_document(catalog, definitions(), parts[1], parts[2])
    return None
