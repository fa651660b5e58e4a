"""The store for Django code: the same writes inside a Django transaction, and plain reads.

Rows of Django's models and API objects change together or not at all. The counter row stays locked until the
surrounding transaction ends, and every writer of every process waits for it: call ``commit`` last.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic
from typing import Any, Final

from django.db import connections, transaction
from psycopg import Cursor, errors

from store.log.compaction import EXTENT
from store.log.leaserevocation import leases_end
from store.log.preconditions import (
    NO_POSITION,
    Answer,
    Rows,
    answer_of_row,
    key_parameters,
    leased_spaces,
    outcomes_of,
    rows_of,
    write_parameters_of,
)
from store.postgresql.arrays import register
from store.postgresql.connections import PATIENCE_SECONDS
from store.postgresql.statements import BELOW, CURRENT, EXTEND, HOLDINGS, NOTIFY, SIZE, WRITE, load, stored_of
from store.types import AllSpaces, Key, Listing, Operation, Range, Stored, StoreError, Unavailable

PORTION_BYTES: Final = 2 * 1024 * 1024
"""How much is read of many objects at once, but for the last of a portion, of whatever size (DOS-03).

Their number says nothing: tenants choose how large they are, and what is taken apart is many times as large.
"""

HOLD_SECONDS: Final = 2
"""How long a transaction that has written to the store may do nothing."""


def commit(operations: Sequence[Operation], *, using: str = "default") -> Sequence[Stored]:
    """Write all operations or none, as the last step of the surrounding transaction (or in one of its own).

    Results in the order of the operations, ``Check`` omitted. Other processes see the write, and are notified,
    when the surrounding transaction commits. Raises ``PreconditionFailed``; the transaction stays usable.
    """
    rows = rows_of(operations)
    with transaction.atomic(using=using), _cursor(using) as cursor:
        # A caller that is frozen before its transaction ends is cut off, so that the other writers go on.
        cursor.execute(f"SET LOCAL idle_in_transaction_session_timeout = '{HOLD_SECONDS}s'")
        parameters = write_parameters_of([rows], NO_POSITION, secrets.randbits(63))
        extended, given_up = False, monotonic() + PATIENCE_SECONDS
        while True:
            try:
                answer = _attempt(cursor, rows, parameters, using)
                break
            except _Leased as leased:
                if monotonic() > given_up:
                    raise Unavailable("others do not let go of what is to be written") from None
                # Without the lock: it went with the savepoint.
                leases_end(leased.spaces, using=using)
            except errors.CheckViolation as error:
                if extended or error.diag.constraint_name is not None:
                    raise
                cursor.execute(EXTEND, EXTENT)
                extended = True
        (outcome,), events = outcomes_of([rows], answer)
        if isinstance(outcome, Exception):
            raise outcome
        if events:
            last = events[-1].revision
            transaction.on_commit(lambda: _notify(last, using), using=using, robust=True)
    return outcome


def get(key: Key, *, using: str = "default") -> Stored | None:
    """The object as the surrounding transaction sees it."""
    return next(iter(get_all([key], using=using)), None)


def get_all(keys: Iterable[Key], *, using: str = "default") -> list[Stored]:
    """Those of the objects that are there, by one statement, as the surrounding transaction sees them.

    Nothing has a name with a NUL character, which no text holds.
    """
    wanted = [key for key in keys if not any("\0" in part for part in key)]
    if not wanted:
        return []
    with _cursor(using) as cursor:
        cursor.execute(CURRENT, key_parameters(wanted), binary=True)
        return [stored_of(row) for row in cursor.fetchall()]


class TooLarge(StoreError):
    """There is more than somebody wants to hold."""


def listing(selection: Range | AllSpaces, *, most: int, using: str = "default") -> Listing:
    """The objects of a selection in order, as the surrounding transaction sees them, at one revision.

    Raises ``TooLarge`` where they have ``most`` bytes or more; no more than these are read, but for the last object.
    """
    statement, parameters = load(selection)
    with _cursor(using) as cursor:
        cursor.execute(statement, (*parameters, "", "", "", None, most), binary=True)
        rows = cursor.fetchall()
    found = _found(selection, rows)
    if sum(len(stored.data) for stored in found) >= most:
        raise TooLarge
    return Listing([stored for stored in found if _is_of(selection, stored)], rows[0][0])


def bytes_of(tenant: str, *, using: str = "default") -> int:
    """What a tenant's objects take, as the surrounding transaction sees it."""
    with _cursor(using) as cursor:
        cursor.execute(SIZE, (tenant,))
        row = cursor.fetchone()
    return int(row[0]) if row is not None else 0


def holdings(space: str, *, using: str = "default") -> list[tuple[Range, int]]:
    """What there is in a space and in those below it: each resource in each namespace, and how many objects."""
    with _cursor(using) as cursor:
        cursor.execute(HOLDINGS, (space, f"{space}:", f"{space};"), binary=True)
        rows = cursor.fetchall()
    return [(Range(space, group, kind, namespace), count) for space, group, kind, namespace, count in rows]


def page(
    selection: Range, *, limit: int, after: tuple[str, str] = ("", ""), using: str = "default"
) -> tuple[list[Stored], bool]:
    """The objects of one resource by namespace and name, behind ``after``, and whether others may follow.

    No more than ``limit``, nor than ``PORTION_BYTES`` but for the last, and at least one where there is any.
    """
    statement, parameters = load(selection)
    after = max(after, (selection.namespace or "", ""))
    with _cursor(using) as cursor:
        cursor.execute(statement, (*parameters, selection.space, *after, limit + 1, PORTION_BYTES), binary=True)
        read = _found(selection, cursor.fetchall())
    found = [stored for stored in read if _is_of(selection, stored)]
    full = len(read) > limit or sum(len(stored.data) for stored in read) >= PORTION_BYTES
    return found[:limit], full and len(found) == len(read)


def objects_of(selection: Range, *, portion: int, using: str = "default") -> Iterator[Stored]:
    """The objects of one resource by namespace and name, read in pages of ``portion`` as they are wanted.

    Not of one moment: an object that is changed meanwhile comes as it was or as it is then.
    """
    after, more = ("", ""), True
    while more:
        found, more = page(selection, limit=portion, after=after, using=using)
        yield from found
        if found:
            after = found[-1].key.namespace, found[-1].key.name


def objects_below(space: str, *, portion: int, using: str = "default") -> list[Stored]:
    """Some of the objects in a space and in those below it, none only where there is none; bounded as a page is."""
    with _cursor(using) as cursor:
        cursor.execute(BELOW, (space, f"{space}:", f"{space};", portion, PORTION_BYTES), binary=True)
        return [stored_of(row[:-1]) for row in cursor.fetchall()]


def _found(selection: Range | AllSpaces, rows: Iterable[tuple[Any, ...]]) -> list[Stored]:
    """The rows of what ``load`` sends; one without an object says the revision alone."""
    return [
        Stored(Key(space, selection.group, selection.resource, namespace, name), revision, data)
        for _, space, namespace, name, revision, data in rows
        if space is not None
    ]


def _is_of(selection: Range | AllSpaces, stored: Stored) -> bool:
    """Whether it is in the namespace that is asked for: what is read is of all."""
    return not isinstance(selection, Range) or selection.namespace in {None, stored.key.namespace}


class _Leased(Exception):
    """Somebody reads these spaces by a lease: the savepoint has to go, and the write comes again."""

    def __init__(self, spaces: frozenset[str]) -> None:
        self.spaces = spaces


def _attempt(cursor: Cursor[tuple[Any, ...]], rows: Rows, parameters: Sequence[Any], using: str) -> Answer:
    with transaction.atomic(using=using):
        cursor.execute(WRITE, parameters, binary=True)
        row = cursor.fetchone()
        answer = answer_of_row(row) if row is not None else None
        if answer is None or answer.outcome == "missing":
            raise Unavailable("the store has no counter row: migrate first")
        if answer.outcome == "leased":
            raise _Leased(leased_spaces([rows], answer))
        return answer


def _cursor(using: str) -> Cursor[tuple[Any, ...]]:
    """A cursor that binds on the server and knows the store's arrays, on the connection that Django has open."""
    wrapper = connections[using]
    wrapper.ensure_connection()
    cursor = Cursor(wrapper.connection)
    register(cursor)
    return cursor


def _notify(revision: int, using: str) -> None:
    with _cursor(using) as cursor:
        cursor.execute(NOTIFY, (str(revision),))
