"""Published objects (AZ8): ``python -m bench.publications [FAULTS [TENANTS [FIRST]]]``.

Kills, freezes and cuts of the worker while operators and tenants write, 2,000 unless told otherwise: every hundred
all copies are looked at, and the first that is missing, stale or orphaned ends it. ``FIRST`` is how many an earlier run has
had, which this one goes on behind. Before that, how long it takes until all of
1,000 tenants have an object, its change, and not any more what was deleted, once the source was committed.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import orjson
import psycopg

from portal.quickstart.embedded.postgresql import PostgreSQL
from store.engine import Engine
from store.types import Create, Delete, Event, EventType, Key, PreconditionFailed, Update
from tests.gateway.publishing import PUBLISHED, Torment, step

ROOT = Path(__file__).resolve().parents[1]
SOURCE = Key("root", "", "configmaps", "default", "published")
PER_ROUND = 100


def database(url: str, name: str) -> str:
    """A migrated database of this name."""
    base, _, query = url.partition("?")
    own = f"{base.rpartition('/')[0]}/{name}" + (f"?{query}" if query else "")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    environment = {**os.environ, "DATABASE_URL": own}
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=ROOT, env=environment, check=True)
    return own


async def torment(url: str, first: int, faults: int) -> None:
    """Rounds of faults, each with everything looked at in its end; every round has a seed of its own."""
    begun, done = time.monotonic(), first
    while done < faults:
        async with Torment(url, done) as hurt:
            while hurt.faults < min(PER_ROUND, faults - done):
                for _ in range(hurt.chance.randrange(4)):
                    await step(hurt)
                await hurt.hurt()
            await hurt.settled()
        done += hurt.faults
        print(f"{done:>6} faults, nothing missing, stale or orphaned ({time.monotonic() - begun:.0f} s)", flush=True)


async def follow(url: str, tenants: int) -> None:
    """How fast many tenants follow one source."""
    from tests.gateway.publishingworker import work

    async with Engine(url) as store:
        for number in range(tenants):
            name = f"many-{number}"
            tenant = {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": name, "uid": f"u-{number}"}}
            namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "uid": f"n-{number}"}}
            await store.commit(
                Create(Key("root", "", "tenants", "", name), tenant),
                Create(Key(f"root:{name}", "", "namespaces", "", "default"), namespace),
            )
        worker = multiprocessing.get_context("forkserver").Process(target=work, args=(url,), daemon=True)
        worker.start()

        has: dict[Key, str] = {}

        def note(events: Sequence[Event]) -> None:
            for event in events:
                if event.key.resource != "configmaps" or event.key.space == "root":
                    continue
                has.pop(event.key, None)
                if event.type is not EventType.DELETED:
                    has[event.key] = orjson.loads(event.data)["data"]["v"]

        store.subscribe(note)

        async def all_have(value: str | None) -> float:
            begun = time.monotonic()
            while len(has) != (tenants if value else 0) or any(found != value for found in has.values()):
                await asyncio.sleep(0.02)
            return time.monotonic() - begun

        metadata = {"name": "published", "namespace": "default", "uid": "s", "annotations": {PUBLISHED: "true"}}
        source = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"v": "1"}}
        await store.commit(Create(SOURCE, source))
        await all_have("1")
        # The worker leads and has looked at everything: from here on it is about one source.
        for told, value in (("changed", "2"), ("changed again", "3"), ("deleted", None)):
            while True:
                stored = await store.get(SOURCE)
                assert stored is not None
                body = {**orjson.loads(stored.data), "data": {"v": value}}
                operation, before, worked = Update if value else Delete, _transactions(url), _worked(worker.pid)
                try:
                    await store.commit(operation(SOURCE, stored.revision, body))
                except PreconditionFailed:  # The worker wrote its report.
                    continue
                break
            seconds = await all_have(value)
            # The statistics come a second late.
            await asyncio.sleep(2)
            cost, worked = _transactions(url) - before, _worked(worker.pid) - worked
            print(
                f"{told:<14} all of {tenants} tenants follow after {seconds:.2f} s: {cost} transactions, "
                f"{worked:.2f} s of a core in the worker",
                flush=True,
            )
        worker.kill()
        worker.join()


def _transactions(url: str) -> int:
    """What this database has committed and given up so far: the worker's work, and a few of those that look on."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(
            "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def _worked(pid: int | None) -> float:
    """The seconds that a process has had of a core: what it takes, however busy the machine is with others."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Start a PostgreSQL, torment the worker, then measure."""
    faults = int(sys.argv[1]) if len(sys.argv) > 1 else 2000
    tenants = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    folder = Path(tempfile.mkdtemp(prefix="tenantry-publications-"))
    folder.chmod(0o711)
    server = PostgreSQL(folder / "postgresql", folder / "log")
    server.start()
    try:
        if tenants:
            asyncio.run(follow(database(server.owner_url, "publications_many"), tenants))
        if faults:
            asyncio.run(torment(database(server.owner_url, "publications_hurt"), first, faults))
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
