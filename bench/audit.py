"""``make bench ARGS=audit``: how long ``audit verify`` takes for a million rows, by one process and by one a core (GW13).

The floor is the hash alone, of rows that are in memory already. ``python -m bench.audit ROWS`` takes another number.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
from psycopg.types.json import Jsonb

from audit.chain import FIELDS, GENESIS, hash_of
from bench.publications import ROOT, database
from portal.quickstart.embedded.postgresql import PostgreSQL

CHAINS = ("system", "acme", "globex")
COLUMNS = (*FIELDS, "previous_hash", "hash")


def rows(chain: str, count: int) -> Iterator[dict[str, Any]]:
    """A chain as people write it."""
    previous, user, workspace = GENESIS, uuid4(), uuid4()
    for sequence in range(1, count + 1):
        row = {
            "id": uuid4(),
            "chain": chain,
            "sequence": sequence,
            "created_at": datetime.fromtimestamp(1_750_000_000 + sequence, UTC),
            "action": "kubeconfig.issue",
            "outcome": "success",
            "actor": "alice@example.org",
            "user_id": user,
            "workspace_id": workspace,
            "target": f"{chain}/web-{sequence % 10}",
            "ip_address": "192.0.2.1",
            "user_agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36",
            "request_id": uuid4().hex,
            "detail": {"role": "editor", "expires_at": "2026-01-01T00:00:00Z", "cluster": "embedded"},
        }
        yield {**row, "previous_hash": previous, "hash": (previous := hash_of(row, previous))}


def fill(url: str, count: int) -> int:
    """Write chains of so many rows together; how many there are."""
    with psycopg.connect(url) as connection, connection.cursor() as cursor:
        cursor.execute("SET session_replication_role = replica")
        for chain in CHAINS:
            end = GENESIS
            with cursor.copy(f"COPY audit_logs ({', '.join(COLUMNS)}) FROM STDIN".encode()) as copy:
                for row in rows(chain, count // len(CHAINS)):
                    copy.write_row([Jsonb(row[name]) if name == "detail" else row[name] for name in COLUMNS])
                    end = row["hash"]
            cursor.execute("INSERT INTO audit_chains VALUES (%s, %s, %s)", (chain, count // len(CHAINS), end))
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("VACUUM ANALYZE audit_logs")
    return count // len(CHAINS) * len(CHAINS)


def main() -> None:
    """Fill, check, and print the seconds."""
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    some = list(rows("floor", 20_000))
    begun = time.perf_counter()
    for row in some:
        hash_of(row, row["previous_hash"])
    floor = (time.perf_counter() - begun) / len(some)
    folder = Path(tempfile.mkdtemp(prefix="tenantry-audit-"))
    folder.chmod(0o711)
    server = PostgreSQL(folder / "postgresql", folder / "log")
    server.start()
    try:
        own = database(server.owner_url, "audit")
        count = fill(own, asked)
        print(f"{count} rows in {len(CHAINS)} chains; hashing alone takes {floor * count:.1f} s of one core")
        for jobs in sorted({1, len(os.sched_getaffinity(0))}):
            begun = time.perf_counter()
            command = [sys.executable, "manage.py", "audit", "verify", "--jobs", str(jobs)]
            environment = {**os.environ, "DATABASE_URL": own}
            done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            took = time.perf_counter() - begun
            assert done.stdout.count("whole") == len(CHAINS), done.stdout
            print(
                f"  {jobs} processes: {took:.1f} s, {count / took:,.0f} rows/s, {took / floor / count:.2f} x the hashing"
            )
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
