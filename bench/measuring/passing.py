"""``python -m bench.measuring.passing PORT TO``: what a place alone costs, by a process that only passes bytes on.

Two processes more are woken for each request, whatever they do: no proxy there, however good, adds less.
"""

from __future__ import annotations

import asyncio
import sys

import uvloop


class _End(asyncio.Protocol):
    """One end of a connection; what it hears the other says."""

    def __init__(self, other: _End | None = None) -> None:
        self.other = other
        self.transport: asyncio.Transport | None = None
        self.waiting: list[bytes] = []

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """It can speak."""
        self.transport = transport
        for data in self.waiting:
            transport.write(data)
        if self.other is None:
            other = self.other = _End(self)
            connecting = asyncio.get_running_loop().create_connection(lambda: other, "127.0.0.1", int(sys.argv[2]))
            self.connecting = asyncio.ensure_future(connecting)

    def data_received(self, data: bytes) -> None:
        """Have it said."""
        assert self.other is not None
        if self.other.transport is None:
            self.other.waiting.append(data)
        else:
            self.other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """Neither is there any more."""
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


async def _serve() -> None:
    await asyncio.get_running_loop().create_server(_End, "127.0.0.1", int(sys.argv[1]))
    print("ready", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(_serve())
