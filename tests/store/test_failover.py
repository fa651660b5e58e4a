"""PostgreSQL dies and its standby takes over, under load: two real servers, one of which follows the other."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import psycopg
import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, connections
from environ import Env
from psycopg.conninfo import conninfo_to_dict

from portal.database.addresses import resilient
from portal.doctor.examination import examination
from store.engine import Engine, Options
from store.log.compaction import EXTENT
from store.log.leases import LEASE_SECONDS
from store.log.replacement import REVISIONS_AHEAD
from store.synchronous import commit, get
from store.types import Create, RevisionTooOld, Stored, Unavailable, Update
from tests.store.checker import Torment
from tests.store.conftest import impatient, migrate, run
from tests.store.objects import PODS, body, pod
from tests.store.replication import Pair
from tests.store.test_recovery import start_again

QUICK = Options(poll_seconds=0.1, write_seconds=300)


_numbers = itertools.count()


def alias_to(url: str) -> str:
    """A Django connection there."""
    name = f"pair_{next(_numbers)}"
    own = {**Env.db_url_config(url), "ENGINE": "portal.database"}
    connections.databases[name] = {**connections.databases["default"], **own}
    return name


@pytest.fixture
def pair(django_db_blocker: Any) -> Iterator[Pair]:
    """A migrated primary; the test says what its standby is like."""
    pair = Pair()
    try:
        pair.start()
        with django_db_blocker.unblock():
            migrate(alias_to(pair.primary.owner_url))
            yield pair
    finally:
        pair.stop()


@pytest.fixture
def torment(pair: Pair) -> Iterator[Torment]:
    """Processes that write, read and watch on whichever of the two takes writes."""
    torment = Torment(pair.url(), "postgres", seed=0)
    yield torment
    torment.drop()


async def under_load(torment: Torment, *, acknowledged: int) -> None:
    """Go on once everybody has had that many more writes acknowledged."""
    wanted = {witness.output: count(witness.output.read_text()) + acknowledged for witness in torment.witnesses}
    async with asyncio.timeout(300):
        while any(count(output.read_text()) < least for output, least in wanted.items()):
            await asyncio.sleep(0.05)


def count(text: str) -> int:
    return text.count('["write"')


def told(torment: Torment, what: str) -> list[list[Any]]:
    return [rest for witness in (*torment.witnesses, *torment.dead) for kind, *rest in witness.told if kind == what]


def assert_all_began_anew(torment: Torment) -> None:
    """Nobody goes on in the old numbers: whoever watched was told so, and watches in the new ones."""
    for witness in torment.witnesses:
        assert "gone" in {kind for kind, *_ in witness.told}
        opened = [since for kind, *rest in witness.told if kind == "open" for since in rest[1:]]
        assert opened[0] < REVISIONS_AHEAD < opened[-1]


def log_of(pair: Pair) -> dict[int, tuple[str, str]]:
    with psycopg.connect(pair.url()) as connection:
        rows = connection.execute("SELECT revision, name, convert_from(data, 'UTF8')::json ->> 'id' FROM store_event")
        return {revision: (name, identity) for revision, name, identity in rows.fetchall()}


async def test_a_synchronous_standby_takes_over_with_every_acknowledged_write(pair: Pair, torment: Torment) -> None:
    """None is lost or doubled, no read is older than what was known, no watch has seen what is not there."""
    pair.follow(synchronous=True)
    for _ in range(3):
        await torment.start()
    await under_load(torment, acknowledged=15)
    await asyncio.to_thread(pair.kill_primary)
    await asyncio.to_thread(pair.promote)
    await under_load(torment, acknowledged=15)
    await torment.end()

    assert torment.check() >= 90
    assert torment.leased > 0
    log = log_of(pair)
    for _, revision, _, name, identity in told(torment, "event"):
        assert log[revision] == (name, identity)
    assert_all_began_anew(torment)
    assert max(log) - min(log) > REVISIONS_AHEAD


async def test_what_an_asynchronous_standby_lacks_is_lost_once_and_for_all(pair: Pair, torment: Torment) -> None:
    """Acknowledged writes are lost, as documented. Nobody serves them any more, and no revision of theirs is given again."""
    pair.follow(synchronous=False)
    for _ in range(3):
        await torment.start()
    await under_load(torment, acknowledged=10)
    torn = asyncio.get_running_loop().time()
    await asyncio.to_thread(pair.tear)
    await under_load(torment, acknowledged=15)
    # One of those who know what is lost dies with it.
    torment.dead.append(torment.witnesses.pop())
    torment.dead[0].process.kill()
    await torment.dead[0].process.wait()
    await asyncio.to_thread(pair.kill_primary)
    await asyncio.to_thread(pair.promote)
    torment.restores.append((torn - 1, asyncio.get_running_loop().time()))
    await under_load(torment, acknowledged=15)
    await torment.end()

    torment.check()
    log = log_of(pair)
    acknowledged = [(revision, name, identity) for _, _, name, identity, revision in told(torment, "write")]
    seen = [(revision, name, identity) for _, revision, _, name, identity in told(torment, "event")]
    assert {revision for revision, _, _ in acknowledged} - log.keys(), "the primary was not ahead"
    for revision, name, identity in (*acknowledged, *seen):
        assert log.get(revision) in (None, (name, identity)), f"{revision} was given twice"
    assert_all_began_anew(torment)


async def lost_history(pair: Pair) -> tuple[Stored, int]:
    """An object that the standby knows as it was before; whoever knew more is gone with the primary. Its last revision."""
    async with Engine(pair.url(), QUICK) as store:
        (kept,) = await store.commit(Create(pod("kept"), body("kept")))
        pair.follow(synchronous=False)
        await asyncio.to_thread(pair.tear)
        await store.commit(Update(kept.key, kept.revision, body("kept", by="lost")))
        for number in range(4):
            await store.commit(Create(pod(f"lost-{number}"), body("lost")))
        last = store.revision
    await asyncio.to_thread(pair.kill_primary)
    await asyncio.to_thread(pair.promote)
    return kept, last


async def test_who_has_met_the_new_primary_does_not_go_back_to_the_old_one(pair: Pair) -> None:
    """It comes back by itself after the fail-over, takes writes, and stands first in the address."""
    pair.follow(synchronous=False)
    url = resilient("DATABASE_URL", pair.url())
    alias = alias_to(url)
    async with Engine(url, QUICK) as store:
        pair.kill_primary()
        await asyncio.to_thread(pair.promote)
        (kept,) = await store.commit(Create(pod("kept"), body("kept")))
        assert await asyncio.to_thread(django_get, alias) == kept
        start_again(pair.primary)
        for _ in range(4):
            # Whatever is asked next, it is asked on new connections.
            await asyncio.to_thread(
                run,
                pair.standby.owner_url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'postgres' AND pid <> pg_backend_pid()",
            )
            assert await store.get(kept.key) == kept
        (changed,) = await store.commit(Update(kept.key, kept.revision, body("kept", by="new")))
        assert await store.get(kept.key) == changed
        with suppress(OperationalError):
            assert await asyncio.to_thread(django_get, alias) == changed
        assert store.histories_replaced == 1
    events = await asyncio.to_thread(run, pair.primary.owner_url, "SELECT count(*) FROM store_event")
    assert events == (0,)


def django_get(alias: str) -> Stored | None:
    """Over a connection of its own."""
    try:
        return get(pod("kept"), using=alias)
    finally:
        connections[alias].close()


@pytest.mark.parametrize("first", ["engine", "django"])
async def test_a_revision_of_the_lost_history_is_too_old_though_nobody_is_left_who_knew_it(
    pair: Pair, first: str
) -> None:
    """The timeline tells it: the first who comes begins an epoch far beyond, before anything is written or followed."""
    kept, last = await lost_history(pair)
    if first == "django":
        alias = alias_to(pair.url())
        (stored,) = await asyncio.to_thread(commit, [Create(pod("new"), body("new"))], using=alias)
        assert stored.revision > REVISIONS_AHEAD
    async with Engine(pair.url(), QUICK) as store:
        assert store.revision > REVISIONS_AHEAD
        # What a client may still hold of the old primary.
        for revision in range(kept.revision + 1, last + 1):
            with pytest.raises(RevisionTooOld):
                await anext(store.watch(PODS, since=revision))
            with pytest.raises(RevisionTooOld):
                await store.list(PODS, exact=revision)
        assert next(item.revision for item in (await store.list(PODS, at_least=last)).items) == kept.revision
        assert {item.key.name for item in (await store.list(PODS)).items} <= {"kept", "new"}
        # What was not lost can be changed by what was read of it.
        (changed,) = await store.commit(Update(kept.key, kept.revision, body("kept", by="new")))
        assert changed.revision > REVISIONS_AHEAD
        assert store.histories_replaced == 0, "it began in the new one"


async def test_a_server_that_knows_more_than_the_new_primary_forgets_it(pair: Pair) -> None:
    """Its cache is ahead of the database: it drops everything, ends its watches, and counts that."""
    async with Engine(pair.url(), QUICK) as store:
        (kept,) = await store.commit(Create(pod("kept"), body("kept")))
        await store.list(PODS)
        pair.follow(synchronous=False)
        await asyncio.to_thread(pair.tear)
        (ahead,) = await store.commit(Update(kept.key, kept.revision, body("kept", by="lost")))
        watch = store.watch(PODS, since=ahead.revision)
        reading = asyncio.create_task(anext(watch))
        await asyncio.to_thread(pair.kill_primary)
        with pytest.raises(Unavailable):
            # The standby is there, and is not asked: what it says may be old.
            await store.get(kept.key)
        await asyncio.to_thread(pair.promote)
        assert await store.get(kept.key) == kept
        assert await store.get(kept.key, cached=True) == kept
        with pytest.raises(RevisionTooOld):
            await asyncio.wait_for(reading, 300)
        with pytest.raises(RevisionTooOld):
            await anext(store.watch(PODS, since=ahead.revision))
        assert store.histories_replaced == 1


async def test_a_write_that_no_standby_has_confirmed_is_neither_acknowledged_nor_seen(pair: Pair) -> None:
    """With synchronous replication a primary alone says yes to nothing, however long it is asked."""
    pair.follow(synchronous=True)
    async with Engine(pair.url(), Options(write_seconds=300)) as store:
        (kept,) = await store.commit(Create(pod("kept"), body("kept")))
        # Nothing that ends a statement ends the wait.
        await asyncio.to_thread(pair.standby.stop)
        with pytest.raises(Unavailable), impatient(store):
            await store.commit(Update(kept.key, kept.revision, body("kept", by="unconfirmed")))
        assert await store.get(kept.key) == kept
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
        timeouts = await asyncio.to_thread(run, pair.primary.owner_url, waiting)
        assert timeouts[0] >= 1
        writer = store._committer._writer
        result = await writer.ask("SELECT current_setting('statement_timeout')")
        assert result.get_value(0, 0) == b"0"
        pair.standby.start()
        async with asyncio.timeout(300):
            while (found := await store.get(kept.key)) == kept:
                await asyncio.sleep(0.05)
        assert found is not None
        assert b"unconfirmed" in found.data


def test_an_address_of_several_hosts_leads_to_the_one_that_takes_writes(pair: Pair) -> None:
    """Whether its URL says so or not; Django's connections are led there as well."""
    pair.follow(synchronous=False)
    standby_first = re.sub(r"host=([^,&]+),([^,&]+)&.*", r"host=\2,\1", pair.url())
    url = resilient("DATABASE_URL", standby_first)
    for _ in range(4):
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (False,)
    with psycopg.connect(standby_first) as connection:
        assert connection.execute("SELECT pg_is_in_recovery()").fetchone() == (True,)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(resilient("DATABASE_URL", pair.standby.owner_url))
    alias = alias_to(url)
    with connections[alias].cursor() as cursor:
        cursor.execute("SELECT pg_is_in_recovery()")
        assert cursor.fetchone() == (False,)
    connections[alias].close()


def examined(settings: Any, url: str) -> tuple[str, str]:
    """What the doctor says first of the hosts in this URL."""
    settings.DATABASE_URL = resilient("DATABASE_URL", url)
    finding = next(iter(examination(["database-hosts"])))
    assert finding.name == "database-hosts"
    return finding.state, f"{finding.found} {finding.remedy}"


def test_the_doctor_sees_two_primaries_and_a_primary_that_waits_for_nobody(pair: Pair, settings: Any) -> None:
    """Nothing else does: whoever writes to the old one after a fail-over writes into a history that nobody has."""
    pair.follow(synchronous=False)
    assert examined(settings, pair.primary.owner_url)[0] == "ok"
    state, text = examined(settings, pair.url())
    assert (state, "waits for no standby" in text) == ("warning", True)
    pair.synchronize()
    state, text = examined(settings, pair.url())
    assert (state, "1 follow" in text) == ("ok", True)
    pair.tear()
    pair.promote()
    state, text = examined(settings, pair.url())
    assert state == "failed"
    old, new = (str(conninfo_to_dict(server.owner_url)["host"]) for server in (pair.primary, pair.standby))
    assert "2 hosts take writes" in text
    assert f"Stop {old} now" in text
    assert new in text
    pair.kill_primary()
    state, text = examined(settings, pair.url())
    assert (state, f"{old} does not answer" in text) == ("warning", True)
    pair.standby.stop()
    assert "none takes writes" in examined(settings, pair.url())[1]


def test_an_address_that_may_lead_to_a_standby_stops_the_start() -> None:
    with pytest.raises(ImproperlyConfigured, match="DATABASE_URL: target_session_attrs=any may lead to a standby"):
        resilient("DATABASE_URL", "postgresql://me@a,b/tenantry?target_session_attrs=any")
    url = "postgresql://me:p%40ss@a:5432,b:5433/tenantry?sslmode=verify-full&target_session_attrs=primary&connect_timeout=2"
    found = conninfo_to_dict(resilient("DATABASE_URL", url))
    assert found["host"] == "a,b"
    assert found["port"] == "5432,5433"
    assert found["password"] == "p@ss"
    assert (found["sslmode"], found["target_session_attrs"], found["connect_timeout"]) == (
        "verify-full",
        "primary",
        "2",
    )
    assert found["load_balance_hosts"] == "random"


def test_the_database_knows_the_numbers_of_the_code() -> None:
    text = import_module("store.migrations.0010_sizes_from_the_log").WRITE
    assert f"pg_sleep({LEASE_SECONDS})" in text
    assert f"+ {REVISIONS_AHEAD} AS begins" in text
    assert f"store_log_extend({EXTENT[0]}, {EXTENT[1]})" in text
