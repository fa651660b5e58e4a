"""The identity inspector in pages and REST: it explains, and forgets."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.test import Client

from audit.models import AuditEntry
from tenants.models import User
from tests import factories
from tests.portal.conftest import signed_in

LINE = "sup3r-s3cret,alice,1,dev,,acme"
FLAGS = ["--workers=2", "--oidc-issuer-url=https://idp.example", "--oidc-client-id=tenantry", "--oidc-tenant-claim=org"]


@pytest.fixture
def person() -> User:
    return factories.user()


@pytest.fixture(autouse=True)
def _flags(settings: Any) -> None:
    settings.APISERVER_FLAGS = FLAGS


_LATER = 4_102_444_800
"""2100-01-01: names of tests must be the same in every process that collects them."""


def claims(**changes: object) -> str:
    said = {"iss": "https://idp.example", "aud": "tenantry", "sub": "u1", "org": "acme", "exp": _LATER}
    return json.dumps(said | changes)


def ask(user: User, text: object) -> Any:
    return signed_in(user).post("/api/v1/access/inspect", {"text": text}, content_type="application/json")


@pytest.mark.parametrize(
    ("text", "user", "tenant", "rule"),
    [
        (LINE, "alice", "acme", "file line with a tenant"),
        ("/CN=bob/O=tenant:acme/OU=dev", "bob", "acme", "certificate, new form"),
        ("/CN=acme:bob/O=dev", "acme:bob", "acme", "certificate, old form"),
        (claims(), "https://idp.example#u1", "acme", "OpenID Connect, https://idp.example"),
    ],
)
def test_identity_and_rule_are_said(person: User, text: str, user: str, tenant: str, rule: str) -> None:
    """AN1 to AN8, by the flags that the API server runs with."""
    page = signed_in(person).post("/identity/", {"text": text})
    found = page.context["inspection"]
    assert (found.identity.user, found.identity.tenant) == (user, tenant)
    assert rule in page.content.decode()
    body = ask(person, text).json()
    assert (body["identity"]["user"], body["identity"]["tenant"]) == (user, tenant)
    assert body["rule"].startswith(rule)
    assert all(step["matched"] or step["reason"] for step in body["steps"])


@pytest.mark.parametrize("text", ["/CN=bob/O=tenant:a/O=tenant:b", "x", claims(aud="elsewhere"), claims(org="all")])
def test_nobody_is_said_with_every_reason(person: User, text: str) -> None:
    page = signed_in(person).post("/identity/", {"text": text})
    assert "Nobody, 401" in page.content.decode()
    body = ask(person, text).json()
    assert body["identity"] is None
    assert all(step["reason"] for step in body["steps"])


def test_what_is_pasted_is_kept_nowhere(person: User, caplog: pytest.LogCaptureFixture) -> None:
    client = signed_in(person)
    with caplog.at_level(logging.DEBUG):
        answers = [
            client.post("/identity/", {"text": LINE}),
            client.post("/identity/", {"text": LINE + "\0"}),
            client.post("/identity/", {"text": LINE + "x" * 70_000}),
            ask(person, LINE),
            ask(person, [LINE]),
            ask(person, LINE + "\0"),
            # Whoever puts it into an address is not served, nor is the address written down here.
            client.get("/identity/", {"text": LINE}),
            client.put("/identity/", LINE),
            client.get("/api/v1/access/inspect", {"text": LINE}),
        ]
    assert [answer.status_code for answer in answers] == [200, 422, 422, 200, 400, 400, 200, 405, 400]
    for answer in answers:
        assert "sup3r-s3cret" not in answer.content.decode()
        assert "no-store" in answer.headers["Cache-Control"]
    assert "sup3r-s3cret" not in caplog.text
    assert not AuditEntry.objects.exists()


def test_inspector_is_for_people_who_are_signed_in() -> None:
    assert Client().post("/identity/", {"text": LINE}).status_code == 302
    assert Client().post("/api/v1/access/inspect", {"text": LINE}, content_type="application/json").status_code == 401


@pytest.mark.parametrize("flags", [["--oidc-issuer-url=http://idp.example"], ["--oidc-leeway=x"]])
def test_flags_that_no_server_starts_with_are_no_crash(person: User, settings: Any, flags: list[str]) -> None:
    settings.APISERVER_FLAGS = flags
    assert signed_in(person).post("/identity/", {"text": LINE}).status_code == 503
    assert ask(person, LINE).status_code == 503
