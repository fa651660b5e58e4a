"""``/openapi/v2`` and ``/openapi/v3`` of a space: what kubectl validates and explains by (TS10, TS15)."""

from __future__ import annotations

import asyncio
import re
from typing import Final

import orjson

from gateway.http.messages import Headers, Request, Response
from gateway.http.negotiation import PLAIN, Accept, respond
from gateway.process.runtime import Runtime
from gateway.resources.kinds import definitions
from kube.kinds.builtins import KUBERNETES_MINOR
from kube.kinds.resources import Catalog
from kube.openapi import documents, protobuf
from kube.openapi.documents import Document
from kube.requests.status import NoSuchPage

_KEPT: Final = 128
_known: dict[tuple[int, str, bool], tuple[Catalog, Document]] = {}
_PROTOBUF: Final = re.compile(rb"application/com\.github\.proto-openapi\.spec\.v2[@.]v1\.0\+protobuf")
_ENCODED: Final = Accept(protobuf.CONTENT_TYPE)


async def serve(runtime: Runtime, request: Request) -> Response:
    """One of the documents; for a group-version that the space does not serve a 404 without a word.

    Raises ``NoSuchPage`` for other paths.
    """
    catalog = runtime.catalogs.of(request.info.cluster)
    path = request.info.path.rstrip("/")
    if path == "/openapi/v3":
        return respond(request, orjson.dumps(documents.v3_index(catalog)))
    encoded = path == "/openapi/v2" and _PROTOBUF.match(request.headers.get(b"accept", b"")) is not None
    key = (id(catalog), path, encoded)
    known = _known.get(key)
    if known is not None and known[0] is catalog:
        document = known[1]
    else:
        # Making a document takes long enough to hold others up: a thread does it.
        made = await asyncio.to_thread(_make, catalog, path, encoded)
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
    response = respond(request, document.body, accept=_ENCODED if encoded else PLAIN)
    response.headers = (*response.headers, *etag)
    return response


def _make(catalog: Catalog, path: str, encoded: bool) -> Document | None:
    if path == "/openapi/v2":
        document = documents.v2_document(catalog, definitions(), f"v{KUBERNETES_MINOR}.0")
        return Document(protobuf.encode(orjson.loads(document.body)), document.hash) if encoded else document
    if not path.startswith("/openapi/v3/"):
        return None
    parts = path.removeprefix("/openapi/v3/").split("/")
    if len(parts) == 2 and parts[0] == "api":
        return documents.v3_document(catalog, definitions(), "", parts[1])
    if len(parts) == 3 and parts[0] == "apis":
        return documents.v3_document(catalog, definitions(), parts[1], parts[2])
    return None
