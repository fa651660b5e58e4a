"""Request bodies within bounds: size, time, and encodings that this server does not undo."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.http.requestresponse import RequestResponseCycle
from kube.requests.decoding import MAX_BYTES
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import BadRequest, RequestEntityTooLarge, Timeout, UnsupportedMediaType

BODY_SECONDS: Final = 30.0
"""How long a client may take to send its body."""


OPTIONS_BYTES: Final = 64 * 1024
"""Bytes of a body that is decoded for callers who need no right of their own to send it, or that holds options."""


class Disconnected(Exception):
    """The client has gone before its request was complete."""


async def read_body(cycle: RequestResponseCycle, headers: Mapping[bytes, bytes], limit: int = MAX_BYTES) -> bytes:
    """The whole body, ``limit`` bytes at most.

    Raises ``RequestEntityTooLarge``, ``UnsupportedMediaType``, ``Timeout``, ``Disconnected``.
    """
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
        raise UnsupportedMediaType("compressed request bodies are not supported")
    length = headers.get(b"content-length")
    if length is None and b"transfer-encoding" not in headers:
        return b""
    if length is not None:
        if not length.isdigit() or len(length) > 19:
            raise BadRequest("the content length is not a number")
        if int(length) > limit:
            raise _too_large(limit)
    if not cycle.body_complete:
        return await _gathered(cycle, limit)
    body = cycle.read_nowait()
    if len(body) > limit:
        raise _too_large(limit)
    return body


async def _gathered(cycle: RequestResponseCycle, limit: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                await cycle.wait_for_body()
                if cycle.disconnected:
                    raise Disconnected
                ended = cycle.body_complete
                chunks.append(cycle.read_nowait())
                size += len(chunks[-1])
                if size > limit:
                    raise _too_large(limit)
                if ended:
                    return b"".join(chunks)
    except TimeoutError:
        raise Timeout("the request body did not arrive in time") from None


def limit_of(info: RequestInfo) -> int:
    """How long a body may be: questions that anybody may ask, and options, are short, and what nobody asked for no longer."""
    if not info.is_resource and info.path.startswith("/webhooks/"):
        return MAX_BYTES if info.path.endswith("/admit") else OPTIONS_BYTES
    asks = info.group in ("authentication.k8s.io", "authorization.k8s.io")
    return MAX_BYTES if info.method in ("POST", "PUT", "PATCH") and not asks else OPTIONS_BYTES


def _too_large(limit: int) -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"Request entity too large: limit is {limit}")
