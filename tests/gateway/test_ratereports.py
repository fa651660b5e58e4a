"""What processes tell each other of rates through a real database: who comes, goes, dies, and the database away (AD6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from access.requestlimits import TenantThrottle
from gateway.process import ratereports
from gateway.process.ratereports import CHANNEL, RateReports
from kube.authentication.identity import Principal
from kube.requests import rateshares
from kube.requests.ratelimits import Limits
from kube.requests.rateshares import RESERVE, RateShares
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import TooManyRequests
from kube.requests.tokenbuckets import TokenBucket
from tests.databases import migrated, run

LIMITS = Limits(read=TokenBucket(10, 100), person_share=100)
JANE = Principal(name="jane", tenant="acme", groups=(), authenticator="test")
READING = RequestInfo(
    method="GET", path="/api/v1/pods", cluster="root:acme", tenant="acme", verb="list", is_resource=True
)


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """One of its own, whose processes speak quicker than they do."""
    monkeypatch.setattr(ratereports, "REPORT_SECONDS", 0.1)
    monkeypatch.setattr(rateshares, "SILENT_SECONDS", 2.0)
    with migrated("reports") as url:
        yield url


class Process:
    """What a serving process holds of rates."""

    def __init__(self, database: str) -> None:
        self.shares = RateShares(str(uuid4()), 7)
        self.throttle = TenantThrottle(LIMITS, lambda *_: 0, self.shares.part)
        self.reports = RateReports(database, self.throttle, self.shares)
        self.reports.start()

    def ask(self) -> None:
        """More than there may be."""
        now = asyncio.get_running_loop().time()
        with pytest.raises(TooManyRequests):
            for _ in range(200):
                self.throttle.take(JANE, READING, now)

    def limit(self) -> int:
        said = self.throttle.standing(JANE, READING, asyncio.get_running_loop().time())
        assert said is not None
        return said.limit


async def until(look: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not look():
            await asyncio.sleep(0.02)


async def test_who_comes_and_who_leaves_is_known_to_all_at_once(database: str) -> None:
    first = Process(database)
    await until(lambda: first.shares.living == 1 and first.limit() == 100)
    others = [Process(database) for _ in range(3)]
    everybody = [first, *others]
    await until(lambda: all(each.limit() == 25 for each in everybody))

    def asked_of_one() -> bool:
        first.ask()
        return first.limit() >= 100 * (1 - RESERVE) and all(each.limit() < 25 for each in others)

    await until(asked_of_one)
    # Once each has heard the same.
    await until(lambda: asked_of_one() and sum(each.limit() for each in everybody) <= 100)
    await until(lambda: all(each.limit() == 25 for each in everybody))
    await others.pop().reports.stop()
    assert others
    await until(lambda: all(each.limit() == 33 for each in (first, *others)))
    for each in (first, *others):
        await each.reports.stop()


async def test_the_parts_stand_while_the_database_is_away_and_whoever_died_meanwhile_is_found_out(
    database: str,
) -> None:
    first, second, third = everybody = [Process(database) for _ in range(3)]
    name = str(conninfo_to_dict(database)["dbname"])
    await until(lambda: all(each.limit() == 33 for each in everybody))
    run("ALTER DATABASE {} ALLOW_CONNECTIONS false", name)
    try:
        with psycopg.connect(make_conninfo(database, dbname="postgres"), autocommit=True) as postgres:
            postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
        # Dies without a word: nobody can be told one.
        await third.reports.stop()
        for _ in range(40):
            first.ask()
            await asyncio.sleep(0.1)
            assert (first.limit(), second.limit()) == (33, 33)
    finally:
        run("ALTER DATABASE {} ALLOW_CONNECTIONS true", name)
    await until(lambda: (first.limit(), second.limit()) == (50, 50))
    assert first.shares.living == second.shares.living == 2
    for each in (first, second):
        await each.reports.stop()


async def test_what_cannot_be_understood_changes_nothing(database: str) -> None:
    """A later release may say other things."""
    process = Process(database)
    await until(lambda: process.shares.living == 1 and process.limit() == 100)
    with psycopg.connect(database, autocommit=True) as speaker:
        for text in (
            "",
            "[]",
            "null",
            '{"process": 1}',
            '{"process": "x", "wanted": {}}',
            f'{{"process": "{uuid4()}"}}',
        ):
            speaker.execute("SELECT pg_notify(%s, %s)", (CHANNEL, text))
        speaker.execute("SELECT pg_notify(%s, %s)", (CHANNEL, f'{{"process": "{uuid4()}", "wanted": {{}}, "new": 1}}'))
    await until(lambda: process.shares.living == 2)
    assert process.limit() == 50
    await process.reports.stop()


def test_a_report_of_however_many_rates_fits_into_notifications() -> None:
    """And names nobody."""
    wanted = {f"{number:016x}": 0.123456 for number in range(20_000)}
    messages = list(ratereports._messages(str(uuid4()), wanted))
    assert all(len(each) < 8000 for each in messages)
    heard = RateShares("listener", 1)
    for each in messages:
        said = ratereports.orjson.loads(each)
        heard.hear(said["process"], said["wanted"], 0.0, further=said["further"])
    assert sum(len(said.wanted) for said in heard._said.values()) == 10_000
    assert len(list(ratereports._messages(str(uuid4()), {}))) == 1
