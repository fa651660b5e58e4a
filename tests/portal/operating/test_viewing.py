"""An operator sees the portal as somebody else does, and can do nothing with it: every page, every method (GW28)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.test import Client, RequestFactory
from django.urls import URLPattern, reverse
from django.utils import timezone

from audit.models import AuditEntry
from portal import urls
from portal.admin import admin
from portal.api import urls as api
from portal.signin import viewing
from portal.views import access
from tenants.models import Membership, Role, User, Workspace
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portal.test_closed_doors import everything
from tests.portal.test_scopes import METHODS
from tests.portal.test_scopes import address as api_address
from tests.portal.test_stored_texts import addresses, full_house

UNSAFE = [method for method in METHODS if method not in {"GET", "HEAD", "OPTIONS"}]
LEFT = {"view-as-end", "logout"}
"""How one becomes oneself again."""


def look(operator: User, person: User, tenant: str = "acme", reason: str = "a ticket") -> tuple[Client, Any]:
    """A browser of the operator's that sees what the person sees."""
    client = signed_in(operator)
    return client, client.post(reverse("view-as", args=[person.pk, tenant]), {"reason": reason})


@pytest.fixture
def operator() -> User:
    """One who is no superuser."""
    return factories.user(is_staff=True)


@pytest.fixture
def seen(acme: House, operator: User) -> Client:
    return look(operator, acme.viewer)[0]


def test_a_page_is_seen_as_the_person_sees_it_with_a_banner_and_an_end(
    acme: House, globex: House, operator: User
) -> None:
    globex.tenant.memberships.create(user=acme.viewer, role=Role.VIEWER)
    assert "View as" in signed_in(operator).get(reverse("user", args=[acme.viewer.pk])).content.decode()
    client, answer = look(operator, acme.viewer)
    assert answer.url == reverse("tenant", args=["acme"])
    shown = client.get(answer.url).content.decode()
    assert f"You see acme as {acme.viewer.email} does" in shown
    assert reverse("tenant-suspend", args=["acme"]) not in shown
    assert "Be yourself again" in shown
    theirs = signed_in(acme.viewer).get(reverse("workspaces")).content.decode()
    assert "globex-web" in theirs, "the person is in two tenants"
    assert "globex-web" not in client.get(reverse("workspaces")).content.decode(), "and is looked at in one"
    assert client.get(reverse("users")).status_code == 403
    assert client.get(reverse("tenant", args=["globex"])).status_code == 404
    assert client.post(reverse("view-as-end")).status_code == 302
    assert client.get(reverse("users")).status_code == 200
    begun, ended = AuditEntry.objects.filter(chain="acme").order_by("sequence")
    assert (begun.action, begun.actor, begun.target) == ("view.begin", operator.email, f"users/{acme.viewer.pk}")
    assert (begun.detail["reason"], ended.action, ended.actor) == ("a ticket", "view.end", operator.email)
    assert (
        "has looked at acme as you see it: a ticket" in signed_in(acme.viewer).get(reverse("profile")).content.decode()
    )
    assert "has looked at" not in signed_in(acme.owner).get(reverse("profile")).content.decode()


def test_no_method_that_could_change_something_passes_on_any_address(operator: User) -> None:
    """Of pages, REST and the admin; nothing is changed by trying."""
    acme = full_house(operator)
    AuditEntry.objects.all()
    factories.event("acme", "tenant.create", acme.owner)
    factories.api_request("acme")
    client, _ = look(operator, acme.owner)
    tried = [path for path in addresses(acme, operator) if path not in {reverse(name) for name in LEFT}]
    tried += [f"/api/v1/{api_address(str(route.pattern), acme)}" for route in api.urlpatterns]
    tried += [reverse(name) for name in ("oauth-token", "oauth-device", "oauth-revoke", "login")]
    before = kept()
    for path in tried:
        for method in UNSAFE:
            answer = client.generic(method, path)
            assert answer.status_code == 403, (method, path)
    assert kept() == before
    assert len(tried) > 180


def test_no_page_that_can_be_seen_has_an_effect_and_no_other_is_seen(operator: User) -> None:
    acme = full_house(operator)
    factories.event("acme", "tenant.create", acme.owner)
    factories.api_request("acme")
    client, _ = look(operator, acme.owner)
    named = {pattern.name for pattern in urls.urlpatterns if isinstance(pattern, URLPattern)}
    assert named >= viewing.PAGES
    before, opened = kept(), 0
    for path in [
        *addresses(acme, operator),
        *(f"/api/v1/{api_address(str(each.pattern), acme)}" for each in api.urlpatterns),
    ]:
        if path in {reverse(name) for name in LEFT}:
            continue
        for method in ("GET", "HEAD", "OPTIONS"):
            answer = client.generic(method, path)
            b"".join(answer) if answer.streaming else answer.content
            assert answer.status_code < 500, path
            opened += method == "GET" and answer.status_code == 200
    assert kept() == before
    assert opened >= 20


def kept() -> dict[str, list[Any]]:
    """All that is kept, but when the operator's own session was used last."""
    return {table: rows for table, rows in everything().items() if table != "portal_sessions"}


@pytest.mark.parametrize(
    "path",
    [
        "/workspaces/{pk}/contents/secrets/x/values/k/",
        "/workspaces/{pk}/contents/",
        "/workspaces/{pk}/kubeconfig/",
        "/tenants/acme/kubeconfig/",
        "/tenants/acme/export/",
        "/tokens/new/",
        "/profile/",
        "/api/v1/me/",
        "/api/v1/workspaces/credentials/kubeconfig?workspace={pk}",
        "/audit/export/",
        "/admin/",
        "/nothing/",
    ],
)
def test_nothing_that_gives_something_out_is_shown(acme: House, seen: Client, path: str) -> None:
    assert seen.get(path.format(pk=acme.workspace.pk)).status_code == 403


def test_a_token_of_ones_own_goes_on_beside_it(acme: House, operator: User, seen: Client) -> None:
    """What is refused is refused to the session that looks."""
    assert signed_in(operator).get("/api/v1/me/").status_code == 200
    assert seen.get("/api/v1/me/").status_code == 403


def test_it_ends_after_half_an_hour_and_says_so(acme: House, operator: User, seen: Client, monkeypatch: Any) -> None:
    later = timezone.now() + viewing.LASTS + timedelta(seconds=1)
    monkeypatch.setattr("portal.middleware.timezone.now", lambda: later)
    assert "Be yourself again" not in seen.get(reverse("overview")).content.decode()
    assert AuditEntry.objects.get(action="view.end").actor == operator.email
    assert "viewing-as" not in seen.session


@pytest.mark.parametrize("change", ["left", "disabled", "lowered", "forged", "superuser", "gone"])
def test_it_ends_when_it_may_not_be_any_more(acme: House, operator: User, seen: Client, change: str) -> None:
    if change == "left":
        Membership.objects.filter(user=acme.viewer).delete()
    elif change == "disabled":
        User.objects.filter(pk=acme.viewer.pk).update(status=User.Status.DISABLED)
    elif change == "lowered":
        User.objects.filter(pk=operator.pk).update(is_staff=False)
    elif change == "superuser":
        User.objects.filter(pk=acme.viewer.pk).update(is_staff=True, is_superuser=True)
    elif change == "gone":
        Workspace.objects.filter(tenant=acme.tenant).delete()
        acme.tenant.delete()
    else:
        session = seen.session
        session["viewing-as"] = f"{session['viewing-as']}x"
        session.save()
    assert "Be yourself again" not in seen.get(reverse("overview")).content.decode()
    assert "viewing-as" not in seen.session


def test_what_break_glass_gives_is_seen_until_it_ends(acme: House, operator: User) -> None:
    guest = factories.user()
    soon = timezone.now() + timedelta(hours=1)
    made = Membership.objects.create(tenant=acme.tenant, user=guest, role=Role.ADMIN, break_glass=True, expires_at=soon)
    client, _ = look(operator, guest)
    assert client.get(reverse("tenant-requests", args=["acme"])).status_code == 200
    Membership.stored.filter(pk=made.pk).update(expires_at=timezone.now() - timedelta(seconds=5))
    assert "Be yourself again" not in client.get(reverse("overview")).content.decode()


def test_who_may_look_and_at_whom(acme: House, operator: User) -> None:
    """Superusers at superusers; auditors change nothing, so they begin nothing; a reason is asked for."""
    root = User.objects.create_superuser("root@platform.test")
    auditor = factories.user(is_auditor=True)
    for person in (root, operator):
        acme.tenant.memberships.create(user=person, role=Role.VIEWER)
    assert look(operator, root)[1].status_code == 422
    assert look(root, operator)[1].status_code == 302
    assert look(operator, operator)[1].status_code == 422
    assert look(operator, acme.viewer, reason="")[1].status_code == 422
    assert look(operator, factories.user())[1].status_code == 422
    assert look(operator, acme.viewer, "nowhere")[1].status_code == 404
    for person in (acme.owner, auditor):
        assert look(person, acme.viewer)[1].status_code == 403
    assert signed_in(operator).post(reverse("view-as", args=[uuid4(), "acme"]), {"reason": "x"}).status_code == 404
    assert AuditEntry.objects.filter(action="view.begin").count() == 1


def test_signing_out_ends_it_in_the_operators_name(acme: House, operator: User, seen: Client) -> None:
    seen.post(reverse("logout"))
    ends = AuditEntry.objects.filter(action__in=["view.end", "session.close"]).order_by("created_at")
    assert {each.actor for each in ends} == {operator.email}
    assert ends.count() == 2


def test_the_admin_is_no_way_around(seen: Client) -> None:
    for model in admin.site._registry:
        assert (
            seen.get(reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")).status_code == 403
        )


def test_no_question_is_put_to_a_cluster_in_the_name_of_who_is_looked_at(acme: House) -> None:
    """What a person asks by the form may be tried as a dry run by themselves, and by nobody who only looks on."""
    request = RequestFactory().get(reverse("explain"), headers={"Sec-Fetch-Site": "same-origin"})
    request.user = acme.viewer
    assert access._doors(request) is not None
    request.viewing = object()
    assert access._doors(request) is None
