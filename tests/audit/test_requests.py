"""Records of API requests: batched, bounded, exact about refusals (P10)."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta

import pytest
from django.db import connection
from django.db.models import QuerySet, Sum
from psycopg.conninfo import make_conninfo

from audit import requests as audit_requests
from audit.models import ApiRequest
from audit.partitions import partitions_prepare
from audit.requests import BOUND, REFUSALS_IN_FULL, RequestLog, RequestRecord
from audit.selectors import requests_of_tenant
from kube.authorization.decisions import Decision, Verdict

pytestmark = pytest.mark.django_db(transaction=True)


def conninfo() -> str:
    parameters = connection.get_connection_params()
    kept = {key: parameters[key] for key in ("dbname", "user", "host", "port") if parameters.get(key)}
    return make_conninfo(**kept)


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
        log.start()
        for record in records:
            log.put_nowait(record)
        await asyncio.sleep(0.4)
        await log.stop()

    asyncio.run(run())
    return log


def test_what_is_offered_again_after_a_lost_answer_is_written_once():
    """GW13: the database may have kept a batch whose answer never came."""
    first = make_record(request_id="0a1b2c3d-0000-4000-a000-000000000001")
    written([first])
    log = written([first, make_record(actor="bob")])
    assert log.written == 2
    assert sorted(kept().values_list("actor", flat=True)) == ["alice", "bob"]


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
    assert len(log._rows) + sum(record.count for record in log._more.values()) == 30_000


def test_allowed_requests_are_dropped_and_counted_while_refusals_are_kept():
    log = RequestLog("")
    for _ in range(BOUND + 5):
        log.put_nowait(make_record())
    log.put_nowait(make_record(code=403, allowed=False))
    assert log.dropped == 5
    assert len(log._rows) == BOUND
    assert sum(record.count for record in log._more.values()) == 1


def test_what_strangers_may_ask_takes_no_tenants_place():
    """DOS-08: probes need no credentials."""
    log = RequestLog("")
    for _ in range(BOUND + 5):
        log.put_nowait(make_record(tenant="", actor="", verb="get", path="/healthz"))
    assert len(log._rows) == REFUSALS_IN_FULL
    assert sum(record.count for record in log._more.values()) == BOUND + 5 - REFUSALS_IN_FULL
    log.put_nowait(make_record(verb="create"))
    assert (log.dropped, log._rows[-1].verb) == (0, "create")


def test_hostile_texts_fit_and_hold_no_secret():
    written(
        [make_record(path="/x\0" + "é" * 5000, actor="a" * 9999, user_agent="Bearer abcdefghijklmnop", tenant="acme")]
    )
    row = kept().get()
    assert len(row.path) == 1024
    assert "abcdefghijklmnop" not in row.user_agent


def test_old_months_are_dropped_and_new_ones_made(settings):
    now = datetime(2021, 6, 15, tzinfo=UTC)  # no month is dropped before it is over by the database's own clock
    written([make_record(created_at=now - timedelta(days=400)), make_record(created_at=now)])
    assert kept().count() == 2
    assert "api_requests_202005" in partitions_prepare(now=now)
    assert kept().count() == 1
    assert partitions_prepare(now=now) == []


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
