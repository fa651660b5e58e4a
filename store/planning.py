"""What a batch of writes does to the store: decided here, purely, for the engine and for Django's side alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from store.arrays import Bigints, Blobs, Texts
from store.types import Check, Create, Delete, Event, EventType, Key, Operation, PreconditionFailed, Stored

KEY_BYTES = 2000
"""The longest identity that fits an index row of PostgreSQL (2,704 bytes), with room to spare."""

DATA_BYTES = 16 * 1024 * 1024
"""The largest object kept; the gateway's own limit on bodies is far below."""


@dataclass(slots=True)
class Plan:
    """The outcome of a batch: one entry of ``outcomes`` for each write, and the events of those that hold."""

    outcomes: list[list[Stored] | Exception] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    uids: list[str] = field(default_factory=list)


def require_sound(operations: Sequence[Operation]) -> None:
    """Raise ``ValueError`` for a key that no object may have (an empty space above all: TS3)."""
    for operation in operations:
        key = operation.key
        if not (key.space and key.resource and key.name):
            raise ValueError("a key needs a space, a resource and a name")
        text = "".join(key)
        if "\0" in text or len(text.encode()) > KEY_BYTES:
            raise ValueError("a key is too long or holds a NUL character")


def keys_of(writes: Sequence[Sequence[Operation]]) -> list[Key]:
    """Every key that the writes touch, once."""
    return list({operation.key: None for write in writes for operation in write})


def decide(writes: Sequence[Sequence[Operation]], current: Mapping[Key, Stored], revision: int) -> Plan:
    """Decide the writes in order against ``current``, each one all or nothing, numbering from ``revision`` + 1.

    A later write meets what an earlier one of the batch left. A write that does not hold takes no revision.
    """
    plan = Plan()
    state: dict[Key, Stored | None] = dict(current)
    for operations in writes:
        try:
            results, events, uids, changed = _decide_one(operations, state, revision + len(plan.events))
        except (PreconditionFailed, TypeError, ValueError) as refusal:
            plan.outcomes.append(refusal)
            continue
        state.update(changed)
        plan.outcomes.append(results)
        plan.events += events
        plan.uids += uids
    return plan


def _decide_one(
    operations: Sequence[Operation], state: Mapping[Key, Stored | None], revision: int
) -> tuple[list[Stored], list[Event], list[str], dict[Key, Stored | None]]:
    results: list[Stored] = []
    events: list[Event] = []
    uids: list[str] = []
    changed: dict[Key, Stored | None] = {}
    for operation in operations:
        key = operation.key
        now = changed[key] if key in changed else state.get(key)
        expected = 0 if isinstance(operation, Create) else operation.expected
        if (now.revision if now is not None else 0) != expected:
            raise PreconditionFailed(key, now)
        if isinstance(operation, Check):
            continue
        if now is None and not isinstance(operation, Create):
            raise PreconditionFailed(key, None)
        revision += 1
        data, uid = encode(operation.body, revision)
        result = Stored(key, revision, data)
        if isinstance(operation, Delete):
            type_, changed[key] = EventType.DELETED, None
        else:
            type_, changed[key] = EventType.ADDED if now is None else EventType.MODIFIED, result
        events.append(Event(type_, key, revision, data, now.data if now is not None else None))
        uids.append(uid)
        results.append(result)
    return results, events, uids, changed


def encode(body: Mapping[str, Any], revision: int) -> tuple[bytes, str]:
    """The JSON that is kept, with ``metadata.resourceVersion`` set, and the object's uid; ``body`` stays as it is."""
    metadata = body.get("metadata") or {}
    data = orjson.dumps({**body, "metadata": {**metadata, "resourceVersion": str(revision)}})
    if len(data) > DATA_BYTES:
        raise ValueError("the object is too large to be kept")
    uid = metadata.get("uid")
    return data, uid if isinstance(uid, str) and "\0" not in uid else ""


def key_parameters(keys: Sequence[Key]) -> tuple[Texts, ...]:
    """The parameters of ``statements.CURRENT``."""
    return tuple(Texts(column) for column in zip(*keys, strict=True))


def write_parameters(plan: Plan, epoch: str, batch: int) -> tuple[Any, ...]:
    """The parameters of ``statements.WRITE`` for a plan that has events."""
    events = plan.events
    keys = [event.key for event in events]
    final = {key: position for position, key in enumerate(keys)}
    return (
        len(events),
        events[0].revision - 1,
        epoch,
        Bigints([event.revision for event in events]),
        Texts([event.type for event in events]),
        *key_parameters(keys),
        Texts(plan.uids),
        Blobs([event.data for event in events]),
        Blobs([event.previous for event in events]),
        Bigints([int(final[key] == position) for position, key in enumerate(keys)]),
        batch,
    )
