"""``/openapi/v2`` and ``/openapi/v3`` of a space: what kubectl validates and explains by (TS10, TS15)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

import orjson

from gateway.http.messages import COST_VALUES, Headers, Request, Response
from gateway.http.negotiation import PLAIN, Accept, respond, respond_at_length
from gateway.process.runtime import Runtime
from gateway.process.streams import Recheck
from gateway.resources.kinds import definitions
from kube.kinds.builtins import KUBERNETES_MINOR
from kube.kinds.resources import Catalog, Resource
from kube.openapi import documents, protobuf
from kube.openapi.documents import Document
from kube.requests.status import NoSuchPage

_KEPT: Final = 128
_PROTOBUF: Final = re.compile(rb"application/com\.github\.proto-openapi\.spec\.v2[@.]v1\.0\+protobuf")
_ENCODED: Final = Accept(protobuf.CONTENT_TYPE)

_Name = tuple[int, str, bool]
"""The identity of a catalog, the path, and whether the document is encoded as protobuf."""
_known: dict[_Name, tuple[Catalog, Document]] = {}
_making: dict[_Name, asyncio.Task[Document | None]] = {}


async def serve(runtime: Runtime, request: Request, recheck: Recheck) -> Response:
    """One of the documents; for a group-version that the space does not serve a 404 without a word.

    Raises ``NoSuchPage`` for other paths, ``TooManyRequests`` where its tenant has asked for too much.
    """
    catalog = runtime.catalogs.of(request.info.cluster)
    path = request.info.path.rstrip("/")
    if path == "/openapi/v3":
        return respond(request, orjson.dumps(documents.v3_index(catalog)))
    encoded = path == "/openapi/v2" and _PROTOBUF.match(request.headers.get(b"accept", b"")) is not None
    document = await _document(runtime, request, recheck, catalog, path, encoded=encoded)
    if document is None:
        if path.startswith("/openapi/v3/"):
            return Response(404, b"", b"")
        raise NoSuchPage
    etag: Headers = ((b"etag", document.etag.encode()), (b"vary", b"Accept"))
    if request.headers.get(b"if-none-match") == document.etag.encode():
        return Response(304, b"", headers=etag)
    response = await respond_at_length(request, document.body, accept=_ENCODED if encoded else PLAIN)
    response.headers = (*response.headers, *etag)
    return response


async def _document(
    runtime: Runtime, request: Request, recheck: Recheck, catalog: Catalog, path: str, *, encoded: bool
) -> Document | None:
    """The document as it is known, or as it is being made: whoever asks meanwhile waits for the same."""
    name = (id(catalog), path, encoded)
    while name in _making:
        await asyncio.wait((_making[name],))
    known = _known.get(name)
    if known is not None and known[0] is catalog:
        return known[1]
    own = [resource for resource in _shown(catalog, path) if resource.custom]
    request.charge(sum(resource.weight for resource in own) // COST_VALUES)

    async def made() -> Document | None:
        if own and runtime.heavy is not None:
            headers = {b"accept": request.headers.get(b"accept", b"")} if encoded else {}
            answer = await runtime.heavy.answer(replace(request, headers=headers), recheck)
            etag = dict(answer.headers).get(b"etag", b"").decode().strip('"')
            document = Document(answer.body, etag) if answer.status == 200 else None
        else:
            # What every space serves is made once; in a thread, so that nobody need start a process for it.
            document = await asyncio.to_thread(_make, catalog, path, encoded)
        if document is not None:
            if len(_known) >= _KEPT:
                _known.clear()
            _known[name] = (catalog, document)
        return document

    making = _making[name] = asyncio.create_task(made())
    making.add_done_callback(lambda _: _making.pop(name))
    return await asyncio.shield(making)


def _shown(catalog: Catalog, path: str) -> Iterable[Resource]:
    """The resources that a document describes."""
    match path.split("/"):
        case ["", "openapi", "v3", "api", version]:
            return catalog.in_version("", version)
        case ["", "openapi", "v3", "apis", group, version]:
            return catalog.in_version(group, version)
    return catalog


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
