"""Writers of what one tenant's quota counts on clusters stand in line, and each needs one commit (AD2, GW17)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import uuid4

import orjson
import pytest

from access.admission.tenancy.placedquota import PlacedQuotas, usage_key
from gateway.process.keyedlocks import KeyedLocks
from kube.quota.placedusage import Reservation
from kube.quota.podresources import amounts
from kube.quota.tenantquotas import used_of
from kube.quota.usage import QuotaExceeded
from store.engine import Engine
from store.types import Create, Operation, Stored
from tenants.quotas import tenant_quota_key
from tests.databases import migrated

NOW = 1_800_000_000.0
MANY = 40


class Counted(Engine):
    """A store that knows how often it was asked to write."""

    commits = 0

    async def commit(self, *operations: Operation) -> Sequence[Stored]:
        """As any."""
        self.commits += 1
        return await super().commit(*operations)


class Process:
    """What one process of the API server has of the quotas of placed namespaces."""

    def __init__(self, store: Counted, tenant: str) -> None:
        self.store = store
        self._quota = tenant_quota_key(tenant)
        self.place = usage_key(self._quota.space, f"{tenant}-web")
        self.quotas = PlacedQuotas(store, (), self._none, self._all, turns=KeyedLocks().of_tenant_quota)

    async def _none(self, _space: str, _namespace: str) -> Sequence[Any]:
        return ()

    async def _all(self, *_: Any) -> dict[str, Any]:
        return {}

    async def take(self, name: str) -> bool:
        """Whether there was room for one more."""
        write = Reservation(amounts={}, until=NOW + 60, what=f"/pods/{name}", uid=name)
        try:
            return await self.quotas.reserve(self.place, name, lambda _: amounts({"pods": "1"}), write, NOW)
        except QuotaExceeded:
            return False

    async def used(self) -> str:
        """How many the tenant has by its quota."""
        stored = await self.store.get(self._quota)
        assert stored is not None
        return str(used_of(orjson.loads(stored.data))["pods"])


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("reservations") as url:
        yield url


@asynccontextmanager
async def processes(database: str, number: int, room: int) -> AsyncIterator[list[Process]]:
    """So many on one database, and a new tenant with so much room."""
    tenant = f"t{uuid4().hex[:8]}"
    async with AsyncExitStack() as stack:
        found = [Process(await stack.enter_async_context(Counted(database)), tenant) for _ in range(number)]
        spec, status = {"hard": {"pods": str(room)}}, {"hard": {"pods": str(room)}, "used": {"pods": "0"}}
        body = {"metadata": {"name": "quota"}, "spec": spec, "status": status}
        await found[0].store.commit(Create(tenant_quota_key(tenant), body))
        found[0].store.commits = 0
        yield found


async def test_whoever_asks_at_once_needs_one_commit_each(database: str) -> None:
    """Those who fight for one revision lose all but one of each round: a burst takes its square, and some never win."""
    async with processes(database, 1, MANY + 10) as (process,):
        assert all(await asyncio.gather(*(process.take(f"p{number}") for number in range(MANY))))
        assert process.store.commits == MANY
        assert await process.used() == str(MANY)


@pytest.mark.parametrize("room", [MANY // 2, MANY + 1])
async def test_several_processes_are_never_one_over_and_give_up_nothing(database: str, room: int) -> None:
    async with processes(database, 3, room) as found:
        asked = [found[number % 3].take(f"p{number}") for number in range(MANY)]
        assert sum(await asyncio.gather(*asked)) == min(room, MANY)
        assert await found[0].used() == str(min(room, MANY))


async def test_what_another_process_has_given_back_is_not_refused(database: str) -> None:
    """A refusal counts only from the newest state."""
    async with processes(database, 2, 1) as (one, other):
        assert await one.take("first")
        assert not await other.take("second")
        await one.quotas.settle(one.place, "first", made=False)
        assert await other.take("second")
