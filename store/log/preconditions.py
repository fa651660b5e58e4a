"""What a batch of writes asks of the database and what the answer means: pure, for the engine and Django's side alike.

The database decides (``store_write`` of the migrations): it alone knows the rows, and gives the revisions. So an object
goes there in two pieces, with room between them for the revision that its JSON has to name.
"""

from __future__ import annotations

import secrets
import string
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson
from psycopg.pq.abc import PGresult

from kube.requests.status import RequestEntityTooLarge
from store.postgresql.arrays import Bigints, Blobs, Parameter, Texts, bigints, blobs
from store.types import Check, Create, Delete, Event, EventType, Key, Operation, PreconditionFailed, Stored, Update

KEY_BYTES = 2000
"""The longest identity that fits an index row of PostgreSQL (2,704 bytes), with room to spare."""

DATA_BYTES = 16 * 1024 * 1024
"""The largest object kept; the gateway's own limit on bodies is far below."""

_ROOM: Final = "".join(secrets.choice(string.ascii_uppercase) for _ in range(32))
"""Stands for the revision while an object is written down. Nobody can have put it there: it never leaves this module.

Of capitals, which are rare in objects: where none is, it is looked for in steps of its own length.
"""

_MARK: Final = _ROOM.encode()

CHECK: Final = "CHECK"

_TYPES: Final = {
    Create: str(EventType.ADDED),
    Update: str(EventType.MODIFIED),
    Delete: str(EventType.DELETED),
    Check: CHECK,
}


class LogPosition(NamedTuple):
    """The identity of the last event that somebody knows: whose history, which revision, which transaction."""

    epoch: str
    revision: int
    batch: int


NO_POSITION: Final = (None, 0, 0)
"""For who holds no knowledge that could be void: its writes are decided by the rows alone."""

NOBODY: Final = 0
"""Who writes without leases of its own: all of them are in its way."""


class Row(NamedTuple):
    """One operation as the database gets it."""

    type: str
    key: Key
    expected: int
    uid: str
    head: bytes
    tail: bytes


Rows = tuple[Row, ...]
"""One write: all of its operations hold, or none is kept."""


class Answer(NamedTuple):
    """What ``store_write`` says of a batch; the last three have an item for each operation.

    ``given`` is its new revision, or ``None``; ``met`` and ``met_data`` are what it met.
    """

    outcome: str
    after: LogPosition
    compacted: int
    before: tuple[int, int | None]
    given: Sequence[int | None]
    met: Sequence[int | None]
    met_data: Sequence[bytes | None]


def rows_of(operations: Sequence[Operation]) -> Rows:
    """One write as rows.

    Raises ``ValueError`` for a key that no object may have (an empty space above all: TS3), for a body that cannot be
    kept, and for two changes of one object.
    """
    rows: list[Row] = []
    changed: dict[Key, int] = {}
    checked: list[Row] = []
    for operation in operations:
        key = operation.key
        if isinstance(operation, Check):
            _require_known_sound(key)
            rows.append(row := Row(CHECK, key, operation.expected, "", b"", b""))
            checked.append(row)
            continue
        _require_sound(key)
        expected = 0 if isinstance(operation, Create) else operation.expected
        rows.append(Row(_TYPES[type(operation)], key, expected, *encode(operation.body)))
        if key in changed:
            raise ValueError("a write changes an object once")
        changed[key] = expected
    for row in checked:
        if row.key in changed and changed[row.key] != row.expected:
            raise ValueError("a write expects two revisions of one object")
    return tuple(rows)


def _require_sound(key: Key) -> None:
    """Raise ``ValueError`` for a key that no object may have."""
    if not (key.space and key.resource and key.name):
        raise ValueError("a key needs a space, a resource and a name")
    text = "".join(key)
    if "\0" in text or (len(text) * 4 > KEY_BYTES and len(text.encode()) > KEY_BYTES):
        raise ValueError("a key is too long or holds a NUL character")


_require_known_sound: Final = lru_cache(maxsize=1024)(_require_sound)
"""Of what is only checked: tenants, namespaces and policies, which are the same for most writes."""


def encode(body: Mapping[str, Any]) -> tuple[str, bytes, bytes]:
    """The object's uid, and its JSON before and behind ``metadata.resourceVersion``; ``body`` stays as it is."""
    metadata = body.get("metadata") or {}
    data = orjson.dumps({**body, "metadata": {**metadata, "resourceVersion": _ROOM}})
    if len(data) > DATA_BYTES:
        raise RequestEntityTooLarge(f"Request entity too large: no object of more than {DATA_BYTES} bytes is kept")
    head, _, tail = data.partition(_MARK)
    uid = metadata.get("uid")
    return uid if isinstance(uid, str) and "\0" not in uid else "", head, tail


def parameters_of(
    writes: Sequence[Rows], known: LogPosition | tuple[None, int, int], batch: int, *, holder: int = NOBODY
) -> tuple[Parameter, ...]:
    """The parameters of ``statements.COMMIT``: those of ``WRITE``, and the revisions to be given if everything holds."""
    revision = known[1]
    given: list[int | None] = []
    for write in writes:
        for row in write:
            if row.type == CHECK:
                given.append(None)
            else:
                revision += 1
                given.append(revision)
    return (*write_parameters_of(writes, known, batch, holder=holder), revision, Bigints(given))


def write_parameters_of(
    writes: Sequence[Rows], known: LogPosition | tuple[None, int, int], batch: int, *, holder: int = NOBODY
) -> tuple[Parameter, ...]:
    """The parameters of ``statements.WRITE``; the ``holder`` of leases is not in its own way."""
    rows = [row for write in writes for row in write]
    types, keys, expected, uids, heads, tails = zip(*rows, strict=True) if rows else ((),) * 6
    columns = zip(*keys, strict=True) if rows else ((),) * 5
    return (
        *known,
        batch,
        holder,
        Bigints([number for number, write in enumerate(writes) for _ in write]),
        Texts(types),
        *map(Texts, columns),
        Bigints(expected),
        Texts(uids),
        Blobs(heads),
        Blobs(tails),
    )


def key_parameters(keys: Sequence[Key]) -> tuple[Texts, ...]:
    """The parameters of ``statements.CURRENT``."""
    return tuple(Texts(column) for column in zip(*keys, strict=True))


def answer_of(result: PGresult) -> Answer:
    """The answer to ``COMMIT`` in the binary form."""
    get = result.get_value
    before_batch = get(0, 6)
    return Answer(
        (get(0, 0) or b"").decode(),
        LogPosition((get(0, 3) or b"").decode(), _number(get(0, 1)), _number(get(0, 2))),
        _number(get(0, 4)),
        (_number(get(0, 5)), None if before_batch is None else _number(before_batch)),
        bigints(get(0, 7)),
        bigints(get(0, 8)),
        blobs(get(0, 9)),
    )


def answer_of_row(row: Sequence[Any]) -> Answer:
    """The answer to ``WRITE`` as psycopg has read it."""
    outcome, revision, batch, epoch, compacted, before, before_batch, *arrays = row
    return Answer(
        outcome, LogPosition(epoch, revision, batch), compacted, (before, before_batch), *(a or () for a in arrays)
    )


def leased_spaces(writes: Sequence[Rows], answer: Answer) -> frozenset[str]:
    """The spaces that the answer ``leased`` is about."""
    rows = [row for write in writes for row in write]
    return frozenset(row.key.space for row, met in zip(rows, answer.met, strict=True) if met)


def _number(data: bytes | None) -> int:
    return int.from_bytes(data or b"", signed=True)


def outcomes_of(writes: Sequence[Rows], answer: Answer) -> tuple[list[list[Stored] | PreconditionFailed], list[Event]]:
    """What became of each write, and the events of those that hold."""
    outcomes: list[list[Stored] | PreconditionFailed] = []
    events: list[Event] = []
    found_by_row = zip(answer.given, answer.met, answer.met_data, strict=True)
    for rows in writes:
        results: list[Stored] = []
        refusal: PreconditionFailed | None = None
        for row in rows:
            given, met, data = next(found_by_row)
            if given is not None:
                kept = b"%b%d%b" % (row.head, given, row.tail)
                results.append(Stored(row.key, given, kept))
                events.append(Event(_EVENTS[row.type], row.key, given, kept, data))
            elif refusal is None and ((met or 0) != row.expected or (not met and row.type in _NEED_A_ROW)):
                refusal = PreconditionFailed(row.key, Stored(row.key, met, data) if met and data else None)
        if refusal is None and not results and any(row.type != CHECK for row in rows):
            # It was sent again, and what it met the first time is no more.
            refusal = PreconditionFailed(rows[0].key, None)
        outcomes.append(refusal or results)
    return outcomes, events


_EVENTS: Final = {str(each): each for each in EventType}
_NEED_A_ROW: Final = (str(EventType.MODIFIED), str(EventType.DELETED))
