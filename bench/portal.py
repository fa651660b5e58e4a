"""Page times of the dashboard beside ten tenants and beside many: percentiles, and queries, which must not grow.

``python -m bench.portal [TENANTS [EVENTS]]``. PostgreSQL and Redis run, and nothing else: workers would look after the
rows, which come past the services and stand on no cluster, and take their processors from the pages. The tables are
analyzed first. A page is asked for in this process, so its time is that of one request without a socket; beside the
time stands the processor's, of Python alone. How much the statements read is counted by a test
(``tests/portal/test_many_tenants.py``).
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet

from portal.quickstart.embedded.postgresql import PostgreSQL
from portal.quickstart.embedded.redis import Redis

FEW = (10, 1_000)
MANY = (10_000, 1_000_000)
ROUNDS = 30
LIMIT_MS = 100.0
"""Of the 75th percentile, beside many tenants."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one page: milliseconds by the clock, those of this process's processor, and statements."""

    p50: float
    p75: float
    p99: float
    processor: float
    queries: int


def main() -> None:
    """Fill the database in two steps, visit the pages after each, and print both beside each other."""
    many = tuple(int(text) for text in sys.argv[1:3])
    many += MANY[len(many) :]
    with tempfile.TemporaryDirectory(prefix="tenantry-bench-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        servers = (
            PostgreSQL(folder / "postgresql", folder / "postgresql.log"),
            Redis(folder / "redis", folder / "redis.log"),
        )
        try:
            for server in servers:
                server.start()
            operator = _begin(folder, *servers)
            before = _visit(operator, *FEW)
            after = _visit(operator, *many)
        finally:
            for server in reversed(servers):
                server.stop()
    print(f"  {'page':<20} {FEW[0]} tenants: p50, p75, p99, processor   {many[0]:,} tenants   queries")
    for page, figures in after.items():
        few = before[page]
        notes = [f"OVER {LIMIT_MS:.0f} ms"] if figures.p75 > LIMIT_MS else []
        notes += [f"{figures.queries - few.queries:+d} QUERIES"] if figures.queries != few.queries else []
        print(f"  {page:<20} {_line(few)}   {_line(figures)}   {figures.queries:3}   {' '.join(notes)}")


def _line(figures: Figures) -> str:
    return f"{figures.p50:6.1f} {figures.p75:6.1f} {figures.p99:6.1f} {figures.processor:6.1f} ms"


def _begin(folder: Path, postgresql: PostgreSQL, redis: Redis) -> str:
    """Make this process the product's, so that pages can be asked for without a socket; the first operator's address."""
    os.environ |= {
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        "TENANTRY_DATA_DIR": str(folder / "data"),
        "DATABASE_URL": postgresql.url,
        "MIGRATION_DATABASE_URL": postgresql.owner_url,
        "REDIS_URL": redis.url,
        "TENANTRY_SEALING_KEYS": Fernet.generate_key().decode(),
    }
    import django

    django.setup()
    from portal.quickstart.bootstrap import bootstrap

    return bootstrap().operator_email


def _visit(email: str, tenants: int, events: int) -> dict[str, Figures]:
    """Every page as the operator sees it."""
    from django.test import Client

    from portal.database.rights import as_owner
    from tenants.models import User, Workspace
    from tests.crowd import gather

    begun = time.perf_counter()
    with as_owner():
        from django.db import connection

        with connection.cursor() as cursor:
            gather(cursor, tenants, events)
    print(f"  {tenants:,} tenants and {events:,} events written in {time.perf_counter() - begun:.1f} s", flush=True)
    workspace = Workspace.objects.filter(tenant="crowd-1").values_list("pk", flat=True)[0]
    pages = {
        "overview": "/",
        "inbox": "/inbox/",
        "workspaces": "/workspaces/",
        "workspace": f"/workspaces/{workspace}/",
        "tenants": "/tenants/",
        "tenant": "/tenants/crowd-1/",
        "users": "/users/",
        "audit": "/audit/",
        "audit of a tenant": "/audit/?chain=crowd-1",
        "search": "/search/?q=crowd-1",
        "admin of operations": "/admin/tenants/operation/",
    }
    client = Client(headers={"host": "127.0.0.1"})
    client.force_login(User.objects.get(email=email))
    return {page: _measure(client, path) for page, path in pages.items()}


def _measure(client: Any, path: str) -> Figures:
    from django.db import connection

    client.get(path)
    asked: list[str] = []

    def count(execute: Any, sql: str, *rest: Any) -> Any:
        asked.append(sql)
        return execute(sql, *rest)

    with connection.execute_wrapper(count):
        answer = client.get(path)
    if answer.status_code != 200:
        raise RuntimeError(f"{path}: {answer.status_code}")
    times, spent = [], time.process_time()
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        client.get(path)
        times.append((time.perf_counter() - begun) * 1000)
    spent = (time.process_time() - spent) / ROUNDS * 1000
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    return Figures(cuts[49], cuts[74], cuts[98], spent, len(asked))


if __name__ == "__main__":
    main()
