"""A tenant's name that is given to another customer brings nothing of the first with it (TS1, GW8, GW13)."""

from __future__ import annotations

from datetime import timedelta

from django.test import Client
from django.utils import timezone

from access.credentials import token_create
from access.models import PersonalAccessToken
from tenants.models import Role, Tenant, User
from tenants.reconciler.deletion import tenants_end
from tenants.services.memberships import membership_set
from tenants.services.tenants import tenant_create, tenant_delete
from tests import factories
from tests.portal.conftest import signed_in
from tests.tenants.conftest import OPERATOR, actor_of


def test_people_tokens_and_audit_of_the_first_customer_are_not_the_seconds(operator: User) -> None:
    """Memberships and tokens end with the row; the chain goes on, and is shown from the tenant's own beginning."""
    first, second = factories.user("first@one.test"), factories.user("second@two.test")
    tenant_create(actor=OPERATOR, name="acme", owner=first)
    membership_set(actor=OPERATOR, tenant="acme", user=factories.user("staff@one.test"), role=Role.VIEWER)
    now = timezone.now()
    minted = token_create(
        actor=actor_of(first),
        user=first,
        tenant=Tenant.objects.get(name="acme"),
        name="t",
        scope=PersonalAccessToken.Scope.READ,
        expires_at=now + timedelta(days=1),
        now=now,
    )
    bearer = {"HTTP_AUTHORIZATION": f"Bearer {minted.text}"}
    assert Client().get("/api/v1/tenants/acme/", **bearer).status_code == 200

    tenant_delete(actor=OPERATOR, name="acme")
    assert tenants_end() == 1
    tenant_create(actor=OPERATOR, name="acme", owner=second)
    assert list(Tenant.objects.get(name="acme").members.all()) == [second]
    assert Client().get("/api/v1/tenants/acme/", **bearer).status_code == 401
    assert signed_in(first).get("/api/v1/tenants/acme/").status_code == 404
    theirs = signed_in(second)
    for path in (
        "/api/v1/audit-logs/?tenant=acme",
        "/api/v1/audit-logs/export?tenant=acme",
        "/audit/?chain=acme",
        "/tenants/acme/",
    ):
        answer = theirs.get(path)
        assert answer.status_code == 200, path
        text = b"".join(answer) if answer.streaming else answer.content
        assert b"one.test" not in text, path
    seen = theirs.get("/api/v1/audit-logs/?tenant=acme").json()["results"]
    assert [row["action"] for row in seen][-1] == "tenant.create"
    assert b"one.test" in signed_in(operator).get("/api/v1/audit-logs/?tenant=acme").content, "operators see all of it"
