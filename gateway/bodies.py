"""Request bodies within bounds: size, time, and encodings that this server does not undo."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from kube.documents import MAX_BYTES
from kube.status import BadRequest, RequestEntityTooLarge, Timeout, UnsupportedMediaType

BODY_SECONDS: Final = 30.0
"""How long a client may take to send its body."""


class Disconnected(Exception):
    """The client has gone before its request was complete."""


async def read_body(receive: Callable[[], Awaitable[Any]], headers: Mapping[bytes, bytes]) -> bytes:
    """The whole body. Raises ``RequestEntityTooLarge``, ``UnsupportedMediaType``, ``Timeout``, ``Disconnected``."""
    encoding = headers.get(b"content-encoding", b"identity").strip().lower()
    if encoding not in (b"", b"identity"):
        raise UnsupportedMediaType("compressed request bodies are not supported")
    length = headers.get(b"content-length")
    if length is None and b"transfer-encoding" not in headers:
        return b""
    if length is not None:
        if not length.isdigit() or len(length) > 19:
            raise BadRequest("the content length is not a number")
        if int(length) > MAX_BYTES:
            raise _too_large()
        if length == b"0":
            return b""
    message = await _receive(receive, BODY_SECONDS)
    body: bytes = message.get("body", b"")
    if not message.get("more_body"):
        return body
    chunks, size = [body], len(body)
    deadline = asyncio.get_running_loop().time() + BODY_SECONDS
    while message.get("more_body"):
        message = await _receive(receive, deadline - asyncio.get_running_loop().time())
        chunk = message.get("body", b"")
        size += len(chunk)
        if size > MAX_BYTES:
            raise _too_large()
        chunks.append(chunk)
    return b"".join(chunks)


async def _receive(receive: Callable[[], Awaitable[Any]], seconds: float) -> Any:
    try:
        async with asyncio.timeout(seconds):
            message = await receive()
    except TimeoutError:
        raise Timeout("the request body did not arrive in time") from None
    if message["type"] == "http.disconnect":
        raise Disconnected
    return message


def _too_large() -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"Request entity too large: limit is {MAX_BYTES}")
