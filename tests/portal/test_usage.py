"""What tenants used: counted every hour, shown to them and to operators, given out as files (AD7)."""

from __future__ import annotations

import csv
import io
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import groupby
from typing import Any
from uuid import uuid4

import pytest
import time_machine
from django.db import connection
from django.urls import reverse
from django.utils import timezone
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from kube.quota.charges import Price
from store import synchronous
from store.types import Create, Key, Update
from tenants.models import Phase, Status, StreamCount, Tenant, UsageHour, User, Workspace
from tenants.quotas import tenant_quota_key
from tenants.reconciler.deletion import tenants_end
from tenants.services import prices_change
from tenants.services.tenants import tenant_create, tenant_delete
from tenants.usage import MEASURES, openmetrics_lines, quotas_nearly_full
from tenants.usagesampling import KEPT, usage_forget, usage_sample
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send
from tests.tenants.conftest import OPERATOR

NOW = timezone.now().astimezone(UTC).replace(minute=20, second=0, microsecond=0)
HOUR = NOW.replace(minute=0) - timedelta(hours=1)
"""The last one that is over."""


@pytest.fixture(autouse=True)
def older(acme: House, globex: House) -> None:
    """The tenants have been there for long."""
    Tenant.objects.update(created_at=NOW - timedelta(days=400))


def asked(namespace: str, *, at: datetime = HOUR, **fields: Any) -> None:
    path = f"/clusters/root:acme/api/v1/namespaces/{namespace}/pods"
    factories.api_request("acme", created_at=at + timedelta(minutes=30), path=path, space="root:acme", **fields)


def stored(namespace: str, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "uid": str(uuid4())}}
    synchronous.commit([Create(Key("root:acme", "", "configmaps", namespace, name), body)])


def hour_of(namespace: str = "", at: datetime = HOUR) -> UsageHour:
    return UsageHour.objects.get(tenant="acme", namespace=namespace, hour=at)


def test_an_hour_is_counted_for_the_tenant_and_for_its_workspaces_and_once(acme: House, globex: House) -> None:
    inside = acme.workspace.k8s_namespace
    asked(inside, allowed=True, code=200, count=3)
    asked(inside, allowed=False, code=403, count=2)
    asked("elsewhere", allowed=True, code=200, count=5)
    asked(inside, at=HOUR - timedelta(hours=1), allowed=True, code=200, count=70)
    factories.credential(acme.workspace, acme.editor, issued_at=HOUR + timedelta(minutes=1))
    stored(inside, "a")
    stored("elsewhere", "b")
    here = {"process": uuid4(), "tenant": "acme", "seen_at": NOW}
    StreamCount.objects.create(**here, namespace=inside, open=4)
    StreamCount.objects.create(**here, namespace="", open=1)
    there = {"metadata": {"name": inside}, "counted": {"requests.storage": "2Gi"}, "reserved": {}, "objects": 7}
    synchronous.commit([Create(Key("root:acme", "tenancy.tenantry.io", "placedusages", "", inside), there)])
    assert usage_sample(now=NOW) == [HOUR]
    whole, workspace, foreign = hour_of(), hour_of(inside), UsageHour.objects.get(tenant="globex", namespace="")
    assert (whole.requests, whole.refused, workspace.requests, workspace.refused) == (10, 2, 5, 2)
    assert (whole.credentials, workspace.credentials, foreign.credentials) == (1, 1, 0)
    assert (whole.streams, workspace.streams, foreign.streams) == (5, 4, 0)
    assert (whole.objects_placed, workspace.objects_placed, foreign.objects_placed) == (7, 7, 0)
    assert workspace.used == {"requests.storage": 2 * 2**30}
    assert workspace.objects_stored == 1 and (workspace.bytes_stored or 0) > 50
    assert (whole.objects_stored or 0) >= 2 and (whole.bytes_stored or 0) > (workspace.bytes_stored or 0)
    stored(inside, "later")
    assert usage_sample(now=NOW + timedelta(minutes=5)) == []
    assert hour_of(inside).objects_stored == 1
    # A tenant's rows end with it; what it used is kept.
    assert not UsageHour.objects.filter(tenant="system").exists()


def test_the_hour_that_is_not_over_and_settled_is_left(acme: House) -> None:
    assert usage_sample(now=NOW.replace(minute=4)) == [HOUR - timedelta(hours=1)]
    assert usage_sample(now=NOW.replace(minute=5)) == [HOUR]


def test_hours_that_nobody_counted_are_counted_later(acme: House) -> None:
    """What happened then is known; what was there then is not, and not made up."""
    usage_sample(now=NOW - timedelta(hours=3))
    asked(acme.workspace.k8s_namespace, at=HOUR - timedelta(hours=1), allowed=True, code=200, count=7)
    assert usage_sample(now=NOW) == [HOUR - timedelta(hours=2), HOUR - timedelta(hours=1), HOUR]
    missed = hour_of(at=HOUR - timedelta(hours=1))
    assert (missed.requests, missed.objects_stored, missed.streams, missed.used) == (7, None, None, {})
    assert (hour_of().objects_stored, hour_of().objects_placed) != (None, None)
    assert missed.objects_placed is None
    UsageHour.objects.all().delete()
    usage_sample(now=NOW - timedelta(days=9))
    assert len(usage_sample(now=NOW)) == 25


@pytest.mark.django_db(transaction=True)
def test_several_that_count_at_once_count_once(acme: House) -> None:
    def sample(_: int) -> None:
        try:
            usage_sample(now=NOW)
        finally:
            connection.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(sample, range(4)))
    assert UsageHour.objects.filter(tenant="acme", namespace="").count() == 1


def quota_used(pods: int, hard: str = "100") -> None:
    key = tenant_quota_key("acme")
    body = {
        "metadata": {"name": "quota", "uid": "u"},
        "spec": {"hard": {"pods": hard, "requests.cpu": "4"}},
        "status": {"used": {"pods": str(pods), "requests.cpu": "1500m"}},
    }
    before = synchronous.get(key)
    synchronous.commit([Create(key, body) if before is None else Update(key, before.revision, body)])


def test_the_use_of_the_quota_is_kept_and_tells_when_it_will_be_full(acme: House) -> None:
    begin = NOW - timedelta(hours=30)
    for number in range(30):
        quota_used(40 + number)
        usage_sample(now=begin + timedelta(hours=number + 1))
    assert hour_of().used == {"pods": 69, "requests.cpu": 1.5}
    assert hour_of().hard == {"pods": 100, "requests.cpu": 4}
    seen = signed_in(acme.viewer).get(reverse("tenant-quota", args=["acme"])).content.decode()
    assert "at this rate full in 31 hours" in seen
    assert seen.count("at this rate") == 1, "of what does not grow nothing is said"


def test_members_read_theirs_and_nobody_elses_and_from_the_tenants_beginning(acme: House, globex: House) -> None:
    asked(acme.workspace.k8s_namespace, allowed=True, code=200, count=12)
    usage_sample(now=NOW)
    UsageHour.objects.create(tenant="acme", hour=NOW - timedelta(days=401), requests=99)
    since = f"{NOW - timedelta(hours=3):%Y-%m-%dT%H:%M:%SZ}"
    path = f"tenants/acme/usage/hours?since={since}"
    rows = send(bearer(acme.viewer), "GET", path).json()["results"]
    assert [(row["requests"], row["namespace"]) for row in rows] == [(12, "")]
    inside = send(signed_in(acme.viewer), "GET", f"{path}&namespace={acme.workspace.k8s_namespace}").json()["results"]
    assert [row["requests"] for row in inside] == [12]
    year = f"{NOW - timedelta(days=402):%Y-%m-%dT%H:%M:%SZ}"
    until = f"{NOW - timedelta(days=400, hours=2):%Y-%m-%dT%H:%M:%SZ}"
    earlier = send(signed_in(acme.owner), "GET", f"tenants/acme/usage/hours?since={year}&until={until}")
    assert earlier.json()["results"] == []
    assert send(signed_in(acme.owner), "GET", f"tenants/acme/usage/hours?since={year}").status_code == 400
    assert send(signed_in(globex.owner), "GET", path).status_code == 404
    for page in ("tenant-usage", "tenant-usage-export"):
        assert signed_in(globex.owner).get(reverse(page, args=["acme"])).status_code == 404
    seen = signed_in(acme.viewer).get(reverse("tenant-usage", args=["acme"])).content.decode()
    assert acme.workspace.k8s_namespace in seen and "12 allowed" in seen


def test_the_hours_are_given_out_as_csv_and_openmetrics(acme: House, operator: User) -> None:
    quota_used(3)
    asked("x", allowed=True, code=200, count=2)
    usage_sample(now=NOW)
    client = signed_in(operator)
    answer = client.get(
        f"/api/v1/tenants/acme/usage/hours?format=csv&until={NOW + timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    )
    assert answer.headers["Content-Type"].startswith("text/csv")
    (row,) = csv.DictReader(io.StringIO(answer.content.decode()))
    assert (row["tenant"], row["requests"], row["used"]) == ("acme", "2", "pods=3 requests.cpu=1.5")
    told = client.get(reverse("tenant-usage-export", args=["acme"]), {"format": "openmetrics"})
    assert told.headers["Content-Type"].startswith("application/openmetrics-text")
    text = told.content.decode()
    assert f'tenantry_usage_requests{{tenant="acme",namespace=""}} 2 {int(HOUR.timestamp())}\n' in text
    assert 'tenantry_usage_quota_used{tenant="acme",namespace="",resource="pods"} 3 ' in text
    assert text.endswith("# EOF\n") and text.count("# TYPE") == text.count("# HELP")
    assert client.get("/api/v1/tenants/acme/usage/hours?format=pdf").status_code == 400


@pytest.mark.parametrize(("hours", "names", "namespaces"), [(2, 2, 2), (1, 3, 1), (3, 1, 3), (5, 4, 2)], ids=str)
def test_what_is_given_out_is_read_by_prometheus(
    acme: House, operator: User, hours: int, names: int, namespaces: int
) -> None:
    """Whatever was counted: each family and each metric in one piece, its hours in order, none twice."""
    resources = ["requests.cpu", "pods", "count/deployments.apps", "fast.storageclass.storage.k8s.io/requests.storage"]
    expected: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    moments = [HOUR - timedelta(hours=each) for each in range(hours)]
    for back, moment in enumerate(moments):
        for number in range(namespaces):
            namespace = f"acme-{number}" if number else ""
            # As JSON keeps them: in no order that a reader could rely on; and not every hour bounds the same.
            used = dict.fromkeys(resources[: max(1, names - back % 2)], 1.5 * (back + number))
            UsageHour.objects.create(
                tenant="acme",
                namespace=namespace,
                hour=moment,
                requests=back,
                objects_stored=None if back % 2 else 7,
                used=used,
                hard=dict.fromkeys(reversed(used), 40),
            )
            at = int(moment.timestamp())
            expected.setdefault(("tenantry_usage_requests", namespace, ""), []).insert(0, (at, back))
            for name, value in used.items():
                expected.setdefault(("tenantry_usage_quota_used", namespace, name), []).insert(0, (at, value))
    # One file is of one workspace, or of the tenant as a whole; what makes it takes the hours of several as well.
    files = [
        signed_in(operator)
        .get("/api/v1/tenants/acme/usage/hours", {"format": "openmetrics", "namespace": f"acme-{each}" if each else ""})
        .content.decode()
        for each in range(namespaces)
    ]
    told = "".join(openmetrics_lines(UsageHour.objects.order_by("hour", "namespace")))
    assert told.count("\n") == len(files[0].splitlines()) + sum(file.count("\ntenantry_") for file in files[1:])
    for file in files:
        assert set(file.splitlines()) <= set(told.splitlines())
        assert list(text_string_to_metric_families(file))
    families = list(text_string_to_metric_families(told))
    assert len({family.name for family in families}) == len(families) == len(MEASURES) + 2
    found: dict[tuple[str, str, str], list[tuple[int, float]]] = {}
    for family in families:
        assert (family.type, bool(family.documentation)) == ("gauge", True)
        runs = [series for series, _ in groupby(tuple(sorted(sample.labels.items())) for sample in family.samples)]
        assert len(runs) == len(set(runs)), f"{family.name}: each metric is in one piece"
        for sample in family.samples:
            assert sample.labels["tenant"] == "acme"
            metric = family.name, sample.labels["namespace"], sample.labels.get("resource", "")
            found.setdefault(metric, []).append((int(float(sample.timestamp)), sample.value))
    assert {metric: found.get(metric) for metric in expected} == expected
    assert all(samples == sorted(set(samples)) for samples in found.values())


def test_a_year_is_kept(acme: House) -> None:
    moments = [NOW - KEPT + timedelta(hours=each) for each in (-30, -1, 1, 30)]
    UsageHour.objects.bulk_create(UsageHour(tenant="acme", hour=moment) for moment in moments)
    assert usage_forget(now=NOW) == 2
    assert usage_forget(now=NOW) == 0
    assert sorted(UsageHour.objects.values_list("hour", flat=True)) == moments[2:]


def minutes(number: int) -> datetime:
    return HOUR + timedelta(minutes=number)


def ended(name: str, *, at: datetime) -> None:
    """The tenant's last workspace is gone, and the worker ends it."""
    Workspace.objects.filter(tenant_id=name).update(status=Status.DELETED, phase=Phase.DELETED)
    with time_machine.travel(at, tick=False):
        tenant_delete(actor=OPERATOR, name=name)
        assert tenants_end() == 1


def test_a_namesake_reads_and_pays_its_own_alone_within_the_hour_in_which_the_name_changed_hands(
    acme: House, operator: User
) -> None:
    """Three customers bear a name in one hour: each is counted from its beginning on, and to its end."""
    prices_change(actor=OPERATOR, prices=[Price("requests", Decimal(1), 1)], now=HOUR.replace(day=1))
    people = [factories.user(f"owner-{number}@initech.test") for number in range(3)]
    for number, owner in enumerate(people):
        with time_machine.travel(minutes(1 + 20 * number), tick=False):
            tenant_create(actor=OPERATOR, name="initech", owner=owner)
        factories.api_request("initech", created_at=minutes(5 + 20 * number), count=10**number, allowed=number > 0)
        if number < 2:
            ended("initech", at=minutes(18 + 20 * number))
    assert usage_sample(now=NOW) == [HOUR]
    reader = signed_in(people[2])
    told = reader.get("/api/v1/tenants/initech/usage/").json()
    assert (told["requests"], told["refused"]) == (100, 0)
    since = f"{HOUR - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    hours = reader.get(f"/api/v1/tenants/initech/usage/hours?since={since}").json()["results"]
    assert [row["requests"] for row in hours] == [100]
    month = f"{HOUR:%Y-%m}"
    assert reader.get(f"/api/v1/tenants/initech/charges?month={month}").json()["total"] == "100.00"
    # Whoever bore the name, it is one bill for operators, and nobody used anything for nothing.
    bills = signed_in(operator).get(f"/api/v1/charges/?month={month}").json()["results"]
    assert [bill["total"] for bill in bills if bill["tenant"] == "initech"] == ["111.00"]
    assert [row.requests for row in UsageHour.objects.filter(tenant="initech").order_by("hour")] == [1, 10, 100]


def test_who_ends_is_counted_to_the_end_however_long_the_workers_were_away(acme: House, globex: House) -> None:
    usage_sample(now=NOW - timedelta(hours=4))
    for back in range(4):
        asked("x", at=HOUR - timedelta(hours=back), allowed=True, code=200, count=10**back)
    asked("x", at=NOW.replace(minute=0) - timedelta(minutes=20), allowed=True, code=200, count=70_000)
    factories.credential(acme.workspace, acme.editor, issued_at=minutes(61))
    ended("acme", at=NOW)
    last = NOW.replace(minute=0)
    rows = dict(UsageHour.objects.filter(tenant="acme", namespace="").values_list("hour", "requests"))
    assert rows == {
        HOUR - timedelta(hours=4): 0,
        HOUR - timedelta(hours=3): 1000,
        HOUR - timedelta(hours=2): 100,
        HOUR - timedelta(hours=1): 10,
        HOUR: 1,
        last: 70_000,
    }
    assert hour_of(at=last).credentials == 1
    # For the others those hours are not counted by that.
    quota_used(99)
    assert usage_sample(now=NOW + timedelta(hours=1)) == [HOUR - timedelta(hours=each) for each in (3, 2, 1, 0, -1)]
    assert UsageHour.objects.filter(tenant="globex", namespace="").count() == 6


def test_a_beginning_or_an_end_within_the_hour_hides_nobodys_full_quota(acme: House) -> None:
    """The hour that was counted last is that of those who live, whoever began or ended since."""
    quota_used(99)
    usage_sample(now=NOW)
    full = [("acme", "pods", 0.99)]
    assert quotas_nearly_full(0.9, limit=9) == full
    with time_machine.travel(NOW, tick=False):
        tenant_create(actor=OPERATOR, name="initech", owner=factories.user("owner@initech.test"))
    ended("initech", at=NOW + timedelta(minutes=10))
    assert quotas_nearly_full(0.9, limit=9) == full
    with time_machine.travel(NOW + timedelta(minutes=20), tick=False):
        tenant_create(actor=OPERATOR, name="initech", owner=factories.user("second@initech.test"))
    usage_sample(now=NOW + timedelta(hours=1))
    assert quotas_nearly_full(0.9, limit=9) == full
