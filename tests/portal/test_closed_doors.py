"""What an operator has closed its people read, and end rights in; they change nothing else (GW5): every route there is."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.urls import URLPattern, reverse
from django.utils import timezone

from access.credentials import token_create
from access.models import PersonalAccessToken
from portal import urls
from tenants.models import Role, Tenant, User
from tenants.services.memberships import membership_set
from tenants.services.tenants import tenant_delete, tenant_suspend
from tenants.services.workspaces import workspace_suspend
from tests import factories
from tests.kept import kept
from tests.portal.conftest import House, house, signed_in
from tests.portal.test_api import routes, send
from tests.portal.test_scopes import TRACES
from tests.tenants.conftest import OPERATOR, actor_of

TRACES_OF_REFUSALS = {"django_session", "portal_sessions", "store_revision"}

SEPARATE = {"login", "logout", "oidc_authentication_init", "oidc_authentication_callback"}
SEPARATE |= {
    "login-code",
    "login-factor",
    "login-password",
    "login-further",
    "login-passkey",
    "forgotten",
    "reset",
    "reset-by",
}
"""Signing in is no tenant's."""

PERSONAL = {"appearance", "notification-choices", "password", "profile", "factor", "factor-remove", "factor-codes"}
PERSONAL |= {"sessions", "session-end", "sessions-end", "passkey-new", "passkey-remove"}
"""What a person changes of their own, whatever becomes of a tenant."""


def everything() -> dict[str, list[str]]:
    """All that is kept, but traces of having looked."""
    return kept(but=TRACES_OF_REFUSALS | (TRACES - {"personal_access_tokens"}))


def closed_tenant(acme: House) -> None:
    tenant_suspend(actor=OPERATOR, name=acme.tenant.name, reason="unpaid")


def ending_tenant(acme: House) -> None:
    tenant_delete(actor=OPERATOR, name=acme.tenant.name)


def closed_workspace(acme: House) -> None:
    workspace_suspend(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="mining")


@pytest.fixture
def acme() -> House:
    """With room for one workspace more."""
    factories.tier("other", workspaces_per_user=9)
    return house("acme")


def forms(acme: House) -> dict[str, dict[str, Any]]:
    """What each page of the portal that changes something of a tenant is sent; a page without one is only pressed."""
    colleague = factories.user("colleague@acme.test")
    return {
        "workspace-new": {"name": "another", "tenant": acme.tenant.name, "tier": "other"},
        "workspace-delete": {"name": acme.workspace.name},
        "workspace-tier": {"tier": "other"},
        "workspace-kubeconfig": {"kind": "direct", "role": "viewer"},
        "tenant-kubeconfig": {"kind": "gateway"},
        "member-add": {"email": colleague.email, "role": "viewer"},
        "member-invite": {"email": "new@acme.test", "role": "viewer", "days": "7"},
        "member-role": {"role": "editor"},
        "member-remove": {},
        "tenant-webhook-new": {"url": "https://hooks.test/"},
        "workspace-end": {"days": "30"},
        "member-end": {"days": "30"},
        "request-new": {"workspace": str(acme.workspace.pk), "tier": "other", "reason": "load"},
        "token-new": {"name": "t", "scope": "read", "tenant": acme.tenant.name, "days": "30"},
    }


def pages() -> list[str]:
    """Every page by its name, but what is signing in, a person's own, or another document."""
    names = [pattern.name for pattern in urls.urlpatterns if isinstance(pattern, URLPattern) and pattern.name]
    return [name for name in names if name not in SEPARATE | PERSONAL]


def address(name: str, acme: House) -> str:
    values = {
        "pk": acme.workspace.pk,
        "name": acme.tenant.name,
        "user_id": acme.viewer.pk,
        "credential": "jti",
        "policy": "p",
        "key": "0",
        "resource": "configmaps",
        "secret": "none",
        "session": acme.workspace.pk,
        "kind": "tier",
        "sort": "tenants",
        "tenant": acme.tenant.name,
    }
    pattern = next(each for each in urls.urlpatterns if getattr(each, "name", None) == name)
    return reverse(name, kwargs={part: values[part] for part in pattern.pattern.converters})


def changed_by(act: Any) -> bool:
    before = everything()
    act()
    return everything() != before


CLOSINGS = [None, closed_tenant, ending_tenant, closed_workspace]


def concerns(close: Any, what: str) -> bool:
    """Whether the door that is closed is the one that leads to ``what``."""
    inside = what.startswith(("workspace-", "workspaces/")) and what not in {
        "workspace-new",
        "workspaces/",
        "workspaces/init",
    }
    return close is not closed_workspace or inside


@pytest.mark.parametrize("name", pages())
@pytest.mark.parametrize("close", CLOSINGS, ids=lambda each: getattr(each, "__name__", "open"))
def test_no_page_changes_what_is_closed(acme: House, name: str, close: Any) -> None:
    """And each of those that change something does so while the door is open."""
    sent = forms(acme)
    if close is not None:
        close(acme)
    client = signed_in(acme.owner)
    changed = changed_by(lambda: client.post(address(name, acme), sent.get(name, {})))
    if close is None:
        assert changed is (name in sent), "an open door shows what a page does"
    elif concerns(close, name):
        assert not changed


def requests(acme: House) -> list[tuple[str, str, Any]]:
    """Every request of the REST API that names something of the tenant."""
    ends = f"{timezone.now() + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
    token = {"name": "t", "scope": "read", "expires_at": ends, "tenant": acme.tenant.name}
    return [*routes(acme), ("POST", "tokens/", token), ("POST", f"tenants/{acme.tenant.name}/kubeconfig", {})]


FOR_OPERATORS = {"suspend", "resume", "quota"}
NUMBERS = range(32)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("close", CLOSINGS, ids=lambda each: getattr(each, "__name__", "open"))
def test_no_request_changes_what_is_closed(acme: House, number: int, close: Any) -> None:
    """A refusal says why, and that operators alone may."""
    factories.user("colleague@acme.test")
    method, path, body = requests(acme)[number]
    body = {**body, "tier": "other"} if body and "tier" in body else body
    body = {**body, "email": "colleague@acme.test"} if body and "email" in body else body
    if close is not None:
        close(acme)
    answers: list[Any] = []
    client = signed_in(acme.owner)
    changed = changed_by(lambda: answers.append(send(client, method, path, body)))
    writes = method != "GET" or path.startswith("workspaces/credentials/kubeconfig")
    if close is None:
        assert changed is (writes and not changes_nothing(method, path)), answers[0].content
    elif concerns(close, path):
        assert not changed
        if method == "GET" and not writes:
            assert answers[0].status_code == 200
        elif close is closed_tenant and "kubeconfig" not in path and not changes_nothing(method, path):
            assert b"unpaid" in answers[0].content


def changes_nothing(method: str, path: str) -> bool:
    """Whether an owner's request does nothing while the door is open: it is for operators, or there is nothing to end."""
    last = path.rstrip("/").rsplit("/", 1)[-1]
    return last in {*FOR_OPERATORS, "revoke"} or (method, path) == ("DELETE", "tenants/acme/")


def test_every_request_is_looked_at(acme: House) -> None:
    assert len(requests(acme)) == len(NUMBERS)


def test_what_ends_rights_goes_on(acme: House) -> None:
    """Whoever leaves leaves, and a token is revoked, behind a closed door too; tokens for the tenant alone end with it."""
    now = timezone.now()

    def token(tenant: Tenant | None) -> PersonalAccessToken:
        made = token_create(
            actor=actor_of(acme.viewer),
            user=acme.viewer,
            tenant=tenant,
            name="t",
            scope=PersonalAccessToken.Scope.READ,
            expires_at=now + timedelta(days=1),
            now=now,
        )
        return made.token

    theirs, everywhere = token(acme.tenant), token(None)
    closed_tenant(acme)
    theirs.refresh_from_db()
    everywhere.refresh_from_db()
    assert theirs.revoked_at is not None
    assert everywhere.revoked_at is None, "it is the person's, for all their tenants"
    client = signed_in(acme.viewer)
    client.post(reverse("token-revoke", args=[everywhere.pk]))
    everywhere.refresh_from_db()
    assert everywhere.revoked_at is not None
    client.post(reverse("member-remove", args=[acme.tenant.name, acme.viewer.pk]))
    assert not User.objects.get(pk=acme.viewer.pk).memberships.exists()


def test_operators_change_what_they_have_closed(acme: House) -> None:
    closed_tenant(acme)
    membership_set(actor=OPERATOR, tenant="acme", user=factories.user(), role=Role.VIEWER)
    assert acme.tenant.memberships.count() == 5
