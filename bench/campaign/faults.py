"""How each kind of fault is done. None waits for what it does to pass: the next one may come upon it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable

import psycopg

from bench.campaign.history import History, Hurt
from bench.campaign.house import House
from bench.campaign.nursery import JUMP
from bench.campaign.plan import Step
from tests.faultproxy import Fault

_CALLS = 4
"""How many calls to the cluster one fault spoils."""

_WRONG_WITHOUT_DOING = {"delay": 8}


class Tormentor:
    """Does the steps of a plan to a house."""

    def __init__(self, house: House, history: History) -> None:
        self._house, self._history = house, history
        self.done: Counter[str] = Counter()
        self._later: list[asyncio.Task[None]] = []
        self._backups = 0

    async def do(self, step: Step) -> None:
        """One step, and the pause after it."""
        begun = time.monotonic()
        await self._ACTS[step.kind](self, step)
        if step.kind != "backup":
            self.done[step.kind] += 1
        await asyncio.sleep(step.pause)
        if step.kind != "backup":
            self._history.hurts.append(Hurt(step.kind, begun, time.monotonic()))

    async def rest(self) -> None:
        """Wait for what was to end by itself."""
        await asyncio.gather(*self._later, return_exceptions=True)

    def _after(self, seconds: float, what: Callable[[], object]) -> None:
        async def later() -> None:
            await asyncio.sleep(seconds)
            what()

        self._later.append(asyncio.create_task(later()))

    # Processes.

    async def _kill(self, step: Step) -> None:
        part = self._house.parts[step.victim]
        part.wanted = False
        await self._house.kill(part)
        self._after(step.seconds / 3, lambda: setattr(part, "wanted", True))

    async def _freeze(self, step: Step) -> None:
        part = self._house.parts[step.victim]
        self._house.freeze(part)
        self._after(step.seconds + 0.5, lambda: self._house.thaw(part))

    async def _end(self, step: Step) -> None:
        self._house.signal(self._house.parts[step.victim], signal.SIGTERM)

    async def _jump(self, step: Step) -> None:
        self._house.signal(self._house.parts[step.victim], JUMP)

    # Ways.

    async def _cut(self, step: Step) -> None:
        self._house.links[step.victim].cut()

    async def _stall(self, step: Step) -> None:
        link = self._house.links[step.victim]
        link.stall()
        self._after(step.seconds + 1, link.heal)

    async def _shut(self, step: Step) -> None:
        link = self._house.links[step.victim]
        link.shut = True
        link.cut()
        self._after(step.seconds, link.heal)

    async def _cluster(self, step: Step) -> None:
        times = _WRONG_WITHOUT_DOING.get(step.victim, _CALLS)
        # Who only looks, and who acts: people's requests with tokens of their own are not the workers'.
        self._house.proxy.faults.append(Fault(step.victim, times=times))

    # Databases.

    async def _sessions(self, _step: Step) -> None:
        self._sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    async def _backend(self, step: Step) -> None:
        """One of PostgreSQL's own processes sleeps, in the midst of whatever it does."""
        rows = self._sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        if rows:
            pid = self._house.chance.choice(rows)
            self._send(pid, signal.SIGSTOP)
            self._after(step.seconds / 2, lambda: self._send(pid, signal.SIGCONT))

    async def _restart_postgresql(self, _step: Step) -> None:
        await asyncio.to_thread(self._house.postgresql.stop)
        await asyncio.to_thread(self._house.postgresql.start)

    async def _crash_postgresql(self, _step: Step) -> None:
        """Every process of it at once, as when a machine loses its power; the disk keeps what was synchronised."""
        process = self._house.postgresql._program.process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await asyncio.to_thread(process.wait)
        await asyncio.to_thread(self._house.postgresql.start)

    async def _kill_redis(self, _step: Step) -> None:
        self._house.redis._program.process.kill()
        await asyncio.to_thread(self._house.redis._program.process.wait)
        await asyncio.to_thread(self._house.redis.start)

    async def _freeze_redis(self, step: Step) -> None:
        pid = self._house.redis._program.process.pid
        self._send(pid, signal.SIGSTOP)
        self._after(step.seconds, lambda: self._send(pid, signal.SIGCONT))

    async def _flush_redis(self, _step: Step) -> None:
        with contextlib.suppress(Exception):
            await asyncio.wait_for(asyncio.to_thread(self._house._redis, "flushall"), 3)

    # Backups.

    async def _backup(self, _step: Step) -> None:
        """Whatever goes on meanwhile; a fault may be what keeps it from being made."""
        self._backups += 1
        await self._history.back_up(self._house, self._house.folder / f"{self._backups}.backup")

    async def _restore(self, _step: Step) -> None:
        await self._history.restore(self._house)

    def _sql(self, statement: str) -> list[int]:
        try:
            with psycopg.connect(self._house.owner_url, autocommit=True, connect_timeout=2) as connection:
                return [row[0] for row in connection.execute(statement).fetchall()]
        except psycopg.OperationalError:
            return []

    def _send(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    _ACTS: dict[str, Callable[[Tormentor, Step], Awaitable[None]]] = {
        "kill": _kill,
        "freeze": _freeze,
        "end": _end,
        "jump": _jump,
        "cut": _cut,
        "stall": _stall,
        "shut": _shut,
        "cluster": _cluster,
        "sessions": _sessions,
        "backend": _backend,
        "postgresql restart": _restart_postgresql,
        "postgresql crash": _crash_postgresql,
        "redis kill": _kill_redis,
        "redis freeze": _freeze_redis,
        "redis flush": _flush_redis,
        "backup": _backup,
        "restore": _restore,
    }
