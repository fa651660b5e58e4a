"""A TCP address in front of one server or several, whose connections can be cut, stalled and refused."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Sequence
from pathlib import Path

Target = int | Path
"""A port of 127.0.0.1, or a Unix socket."""

_CONNECT_SECONDS = 2.0


class Link:
    """Forwards each connection to a target that takes it, in an order of chance, as a load balancer would."""

    def __init__(self, targets: Sequence[Target], chance: random.Random) -> None:
        self._targets, self._chance = list(targets), chance
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.shut = False
        """Whether who comes now is sent away."""

    @property
    def port(self) -> int:
        """Where it listens on 127.0.0.1."""
        assert self._server is not None
        return int(self._server.sockets[0].getsockname()[1])

    async def start(self, port: int = 0) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def stop(self) -> None:
        """End, with every connection."""
        assert self._server is not None
        self._server.close()
        self.heal()
        self.cut()

    def heal(self) -> None:
        """Everything flows, and everybody is let in."""
        self.shut = False
        self._flowing.set()

    def stall(self) -> None:
        """Nothing flows, and nobody is told."""
        self._flowing.clear()

    def cut(self) -> None:
        """End every connection at once, by a reset."""
        for writer in list(self._writers):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        try:
            ends = None if self.shut else await self._reach()
            if ends is not None:
                self._writers.update((writer, ends[1]))
                await asyncio.gather(self._forward(reader, ends[1]), self._forward(ends[0], writer))
        finally:
            for each in (writer, *(ends[1:] if ends else ())):
                self._writers.discard(each)
                each.transport.abort()

    async def _reach(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter] | None:
        for target in self._chance.sample(self._targets, len(self._targets)):
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_SECONDS):
                    if isinstance(target, Path):
                        return await asyncio.open_unix_connection(target)
                    return await asyncio.open_connection("127.0.0.1", target)
        return None

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                writer.write(data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            else:
                writer.close()
