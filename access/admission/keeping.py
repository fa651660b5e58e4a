"""Keeping what a write needs kept, and holding what it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from store.interface import Store
from store.types import Check, Operation, PreconditionFailed, Stored


async def keep(store: Store, operations: Sequence[Operation]) -> Sequence[Stored]:
    """Commit all or none, as the store does; where nothing is to be written, only look whether what is checked holds.

    What has the same revision before and after another was looked at had it at that moment too: so all of it held at once.
    Raises ``PreconditionFailed``.
    """
    if not all(isinstance(each, Check) for each in operations):
        return await store.commit(*operations)
    newest = False
    for check in (each for each in operations if isinstance(each, Check)):
        # Once the newest is seen, it is seen of all.
        stored = await store.get(check.key, cached=newest)
        newest = True
        if (stored.revision if stored is not None else 0) != check.expected:
            raise PreconditionFailed(check.key, stored)
    return ()
