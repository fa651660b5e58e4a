"""An HTTPS proxy in front of a cluster that breaks calls by real means: cut, late, refused, truncated, nonsense."""

from __future__ import annotations

import asyncio
import re
import ssl
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path

import trustme
from aiohttp import ClientSession, TCPConnector, web


@dataclass
class Fault:
    """What happens to the next ``times`` calls that match: see ``FaultProxy._spoil``."""

    action: str
    method: str = "."
    path: str = "."
    times: int = 1
    retry_after: str = ""
    hits: int = field(default=0)
    met: threading.Event = field(default_factory=threading.Event)
    go: threading.Event = field(default_factory=threading.Event)
    """Of a call that is held: that it has come, and that it may go on."""


class FaultProxy:
    """Forwards with the gateway's certificate, or without it for calls that bring a token of their own."""

    def __init__(self, upstream: str, upstream_ca: str, certificate: Path | None) -> None:
        self._upstream, self._upstream_ca, self._certificate = upstream, upstream_ca, certificate
        self.faults: list[Fault] = []
        self.calls: list[tuple[str, str, int]] = []
        self.ca = trustme.CA()
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        """Listen on a free port of 127.0.0.1."""
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(300)

    def stop(self) -> None:
        """Close everything."""
        asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(300)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(300)

    def heal(self) -> None:
        """No more faults, and forget the calls so far."""
        self.faults.clear()
        self.calls.clear()

    async def _start(self) -> None:
        own, bare = (ssl.create_default_context(cadata=self._upstream_ca) for _ in range(2))
        if self._certificate:
            own.load_cert_chain(self._certificate)
        self._own = ClientSession(connector=TCPConnector(ssl=own))
        self._bare = ClientSession(connector=TCPConnector(ssl=bare))
        app = web.Application(client_max_size=2**24)
        app.router.add_route("*", "/{path:.*}", self._handle)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.ca.issue_cert("127.0.0.1").configure_cert(context)
        site = web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        self.url = f"https://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _stop(self) -> None:
        await self._own.close()
        await self._bare.close()
        await self._runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        fault = next(
            (
                fault
                for fault in self.faults
                if fault.hits < fault.times
                and re.search(fault.method, request.method)
                and re.search(fault.path, request.path)
            ),
            None,
        )
        if fault is not None:
            fault.hits += 1
        data = await request.read()
        if fault is not None and not fault.action.endswith("after"):
            answer = await self._spoil(request, fault)
            if answer is not None:
                return answer
        headers = {k: v for k, v in request.headers.items() if k.lower() in {"accept", "authorization", "content-type"}}
        session = self._bare if "Authorization" in request.headers else self._own
        async with session.request(
            request.method, f"{self._upstream}{request.raw_path}", data=data or None, headers=headers
        ) as answer:
            if "watch" in request.query:
                stream = web.StreamResponse(status=answer.status)
                stream.content_type = answer.content_type
                await stream.prepare(request)
                async for data in answer.content.iter_any():
                    await stream.write(data)
                return stream
            body = await answer.read()
            self.calls.append((request.method, request.path, answer.status))
            if fault is not None and fault.action != "hold":
                # The cluster has done it; the caller will not hear of it.
                assert request.transport is not None
                request.transport.abort()
            return web.Response(body=body, status=answer.status, content_type=answer.content_type)

    async def _spoil(self, request: web.Request, fault: Fault) -> web.StreamResponse | None:
        action = fault.action
        if action == "drop-before":
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if action == "delay":
            await asyncio.sleep(0.3)
            return None
        if action == "hold":
            fault.met.set()
            await asyncio.to_thread(fault.go.wait, 300)
            return None
        if action == "html":
            return web.Response(text="<html>It works!</html>", content_type="text/html")
        if action == "redirect":
            return web.Response(status=302, headers={"Location": "https://127.0.0.1:1/"})
        if action == "huge":
            return web.Response(body=b'{"kind":"' + b"x" * (5 * 2**20) + b'"}', content_type="application/json")
        if action == "truncated":
            response = web.StreamResponse(headers={"Content-Length": "1000", "Content-Type": "application/json"})
            await response.prepare(request)
            await response.write(b'{"kind": "Namesp')
            assert request.transport is not None
            request.transport.close()
            return response
        code = int(action)
        headers = {"Retry-After": fault.retry_after} if fault.retry_after else {}
        body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": f"spoiled {code}"}
        if code == 409:
            body["reason"] = "Conflict"
        return web.json_response(body, status=code, headers=headers)


def write_certificate(kubeconfig: str) -> Path:
    """The client certificate and key of a kubeconfig as one file."""
    import base64

    import yaml

    user = yaml.safe_load(kubeconfig)["users"][0]["user"]
    file = Path(tempfile.mkstemp(suffix=".pem")[1])
    file.write_bytes(
        base64.b64decode(user["client-certificate-data"]) + b"\n" + base64.b64decode(user["client-key-data"])
    )
    return file
