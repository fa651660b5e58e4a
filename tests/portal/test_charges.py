"""The charges of a month: prices that operators set, bills for them and for the tenant (AD7)."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

from django.test import Client
from django.urls import reverse

from audit.models import AuditEntry
from kube.quota.charges import Price
from tenants.models import Tenant, UsageHour, User
from tenants.services import prices_change
from tests.portal.conftest import House, signed_in
from tests.tenants.conftest import OPERATOR

MONTH = datetime(2026, 2, 1, tzinfo=UTC)
PRICES = [Price("requests", Decimal("0.40"), 1000), Price("requests.cpu", Decimal("0.05"), 1)]


def used(tenant: str, *hours: tuple[datetime, int, float], namespace: str = "") -> None:
    UsageHour.objects.bulk_create(
        UsageHour(tenant=tenant, namespace=namespace, hour=hour, requests=requests, used={"requests.cpu": cpu})
        for hour, requests, cpu in hours
    )


def put(client: Client, prices: list[dict[str, Any]]) -> Any:
    return client.put("/api/v1/prices/", {"prices": prices}, content_type="application/json")


def filled() -> None:
    Tenant.objects.update(created_at=MONTH - timedelta(days=90))
    used("acme", (MONTH, 1000, 2.5), (MONTH + timedelta(days=27, hours=23), 500, 1.5))
    used("acme", (MONTH - timedelta(hours=1), 7000, 70), (MONTH + timedelta(days=28), 7000, 70))
    used("acme", (MONTH, 900, 2), namespace="acme-web")
    used("globex", (MONTH, 10_000, 0))
    used("gone", (MONTH, 2500, 1))
    prices_change(actor=OPERATOR, prices=PRICES, now=MONTH)


def test_the_page_says_which_prices_a_month_is_charged_by(acme: House, operator: User) -> None:
    client = signed_in(operator)
    assert "by the prices of now" in client.get("/charges/").content.decode()
    over = client.get("/charges/?month=2026-02").content.decode()
    assert "by the prices that held when it ended" in over
    assert "of now" not in over


def test_a_month_is_charged_by_its_hours_and_whoever_has_ended_is_too(
    acme: House, globex: House, operator: User
) -> None:
    filled()
    client = signed_in(operator)
    first = client.get("/api/v1/charges/?month=2026-02&limit=2").json()
    assert [(each["tenant"], each["total"]) for each in first["results"]] == [("acme", "0.80"), ("globex", "4.00")]
    assert first["results"][0]["lines"] == [
        {"measure": "requests", "quantity": "1500", "amount": "0.400000", "per": 1000, "cost": "0.60"},
        {"measure": "requests.cpu", "quantity": "4.0", "amount": "0.050000", "per": 1, "cost": "0.20"},
    ]
    second = client.get(first["next"]).json()
    assert [(each["tenant"], each["total"]) for each in second["results"]] == [("gone", "1.05")]
    assert second["next"] is None
    for answer in (
        client.get("/api/v1/charges/?month=2026-02&format=csv"),
        client.get(reverse("charges"), {"month": "2026-02", "format": "csv"}),
    ):
        rows = list(csv.DictReader(io.StringIO(b"".join(answer).decode())))
        assert [(row["tenant"], row["measure"], row["cost"]) for row in rows][-2:] == [
            ("gone", "requests", "1.00"),
            ("gone", "requests.cpu", "0.05"),
        ]
    page = client.get(reverse("charges"), {"month": "2026-02"}).content.decode()
    assert "Charges of 2026-02" in page and "4.00" in page
    assert client.get("/api/v1/charges/?month=February").status_code == 400


def test_a_tenant_reads_its_own_and_from_its_beginning(acme: House, globex: House) -> None:
    filled()
    path = "/api/v1/tenants/acme/charges?month=2026-02"
    assert signed_in(acme.viewer).get(path).json()["total"] == "0.80"
    assert signed_in(globex.owner).get(path).status_code == 404
    for closed in ("/api/v1/charges/", reverse("charges"), reverse("prices")):
        assert signed_in(acme.owner).get(closed).status_code == 403
    Tenant.objects.filter(name="acme").update(created_at=MONTH + timedelta(days=3))
    assert signed_in(acme.viewer).get(path).json()["total"] == "0.28"


def total(client: Client, month: str) -> str:
    return str(client.get(f"/api/v1/tenants/acme/charges?month={month}").json()["total"])


def test_what_a_month_cost_stays_whatever_prices_become(acme: House, operator: User) -> None:
    """Dearer, for other units, gone, and back again; the running month follows."""
    filled()
    reader, march, april = signed_in(acme.viewer), MONTH + timedelta(days=28), MONTH + timedelta(days=59)
    used("acme", (april, 1000, 0), (april + timedelta(days=40), 1000, 0))
    before = total(reader, "2026-02"), total(reader, "2026-03")
    assert before == ("0.80", "6.30")
    prices_change(actor=OPERATOR, prices=[Price("requests", Decimal(3), 1000), PRICES[1]], now=april)
    assert (total(reader, "2026-02"), total(reader, "2026-03"), total(reader, "2026-04")) == (*before, "3.00")
    prices_change(actor=OPERATOR, prices=[Price("requests", Decimal(5), 1)], now=april + timedelta(days=3))
    prices_change(actor=OPERATOR, prices=[], now=april + timedelta(days=4))
    assert (total(reader, "2026-03"), total(reader, "2026-04")) == (before[1], "0.00")
    prices_change(actor=OPERATOR, prices=PRICES, now=april + timedelta(days=35))
    assert [total(reader, f"2026-0{number}") for number in (1, 2, 3, 4, 5)] == ["0.00", *before, "0.00", "0.40"]
    rows = list(
        csv.DictReader(
            io.StringIO(b"".join(signed_in(operator).get(f"/api/v1/charges/?month={march:%Y-%m}&format=csv")).decode())
        )
    )
    assert {row["price"] for row in rows if row["measure"] == "requests"} == {"0.400000"}


def test_prices_are_set_by_operators_alone_and_recorded(acme: House, operator: User) -> None:
    assert put(signed_in(acme.owner), [{"measure": "requests", "amount": "1"}]).status_code == 403
    client = signed_in(operator)
    assert put(client, [{"measure": "requests", "amount": "1.5", "per": 10}]).status_code == 200
    assert signed_in(acme.viewer).get("/api/v1/prices/").json()["results"] == [
        {"measure": "requests", "amount": "1.500000", "per": 10}
    ]
    assert AuditEntry.objects.get(action="prices.change").detail == {"requests": "1.500000 / 10"}
    for wrong in (
        {"measure": "no measure", "amount": "1"},
        {"measure": "requests", "amount": "-1"},
        {"measure": "requests", "amount": "1", "per": 0},
        {"measure": "requests", "amount": "0.0000001"},
    ):
        assert put(client, [wrong]).status_code == 400, wrong
    twice = [{"measure": "pods", "amount": "1"}, {"measure": "pods", "amount": "2"}]
    assert put(client, twice).status_code == 400
    form = reverse("prices")
    assert "requests: 1.5 / 10" in client.get(form).content.decode()
    assert client.post(form, {"prices": "requests: dear"}).status_code == 422
    assert client.post(form, {"prices": "pods: 0.25\nbytes_stored: 3 / 1073741824"}).status_code == 302
    listed = client.get("/api/v1/prices/").json()["results"]
    assert [(each["measure"], each["per"]) for each in listed] == [("bytes_stored", 1073741824), ("pods", 1)]
    changed = client.post("/admin/tenants/usageprice/pods/change/", {"amount": "0.5", "per": "2"})
    assert changed.status_code == 302
    assert client.post("/admin/tenants/usageprice/bytes_stored/delete/", {"post": "yes"}).status_code == 302
    listed = client.get("/api/v1/prices/").json()["results"]
    assert listed == [{"measure": "pods", "amount": "0.500000", "per": 2}]
