"""Every statement of the store, once: the asynchronous engine and Django's side send the same text.

Each names the space, but for what feeds the follower and the collector, which work for every space, and the
``*_EVERYWHERE`` pair, which serves the system tenant's reading (TS14).
"""

from __future__ import annotations

from typing import Any

from store.types import Event, EventType, Everywhere, Key, Range, Stored

CHANNEL = "tenantry_store"

STATE = "SELECT revision, epoch::text, compacted, tableoid::bigint FROM store_revision"

# The fingerprint of the server: a restore, a failover to a standby or another database changes it.
ORIGIN = """
SELECT system_identifier::text || left(pg_walfile_name(pg_current_wal_lsn()), 8) || current_database()
FROM pg_control_system()
"""

LOCK = "SELECT revision, epoch::text, compacted FROM store_revision FOR UPDATE"

CURRENT = """
SELECT space, "group", resource, namespace, name, revision, data
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
    AS key (space, "group", resource, namespace, name)
JOIN store_object USING (space, "group", resource, namespace, name)
"""

# One statement moves the counter, the objects and the log, or nothing (no row) when the counter is not where the
# writer believes it to be. ``last`` marks the final state of a key within the batch.
WRITE = """
WITH counter AS (
    UPDATE store_revision SET revision = revision + %s WHERE revision = %s AND epoch = %s::uuid RETURNING 1
), input AS MATERIALIZED (
    SELECT * FROM unnest(
        %s::bigint[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[], %s::text[],
        %s::bytea[], %s::bytea[], %s::bigint[]
    ) AS event (revision, type, space, "group", resource, namespace, name, uid, data, previous, last)
    WHERE EXISTS (SELECT FROM counter)
), gone AS (
    DELETE FROM store_object AS o USING input AS i
    WHERE i.last = 1 AND i.type = 'DELETED'
        AND (o.group, o.resource, o.space, o.namespace, o.name)
            = (i.group, i.resource, i.space, i.namespace, i.name)
), kept AS (
    INSERT INTO store_object ("group", resource, space, namespace, name, uid, revision, data)
    SELECT "group", resource, space, namespace, name, uid, revision, data FROM input
    WHERE last = 1 AND type <> 'DELETED'
    ON CONFLICT ("group", resource, space, namespace, name)
    DO UPDATE SET uid = excluded.uid, revision = excluded.revision, data = excluded.data
)
INSERT INTO store_event (revision, batch, type, space, "group", resource, namespace, name, data, previous)
SELECT revision, %s, type, space, "group", resource, namespace, name, data, previous FROM input
"""

BATCH_AT = "SELECT batch FROM store_event WHERE revision = %s"

NOTIFY = f"SELECT pg_notify('{CHANNEL}', %s::text)"

_LOAD = """
SELECT r.revision, o.space, o.namespace, o.name, o.revision, o.data
FROM store_revision AS r LEFT JOIN LATERAL (
    SELECT space, namespace, name, revision, data FROM store_object
    WHERE {where} AND (space, namespace, name) > (%s, %s, %s)
    ORDER BY space, namespace, name LIMIT %s
) AS o ON true
"""

LOAD_RANGE = _LOAD.format(where='"group" = %s AND resource = %s AND space = %s')
LOAD_EVERYWHERE = _LOAD.format(where='"group" = %s AND resource = %s')

_LOG = 'SELECT revision, type, space, "group", resource, namespace, name, data, previous FROM store_event WHERE '

FOLLOW = _LOG + "revision > %s ORDER BY revision LIMIT %s"
REPLAY_RANGE = (
    _LOG
    + 'revision > %s AND revision <= %s AND "group" = %s AND resource = %s AND space = %s ORDER BY revision LIMIT %s'
)
REPLAY_EVERYWHERE = (
    _LOG + 'revision > %s AND revision <= %s AND "group" = %s AND resource = %s ORDER BY revision LIMIT %s'
)

# A loose index scan: one probe for each resource that exists anywhere, not one row for each object.
RESOURCES = """
WITH RECURSIVE kind AS (
    (SELECT "group", resource FROM store_object ORDER BY "group", resource LIMIT 1)
    UNION ALL
    SELECT next."group", next.resource FROM kind CROSS JOIN LATERAL (
        SELECT o."group", o.resource FROM store_object AS o
        WHERE (o."group", o.resource) > (kind."group", kind.resource)
        ORDER BY o."group", o.resource LIMIT 1
    ) AS next
)
SELECT "group", resource FROM kind WHERE EXISTS (
    SELECT FROM store_object AS o
    WHERE o."group" = kind."group" AND o.resource = kind.resource AND o.space = %s
        AND (%s::text IS NULL OR o.namespace = %s::text)
)
"""

# A full scan, for the collector's start alone: it asks for keys and reads the objects by the usual ways.
MENTIONING = """
SELECT space, "group", resource, namespace, name FROM store_object
WHERE EXISTS (SELECT FROM unnest(%s::bytea[]) AS text WHERE position(text IN data) > 0)
"""


def load(selection: Range | Everywhere) -> tuple[str, tuple[str, ...]]:
    """The statement that pages through a selection, and its first parameters."""
    if isinstance(selection, Range):
        return LOAD_RANGE, (selection.group, selection.resource, selection.space)
    return LOAD_EVERYWHERE, (selection.group, selection.resource)


def replay(selection: Range | Everywhere) -> tuple[str, tuple[str, ...]]:
    """The statement that reads a selection's part of the log, and its middle parameters."""
    if isinstance(selection, Range):
        return REPLAY_RANGE, (selection.group, selection.resource, selection.space)
    return REPLAY_EVERYWHERE, (selection.group, selection.resource)


def event_of(row: tuple[Any, ...]) -> Event:
    """A row of the log."""
    revision, type_, space, group, resource, namespace, name, data, previous = row
    return Event(EventType(type_), Key(space, group, resource, namespace, name), revision, data, previous)


def stored_of(row: tuple[Any, ...]) -> Stored:
    """A row of ``CURRENT``."""
    space, group, resource, namespace, name, revision, data = row
    return Stored(Key(space, group, resource, namespace, name), revision, data)
