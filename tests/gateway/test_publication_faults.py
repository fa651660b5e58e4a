"""No tenant is left with a missing, stale or orphaned copy, whatever happens to the worker (AZ8)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from tests.databases import OWNER, migrated, url_of
from tests.gateway.publishing import PLACES, SELECTORS, TENANTS, TIERS, Torment, step

FAULTS = 20
places = st.sampled_from(range(len(PLACES)))
tenants = st.sampled_from(TENANTS)


def owner_url(database: str) -> str:
    return url_of(database.partition("?")[0].rpartition("/")[2], OWNER)


class Publishing(RuleBasedStateMachine):
    """Operators publish, tenants come, go and write, the worker is hurt; in the end all is as it must be."""

    def __init__(self) -> None:
        super().__init__()
        self._database = migrated("publishing")
        url = self._database.__enter__()
        self._loop = asyncio.new_event_loop()
        self._torment = Torment(url, 0, owner_url(url))
        self._run(self._torment.__aenter__())

    def _run(self, work: Coroutine[Any, Any, object]) -> None:
        self._loop.run_until_complete(work)

    @rule(place=places, selector=st.sampled_from(range(len(SELECTORS))), value=st.integers(0, 9))
    def publish(self, place: int, selector: int, value: int) -> None:
        self._run(self._torment.publish(place, selector, value))

    @rule(place=places)
    def unpublish(self, place: int) -> None:
        self._run(self._torment.unpublish(place))

    @rule(place=places)
    def delete_source(self, place: int) -> None:
        self._run(self._torment.delete_source(place))

    @rule(tenant=tenants)
    def begin_tenant(self, tenant: str) -> None:
        self._run(self._torment.begin_tenant(tenant))

    @rule(tenant=tenants)
    def end_tenant(self, tenant: str) -> None:
        self._run(self._torment.end_tenant(tenant))

    @rule(tenant=tenants, tier=st.sampled_from(range(len(TIERS))))
    def label(self, tenant: str, tier: int) -> None:
        self._run(self._torment.label(tenant, tier))

    @rule(tenant=tenants, place=places)
    def take_name(self, tenant: str, place: int) -> None:
        self._run(self._torment.take_name(tenant, place))

    @rule(tenant=tenants, place=places)
    def give_up_name(self, tenant: str, place: int) -> None:
        self._run(self._torment.give_up_name(tenant, place))

    @rule(tenant=tenants, ends=st.booleans())
    def change_namespaces(self, tenant: str, ends: bool) -> None:
        self._run(self._torment.end_namespace(tenant) if ends else self._torment.begin_namespace(tenant))

    @rule()
    def kill(self) -> None:
        self._run(self._torment.kill())

    @rule()
    def cut(self) -> None:
        self._run(self._torment.cut())

    @rule()
    def settle(self) -> None:
        self._run(self._torment.settled())

    def teardown(self) -> None:
        try:
            self._run(self._torment.settled())
        finally:
            self._run(self._torment.__aexit__())
            self._loop.close()
            self._database.__exit__(None, None, None)


class TestPublishing(Publishing.TestCase):  # type: ignore[misc]
    settings = settings(max_examples=5, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck))


async def test_kills_freezes_and_cuts_leave_nothing_missing_stale_or_orphaned() -> None:
    """The long run is ``python -m bench.publications``."""
    with migrated("tormented") as url:
        async with Torment(url, 1, owner_url(url)) as torment:
            while torment.faults < FAULTS:
                for _ in range(torment.chance.randrange(4)):
                    await step(torment)
                await torment.hurt()
                if torment.faults % 10 == 0:
                    await torment.settled()
            await torment.settled()
