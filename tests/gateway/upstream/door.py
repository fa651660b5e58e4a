"""The wire alone, without the stages before it: a server that passes every request on to one cluster, and its clients."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import uvicorn
from uvicorn.server import ServerState

from access.requestlimits import TenantThrottle
from gateway.filters.requestinfo import resolve
from gateway.handlers.placednamespaces import recording
from gateway.handlers.placednamespaces.forwarding import as_of_a_page, is_read_as_messages
from gateway.handlers.placednamespaces.relaying import relay
from gateway.http.bodies import read_body
from gateway.http.errors import as_status_error, render
from gateway.http.messages import Headers, Request, Stream
from gateway.http.protocol import GatewayProtocol
from gateway.http.requestresponse import RequestResponseCycle
from gateway.process.streams import OpenStreams
from gateway.server.pipeline import RequestPipeline
from gateway.upstream.client import Answer, Upstream
from gateway.upstream.placements import Placement
from gateway.upstream.recording.registry import Recordings
from gateway.upstream.tunnel import Tunnel
from kube.authentication.identity import Principal
from kube.requests.names import SYSTEM_TENANT
from kube.requests.ratelimits import UNLIMITED
from kube.requests.requestinfo import query_parameters
from kube.requests.status import Forbidden, ServiceUnavailable

SUSPENDED = Forbidden("the workspace is suspended: unpaid")


class Door:
    """Where it listens, and what it keeps; once ``closed`` nobody may go through any more."""

    def __init__(self, upstream: Upstream, token: str) -> None:
        self.upstream = upstream
        self.token = token
        self.streams = OpenStreams()
        self.closed = False
        self.recorded: tuple[Recordings, Placement] | None = None
        self.state = ServerState()
        self.address: tuple[str, int] = ("", 0)
        self.principal = Principal(name="anna", uid="1", groups=(), tenant="acme", authenticator="test")
        self.operator = Principal(name="oskar", uid="2", groups=(), tenant=SYSTEM_TENANT, authenticator="test")
        self.throttle = TenantThrottle(UNLIMITED, self.streams.of)
        self.runtime = SimpleNamespace(
            open_streams=self.streams,
            throttle=self.throttle,
            trustworthy=True,
            require_trustworthy=self._require_trustworthy,
        )

    async def _require_trustworthy(self) -> None:
        if not self.runtime.trustworthy:
            raise ServiceUnavailable("the server cannot verify permissions right now, please try again", retry_after=1)

    async def recheck(self) -> None:
        if self.closed:
            raise SUSPENDED

    def suspend(self) -> None:
        self.closed = True
        self.streams.reauthorize(None)

    stopping = False

    async def serve(self, cycle: RequestResponseCycle) -> None:
        asked = asyncio.get_running_loop().time()
        pipeline = RequestPipeline(self.runtime, cycle)  # type: ignore[arg-type]
        headers = dict(cycle.headers)
        info = resolve(cycle.method, cycle.raw_path, cycle.query, "acme")
        target = cycle.raw_path + (b"?" + cycle.query if cycle.query else b"")
        try:
            body = await read_body(cycle, headers)
            pairs = tuple(cycle.headers)
            parameters = query_parameters(cycle.query)
            request = Request(
                principal=self.principal,
                info=info,
                query={name: values[0] for name, values in parameters.items()},
                parameters=parameters,
                headers=headers,
                raw_headers=pairs,
                body=b"",
                now=time.time(),
                audit_id=pipeline.audit_id,
                cut=cycle.abort,
            )

            async def connect(sent: Headers) -> Answer | Tunnel:
                return await self.upstream.upgrade(
                    cycle.method,
                    target,
                    sent,
                    token=self.token,
                    audit_id=pipeline.audit_id,
                    long_running=not info.connects,
                )

            if info.connects and self.recorded is not None:
                self.runtime.recordings, placement = self.recorded
                answer = await recording.connect(self.runtime, request, placement, connect)  # type: ignore[arg-type]
            elif info.connects or is_read_as_messages(request):
                answer = await connect(pairs if info.connects else as_of_a_page(request))
            else:
                answer = await self.upstream.request(
                    cycle.method,
                    target,
                    pairs,
                    body,
                    token=self.token,
                    audit_id=pipeline.audit_id,
                    long_running=info.is_long_running,
                )
            passed = await relay(
                self.runtime,  # type: ignore[arg-type]
                request,
                "prod",
                answer,
                self.recheck,
                since=asked,
            )
        except Exception as error:  # noqa: BLE001 - as the pipeline does
            passed = render(as_status_error(error))
        if isinstance(passed, Stream):
            await pipeline._stream(passed)
        else:
            await pipeline._reply(passed)


@asynccontextmanager
async def door_to(
    upstream: Upstream, token: str = "workspace", tls: ssl.SSLContext | None = None
) -> AsyncIterator[Door]:
    """One that listens, without TLS unless told."""
    door = Door(upstream, token)
    config = uvicorn.Config(door, http=GatewayProtocol, ws="none")  # type: ignore[arg-type]
    server = await asyncio.get_running_loop().create_server(
        lambda: GatewayProtocol(config, door.state, {}), "127.0.0.1", 0, ssl=tls
    )
    door.address = server.sockets[0].getsockname()
    try:
        yield door
    finally:
        server.close()
        for connection in tuple(door.state.connections):
            connection.abort()  # type: ignore[attr-defined]


class Client:
    """One connection to a door."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def ask(self, path: str, *headers: str, method: str = "GET") -> None:
        lines = (f"{method} {path} HTTP/1.1", "Host: door", *headers, "", "")
        self.writer.write("\r\n".join(lines).encode())

    async def head(self) -> tuple[bytes, dict[bytes, bytes]]:
        """The status line and the headers of the next answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n"))[:-4]
        line, *rest = head.split(b"\r\n")
        return line, {name.lower(): value for name, value in (part.split(b": ", 1) for part in rest)}

    async def chunk(self) -> bytes:
        """The next chunk; empty at the end of the body."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        return (await self.reader.readexactly(size + 2))[:-2]

    def close(self) -> None:
        self.writer.close()


async def client_of(door: Door) -> Client:
    return Client(*await asyncio.open_connection(*door.address))
