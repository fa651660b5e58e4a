"""What a release keeps in its tables, written down, so that later ones can be asked to go on with it.

One row a line. What is made anew with every database, what ends with its process, and who asked for what is left out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
from psycopg import sql

from tests.databases import OWNER, run, url_of
from tests.upgrades.releasebefore import MIGRATIONS

FOLDER: Final = Path(__file__).parent / "recorded"
ROWS: Final = FOLDER / "rows.jsonl"
ANSWERS: Final = FOLDER / "answers.json"
"""Who is there, and what the REST API listed."""

LEFT_OUT: Final = frozenset(
    {
        *("django_migrations", "django_content_type", "auth_permission", "django_session", "portal_sessions"),
        *("store_lease", "cluster_probes", "stream_counts", "pod_connections", "api_requests"),
    }
)
AS_THEY_WERE: Final = frozenset({"audit_logs", "audit_chains"})
"""Their times are signed; those of the others begin with the day on which they are read, or all would be over."""

MIGRATE: Final = f"""
import django

django.setup()
from django.db import connection
from django.db.migrations.executor import MigrationExecutor
from portal.database.rights import as_owner

last = {MIGRATIONS!r}
with as_owner():
    executor = MigrationExecutor(connection)
    others = [node for node in executor.loader.graph.leaf_nodes() if node[0] not in last]
    executor.migrate([*last.items(), *others])
"""
"""This tree's migrations, as far as the release before has them."""

_COLUMNS = """
SELECT c.relname, a.attname, format_type(a.atttypid, a.atttypmod), pg_get_serial_sequence(quote_ident(c.relname), a.attname)
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition
    AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY c.relname, a.attnum
"""
_READABLE = {("store_object", "data"), ("store_event", "data"), ("store_event", "previous")}
"""Bytes that are text."""
_OF_ITS_PLACE: Final = frozenset({"server", "ca_data"})
"""Of the embedded cluster, which every start of it writes anew."""


@contextmanager
def empty(purpose: str) -> Iterator[str]:
    """The URL of a database with nothing in it."""
    name = f"{purpose}_{uuid4().hex[:12]}"
    run("CREATE DATABASE {}", name)
    try:
        yield url_of(name)
    finally:
        run("DROP DATABASE {} WITH (FORCE)", name)


def _owner(database: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url_of(urlsplit(database).path.removeprefix("/"), OWNER))


def record(database: str) -> None:
    """Write down what is there. Of the log its end is kept, as if the rest had been compacted."""
    FOLDER.mkdir(exist_ok=True)
    lines = []
    with _owner(database) as connection:
        # What is cut off the log has been counted, where that is what counts.
        if connection.execute("SELECT to_regprocedure('store_space_count_on()')").fetchone() != (None,):
            connection.execute("SELECT store_space_count_on()")
        connection.execute("UPDATE store_revision SET compacted = revision - 1")
        connection.execute("DELETE FROM store_event WHERE revision < (SELECT revision FROM store_revision)")
        columns: dict[str, list[str]] = {}
        for table, column, _, _ in connection.execute(_COLUMNS).fetchall():
            columns.setdefault(table, []).append(column)
        for table, names in columns.items():
            if table not in LEFT_OUT:
                rows = connection.execute(
                    sql.SQL("SELECT row_to_json(t)::text FROM (SELECT {} FROM {}) AS t ORDER BY 1").format(
                        sql.SQL(", ").join(map(sql.Identifier, names)), sql.Identifier(table)
                    )
                )
                lines += [json.dumps({"table": table, "row": _shown(table, json.loads(text))}) for (text,) in rows]
        now = datetime.now(UTC).isoformat()
        connection.rollback()
    ROWS.write_text("\n".join([json.dumps({"recorded": now}), *lines, ""]))


def _shown(table: str, row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: bytes.fromhex(value.removeprefix("\\x")).decode() if value and (table, name) in _READABLE else value
        for name, value in row.items()
    }


def recorded() -> tuple[datetime, list[tuple[str, dict[str, Any]]]]:
    """When, and what."""
    first, *lines = map(json.loads, ROWS.read_text().splitlines())
    return datetime.fromisoformat(first["recorded"]), [(line["table"], line["row"]) for line in lines]


def load(database: str) -> None:
    """Put it into tables as they were then."""
    at, rows = recorded()
    passed = datetime.now(UTC) - at
    with _owner(database) as connection:
        known = connection.execute(_COLUMNS).fetchall()
        types = {(table, column): kind for table, column, kind, _ in known}
        tables = sorted({table for table, _ in rows})
        # They were counted and chained when they were written, as they are in a backup that is restored.
        for table in tables:
            connection.execute(sql.SQL("ALTER TABLE {} DISABLE TRIGGER USER").format(sql.Identifier(table)))
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(table)))
        for table, row in rows:
            given = {}
            for column, value in row.items():
                if (table, column) in _READABLE and value is not None:
                    given[column] = "\\x" + value.encode().hex()
                elif types[table, column].startswith("timestamp") and value and table not in AS_THEY_WERE:
                    given[column] = (datetime.fromisoformat(value) + passed).isoformat()
                else:
                    given[column] = value
            names = sql.SQL(", ").join(map(sql.Identifier, given))
            connection.execute(
                sql.SQL("INSERT INTO {0} ({1}) SELECT {1} FROM json_populate_record(NULL::{0}, %s)").format(
                    sql.Identifier(table), names
                ),
                [json.dumps(given)],
            )
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        for table in tables:
            connection.execute(sql.SQL("ALTER TABLE {} ENABLE TRIGGER USER").format(sql.Identifier(table)))
        for table, column, _, sequence in known:
            if sequence:
                highest = sql.SQL("SELECT setval(%s, coalesce(max({}), 0) + 1, false) FROM {}")
                connection.execute(highest.format(sql.Identifier(column), sql.Identifier(table)), [sequence])


def timeless(value: Any) -> Any:
    """A document without the times in it, and without where its installation is and the key that it has there."""
    if isinstance(value, dict):
        return {name: timeless(each) for name, each in value.items() if name not in _OF_ITS_PLACE}
    if isinstance(value, list):
        return [timeless(each) for each in value]
    return re.sub(r"\d{4}-\d\d-\d\dT[\d:.]+(Z|[+-]\d\d:?\d\d)", "a time", value) if isinstance(value, str) else value
