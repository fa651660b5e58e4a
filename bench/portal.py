"""Page times of the dashboard beside ten tenants and beside many: percentiles, and queries, which must not grow.

``python -m bench.portal [TENANTS [EVENTS]]``. Rows are copied in beside the services, which would take hours, so their
hashes are fillers: the pages read them like any other, only a check of those tenants' chains would fail.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from tests.story.product import Product

FEW = (10, 1_000)
MANY = (10_000, 1_000_000)
ROUNDS = 30
LIMIT_MS = 150.0

_TENANTS = (
    "COPY tenants (name, display_name, state, suspended_reason, suspended_by, policies, managed_by, created_at)"
    " FROM STDIN"
)
_WORKSPACES = (
    "INSERT INTO workspaces (id, tenant_id, user_id, name, cluster_id, tier, k8s_namespace, k8s_sa_name, status, phase,"
    " generation, observed_generation, namespace_uid, service_accounts, idempotency_key, suspended_reason,"
    " suspended_by, suspended_with_tenant, stopped, accounts_spent, saved_bindings, saved_accounts, renewed_accounts,"
    " receipt, created_at)"
    " SELECT gen_random_uuid(), name, %(user)s, 'main', (SELECT id FROM clusters LIMIT 1),"
    " (SELECT name FROM tiers ORDER BY position LIMIT 1), 'tenant-' || substr(md5(name), 1, 12), 'sa-tenant-admin',"
    " 'active', 'ready', 1, 1, '', '{}', '', '', '', false, false, false, '[]', '[]', '[]', '[]', created_at"
    " FROM tenants WHERE name LIKE 'bench-%%' ON CONFLICT DO NOTHING"
)
_EVENTS = (
    "INSERT INTO audit_logs (id, chain, sequence, created_at, action, outcome, actor, user_id, workspace_id, target,"
    " user_agent, request_id, detail, previous_hash, hash)"
    " SELECT gen_random_uuid(), 'bench-' || n %% %(tenants)s, %(from)s + n, now() - n * interval '1 second',"
    " 'workspace.create', 'success', 'user-' || n %% 100, NULL, NULL, 'workspace-' || n %% 1000, 'bench', '', '{}',"
    " md5(n::text) || md5(n::text), md5(n::text) || md5(n::text) FROM generate_series(1, %(events)s) AS n"
)


def main() -> None:
    """Fill the database in two steps, visit the pages after each, and print both beside each other."""
    many = tuple(int(text) for text in sys.argv[1:3])
    many += MANY[len(many) :]
    with tempfile.TemporaryDirectory(prefix="tenantry-bench-") as folder:
        Path(folder).chmod(0o711)
        product = Product(Path(folder) / "data")
        product.start()
        try:
            _connect(product)
            before = _visit(product, *FEW)
            after = _visit(product, *many)
        finally:
            product.stop()
    print(f"  {'page':<20} {FEW[0]} tenants, p50 p99   {many[0]:,} tenants, p50 p99   queries")
    for page, (p50, p99, queries) in after.items():
        few = before[page]
        notes = [f"OVER {LIMIT_MS:.0f} ms"] if p99 > LIMIT_MS else []
        notes += [f"{queries - few[2]:+d} QUERIES"] if queries != few[2] else []
        print(
            f"  {page:<20} {few[0]:8.1f} {few[1]:8.1f} ms   {p50:8.1f} {p99:8.1f} ms   {queries:3}   {' '.join(notes)}"
        )


def _connect(product: Product) -> None:
    """Make this process one of the product's, so that pages can be asked for without a socket."""
    os.environ |= {
        **product.environment,
        "DJANGO_SETTINGS_MODULE": "portal.settings",
        # Not by its URL: the product's own settings know the owner of the tables, too.
        "TENANTRY_DATA_DIR": str(product.folder),
        "REDIS_URL": f"unix://{product.folder}/redis/redis.sock",
    }
    import django

    django.setup()


def _visit(product: Product, tenants: int, events: int) -> dict[str, tuple[float, float, int]]:
    """Milliseconds (p50, p99) and queries of every page, seen by an operator and by a tenant's owner."""
    from django.db import connection
    from django.test import Client

    from tenants.models import User, Workspace

    operator = User.objects.get(email=product.facts["operator_email"])
    begun = time.perf_counter()
    _fill(operator.pk, tenants, events)
    print(f"  {tenants:,} tenants and {events:,} events written in {time.perf_counter() - begun:.1f} s", flush=True)
    workspace = Workspace.objects.filter(tenant="bench-1").values_list("pk", flat=True)[0]
    pages = {
        "overview": "/",
        "workspaces": "/workspaces/",
        "workspace": f"/workspaces/{workspace}/",
        "tenants": "/tenants/",
        "tenant": "/tenants/bench-1/",
        "audit": "/audit/",
        "audit of a tenant": "/audit/?chain=bench-1",
        "search": "/search/?q=bench-1",
    }
    client = Client(headers={"host": product.portal.partition("//")[2]})
    client.force_login(operator)
    figures = {}
    for page, path in pages.items():
        client.get(path)
        asked: list[str] = []

        def count(execute: Any, sql: str, *rest: Any) -> Any:
            asked.append(sql)  # noqa: B023 - used at once
            return execute(sql, *rest)

        with connection.execute_wrapper(count):
            answer = client.get(path)
        if answer.status_code != 200:
            raise RuntimeError(f"{path}: {answer.status_code}")
        times = []
        for _ in range(ROUNDS):
            begun = time.perf_counter()
            client.get(path)
            times.append((time.perf_counter() - begun) * 1000)
        cuts = statistics.quantiles(times, n=100, method="inclusive")
        figures[page] = (cuts[49], cuts[98], len(asked))
    return figures


def _fill(user: Any, tenants: int, events: int) -> None:
    from django.db import connection

    from portal.database.rights import as_owner

    # Rows without sound hashes: nobody but the owner can write such, and past the triggers.
    with as_owner(), connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        cursor.execute("SELECT count(*) FROM tenants WHERE name LIKE 'bench-%'")
        there = cursor.fetchone()[0]
        cursor.execute("SELECT count(*), coalesce(max(sequence), 0) FROM audit_logs WHERE chain LIKE 'bench-%'")
        written, sequence = cursor.fetchone()
        start = datetime.now(UTC)
        with cursor.cursor.copy(_TENANTS) as copy:
            for number in range(there, tenants):
                row = (
                    f"bench-{number}",
                    f"Tenant {number}",
                    "active",
                    "",
                    "",
                    "{}",
                    "",
                    start - timedelta(minutes=number),
                )
                copy.write_row(row)
        cursor.execute(_WORKSPACES, {"user": user})
        amount = {"tenants": tenants, "from": sequence, "events": max(events - written, 0)}
        cursor.execute(_EVENTS, amount)
        cursor.execute(
            "INSERT INTO audit_chains (chain, sequence, hash) SELECT chain, max(sequence), '' FROM audit_logs"
            " WHERE chain LIKE 'bench-%' GROUP BY chain ON CONFLICT (chain) DO NOTHING"
        )
        cursor.execute("ANALYZE tenants, workspaces, audit_logs, audit_chains")


if __name__ == "__main__":
    main()
