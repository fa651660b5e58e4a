"""Every statement of the store, once: the asynchronous engine and Django's side send the same text.

Each names the space, but for what feeds the follower and the collector, which work for every space, and the
``*_EVERYWHERE`` pair, which serves the system tenant's reading (TS14).
"""

from __future__ import annotations

from typing import Any

from store.postgresql.arrays import Parameter, Texts
from store.types import AllSpaces, Key, Range, Spaces, Stored

CHANNEL = "tenantry_store"

STATE = "SELECT revision, batch, epoch::text, compacted FROM store_revision"

CURRENT = """
SELECT space, "group", resource, namespace, name, revision, data
FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[], %s::text[])
    AS key (space, "group", resource, namespace, name)
JOIN store_object USING (space, "group", resource, namespace, name)
"""

# What both take: what is known, the batch, who asks, and the operations as columns (``store.log.preconditions``).
_ASKED = "%s::uuid, %s, %s, %s, %s, " + ", ".join(["%s"] * 11)
_ANSWER = "outcome, revision, batch, epoch, compacted, before_revision, before_batch, given, met, met_data"

COMMIT = f"CALL store_commit({_ASKED}, %s, %s, " + ", ".join(["NULL"] * len(_ANSWER.split(", "))) + ")"
"""A transaction of its own, which has ended when the answer comes: the steps stand in the procedure."""

WRITE = f"SELECT {_ANSWER} FROM store_write({_ASKED})"  # noqa: S608 - constants of this module
"""The same as part of a transaction, which holds the counter row until it ends."""

LEASES_CHANNEL = "tenantry_leases"

LEASE_RENEW = "CALL store_lease_renew(%s, %s, %s, NULL, NULL, NULL, NULL, NULL)"

LEASE_END = "CALL store_lease_end(%s, %s, NULL)"
"""Mark others' leases on these spaces as ending, and tell their holders; answers their numbers."""

LEASE_DROP = "CALL store_lease_drop(%s)"

LEASES_LEFT = "SELECT array_agg(number) FROM store_lease WHERE number = ANY (%s)"

EXTEND = "SELECT store_log_extend(%s, %s)"

NOTIFY = f"SELECT pg_notify('{CHANNEL}', %s::text)"

PAGE_BYTES = 16 * 1024 * 1024
"""How much of others' objects a process holds while it reads them, but for the last of a page, of whatever size.

Their number says nothing: a thousand changes of one large object are a gigabyte. A page that has reached it is not the last.
"""

REPLAY_BYTES = PAGE_BYTES // 8
"""The same for one watch: what it has read it holds until its client has taken it, and there are many."""

# Of the rows of a subquery those before which less than a bound stands. How long a value is is known without fetching it.
_BOUNDED = """
    SELECT * FROM (
        SELECT *, sum({bytes}) OVER (ORDER BY {order} ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
        FROM ({rows}) AS rows
    ) AS page WHERE coalesce(before, 0) < {bound}
"""
_EVENT_BYTES = "octet_length(data) + coalesce(octet_length(previous), 0)"

_LOAD = """
SELECT r.revision, o.space, o.namespace, o.name, o.revision, o.data
FROM store_revision AS r LEFT JOIN LATERAL (
{rows}) AS o ON true
"""
_OBJECTS = """
    SELECT space, namespace, name, revision, data FROM store_object
    WHERE {where} AND (space, namespace, name) > (%s, %s, %s)
    ORDER BY space, namespace, name LIMIT %s
"""


def _load(where: str) -> str:
    rows = _OBJECTS.format(where=where)
    return _LOAD.format(
        rows=_BOUNDED.format(bytes="octet_length(data)", order="space, namespace, name", rows=rows, bound="%s")
    )


LOAD_RANGE = _load('"group" = %s AND resource = %s AND space = %s')
LOAD_EVERYWHERE = _load('"group" = %s AND resource = %s')

# What follows a revision, the revision itself first but without its data: that it is there, with the batch that the
# reader knows, proves that what follows is the same history's. The counter row is of the same moment. The last column says
# whether the counter was written on the timeline that this is: a standby fails here, one that was promoted since says no.
FOLLOW = f"""
SELECT r.revision, r.batch, r.epoch::text, r.compacted, r.began, e.revision, e.batch, e.type, e.space, e."group",
    e.resource, e.namespace, e.name, CASE WHEN e.revision > %s THEN e.data END,
    CASE WHEN e.revision > %s THEN e.previous END, r.timeline = (SELECT store_timeline())
FROM store_revision AS r LEFT JOIN LATERAL (
{
    _BOUNDED.format(
        bytes=f"CASE WHEN revision > %s THEN {_EVENT_BYTES} END",
        order="revision",
        rows="SELECT * FROM store_event WHERE revision >= %s ORDER BY revision LIMIT %s",
        bound=PAGE_BYTES,
    )
}) AS e ON true
"""  # noqa: S608 - constants of this module

# Where the newest events begin that are together no larger than half a page, of those behind a revision.
LOOK_BACK = f"""
SELECT coalesce(max(revision), %s) FROM (
    SELECT revision, sum({_EVENT_BYTES}) OVER (ORDER BY revision DESC) AS bytes FROM store_event WHERE revision > %s
) AS newest WHERE bytes > {PAGE_BYTES // 2}
"""  # noqa: S608 - constants of this module

_LOG = """
SELECT r.compacted, e.revision, e.type, e.space, e."group", e.resource, e.namespace, e.name, e.data, e.previous
FROM store_revision AS r LEFT JOIN LATERAL (
{rows}) AS e ON true
"""
_BETWEEN = 'revision > %s AND revision <= %s AND "group" = %s AND resource = %s'


def _replay(where: str) -> str:
    rows = f"SELECT * FROM store_event WHERE {where} ORDER BY revision LIMIT %s"  # noqa: S608 - constants of this module
    return _LOG.format(rows=_BOUNDED.format(bytes=_EVENT_BYTES, order="revision", rows=rows, bound=REPLAY_BYTES))


REPLAY_RANGE = _replay(f"{_BETWEEN} AND space = %s")
REPLAY_SPACES = _replay(f"{_BETWEEN} AND space = ANY (%s)")
REPLAY_EVERYWHERE = _replay(_BETWEEN)

# What the objects of spaces take: what was counted last, and what the log says since, some thousand events at most.
SPACE_BYTES = """
    SELECT space, bytes FROM store_space
    UNION ALL
    SELECT space, CASE type WHEN 'DELETED' THEN 0 ELSE octet_length(data) END - coalesce(octet_length(previous), 0)
    FROM store_event WHERE revision > (SELECT counted FROM store_revision)
"""

# What all tenants keep, with the revision of the same moment: what the log brings behind it is counted on from there.
SIZES = f"""
SELECT r.revision, split_part(s.space, ':', 2), sum(s.bytes)::bigint
FROM store_revision AS r LEFT JOIN ({SPACE_BYTES}) AS s ON s.space LIKE 'root:%' GROUP BY 1, 2
"""  # noqa: S608 - constants of this module

SIZE = f"""
SELECT coalesce(sum(bytes), 0)::bigint FROM ({SPACE_BYTES}) AS s
WHERE split_part(space, ':', 2) = %s AND space LIKE 'root:%%'
"""  # noqa: S608 - constants of this module

# A loose index scan: one probe for each resource that exists anywhere, not one row for each object.
_KINDS = """
WITH RECURSIVE kind AS (
    (SELECT "group", resource FROM store_object ORDER BY "group", resource LIMIT 1)
    UNION ALL
    SELECT next."group", next.resource FROM kind CROSS JOIN LATERAL (
        SELECT o."group", o.resource FROM store_object AS o
        WHERE (o."group", o.resource) > (kind."group", kind.resource)
        ORDER BY o."group", o.resource LIMIT 1
    ) AS next
)
"""

# Of one space and of those below it: how many objects there are of each resource in each namespace.
HOLDINGS = (
    _KINDS
    + """
SELECT o.space, o."group", o.resource, o.namespace, count(*) FROM kind JOIN store_object AS o
ON o."group" = kind."group" AND o.resource = kind.resource AND (o.space = %s OR o.space >= %s AND o.space < %s)
GROUP BY o.space, o."group", o.resource, o.namespace ORDER BY o.space, o.namespace, o."group", o.resource
"""
)

# Some of these, in no order.
BELOW = _BOUNDED.format(
    bytes="octet_length(data)",
    order='"group", resource, space, namespace, name',
    rows="""
        SELECT space, "group", resource, namespace, name, revision, data FROM store_object
        WHERE space = %s OR space >= %s AND space < %s LIMIT %s
    """,
    bound="%s",
)

RESOURCES = (
    _KINDS
    + """
SELECT "group", resource FROM kind WHERE EXISTS (
    SELECT FROM store_object AS o
    WHERE o."group" = kind."group" AND o.resource = kind.resource AND o.space = %s
        AND (%s::text IS NULL OR o.namespace = %s::text)
)
"""
)

# A full scan, for the collector's start alone: it asks for keys and reads the objects by the usual ways.
MENTIONING = """
SELECT space, "group", resource, namespace, name FROM store_object
WHERE EXISTS (SELECT FROM unnest(%s::bytea[]) AS text WHERE position(text IN data) > 0)
"""

# By the index of a resource; the text is looked for only where the object is there.
NAMESPACES_LACKING = """
SELECT space, "group", resource, namespace, name FROM store_object AS holder
WHERE "group" = '' AND resource = 'namespaces' AND NOT EXISTS (
    SELECT FROM store_object AS kept
    WHERE kept.space = holder.space AND kept."group" = %s AND kept.resource = %s
        AND kept.namespace = holder.name AND kept.name = %s AND position(convert_to(%s, 'UTF8') IN kept.data) > 0
)
"""


def load(selection: Range | AllSpaces) -> tuple[str, tuple[str, ...]]:
    """The statement that pages through a selection, and its first parameters."""
    if isinstance(selection, Range):
        return LOAD_RANGE, (selection.group, selection.resource, selection.space)
    return LOAD_EVERYWHERE, (selection.group, selection.resource)


def replay(selection: Range | AllSpaces | Spaces) -> tuple[str, tuple[Parameter, ...]]:
    """The statement that reads a selection's part of the log, and its middle parameters."""
    if isinstance(selection, Spaces):
        return REPLAY_SPACES, (selection.group, selection.resource, Texts(selection.spaces))
    if isinstance(selection, Range):
        return REPLAY_RANGE, (selection.group, selection.resource, selection.space)
    return REPLAY_EVERYWHERE, (selection.group, selection.resource)


def stored_of(row: tuple[Any, ...]) -> Stored:
    """A row of ``CURRENT``."""
    space, group, resource, namespace, name, revision, data = row
    return Stored(Key(space, group, resource, namespace, name), revision, data)
