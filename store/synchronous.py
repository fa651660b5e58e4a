"""The store for Django code: the same writes inside a Django transaction, and plain reads.

Rows of Django's models and API objects change together or not at all. The counter row stays locked until the
surrounding transaction ends, and every writer of every process waits for it: call ``commit`` last.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from django.db import connections, transaction
from psycopg import Cursor, errors

from store.arrays import register
from store.cache import Shelf
from store.compaction import extend_statements
from store.planning import decide, key_parameters, keys_of, require_sound, write_parameters
from store.statements import CURRENT, LOCK, NOTIFY, WRITE, load, stored_of
from store.types import Everywhere, Key, Listing, Operation, Range, Stored, Unavailable


def commit(operations: Sequence[Operation], *, using: str = "default") -> Sequence[Stored]:
    """Write all operations or none, as the last step of the surrounding transaction (or in one of its own).

    Results in the order of the operations, ``Check`` omitted. Other processes see the write, and are notified,
    when the surrounding transaction commits. Raises ``PreconditionFailed``; the transaction stays usable.
    """
    require_sound(operations)
    with transaction.atomic(using=using), _cursor(using) as cursor:
        revision, epoch = _lock(cursor)
        cursor.execute(CURRENT, key_parameters(keys_of([operations])), binary=True)
        state = {stored.key: stored for stored in map(stored_of, cursor.fetchall())}
        plan = decide([operations], state, revision)
        (outcome,) = plan.outcomes
        if isinstance(outcome, Exception):
            raise outcome
        if plan.events:
            parameters = write_parameters(plan, epoch, secrets.randbits(63))
            try:
                with transaction.atomic(using=using):
                    cursor.execute(WRITE, parameters)
            except errors.CheckViolation as error:
                if error.diag.constraint_name is not None:
                    raise
                for statement in extend_statements(revision):
                    cursor.execute(statement)
                cursor.execute(WRITE, parameters)
            last = plan.events[-1].revision
            transaction.on_commit(lambda: _notify(last, using), using=using, robust=True)
    return outcome


def get(key: Key, *, using: str = "default") -> Stored | None:
    """The object as the surrounding transaction sees it."""
    with _cursor(using) as cursor:
        cursor.execute(CURRENT, key_parameters([key]), binary=True)
        row = cursor.fetchone()
    return stored_of(row) if row is not None else None


def listing(
    selection: Range | Everywhere,
    *,
    after: tuple[str, str, str] | None = None,
    limit: int = 0,
    using: str = "default",
) -> Listing:
    """The objects of a selection in order, as the surrounding transaction sees them, at one revision."""
    statement, parameters = load(selection)
    with _cursor(using) as cursor:
        cursor.execute(statement, (*parameters, "", "", "", None), binary=True)
        rows = cursor.fetchall()
    shelf = Shelf(
        Stored(Key(space, selection.group, selection.resource, namespace, name), revision, data)
        for _, space, namespace, name, revision, data in rows
        if space is not None
    )
    items, remaining = shelf.listing(selection, after, limit)
    return Listing(items, rows[0][0], remaining)


def _cursor(using: str) -> Cursor[tuple[Any, ...]]:
    """A cursor that binds on the server and knows the store's arrays, on the connection that Django has open."""
    wrapper = connections[using]
    wrapper.ensure_connection()
    cursor = Cursor(wrapper.connection)
    register(cursor)
    return cursor


def _lock(cursor: Cursor[tuple[Any, ...]]) -> tuple[int, str]:
    cursor.execute(LOCK)
    row = cursor.fetchone()
    if row is None:
        raise Unavailable("the store has no counter row: migrate first")
    return row[0], row[1]


def _notify(revision: int, using: str) -> None:
    with _cursor(using) as cursor:
        cursor.execute(NOTIFY, (str(revision),))
