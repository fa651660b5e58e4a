"""A process that writes, reads and watches, and tells of all of it: ``python -m tests.store.witness CONNINFO NAME``.

One JSON list a line: what was asked and when (a clock that all processes of a machine share), what was answered, and
every event of its watch. SIGTERM ends it with an account of what it holds; SIGUSR1 sets its clock an hour on or back.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import random
import signal
import sys
import time
from collections.abc import Sequence
from typing import Any

import orjson

from store.engine import Engine, Options
from store.log.leases import Terms
from store.types import (
    AllSpaces,
    Create,
    Delete,
    Key,
    OutcomeUnknown,
    PreconditionFailed,
    RevisionTooOld,
    Stored,
    StoreError,
    Update,
)
from tests.store.objects import pod

PODS = AllSpaces("", "pods")
SHARED = [pod(f"shared-{number}") for number in range(4)]

QUIET = [pod(f"quiet-{number}", space=f"root:quiet-{number}") for number in range(3)]
"""Read all the time and written now and then, each in a space of its own: these are read by leases."""

EAGER = Options(leases=Terms(reads=3, rest_seconds=0.1))


def tell(*what: Any) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def id_of(stored: Stored | None) -> str:
    return orjson.loads(stored.data)["id"] if stored is not None else ""


class Witness:
    def __init__(self, store: Engine, name: str) -> None:
        self._store = store
        self._name = name
        self._numbers = itertools.count()
        self.over = asyncio.Event()

    async def write(self, seed: int) -> None:
        """Change what is shared and make what nobody else makes, by what this process believes to be there."""
        chance = random.Random(f"{self._name}-{seed}")
        while not self.over.is_set():
            identity = f"{self._name}-{next(self._numbers)}"
            key = chance.choice(SHARED) if chance.random() < 0.7 else pod(identity)
            await self._change(chance, key, identity)
            await asyncio.sleep(chance.random() * 0.02)

    async def write_seldom(self) -> None:
        """Change what others read by leases."""
        chance = random.Random(f"{self._name}-seldom")
        while not self.over.is_set():
            await self._change(chance, chance.choice(QUIET), f"{self._name}-{next(self._numbers)}")
            await asyncio.sleep(chance.random() * 1.5)

    async def _change(self, chance: random.Random, key: Key, identity: str) -> None:
        begun = time.monotonic()
        based = ""
        try:
            current = await self._store.get(key, cached=chance.random() < 0.7)
            based = id_of(current)
            body = {"metadata": {"name": key.name, "uid": identity}, "id": identity, "base": based}
            begun = time.monotonic()
            operation = (
                Create(key, body)
                if current is None
                else (Delete if chance.random() < 0.1 else Update)(key, current.revision, body)
            )
            (kept,) = await self._store.commit(operation)
            tell("write", begun, time.monotonic(), key.name, identity, kept.revision)
        except PreconditionFailed:
            tell("refused", begun, time.monotonic(), key.name, identity)
        except StoreError as error:
            tell("unknown" if isinstance(error, OutcomeUnknown) else "away", begun, time.monotonic(), identity)
            await asyncio.sleep(0.05)

    async def read(self, keys: Sequence[Key], pause: float) -> None:
        while not self.over.is_set():
            for key in keys:
                begun, leased = time.monotonic(), self._store.leases.reads
                try:
                    found = await self._store.get(key)
                except StoreError:
                    continue
                finally:
                    # Whoever reads by a lease does not wait; where one has waited, another may have read by one.
                    ended, leased = time.monotonic(), self._store.leases.reads - leased
                    await asyncio.sleep(pause)
                tell("read", begun, ended, key.name, found.revision if found is not None else 0, leased)

    async def watch(self) -> None:
        for segment in itertools.count():
            since = self._store.revision
            tell("open", segment, since)
            watch = self._store.watch(PODS, since=since)
            try:
                async for events, position in watch:
                    for event in events:
                        tell(
                            "event", segment, event.revision, event.type, event.key.name, orjson.loads(event.data)["id"]
                        )
                    tell("seen", segment, position)
            except RevisionTooOld:
                tell("gone", segment)
            except StoreError:
                tell("gone", segment)
                await asyncio.sleep(0.05)


async def main(conninfo: str, name: str) -> None:
    loop = asyncio.get_running_loop()
    real, shift = time.time, [0.0]
    time.time = lambda: real() + shift[0]
    loop.add_signal_handler(signal.SIGUSR1, lambda: shift.__setitem__(0, random.choice([-3600.0, 3600.0])))
    async with Engine(conninfo, EAGER) as store:
        witness = Witness(store, name)
        loop.add_signal_handler(signal.SIGTERM, witness.over.set)
        tell("ready")
        watching = asyncio.create_task(witness.watch())
        await asyncio.gather(
            witness.read(SHARED, 0.02),
            witness.read(QUIET, 0.004),
            witness.write_seldom(),
            *(witness.write(seed) for seed in range(3)),
        )
        # Everybody else has stopped, or will have soon: tell what is there when nothing changes any more.
        while True:
            try:
                listing = await store.list(PODS)
                await asyncio.sleep(1)
                if (await store.list(PODS)).revision == listing.revision:
                    break
            except StoreError:
                await asyncio.sleep(0.1)
        held = {stored.key.name: [stored.revision, id_of(stored)] for stored in listing.items}
        tell("holds", listing.revision, held)
        watching.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
