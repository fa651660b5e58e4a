"""What all worker processes of one server count, told by whichever of them is asked (AD7)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

_PATIENCE_SECONDS: Final = 2.0
_FAMILY: Final = b"# TYPE "


class Siblings:
    """One of the worker processes of a server: each answers on a socket in a folder that is theirs alone.

    Each process has series of its own (``worker``): one that is replaced begins at nothing, as any counter may, and takes
    nothing from the others'.
    """

    def __init__(self, folder: Path, number: int) -> None:
        self._folder = folder
        self._number = number

    @asynccontextmanager
    async def answering(self, figures: Callable[[str], bytes]) -> AsyncIterator[None]:
        """Tell the others what ``figures`` says of this process, in Prometheus' text format, of a tenant or of all."""

        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                tenant = (await reader.readline()).decode().strip()
                writer.write(_labelled(figures(tenant), self._number))
                await writer.drain()
            except ConnectionError:
                pass  # whoever asked has given up
            finally:
                writer.close()

        path = self._folder / str(self._number)
        path.unlink(missing_ok=True)  # of the process that this one replaces
        server = await asyncio.start_unix_server(answer, str(path))
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)

    async def figures(self, tenant: str) -> bytes:
        """Everybody's. One that does not answer in time is left out, and ``tenantry_worker_up`` says so."""
        numbers = sorted(int(path.name) for path in self._folder.iterdir())
        answers = await asyncio.gather(*(self._ask(number, tenant) for number in numbers))
        told = dict(zip(numbers, answers, strict=True))
        return b"".join((*_by_family(text for text in answers if text), *_up(told)))

    async def _ask(self, number: int, tenant: str) -> bytes:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                reader, writer = await asyncio.open_unix_connection(str(self._folder / str(number)))
                try:
                    writer.write(f"{tenant}\n".encode())
                    return await reader.read()
                finally:
                    writer.close()
        except OSError:  # a timeout among them
            return b""


def _labelled(text: bytes, number: int) -> bytes:
    """Each sample with the number of its process before its own labels."""
    label = b'worker="%d"' % number
    lines = []
    for line in text.splitlines(keepends=True):
        name, brace, rest = line.partition(b"{")
        if line.startswith(b"#"):
            lines.append(line)
        elif brace:
            lines.append(name + b"{" + label + b"," + rest)
        else:
            name, _, value = line.partition(b" ")
            lines.append(name + b"{" + label + b"} " + value)
    return b"".join(lines)


def _by_family(texts: Iterable[bytes]) -> list[bytes]:
    """All samples of one name behind one another, as the format wants them."""
    families: dict[bytes, list[bytes]] = {}
    for text in texts:
        for family in text.split(_FAMILY)[1:]:
            kind, _, samples = family.partition(b"\n")
            families.setdefault(kind, []).append(samples)
    return [_FAMILY + kind + b"\n" + b"".join(samples) for kind, samples in families.items()]


def _up(told: Mapping[int, bytes]) -> list[bytes]:
    lines = [b'tenantry_worker_up{worker="%d"} %d\n' % (number, bool(text)) for number, text in told.items()]
    return [b"# TYPE tenantry_worker_up gauge\n", *lines]
