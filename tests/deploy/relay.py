"""Ports of this network that lead to Unix sockets: ``python -m tests.deploy.relay 5432=/run/.s.PGSQL.5432 …``."""

from __future__ import annotations

import asyncio
import sys


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    writer.close()


async def _serve(port: str, path: str) -> None:
    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        beyond, back = await asyncio.open_unix_connection(path)
        await asyncio.gather(_copy(reader, back), _copy(beyond, writer))

    async with await asyncio.start_server(met, "127.0.0.1", int(port)) as server:
        print(port, flush=True)
        await server.serve_forever()


async def _main() -> None:
    await asyncio.gather(*(_serve(*each.split("=", 1)) for each in sys.argv[1:]))


if __name__ == "__main__":
    asyncio.run(_main())
