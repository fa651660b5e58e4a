"""What a tenant's objects may take together, in bytes: what would let them grow beyond it is refused (AD8)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import orjson

from access.admission.base import CREATE, UPDATE, Attributes, NoopPlugin
from kube.authorization.decisions import Decision, Verdict
from kube.quota import storedbytes
from kube.requests.logicalclusters import tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import Forbidden
from store.interface import Store
from store.types import Operation, Room


class StoredBytes(NoopPlugin):
    """Tells the store what room a write has (``store.types.Room``), which alone knows how large the objects are.

    ``bound_of`` tells a tenant's. What the system tenant does is not refused, or a full tenant could not be helped; nor are
    deletions, and what lets nothing grow, as whoever only takes finalizers off. What the product's controllers write passes
    no admission, and counts.
    """

    name = "StoredBytes"
    operations = frozenset({CREATE, UPDATE})

    def __init__(self, store: Store, bound_of: Callable[[str], Awaitable[int]]) -> None:
        self._store = store
        self._bound_of = bound_of

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` for a dry run without room; else the commit does, by ``attributes.room``."""
        new, old = attributes.object, attributes.old
        if new is None or attributes.principal.is_system:
            return ()
        tenant = tenant_of(attributes.cluster)
        limit = await self._bound_of(tenant) if tenant != SYSTEM_TENANT else 0
        if not limit:
            return ()

        (group, plural), name, notes = attributes.place, attributes.name, attributes.notes

        def refusal(asked: int, used: int) -> Forbidden:
            return storedbytes.no_room(group, plural, name, asked=asked, used=used, limit=limit)

        def refused(asked: int, used: int) -> Forbidden:
            # It names no attributes: they have the room, and both would stay until the collector comes by.
            error = refusal(asked, used)
            notes.append(Decision(Verdict.DENY, storedbytes.STEP, error.message, error.rule))
            return error

        if attributes.dry_run:
            asked = len(orjson.dumps(new)) - (len(orjson.dumps(old)) if old is not None else 0)
            used = await self._store.bytes_of(tenant)
            if asked > 0 and used + asked > limit:
                raise refusal(asked, used)
        attributes.room = Room(tenant, limit, refused)
        return ()
