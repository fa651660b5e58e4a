"""Objects that a controller is due to look at: each tenant's one after the other, the tenants side by side."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Final

from kube.requests.logicalclusters import ROOT, tenant_of
from store.types import Key

SIDE_BY_SIDE: Final = 8
"""Tenants whose objects are looked at at a time; the others take turns with them, object by object."""


class FairQueue:
    """``reconcile`` looks at one object; what it raises ends ``run``. Keys that are noted again while they wait wait once.

    Whatever ``reconcile`` finds at hand, the event loop is everybody's again after each object; and however many objects
    are noted together, that is done in a moment (DOS-03).
    """

    def __init__(self, reconcile: Callable[[Key], Awaitable[None]]) -> None:
        self._reconcile = reconcile
        self._due: dict[str, dict[Key, None]] = {}
        self._aside: dict[str, dict[Key, None]] = {}
        self._later: set[Key] = set()
        self._lines: dict[str, asyncio.Task[None]] = {}
        self._wake = asyncio.Event()
        self._room = asyncio.Semaphore(SIDE_BY_SIDE)

    def add(self, key: Key) -> None:
        """Look at this object soon."""
        self._due.setdefault(_tenant_of(key), {})[key] = None
        self._wake.set()

    def add_all(self, space: str, keys: Iterable[Key]) -> None:
        """Look at these objects of a space soon."""
        if space == ROOT:
            # Where what says of a tenant that it is there stands in that tenant's line.
            for key in keys:
                self.add(key)
        elif found := dict.fromkeys(keys):
            self._due.setdefault(tenant_of(space), {}).update(found)
            self._wake.set()

    def add_later(self, key: Key, seconds: float) -> None:
        """Look at this object after some time; once, however often that is said meanwhile."""
        if key not in self._later:
            self._later.add(key)
            asyncio.get_running_loop().call_later(seconds, self._add_due, key)

    def _add_due(self, key: Key) -> None:
        self._later.discard(key)
        self.add(key)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is noted, and nothing looked at."""
        return not (self._due or self._aside or self._later or self._lines)

    def set_aside(self, key: Key) -> None:
        """Look at this object when ``take_up`` says so."""
        self._aside.setdefault(_tenant_of(key), {})[key] = None

    def take_up(self) -> None:
        """Look at everything that was set aside."""
        aside, self._aside = self._aside, {}
        for owner, keys in aside.items():
            self._due.setdefault(owner, {}).update(keys)
        self._wake.set()

    def clear(self) -> None:
        """Forget what was noted."""
        self._due.clear()
        self._aside.clear()

    async def run(
        self, check_leadership: Callable[[], Awaitable[None]] | None = None, *, every: float | None = None
    ) -> None:
        """Until cancelled, or until something raises. ``check_leadership`` is asked again and again, ``every`` so many seconds."""
        lines = self._lines
        asked = time.monotonic()
        try:
            while True:
                self._wake.clear()
                for owner in self._due.keys() - lines.keys():
                    lines[owner] = asyncio.create_task(self._run_tenant(owner))
                woken = asyncio.create_task(self._wake.wait())
                try:
                    await asyncio.wait({woken, *lines.values()}, timeout=every, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    woken.cancel()
                for owner, line in list(lines.items()):
                    if line.done():
                        del lines[owner]
                        line.result()
                if check_leadership is not None and time.monotonic() - asked >= (every or 0):
                    await check_leadership()
                    asked = time.monotonic()
        finally:
            for line in lines.values():
                line.cancel()
            await asyncio.gather(*lines.values(), return_exceptions=True)
            lines.clear()

    async def _run_tenant(self, owner: str) -> None:
        while due := self._due.get(owner):
            async with self._room:
                key = next(iter(due))
                del due[key]
                if not due:
                    del self._due[owner]
                await self._reconcile(key)
                # In the room: of many tenants' objects no more are looked at in a turn than side by side.
                await asyncio.sleep(0)


def _tenant_of(key: Key) -> str:
    return key.name if key[:3] == (ROOT, "", "tenants") else tenant_of(key.space)
