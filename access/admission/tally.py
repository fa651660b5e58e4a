"""What is used of quotas, counted from the objects that are there, with turns for others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from kube.objects.publications import is_copy
from kube.quota.podresources import Amounts
from kube.quota.quantities import Quantity
from kube.quota.tenantquotas import difference
from store.pace import Pace
from store.types import Key, Range, Stored

LOOKS_MAX: Final = 5
"""How often somebody looks at most at what has changed while others had turns."""

_NONE: Final = Quantity()


class Tally:
    """What objects take together, as ``count`` says of the group, plural and body of one. Copies take nothing.

    Each is read once in a state: whoever looks again, for others have written meanwhile, reads what has changed alone, and
    that is mostly so little that nobody else has another turn.
    """

    def __init__(self, count: Callable[[str, str, Mapping[str, Any]], Amounts]) -> None:
        self._count = count
        self._known: dict[Range, dict[Key, tuple[int, Amounts]]] = {}
        self.used: dict[str, Quantity] = {}

    async def look(self, place: Range, plural: str, items: Sequence[Stored], pace: Pace) -> None:
        """Take in what is at a place now; ``plural`` is that of its objects. Raises what ``count`` raises."""
        before, now = self._known.get(place, {}), dict[Key, tuple[int, Amounts]]()
        for stored in items:
            known = before.pop(stored.key, None)
            if known is None or known[0] != stored.revision:
                await pace.step(len(stored.data))
                body = orjson.loads(stored.data)
                amounts = {} if is_copy(body) else self._count(place.group, plural, body)
                self._add(difference(amounts, known[1] if known is not None else {}))
                known = stored.revision, amounts
            now[stored.key] = known
        for _, amounts in before.values():
            self._add(difference({}, amounts))
        self._known[place] = now

    def _add(self, change: Amounts) -> None:
        for name, amount in change.items():
            self.used[name] = self.used.get(name, _NONE) + amount
