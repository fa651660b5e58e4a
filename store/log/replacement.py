"""A restore begins a new history: no revision of it was ever told to anybody, whatever the old one had reached."""

from __future__ import annotations

import secrets
from typing import Final

from django.db import connections

from store.log.compaction import EXTENT
from store.log.leases import LEASE_SECONDS
from store.postgresql.statements import CHANNEL, EXTEND

REVISIONS_AHEAD: Final = 10**12
"""More than can have been written since a backup: three years at ten thousand writes a second."""


def history_replace(*, reached: int, using: str = "default") -> int:
    """Begin a new epoch behind ``reached`` and all that this database has told; the revision where it begins.

    The change log is emptied: watches and lists from before begin anew with 410, running servers find their epoch
    over; what each space takes is counted anew. As the owner of the tables, in the transaction that replaces the objects.
    """
    with connections[using].cursor() as cursor:
        # Nobody can ask whether a lease still holds while this is locked, so that after a while none does.
        cursor.execute("LOCK TABLE store_lease IN ACCESS EXCLUSIVE MODE")
        cursor.execute("DELETE FROM store_lease")
        cursor.execute("SELECT pg_sleep(%s)", [LEASE_SECONDS])
        cursor.execute("TRUNCATE store_event")
        cursor.execute(
            "UPDATE store_revision AS r SET epoch = gen_random_uuid(), batch = %s, revision = n.begins,"
            " compacted = n.begins, began = n.begins, counted = n.begins, timeline = store_timeline()"
            " FROM (SELECT greatest(revision, %s) + %s AS begins FROM store_revision) AS n RETURNING r.revision",
            [secrets.randbits(63), reached, REVISIONS_AHEAD],
        )
        begins: int = cursor.fetchone()[0]
        cursor.execute("DELETE FROM store_space")
        cursor.execute("INSERT INTO store_space SELECT space, sum(octet_length(data)) FROM store_object GROUP BY space")
        cursor.execute(EXTEND, EXTENT)
        cursor.execute("SELECT pg_notify(%s, 'replaced')", [CHANNEL])
    return begins
