"""Request bodies within bounds: size, time, and encodings that this server does not undo."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from gateway.call import Call
from kube.documents import MAX_BYTES
from kube.status import BadRequest, RequestEntityTooLarge, Timeout, UnsupportedMediaType

BODY_SECONDS: Final = 30.0
"""How long a client may take to send its body."""


class Disconnected(Exception):
    """The client has gone before its request was complete."""


async def read_body(call: Call, headers: Mapping[bytes, bytes]) -> bytes:
    """The whole body. Raises ``RequestEntityTooLarge``, ``UnsupportedMediaType``, ``Timeout``, ``Disconnected``."""
    encoding = headers.get(b"content-encoding")
    if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
        raise UnsupportedMediaType("compressed request bodies are not supported")
    length = headers.get(b"content-length")
    if length is None and b"transfer-encoding" not in headers:
        return b""
    if length is not None:
        if not length.isdigit() or len(length) > 19:
            raise BadRequest("the content length is not a number")
        if int(length) > MAX_BYTES:
            raise _too_large()
    if not call.received:
        return await _gathered(call)
    body = call.take()
    if len(body) > MAX_BYTES:
        raise _too_large()
    return body


async def _gathered(call: Call) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while True:
                await call.more()
                if call.gone:
                    raise Disconnected
                ended = call.received
                chunks.append(call.take())
                size += len(chunks[-1])
                if size > MAX_BYTES:
                    raise _too_large()
                if ended:
                    return b"".join(chunks)
    except TimeoutError:
        raise Timeout("the request body did not arrive in time") from None


def _too_large() -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"Request entity too large: limit is {MAX_BYTES}")
