"""What tenants hold in placed namespaces, changed by many at once: group commit by tenant (AD1, AD2).

Every change of what placed namespaces hold (``placedbooks.py``) replaces the ``TenantQuota`` object in the same commit, on
the revision that was counted from: writes to stored and to placed namespaces, in whichever process, meet there, and what
is used stands there as a sum, which nobody adds up again. Those that come while one commit is under way go together into
the next one: they are judged one after the other, in the order in which they came, each on what those before it leave,
and written at once. Where another process was faster, all of them are judged anew.

1. Nobody is answered before what was decided is committed. What refuses must be the newest state.
2. A change that fails fails alone: it has changed nothing of what the next one is judged on. Who has gone before a commit
   began takes no part in it.
3. Tenants wait for their own: each has its line, which is bounded, and one commit under way.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar, cast

import orjson

from access.admission.keeping import keep
from access.admission.tenancy.placedbooks import Book, Books
from kube.quota import tenantquotas
from kube.quota.placedusage import PlacedUsage
from kube.quota.podresources import Amounts
from kube.quota.tenantquotas import TenantQuota, UsageRule
from kube.quota.usage import QuotaExceeded
from kube.requests.logicalclusters import space_of, tenant_of
from kube.requests.status import ServiceUnavailable, TooManyRequests
from store.interface import Store
from store.types import Key, Operation, PreconditionFailed, Stored, Update
from tenants.quotas import tenant_quota_key

LINE_MAX: Final = 1024
"""Changes of one tenant that wait: more than a cluster asks within its patience."""

_TOGETHER_MAX: Final = 256
"""Changes in one commit: judging them holds the loop."""

_ATTEMPTS: Final = 256
"""Every lost round means that a writer of another process won."""

_KNOWN_MAX: Final = 10_000

_Answer = TypeVar("_Answer")

LockOf = Callable[[str], AbstractAsyncContextManager[None]]
"""One writer at a time of what is used of the quota in a tenant's space, among those of this process."""

Count = Callable[[str, TenantQuota], Awaitable[Amounts]]
"""What a tenant holds, by the name of its space and its quota."""


class _Uncounted(Exception):
    """The quota bounds a name of which nobody knows what is used."""


@dataclass(slots=True)
class Page:
    """A tenant's quota and what its placed namespaces hold, as those leave it who were judged before.

    ``quota`` is ``None`` while the tenant is being made. Nothing of it is kept before the ledger commits it.
    """

    quota: TenantQuota | None
    _stored: Stored | None
    _body: dict[str, Any]
    _used: Amounts
    _book: Book
    _usages: dict[Key, PlacedUsage | None] = field(default_factory=dict)
    """Of the namespaces that were changed."""
    _recounted: bool = False
    """Whether what is used is another amount than the quota says."""

    def usage(self, place: Key) -> PlacedUsage | None:
        """What a placed namespace holds; ``None`` where nobody has noted anything yet."""
        return self._usages[place] if place in self._usages else self._book.usage(place)

    @property
    def used(self) -> Amounts:
        """What the tenant uses of every name that its quota bounds."""
        if self.quota is not None and not self.quota.hard.keys() <= self._used.keys():
            raise _Uncounted
        return self._used

    def put(self, place: Key, usage: PlacedUsage | None) -> None:
        """Let a placed namespace hold something else, or nothing any more."""
        before = self.usage(place)
        self._usages[place] = usage
        more = tenantquotas.difference(usage.total if usage else {}, before.total if before else {})
        if known := {name: amount for name, amount in more.items() if name in self._used}:
            self._used = tenantquotas.after(self._used, known)
            self._recounted = True

    def counted(self, used: Amounts) -> None:
        """Somebody has counted what the tenant holds."""
        self._used, self._recounted = used, True

    def operations(self) -> list[Operation]:
        """What has to be written: the quota last, so that whoever has seen it has seen all the rest."""
        found = [each for place, usage in sorted(self._usages.items()) for each in self._book.operations(place, usage)]
        if self._recounted and self._stored is not None:
            body = tenantquotas.with_used(self._body, self._used)
            found.append(Update(self._stored.key, self._stored.revision, body))
        return found


@dataclass(slots=True, eq=False)
class _Change:
    """One that waits: how it judges, and what is kept, or held, together with what it changes."""

    place: Key
    judge: Callable[[Page], Any]
    together: Sequence[Operation]
    answer: asyncio.Future[Any]

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)


class PlacedLedger:
    """The rows of this process. ``rules`` count what Kubernetes does not; ``count`` counts what nobody has counted yet.

    In their ``turns`` they do not fight with those who write to stored namespaces for the same revision.
    """

    def __init__(self, store: Store, rules: tuple[UsageRule, ...], count: Count, turns: LockOf) -> None:
        self._store = store
        self._rules = rules
        self._count = count
        self._turns = turns
        self._lines: dict[str, deque[_Change]] = {}
        self._workers: set[asyncio.Task[None]] = set()
        self._books = Books(store)
        self._quotas: dict[str, tuple[int, TenantQuota, dict[str, Any]]] = {}
        """What quotas say, by their revisions."""

    async def quota(self, space: str) -> TenantQuota | None:
        """The quota that holds in a space as this process knows it; ``None`` while its tenant is being made."""
        stored = await self._stored_quota(space)
        return self._read_quota(stored)[0] if stored is not None else None

    async def has_room(self, space: str) -> bool:
        """Whether its tenant uses no more than half of anything that its quota bounds, as far as this process knows."""
        stored = await self._stored_quota(space)
        if stored is None:
            return True
        quota, body = self._read_quota(stored)
        return tenantquotas.has_room(quota, tenantquotas.used_of(body))

    async def usage(self, place: Key) -> PlacedUsage | None:
        """What a placed namespace holds, as far as this process knows."""
        usage = (await self._books.of(place.space)).usage(place)
        return usage._replace(reserved=usage.reserved.copied()) if usage is not None else None

    async def change(
        self, place: Key, judge: Callable[[Page], _Answer], *, together: Sequence[Operation] = ()
    ) -> _Answer:
        """Have ``judge`` decide, in its turn, and answer what it says once that is kept, with what is ``together`` with it.

        It may be called several times, each time with another page, and puts into it what it changes as the last thing
        that it does. Raises what it raises; ``PreconditionFailed`` where what is together does not hold; ``TooManyRequests``
        where too many wait.
        """
        space = space_of(tenant_of(place.space))
        line = self._lines.get(space)
        if line is None:
            line = self._lines[space] = deque()
            worker = asyncio.create_task(self._work(space, line))
            self._workers.add(worker)
            worker.add_done_callback(self._workers.discard)
        elif len(line) >= LINE_MAX:
            raise TooManyRequests("too many writes wait for the tenant's quota, please try again", retry_after=1)
        change = _Change(place, judge, together, asyncio.get_running_loop().create_future())
        line.append(change)
        return cast("_Answer", await change.answer)

    async def _work(self, space: str, line: deque[_Change]) -> None:
        taken: list[_Change] = []
        try:
            while line:
                async with self._turns(space):
                    await self._settle(line, taken)
        finally:
            # Without an await in between: whoever comes now begins another line.
            del self._lines[space]
            for change in (*taken, *line):
                change.fail(ServiceUnavailable("the server is stopping, please try again", retry_after=1))

    async def _settle(self, line: deque[_Change], taken: list[_Change]) -> None:
        """Bring those to an answer who wait now, and those who come while others are faster."""
        for attempt in range(_ATTEMPTS):
            taken[:] = [change for change in taken if not change.answer.done()]
            while line and len(taken) < _TOGETHER_MAX:
                change = line.popleft()
                if not change.answer.done():
                    taken.append(change)
            if not taken:
                return
            try:
                # Nobody else of this process writes meanwhile, so what it knows is mostly the newest.
                if await self._try(taken, newest=attempt > 0):
                    return
            except Exception as error:  # noqa: BLE001 - it is told to everybody whom it meets
                for change in taken:
                    change.fail(error)
                return
            await asyncio.sleep(random.random() * 0.002 * min(attempt, 10))  # noqa: S311 - jitter
        for change in taken:
            change.fail(
                ServiceUnavailable("the tenant's quota is asked by many at once, please try again", retry_after=1)
            )

    async def _try(self, changes: list[_Change], *, newest: bool) -> bool:
        """Judge and commit them; whether all are answered."""
        space = space_of(tenant_of(changes[0].place.space))
        # The quota first: what the book says is no older than it.
        stored = await self._store.get(tenant_quota_key(tenant_of(space)), cached=not newest)
        page = self._page(stored, await self._books.of(space))
        try:
            said, together = _judged(page, changes)
        except _Uncounted:
            used = await self._counted(space, page)
            page = self._page(stored, await self._books.of(space))
            page.counted(used)
            said, together = _judged(page, changes)
        if not newest and any(isinstance(each, QuotaExceeded) for each in said):
            return False  # Others may have given back what is missing here.
        operations = page.operations()
        try:
            await keep(self._store, [*operations, *together.values()])
        except PreconditionFailed as failed:
            for change in changes:
                if any(each.key == failed.key for each in change.together):
                    change.fail(failed)
            return False
        for change, answer in zip(changes, said, strict=True):
            if isinstance(answer, Exception):
                change.fail(answer)
            elif not change.answer.done():
                change.answer.set_result(answer)
        return True

    async def _counted(self, space: str, page: Page) -> Amounts:
        return await self._count(space, page.quota) if page.quota is not None else {}

    async def _stored_quota(self, space: str) -> Stored | None:
        key = tenant_quota_key(tenant_of(space))
        return self._store.peek(key) or await self._store.get(key, cached=True)

    def _page(self, stored: Stored | None, book: Book) -> Page:
        if stored is None:
            return Page(None, None, {}, {}, book)
        quota, body = self._read_quota(stored)
        return Page(quota, stored, body, tenantquotas.used_of(body), book)

    def _read_quota(self, stored: Stored) -> tuple[TenantQuota, dict[str, Any]]:
        space = stored.key.space
        known = self._quotas.get(space)
        if known is None or known[0] != stored.revision:
            body = orjson.loads(stored.data)
            # What is used changes often, what may be seldom: who has worked something out of that knows it by the object.
            if known is not None and known[2].get("spec") == body.get("spec"):
                quota = known[1]
            else:
                quota = tenantquotas.read_tenant_quota(tenant_of(space), body, self._rules)
            known = stored.revision, quota, body
            if len(self._quotas) >= _KNOWN_MAX:
                self._quotas.clear()
            self._quotas[space] = known
        return known[1:]


def _judged(page: Page, changes: Sequence[_Change]) -> tuple[list[Any], dict[Key, Operation]]:
    """What each says, or fails with, and what is kept together with what has not failed."""
    said: list[Any] = []
    together: dict[Key, Operation] = {}
    for change in changes:
        met = next((each.key for each in change.together if together.get(each.key, each) != each), None)
        if met is not None:
            said.append(PreconditionFailed(met, None))
            continue
        try:
            said.append(change.judge(page))
        except _Uncounted:
            raise
        except Exception as error:  # noqa: BLE001 - whose judgement it was is told
            said.append(error)
        else:
            together |= {each.key: each for each in change.together}
    return said, together
