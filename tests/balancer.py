"""What stands before several servers of one kind, as a Service of a cluster does."""

from __future__ import annotations

import asyncio
import http.client
import ssl
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

PATIENCE = 300.0
LOOK_SECONDS = 0.2


def status_of(port: int, path: str, *, tls: ssl.SSLContext | None = None) -> int:
    """What a server answers, over TLS where a context is given; 0 while nobody does."""
    line = (
        http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=tls)
        if tls
        else http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    )
    try:
        line.request("GET", path)
        return line.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        line.close()


class Balancer:
    """An address that leads each new connection to a server that says that it is ready, in turn.

    It passes bytes on and reads none, so servers behind it end TLS themselves; ``tls`` is what their readiness is asked
    with.
    """

    def __init__(self, ports: Iterable[int], *, tls: ssl.SSLContext | None = None) -> None:
        self.ports: list[int] = list(ports)
        self.ready: list[int] = []
        self.leading: Counter[int] = Counter()
        """How many connections each server has through here."""
        self.port = 0
        self._tls = tls
        self._taken = 0
        self._loop = asyncio.new_event_loop()
        self._begun = threading.Event()

    @contextmanager
    def served(self) -> Iterator[None]:
        """Balance, in a thread of its own."""
        thread = threading.Thread(target=self._run, daemon=True)
        thread.start()
        assert self._begun.wait(PATIENCE)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._main.cancel)
            thread.join(PATIENCE)

    def _run(self) -> None:
        self._main = self._loop.create_task(self._serve())
        with suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._main)

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._lead, "127.0.0.1", 0, backlog=1000)
        self.port = server.sockets[0].getsockname()[1]
        self._begun.set()
        while True:
            ports = list(self.ports)
            states = [await asyncio.to_thread(status_of, port, "/readyz", tls=self._tls) for port in ports]
            self.ready = [port for port, state in zip(ports, states, strict=True) if state == 200]
            await asyncio.sleep(LOOK_SECONDS)

    async def _lead(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._taken += 1
        ready = self.ready
        for turn in range(len(ready)):
            port = ready[(self._taken + turn) % len(ready)]
            self.leading[port] += 1
            try:
                # As balancers do: one that does not listen any more was not asked anything yet.
                with suppress(ConnectionRefusedError):
                    there = await asyncio.open_connection("127.0.0.1", port)
                    await asyncio.gather(_pipe(reader, there[1]), _pipe(there[0], writer))
                    return
            finally:
                self.leading[port] -= 1
        writer.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    writer.close()
