"""A proxy in front of PostgreSQL that swallows notifications, or everything."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict, make_conninfo

_NOTIFICATION = b"A"
_ENCRYPTION = (80877103, 80877104)
"""What clients send who would rather have TLS or GSSAPI."""


class DatabaseProxy:
    """Listens on a port of 127.0.0.1 and forwards to the server of a connection string.

    ``deaf``: no notification comes through. ``mute``: no answer does, for now. ``cut``: nothing comes through any more,
    and no connection is refused.
    """

    def __init__(self, conninfo: str) -> None:
        self._upstream = conninfo_to_dict(conninfo)
        self.deaf = self.mute = self.cut = False
        self.swallowed = 0
        self.conninfo = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        server = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._serve, "127.0.0.1", 0), self._loop).result(
            300
        )
        port = server.sockets[0].getsockname()[1]
        rest = {key: value for key, value in self._upstream.items() if key not in ("host", "hostaddr", "port")}
        self.conninfo = make_conninfo(**rest, host="127.0.0.1", port=port)

    def stop(self) -> None:
        """End, with every connection."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(300)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(300)

    async def _end(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        for task in rest:
            task.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        host, port = str(self._upstream.get("host") or "/var/run/postgresql"), self._upstream.get("port") or 5432
        if host.startswith("/"):
            upstream, to_upstream = await asyncio.open_unix_connection(str(Path(host) / f".s.PGSQL.{port}"))
        else:
            upstream, to_upstream = await asyncio.open_connection(host, int(port))
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                first = await reader.readexactly(8)
                while int.from_bytes(first[4:]) in _ENCRYPTION:
                    writer.write(b"N")
                    first = await reader.readexactly(8)
                to_upstream.write(first)
                await asyncio.gather(self._forward(reader, to_upstream), self._filter(upstream, writer))
        finally:
            # What nobody reads any more fills up, and a server process that waits to be read keeps databases from being dropped.
            writer.transport.abort()
            to_upstream.transport.abort()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            while self.cut:
                await asyncio.sleep(0.05)
            writer.write(data)
        writer.write_eof()

    async def _filter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.read(1):
            length = await reader.readexactly(4)
            body = await reader.readexactly(int.from_bytes(length) - 4)
            while self.cut or self.mute:
                await asyncio.sleep(0.05)
            if head == _NOTIFICATION and self.deaf:
                self.swallowed += 1
                continue
            writer.write(head + length + body)
        writer.write_eof()
