"""What a tenant's objects may take together, in bytes: what would let them grow beyond it is refused (AD8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import orjson

from access.admission.base import CREATE, UPDATE, Attributes, NoopPlugin
from kube.authorization.decisions import Decision, Verdict
from kube.quota import storedbytes
from store.interface import Store
from store.types import Key, Operation, Room


class StoredBytes(NoopPlugin):
    """Tells the store what room a write has (``store.types.Room``), which alone knows how large the objects are.

    ``room_of`` tells it. What the system tenant does is not refused, or a full tenant could not be helped; nor are deletions,
    and what lets nothing grow, as whoever only takes finalizers off. What the product's controllers write passes no
    admission, and counts.
    """

    name = "StoredBytes"
    operations = frozenset({CREATE, UPDATE})

    def __init__(self, store: Store, room_of: Callable[[Key], Awaitable[Room | None]]) -> None:
        self._store = store
        self._room_of = room_of

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` for a dry run without room; else the commit does, by ``attributes.room``."""
        new, old = attributes.object, attributes.old
        if new is None or attributes.principal.is_system:
            return ()
        room = await self._room_of(Key(attributes.cluster, *attributes.place, attributes.namespace, attributes.name))
        if room is None:
            return ()
        refusal, notes = room.refused, attributes.notes

        def refused(asked: int, used: int) -> Exception:
            # It names no attributes: they have the room, and both would stay until the collector comes by.
            error = refusal(asked, used)
            notes.append(Decision(Verdict.DENY, storedbytes.STEP, str(error), storedbytes.RULE))
            return error

        if attributes.dry_run:
            asked = len(orjson.dumps(new)) - (len(orjson.dumps(old)) if old is not None else 0)
            used = await self._store.bytes_of(room.tenant)
            if asked > 0 and used + asked > room.limit:
                raise refusal(asked, used)
        attributes.room = Room(room.tenant, room.limit, refused)
        return ()
