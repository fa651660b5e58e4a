"""A writing process for the concurrency tests: ``python -m tests.store.writer CONNINFO NAME WRITERS WRITES``.

Prints ``revision name`` for every confirmed write, so that the test can compare it with what the watchers saw.
"""

from __future__ import annotations

import asyncio
import random
import sys

from store.engine import Engine
from store.types import Create, Delete, PreconditionFailed, Unavailable, Update
from tests.store.objects import body, pod


async def write(store: Engine, name: str, writes: int) -> None:
    chance = random.Random(name)
    for number in range(writes):
        key = pod(f"{name}-{number}", space=f"root:t{chance.randrange(3)}")
        try:
            (created,) = await store.commit(Create(key, body(key.name)))
            print(created.revision, key.name, flush=True)
            shared = pod("shared", space="root:t0")
            current = await store.get(shared)
            operation = (
                Create(shared, body("shared"))
                if current is None
                else Delete(shared, current.revision, body("shared"))
                if chance.random() < 0.2
                else Update(shared, current.revision, body("shared", by=name))
            )
            (changed,) = await store.commit(operation)
            print(changed.revision, "shared", flush=True)
        except PreconditionFailed:
            pass
        except Unavailable as error:
            print("away", type(error).__name__, flush=True)
        await asyncio.sleep(chance.random() * 0.004)


async def main(conninfo: str, name: str, writers: int, writes: int) -> None:
    async with Engine(conninfo) as store:
        await asyncio.gather(*(write(store, f"{name}-{number}", writes) for number in range(writers)))


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])))
