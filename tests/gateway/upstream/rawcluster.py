"""An API server that says, byte by byte, what a test tells it to: TLS on a real socket, in the test's own event loop."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import trustme

from gateway.upstream.client import Cluster

Behave = Callable[["Visit"], Awaitable[None]]


class Visit:
    """One connection to the cluster; ``number`` counts them from 0."""

    def __init__(self, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.number, self.reader, self.writer = number, reader, writer

    async def request(self) -> tuple[bytes, dict[bytes, bytes], bytes]:
        """The next request: its line, its headers, its body. Raises ``IncompleteReadError`` when there is none."""
        head = (await self.reader.readuntil(b"\r\n\r\n"))[:-4]
        line, *rest = head.split(b"\r\n")
        headers = dict(part.split(b": ", 1) for part in rest)
        return line, headers, await self.reader.readexactly(int(headers.get(b"content-length", b"0")))

    async def say(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def cut(self) -> None:
        assert self.writer.transport is not None
        self.writer.transport.abort()


class RawCluster:
    """Where it is, and the request lines that it has heard."""

    def __init__(self, behave: Behave) -> None:
        self.behave = behave
        self.ca = trustme.CA()
        self.url = ""
        self.visits = 0
        self.heard: list[bytes] = []
        self._server: asyncio.Server | None = None
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.ca.issue_cert("127.0.0.1").configure_cert(self._context)
        self._port = 0

    @property
    def cluster(self) -> Cluster:
        return Cluster(uid="c1", name="prod", url=self.url, ca_pem=self.ca.cert_pem.bytes().decode())

    async def open(self) -> None:
        """Listen; on the same port as before, if it has listened before."""
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self._port, ssl=self._context, ssl_shutdown_timeout=0.1
        )
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"https://127.0.0.1:{self._port}"

    def close(self) -> None:
        """Listen no longer."""
        assert self._server is not None
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = Visit(self.visits, reader, writer)
        self.visits += 1
        # The cancellation is that of the loop at its end.
        with contextlib.suppress(
            OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError
        ):
            await self.behave(visit)
        with contextlib.suppress(OSError):
            writer.close()


@asynccontextmanager
async def raw_cluster(behave: Behave) -> AsyncIterator[RawCluster]:
    """One that listens."""
    cluster = RawCluster(behave)
    await cluster.open()
    try:
        yield cluster
    finally:
        cluster.close()


def answering(answer: bytes) -> Behave:
    """Says the same to every request."""

    async def behave(visit: Visit) -> None:
        while True:
            await visit.request()
            await visit.say(answer)

    return behave


def ok(body: bytes = b"{}", *headers: bytes) -> bytes:
    """A good answer."""
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\n\r\n%b" % (lines, len(body), body)
