"""One inbox of what needs a person, each line with what to do about it; the overview says the same (GW25)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from audit.actions import Action
from audit.models import Outcome
from tenants.models import Desired, Operation, OperationState, Tenant, UsageHour, User
from tests import factories
from tests.portal.conftest import House, house, signed_in, stranger
from tests.portal.test_api import bearer, send
from tests.portal.test_requests import ROLE, _many, ask, text  # noqa: F401


def certificate(file: Path, ends: datetime) -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(ends - timedelta(days=365))
        .not_valid_after(ends)
        .sign(key, hashes.SHA256())
    )
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))


@pytest.fixture(autouse=True)
def folder(settings: Any, tmp_path: Path) -> Path:
    """The product's certificates."""
    settings.PKI_DIR = tmp_path
    return tmp_path


def full(acme: House, folder: Path) -> None:
    """Something of everything that an operator should look at."""
    now = timezone.now()
    cluster = acme.workspace.cluster
    cluster.unreached_since, cluster.unreached_why = now - timedelta(hours=2), "no route"
    cluster.credential_expires_at, cluster.last_error = now + timedelta(days=1), "no route"
    cluster.save()
    late = factories.workspace(acme.tenant, acme.editor, "late")
    late.operations.update(state=OperationState.FAILED, error="no route", desired=Desired.DELETED)
    stuck = factories.workspace(acme.tenant, acme.editor, "stuck")
    stuck.operations.update(state=OperationState.PENDING, created_at=now - timedelta(hours=1))
    factories.event("acme", Action.WORKSPACE_DRIFTED, acme.owner, of=acme.workspace, found=["x"])
    factories.event("system", Action.SIGN_IN, acme.owner, outcome=Outcome.DENIED)
    hour = now.astimezone(UTC).replace(minute=0, second=0, microsecond=0)
    Tenant.objects.filter(name="acme").update(created_at=now - timedelta(days=9))
    UsageHour.objects.create(
        tenant="acme", hour=hour, used={"pods": 95, "services": 9}, hard={"pods": 100, "services": 10}
    )
    certificate(folder / "server.crt", now + timedelta(days=3))
    certificate(folder / "ca.crt", now + timedelta(days=300))
    (folder / "broken.crt").write_text("x")


def test_an_operator_finds_all_that_waits_and_what_to_do(acme: House, operator: User, folder: Path) -> None:
    full(acme, folder)
    asked = ask(acme.viewer, "role", **ROLE)
    page = text(operator, "/inbox/")
    for words in (
        f"{acme.viewer.email}: the role admin in acme",
        "acme/late: deleting",
        "no route",
        "acme/stuck",
        f"{acme.workspace.cluster} is away since",
        f"The gateway&#x27;s credential of {acme.workspace.cluster} ends on",
        "The certificate server.crt ends on",
        f"{acme.workspace} differed from what it should be, 1 time",
        "Acme uses 95% of pods",
        "1 sign-in refused in the last day",
    ):
        assert words.lower() in page.lower(), words
    assert "ca.crt" not in page
    assert "services" not in page.lower()
    failed = Operation.objects.get(workspace__name="late")
    for link in (
        f"/inbox/{asked.pk}/approve/",
        f"/operations/{failed.pk}/retry/",
        f"/workspaces/{failed.workspace_id}/abandon/",
        "/tenants/acme/quota/change/",
        f"/clusters/{acme.workspace.cluster.name}/check/",
    ):
        assert f'"{link}"' in page
    overview = text(operator, "/")
    assert "1 request waits for you" in overview
    assert "2 operations failed" in overview
    assert f"{acme.workspace.cluster} is away since" in overview


def test_an_owner_finds_what_is_theirs_and_nothing_else(
    acme: House, globex: House, operator: User, folder: Path
) -> None:
    full(acme, folder)
    page = text(acme.owner, "/inbox/").split("<main")[1]
    assert "acme/late" in page
    for words in ("away since", "credential", "server.crt", "differed", "95%", "refused in the last day", "Give up"):
        assert words not in page
    for who in (globex.owner, acme.editor):
        assert "Nothing waits for you" in text(who, "/inbox/")
    assert stranger().get("/inbox/").status_code == 302


def test_the_inbox_costs_the_same_with_many_tenants(operator: User, folder: Path) -> None:
    client = signed_in(operator)
    first = house("first")
    full_of = [first]

    def cost() -> int:
        client.get("/inbox/")
        with CaptureQueriesContext(connection) as queries:
            assert client.get("/inbox/").status_code == 200
        return len(queries)

    def grow(number: int) -> None:
        made = house(f"many-{number}")
        full_of.append(made)
        made.workspace.operations.update(state=OperationState.FAILED, error="x")
        factories.access_request(made.tenant, made.viewer)
        factories.event(made.tenant.name, Action.WORKSPACE_DRIFTED, made.owner, of=made.workspace)
        UsageHour.objects.create(tenant=made.tenant.name, hour=timezone.now(), used={"pods": 9}, hard={"pods": 9})

    grow(1)
    few = cost()
    for number in range(2, 30):
        grow(number)
    assert cost() == few <= 20
    page = client.get("/inbox/").content.decode()
    assert page.count("Approve:") + page.count('aria-label="Approve') == 20, "the oldest; the rest is counted"
    assert '<span class="tag">29</span>' in page


def test_the_rest_api_answers_what_waits(acme: House, operator: User, folder: Path) -> None:
    full(acme, folder)
    groups = send(bearer(operator, "operate"), "GET", "inbox/").json()
    assert [group["kind"] for group in groups] == [
        *("operations", "clusters", "certificates", "drift", "quota", "sign-ins"),
    ]
    assert groups[0]["count"] == 2
    assert [group["kind"] for group in send(bearer(operator), "GET", "inbox/").json()] == [], "without operate"
    assert send(bearer(acme.owner), "GET", "inbox/").json()[0]["kind"] == "operations"
    assert send(bearer(acme.owner, tenant=acme.tenant), "GET", "inbox/").status_code == 403


def test_a_script_asks_and_another_decides(acme: House, globex: House, operator: User) -> None:
    body = {"kind": "break-glass", "tenant": "acme", "role": "admin", "minutes": 90, "reason": "on call"}
    made = send(bearer(acme.viewer), "POST", "requests/", body)
    assert made.status_code == 201
    row = made.json()
    assert (row["state"], row["tenant"], row["approvers"]) == ("open", "acme", "operator")
    path = f"requests/{row['id']}"
    assert made.headers["Location"].endswith(f"/api/v1/{path}/")
    listed = send(bearer(operator, "operate"), "GET", "requests/?state=open&tenant=acme").json()["results"]
    assert [each["id"] for each in listed] == [row["id"]]
    hidden: list[Client] = [bearer(globex.owner), bearer(globex.owner, tenant=globex.tenant), bearer(operator)]
    for client in hidden:
        for method, rest, sent in (("GET", "/", None), ("POST", "/approve", {}), ("POST", "/deny", {"answer": "x"})):
            assert send(client, method, f"{path}{rest}", sent).status_code == 404
    assert send(bearer(acme.viewer), "POST", f"{path}/approve", {}).status_code == 403
    assert send(bearer(acme.viewer), "POST", f"{path}/comments", {"text": "please"}).status_code == 201
    decided = send(bearer(operator, "operate"), "POST", f"{path}/approve", {"answer": "ok"})
    assert (decided.status_code, decided.json()["state"]) == (200, "approved")
    assert send(bearer(operator, "operate"), "POST", f"{path}/deny", {"answer": "x"}).status_code == 409
    detail = send(bearer(acme.viewer), "GET", f"{path}/").json()
    assert (detail["answer"], detail["comments"][0]["text"]) == ("ok", "please")
    other = send(bearer(acme.editor), "POST", "requests/", {**body, "kind": "role"}).json()
    assert send(bearer(acme.editor), "POST", f"requests/{other['id']}/withdraw").json()["state"] == "withdrawn"
    wrong: list[dict[str, Any]] = [
        {**body, "kind": "x"},
        {**body, "minutes": 481},
        {"kind": "role"},
        {**body, "role": "owner", "reason": "x"},
        {"kind": "quota", "tenant": "acme", "reason": "x", "hard": {"pods": "1"}},
        {"kind": "tier", "reason": "x"},
    ]
    refused = [send(bearer(acme.viewer), "POST", "requests/", each).status_code for each in wrong]
    assert refused == [400] * 5 + [404]
    assert send(bearer(acme.viewer), "GET", "requests/?state=x").status_code == 400


def test_a_token_for_one_tenant_asks_about_that_one_alone(acme: House, globex: House) -> None:
    factories.member(globex.tenant, "viewer", acme.viewer)
    client = bearer(acme.viewer, tenant=acme.tenant)
    body = {"kind": "role", "role": "admin", "reason": "x"}
    assert send(client, "POST", "requests/", {**body, "tenant": "globex"}).status_code == 404
    assert send(client, "POST", "requests/", {**body, "tenant": "acme"}).status_code == 201
    elsewhere = send(bearer(acme.viewer), "POST", "requests/", {**body, "tenant": "globex"}).json()
    assert send(client, "GET", f"requests/{elsewhere['id']}/").status_code == 404
    assert [each["tenant"] for each in send(client, "GET", "requests/?mine=true").json()["results"]] == ["acme"]
