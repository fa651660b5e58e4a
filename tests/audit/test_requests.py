"""Records of API requests: batched, bounded, exact about refusals (P10)."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from importlib import import_module

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, transaction
from django.db.models import QuerySet, Sum
from hypothesis import given
from hypothesis import strategies as st
from psycopg import AsyncConnection
from psycopg.conninfo import make_conninfo

from audit.models import ApiRequest
from audit.requestlog import records as audit_requests
from audit.requestlog.partitions import partitions_prepare
from audit.requestlog.records import BOUND, REFUSALS_IN_FULL, RequestLog, RequestRecord
from audit.selectors import requests_of_tenant
from kube.authorization.decisions import Decision, Verdict
from portal.database.rights import as_owner
from store.supervision import Supervised, restarts

pytestmark = pytest.mark.django_db(transaction=True)


def conninfo() -> str:
    parameters = connection.get_connection_params()
    kept = {key: parameters[key] for key in ("dbname", "user", "host", "port") if parameters.get(key)}
    return make_conninfo(**kept)


ASIDE = "ALTER FUNCTION api_requests_partition(timestamptz) RENAME TO api_requests_partition_aside"
SILENT = """CREATE FUNCTION api_requests_partition(timestamptz) RETURNS SETOF text LANGUAGE sql
AS 'SELECT NULL::text WHERE false'"""
DROPPED = "DROP FUNCTION api_requests_partition(timestamptz)"
RESTORED = "ALTER FUNCTION api_requests_partition_aside(timestamptz) RENAME TO api_requests_partition"


def owned(*statements: str) -> None:
    """As the tables' owner."""
    with as_owner(), transaction.atomic(), connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def make_record(**fields) -> RequestRecord:
    values = {
        "created_at": datetime.now(UTC),
        "tenant": "acme",
        "space": "root:acme",
        "actor": "alice",
        "verb": "list",
        "path": "/api/v1/pods",
        "code": 200,
        "allowed": True,
        "ip_address": "192.0.2.1",
    }
    return RequestRecord(**{**values, **fields})


def kept() -> QuerySet[ApiRequest]:
    """What was written here: a server of other tests may run beside, and be spoken to."""
    return ApiRequest.objects.filter(ip_address="192.0.2.1")


def written(records: list[RequestRecord]) -> RequestLog:
    log = RequestLog(conninfo())

    async def run() -> None:
        writer = Supervised("request-log", log.run)
        writer.start()
        for record in records:
            log.put_nowait(record)
        await asyncio.sleep(0.4)
        await log.stop(writer.stop)

    asyncio.run(run())
    return log


def test_a_writer_that_fails_begins_anew_and_loses_nothing():
    """P10, GW13: of whatever it fails, here an answer of the database that it does not understand; and it is counted."""
    before = restarts["request-log"]
    log = RequestLog(conninfo())

    async def until(condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(300):
            while not condition():
                await asyncio.sleep(0.02)

    async def run() -> None:
        writer = Supervised("request-log", log.run)
        writer.start()
        log.put_nowait(make_record())
        await until(lambda: restarts["request-log"] > before)
        log.put_nowait(make_record(actor="bob"))
        await sync_to_async(owned)(DROPPED, RESTORED)
        await until(lambda: log.written == 2)
        await log.stop(writer.stop)

    owned(ASIDE, SILENT)
    try:
        asyncio.run(run())
    except BaseException:
        owned(DROPPED, RESTORED)
        raise
    assert sorted(kept().values_list("actor", flat=True)) == ["alice", "bob"]
    assert log.dropped == 0


def test_what_is_offered_again_after_a_lost_answer_is_written_once():
    """GW13: the database may have kept a batch whose answer never came."""
    first = make_record(request_id="0a1b2c3d-0000-4000-a000-000000000001")
    written([first])
    log = written([first, make_record(actor="bob")])
    assert log.written == 2
    assert sorted(kept().values_list("actor", flat=True)) == ["alice", "bob"]


def test_a_sum_whose_answer_was_lost_is_written_once_too():
    """15 A.3: refusals are counted exactly, whatever is cut."""
    asked = REFUSALS_IN_FULL + 30

    async def run() -> None:
        log = RequestLog(conninfo())
        for _ in range(asked):
            log.put_nowait(make_record(code=403, allowed=False, request_id=str(uuid.uuid4())))
        sums = list(log._more.values())
        async with await AsyncConnection.connect(conninfo(), autocommit=True) as connection:
            await log._copy(connection, [*log._rows, *sums])  # kept by the database, which nobody is told
            await log._flush(connection)
        assert (log.written, log.dropped) == (asked, 0)

    asyncio.run(run())
    assert kept().aggregate(Sum("count"))["count__sum"] == asked


def test_a_refusal_keeps_what_each_step_said():
    """AZ11, GW9: bounded, and without what looks like a token."""
    steps = [
        Decision(Verdict.NO_OPINION, "suspension", "nothing is locked here"),
        Decision(Verdict.DENY, "Webhook", "Bearer abcdefghijkl " + "x" * 5000, 'ClusterRole "a"'),
    ]
    written([make_record(), make_record(allowed=False, code=403, trace=tuple(steps)), *[
        make_record(allowed=False, code=403, actor="eve", trace=tuple(steps * 50)) for _ in range(REFUSALS_IN_FULL + 5)
    ]])  # fmt: skip
    assert kept().get(allowed=True).trace is None
    trace = kept().get(allowed=False, actor="alice").trace
    assert [(said["step"], said["decision"]) for said in trace] == [("suspension", "no opinion"), ("Webhook", "deny")]
    assert trace[1]["rule"] == 'ClusterRole "a"'
    assert "abcdefghijkl" not in trace[1]["reason"] and len(trace[1]["reason"]) == 512
    rows = kept().filter(actor="eve")
    assert max(len(row.trace or ()) for row in rows) == audit_requests.TRACE_MAX
    assert rows.get(count__gt=1).trace is None, "a sum of refusals is of no single trace"


def test_a_session_of_hours_is_recorded_like_others():
    """P10: whoever holds a shell or a watch open for long ends nobody's records, nor their own."""
    hours = 3 * 3600 * 1_000_000
    log = written([make_record(), make_record(verb="watch", latency=hours), make_record(actor="bob")])
    assert (log.written, log.dropped) == (3, 0)
    assert kept().get(verb="watch").latency == audit_requests.LONGEST


def test_a_record_that_the_database_never_takes_holds_up_no_other():
    """It is counted as dropped, and what was offered before and after it is kept."""
    log = written([make_record(), make_record(actor="eve", code=70_000), make_record(actor="bob")])
    assert (log.written, log.dropped) == (2, 1)
    assert sorted(kept().values_list("actor", flat=True)) == ["alice", "bob"]


def test_requests_are_written_within_the_interval():
    log = written([make_record(path=f"/p/{number}") for number in range(2500)])
    assert (log.written, log.dropped) == (2500, 0)
    page = requests_of_tenant("acme", limit=100)
    assert len(page.rows) == 100
    assert page.next
    assert len(requests_of_tenant("acme", after=page.next, limit=200).rows) == 200
    assert requests_of_tenant("other").rows == []


def test_a_flood_of_refusals_is_sampled_and_counted_exactly():
    """DOS-08."""
    flood = [make_record(code=403, allowed=False, path=f"/p/{number}", actor="eve") for number in range(10_000)]
    written([*flood, make_record(code=403, allowed=False, actor="bob")])
    refused = kept().filter(allowed=False)
    assert refused.aggregate(Sum("count"))["count__sum"] == 10_001
    assert refused.filter(actor="eve").count() <= 2 * (REFUSALS_IN_FULL + 1)
    assert refused.filter(actor="bob").count() == 1


def test_invented_names_do_not_fill_the_memory():
    flood = [make_record(code=401, allowed=False, actor=f"eve{number}", tenant="") for number in range(30_000)]
    log = RequestLog("")
    for record in flood:
        log.put_nowait(record)
    assert len(log._seen) <= audit_requests._KINDS + 10
    assert len(log._rows) + sum(record.times for record in log._more.values()) == 30_000


def test_allowed_requests_are_dropped_and_counted_while_refusals_are_kept():
    log = RequestLog("")
    for _ in range(BOUND + 5):
        log.put_nowait(make_record())
    log.put_nowait(make_record(code=403, allowed=False))
    assert log.dropped == 5
    assert len(log._rows) == BOUND
    assert sum(record.times for record in log._more.values()) == 1


def test_what_strangers_may_ask_takes_no_tenants_place():
    """DOS-08: probes need no credentials."""
    log = RequestLog("")
    for _ in range(BOUND + 5):
        log.put_nowait(make_record(tenant="", actor="", verb="get", path="/healthz"))
    assert len(log._rows) == REFUSALS_IN_FULL
    assert sum(record.times for record in log._more.values()) == BOUND + 5 - REFUSALS_IN_FULL
    log.put_nowait(make_record(verb="create"))
    assert (log.dropped, log._rows[-1].verb) == (0, "create")


def test_a_flood_that_fills_the_day_is_counted_and_others_are_written_as_before():
    """DOS-08: nobody erases what others did by what they do. Writes are no way around it."""
    written([make_record()])
    full = partition_sizes()[f"api_requests_{datetime.now(UTC):%Y%m%d}"]

    def flood(log: RequestLog) -> None:
        for number in range(900):
            refused = number % 3 == 0
            log.put_nowait(
                make_record(
                    tenant="mallory",
                    actor=f"m{number % 2}" if number < 800 else f"invented{number}",
                    verb="create",
                    path=f"/api/v1/namespaces/x/configmaps/{number}",
                    code=403 if refused else 201,
                    allowed=not refused,
                )
            )

    async def run() -> None:
        log = RequestLog(conninfo(), day_bytes=full)
        flood(log)
        log.put_nowait(make_record(tenant="quiet"))
        await log._flush_once()
        for _ in range(3):
            log.put_nowait(make_record(tenant="quiet", verb="delete"))
            await log._flush_once()  # it looks what the day has taken
        before = await sync_to_async(kept().filter(tenant="mallory").count)()
        flood(log)
        for _ in range(30):
            log.put_nowait(make_record(tenant="quiet", verb="update"))
        assert len(log._sums_beyond) <= audit_requests._KINDS_BEYOND + 2
        await log._flush_once()
        assert log.dropped == 0
        after = await sync_to_async(kept().filter(tenant="mallory").count)()
        assert after - before <= audit_requests._KINDS_BEYOND + 2

    asyncio.run(run())
    mallorys = kept().filter(tenant="mallory")
    assert mallorys.aggregate(Sum("count"))["count__sum"] == 1800
    assert mallorys.filter(code=403).aggregate(Sum("count"))["count__sum"] == 600
    assert mallorys.filter(actor="m1").aggregate(Sum("count"))["count__sum"] == 800
    assert kept().filter(tenant="quiet", count=1).count() == 34


def test_hostile_texts_fit_and_hold_no_secret():
    written(
        [make_record(path="/x\0" + "é" * 5000, actor="a" * 9999, user_agent="Bearer abcdefghijklmnop", tenant="acme")]
    )
    row = kept().get()
    assert len(row.path) == 1024
    assert "abcdefghijklmnop" not in row.user_agent


def test_old_days_are_dropped_and_new_ones_made():
    now = datetime(2021, 6, 15, 12, tzinfo=UTC)  # no day is dropped before it is over by the database's own clock
    written([make_record(created_at=now - timedelta(days=91)), make_record(created_at=now)])
    assert kept().count() == 2
    assert partitions_prepare(now=now) == ["api_requests_20210316"]
    assert kept().count() == 1
    assert partitions_prepare(now=now) == []
    # Who wrote there before asks anew where it goes.
    written([make_record(created_at=now - timedelta(days=91))])
    assert kept().count() == 2


def test_a_partition_that_is_gone_is_made_anew():
    day = datetime(2021, 3, 1, tzinfo=UTC)

    async def run() -> None:
        log = RequestLog(conninfo())
        for _ in range(2):
            log.put_nowait(make_record(created_at=day))
            await log._flush_once()
            assert await sync_to_async(kept().count)() == 1
            await sync_to_async(partitions_prepare)(now=day + timedelta(days=400))

    asyncio.run(run())
    assert kept().count() == 0


def test_the_oldest_days_go_when_all_take_too_much(settings):
    """No bound in days holds a flood."""
    now = datetime(2021, 6, 15, 12, tzinfo=UTC)
    days = [now - timedelta(days=number) for number in range(4)]
    written([make_record(created_at=day, path="/" + "x" * 900) for day in days for _ in range(50)])
    sizes = partition_sizes()
    others = sum(size for name, size in sizes.items() if not name.startswith("api_requests_202106"))
    kept_two = others + sum(size for name, size in sizes.items() if name >= "api_requests_20210614")
    settings.API_REQUESTS_KEEP_BYTES = kept_two
    # The two days that are made for what follows are a little more.
    gone = partitions_prepare(now=now)
    assert gone and gone == sorted(gone)
    assert gone[0] == min(sizes)
    assert sum(partition_sizes().values()) <= kept_two
    settings.API_REQUESTS_KEEP_BYTES = 0
    partitions_prepare(now=datetime.now(UTC))
    assert {name for name in partition_sizes() if name < f"api_requests_{datetime.now(UTC):%Y%m%d}"} == set()
    written([make_record()])
    partitions_prepare(now=datetime.now(UTC))
    assert kept().count() == 1, "today's stay"


def partition_sizes() -> dict[str, int]:
    with connection.cursor() as cursor:
        cursor.execute("SELECT name, pg_total_relation_size(quote_ident(name)) FROM api_requests_partitions()")
        return dict(cursor.fetchall())


def test_months_of_the_version_before_take_what_is_theirs_until_they_are_past():
    with as_owner(), connection.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE api_requests_202003 PARTITION OF api_requests FOR VALUES FROM ('2020-03-01Z') TO ('2020-04-01Z')"
        )
        cursor.execute("GRANT INSERT ON api_requests_202003 TO tenantry")
    inside, after = datetime(2020, 3, 31, 23, 59, tzinfo=UTC), datetime(2020, 4, 1, tzinfo=UTC)
    written([make_record(created_at=inside), make_record(created_at=after)])
    assert {"api_requests_202003", "api_requests_20200401"} <= partition_sizes().keys()
    assert kept().count() == 2
    partitions_prepare(now=inside + timedelta(days=90))
    assert "api_requests_202003" in partition_sizes(), "its last day is within the time"
    assert partitions_prepare(now=after + timedelta(days=92)) == ["api_requests_202003", "api_requests_20200401"]


def test_a_step_back_to_the_version_before_keeps_the_requests():
    days = [datetime(2020, month, day, tzinfo=UTC) for month, day in ((1, 1), (1, 31), (2, 29))]
    written([make_record(created_at=day) for day in days])
    step = import_module("audit.migrations.0009_days")
    with as_owner(), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(step.BACKWARD)
        cursor.execute(
            "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE relname LIKE 'api_requests_%%'"
        )
        assert {"api_requests_202001", "api_requests_202002"} <= {name for (name,) in cursor.fetchall()}
        cursor.execute("SELECT api_requests_partition(%s)", [days[0]])
        assert kept().count() == 3
        cursor.execute(step.FORWARD)
        assert kept().count() == 3
        # The rights to the functions are given after all steps of a migration.
        transaction.set_rollback(True)


@given(
    reads=st.lists(
        st.tuples(
            st.sampled_from(["ann", "bob"]),
            st.sampled_from(["get", "list", "watch"]),
            st.sampled_from(["root:acme", "root:acme:lab"]),
            st.sampled_from(["/api/v1/namespaces/web/pods/a", "/api/v1/namespaces/web/pods/b", "/api/v1/nodes"]),
        ),
        max_size=60,
    ),
    in_full=st.integers(min_value=0, max_value=5),
)
def test_sampled_reads_are_counted_by_person_verb_space_and_namespace(reads, in_full):
    """15 A.3: what is left out is what was read, never who did, where and how often."""
    log = RequestLog("", reads_in_full=in_full)
    for actor, verb, space, path in reads:
        log.put_nowait(make_record(actor=actor, verb=verb, space=space, path=path))
    rows = [*log._rows, *log._more.values()]

    def namespace(path: str) -> str:
        return "web" if "/namespaces/web" in path else ""

    told = Counter[tuple[str, ...]]()
    for row in rows:
        told[row.actor, row.verb, row.space, namespace(row.path)] += row.times
    asked = Counter((actor, verb, space, namespace(path)) for actor, verb, space, path in reads)
    assert told == asked
    full = Counter((row.actor, row.verb, row.space, namespace(row.path)) for row in log._rows)
    assert full == {kind: min(count, in_full) for kind, count in asked.items() if in_full}


def test_writes_and_refusals_are_never_sampled_as_reads():
    log = RequestLog("", reads_in_full=0)
    for verb in ("create", "update", "patch", "delete", "deletecollection", "bind"):
        log.put_nowait(make_record(verb=verb))
    log.put_nowait(make_record(verb="get", code=403, allowed=False))
    assert len(log._rows) == 7
    assert not log._more


def test_offering_takes_a_few_steps_however_much_is_there():
    """It is done on every request's way: counted in calls, not in time."""
    log, record, calls = RequestLog(""), make_record(), 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    for _ in range(10_000):
        log.put_nowait(record)
    sys.setprofile(count)
    try:
        log.put_nowait(record)
    finally:
        sys.setprofile(None)
    assert calls < 20
