"""Rounds on the whole product."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import orjson
import psycopg

from bench.campaign.actors import people, watchers, writers
from bench.campaign.actors.speaking import Speaker
from bench.campaign.checkers import Finding, credentials, objects, workspaces
from bench.campaign.faults import Tormentor
from bench.campaign.history import History, identity_of
from bench.campaign.house import House, NotReady
from bench.campaign.inhabitants import TENANTS
from bench.campaign.journal import Round
from bench.campaign.plan import plan

WRITERS = 2
"""Of each space."""
_SETTLE_SECONDS = 150
_QUIET = """
SELECT (SELECT count(*) FROM operations WHERE state IN ('pending', 'running', 'failed'))
     + (SELECT count(*) FROM workspaces WHERE observed_generation < generation)
"""
_WAITING = "SELECT id::text FROM operations WHERE state IN ('pending', 'failed') AND not_before > now()"
_SPACES = ("root:acme", "root:globex")


class ProductRounds:
    """Each on a copy of one installation."""

    def __init__(self, kept: Path | None = None) -> None:
        self._kept = kept
        self._house: House | None = None

    async def play(self, seed: int, steps: int) -> Round:
        """One round."""
        if self._house is None:
            house = House(self._kept)
            await house.build()
            self._house = house
        house, history, chance = self._house, History(), random.Random(seed)
        await house.open(chance)
        tormentor = Tormentor(house, history)
        found: list[Finding] = []
        settled = 0.0
        try:
            async with _actors(house, history, chance):
                await asyncio.sleep(1)
                for step in plan(seed, steps):
                    await tormentor.do(step)
                await tormentor.rest()
                house.heal()
                hurt = time.monotonic()
                await house.ready()
                if history.closed:
                    await history.open(house)
                await asyncio.sleep(2)
            await self._settle(house)
            settled = time.monotonic() - hurt
        except NotReady as error:
            found.append(Finding("not ended", str(error)))
        history.finish(house)
        found += objects.check(history, _rows(house))
        found += credentials.check(history)
        if settled:
            # Of what never came to rest nothing is said: who was still at work might have done it.
            found += workspaces.check(history, await _ending(house))
        self._keep(house, seed, found)
        await house.close()
        return Round(
            "product",
            seed,
            dict(tormentor.done),
            history.figures(),
            [(each.kind, each.text) for each in found],
            round(history.silence(), 2),
            round(settled, 2),
            {kind: round(seconds, 2) for kind, seconds in history.closed_by().items()},
            round(credentials.longest_open(history), 2),
        )

    async def end(self) -> None:
        """Nothing stays."""
        if self._house is not None:
            await self._house.close()
            await self._house.demolish()

    async def _settle(self, house: House) -> None:
        """Every operation ends; an operator presses *Try again* on what would wait for minutes, and nothing else."""
        speaker = Speaker(house)
        try:
            for turn in range(_SETTLE_SECONDS * 2):
                waiting: list[tuple[str]] = []
                with contextlib.suppress(psycopg.OperationalError), psycopg.connect(house.owner_url) as connection:
                    row = connection.execute(_QUIET).fetchone()
                    if row is not None and row[0] == 0:
                        return
                    waiting = connection.execute(_WAITING).fetchall()
                for (operation,) in waiting if turn % 20 == 19 else ():
                    await speaker.rest("POST", f"/api/v1/operations/{operation}/retry")
                await asyncio.sleep(0.5)
        finally:
            await speaker.close()

    def _keep(self, house: House, seed: int, found: list[Finding]) -> None:
        """The logs of a round in which something was found are the next thing that somebody asks for."""
        logs = house.folder / "log"
        if found:
            kept = house.folder.parent / f"{house.folder.name}-seed-{seed}"
            kept.mkdir(exist_ok=True)
            for file in logs.glob("*.log"):
                (kept / file.name).write_bytes(file.read_bytes())
        for file in logs.glob("*.log"):
            file.write_bytes(b"")


@contextlib.asynccontextmanager
async def _actors(house: House, history: History, chance: random.Random):  # type: ignore[no-untyped-def]  # noqa: ANN202
    """Everybody who uses the house, until the end of the block."""
    speaker = Speaker(house)

    def own() -> random.Random:
        return random.Random(chance.random())

    lives: list[Coroutine[Any, Any, None]] = [people.operate(speaker, history, own())]
    for space in _SPACES:
        lives += [writers.write(speaker, history, space, 1 + number, own()) for number in range(WRITERS)]
        lives += [watchers.watch(house, speaker, history, space) for _ in range(2)]
    lives += [people.live(speaker, history, tenant, own()) for tenant in TENANTS]
    lives += [people.show_credentials(speaker, history, own()) for _ in range(2)]
    tasks = [asyncio.create_task(life) for life in lives]
    try:
        yield
        for task in tasks:
            if task.done():
                task.result()  # an actor that fails has seen what nobody thought of
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await speaker.close()


def _rows(house: House) -> objects.State:
    with psycopg.connect(house.owner_url) as connection:
        rows = connection.execute(
            "SELECT space, name, data FROM store_object WHERE resource = 'configmaps' AND namespace = 'default' "
            "AND name LIKE 'campaign-%'"
        ).fetchall()
    return {(space, name): identity_of(orjson.loads(data)) for space, name, data in rows}


async def _ending(house: House) -> workspaces.Ending:
    """What is there in the end, past every server."""
    with psycopg.connect(house.owner_url) as connection:
        rows = [
            workspaces.Row(*row)
            for row in connection.execute(
                "SELECT id::text, tenant_id, name, k8s_namespace, status, phase, observed_generation = generation "
                "FROM workspaces"
            ).fetchall()
        ]
        work = [
            workspaces.Work(workspace, state, tuple(step["step"] for step in steps), error)
            for workspace, state, steps, error in connection.execute(
                "SELECT workspace_id::text, state, steps_done, error FROM operations"
            ).fetchall()
        ]
        namespaces = [
            (space, name)
            for space, name, data in connection.execute(
                "SELECT space, name, data FROM store_object WHERE resource = 'namespaces'"
            ).fetchall()
            if "tenantry.io/workspace" in (orjson.loads(data)["metadata"].get("labels") or {})
        ]
        audited = Counter(
            {
                (action, workspace): count
                for action, workspace, count in connection.execute(
                    "SELECT action, workspace_id::text, count(*) FROM audit_logs "
                    "WHERE workspace_id IS NOT NULL AND outcome = 'success' GROUP BY 1, 2"
                ).fetchall()
            }
        )
    try:
        await house.command("audit", "verify")
        flaws: tuple[str, ...] = ()
    except NotReady as error:
        flaws = (str(error),)
    return workspaces.Ending(rows, work, namespaces, audited, flaws)
