"""The console: every model to read, and only what services change to change."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from django.apps import apps
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.html import escape

from audit.actions import Action
from audit.models import AuditEntry
from kube.quota.charges import Price
from portal.admin import admin
from portal.admin.places import page_of
from tenants import services
from tenants.models import Lock, Tenant, Tier, UsageHour, User, Workspace
from tests import factories
from tests.portal.conftest import House, signed_in, stranger
from tests.portal.test_stored_texts import full_house
from tests.tenants.conftest import actor_of

MODELS = sorted(model._meta.label_lower for model in admin.site._registry)


def url(label: str, what: str, *args: object) -> str:
    return reverse(f"admin:{label.replace('.', '_')}_{what}", args=args)


def as_opened(client: Client, path: str) -> dict[str, Any]:
    """What a browser sends of a form in which nothing was typed."""
    sent: dict[str, Any] = {}
    for field in client.get(path).context["adminform"].form:
        for name in (field.html_name, field.html_initial_name):
            if field.value() not in (None, False, "") and f'name="{name}"' in str(field):
                sent[name] = "on" if field.value() is True else field.value()
    return sent


@pytest.mark.parametrize("label", MODELS)
def test_every_list_is_for_operators_alone(label: str, acme: House) -> None:
    factories.credential(acme.workspace, acme.editor)
    factories.event("acme", Action.WORKSPACE_READY, acme.editor, of=acme.workspace)
    staff = factories.user(is_staff=True)
    assert signed_in(staff).get(url(label, "changelist")).status_code == 200
    assert signed_in(acme.owner).get(url(label, "changelist")).status_code == 302


@pytest.mark.parametrize("label", MODELS)
def test_every_list_costs_the_same_with_many_rows(
    label: str, operator: User, django_assert_max_num_queries: object
) -> None:
    for _ in range(12):
        made = factories.tenant()
        owner = factories.member(made)
        factories.credential(factories.workspace(made, owner), owner)
        factories.event(made.name, Action.WORKSPACE_READY, owner)
    client = signed_in(operator)
    client.get(url(label, "changelist"))  # the first page of a session writes the session down
    with django_assert_max_num_queries(8):  # type: ignore[operator]
        assert client.get(url(label, "changelist")).status_code == 200


@pytest.mark.parametrize(
    "label",
    [
        "audit.auditentry",
        "audit.auditchain",
        "access.credential",
        "access.personalaccesstoken",
        "tenants.operation",
        "tenants.lock",
        "tenants.workspace",
    ],
)
def test_record_can_be_neither_added_nor_changed_nor_deleted(label: str, acme: House, operator: User) -> None:
    """API-23: not even by a superuser."""
    factories.credential(acme.workspace, acme.editor)
    factories.event("acme", Action.WORKSPACE_READY, acme.editor, of=acme.workspace)
    model = next(model for model in admin.site._registry if model._meta.label_lower == label)
    client = signed_in(operator)
    assert client.get(url(label, "add")).status_code == 403
    for row in model._default_manager.all()[:1]:
        assert client.get(url(label, "change", row.pk)).status_code == 200
        assert client.post(url(label, "change", row.pk), {"action": "x"}).status_code == 403
        assert client.post(url(label, "delete", row.pk), {"post": "yes"}).status_code == 403


def test_deletion_of_selected_rows_is_no_action(acme: House, operator: User) -> None:
    """API-22."""
    data = {"action": "delete_selected", "_selected_action": [str(acme.workspace.pk)], "post": "yes"}
    signed_in(operator).post(url("tenants.workspace", "changelist"), data)
    acme.workspace.refresh_from_db()
    assert acme.workspace.status == "active"


def test_bindings_that_did_not_come_back_are_shown(acme: House, operator: User) -> None:
    left = {"kind": "RoleBinding", "metadata": {"name": "auditors"}, "refused": "The cluster refused: no bind"}
    Workspace.objects.update(saved_bindings=[left])
    page = signed_in(operator).get(url("tenants.workspace", "change", acme.workspace.pk)).content.decode()
    assert "auditors" in page
    assert "The cluster refused: no bind" in page


def test_suspend_action_goes_through_the_service(acme: House, operator: User) -> None:
    client = signed_in(operator)
    path = url("tenants.workspace", "changelist")
    data = {"action": "suspend", "_selected_action": [str(acme.workspace.pk)], "confirmed": "yes"}
    refused = client.post(path, data, follow=True).content.decode()
    assert "Required value" in refused
    client.post(path, {**data, "reason": "mining"})
    acme.workspace.refresh_from_db()
    assert (acme.workspace.status, acme.workspace.suspended_reason) == ("suspended", "mining")
    assert AuditEntry.objects.filter(action=Action.WORKSPACE_SUSPENDED, actor=operator.email).exists()
    client.post(path, {"action": "resume", "_selected_action": [str(acme.workspace.pk)], "confirmed": "yes"})
    acme.workspace.refresh_from_db()
    assert acme.workspace.status == "active"


HARMLESS = {"connect"}
"""Actions that end nothing."""


@pytest.mark.parametrize(
    ("label", "action"),
    [
        (model._meta.label_lower, action)
        for model, console in admin.site._registry.items()
        for action in console.actions
        if action not in HARMLESS
    ],
)
def test_what_ends_something_is_asked_about_first(label: str, action: str, operator: User) -> None:
    full_house(operator)
    client, path = signed_in(operator), url(label, "changelist")
    row = apps.get_model(label)._default_manager.order_by("pk")[0]
    written = AuditEntry.objects.count()
    asked = client.post(path, {"action": action, "_selected_action": [str(row.pk)], "reason": "<b>why</b>"})
    page = asked.content.decode()
    assert asked.status_code == 200
    assert "Yes, I am sure" in page
    assert f'name="_selected_action" value="{row.pk}"' in page
    assert 'name="reason" value="&lt;b&gt;why&lt;/b&gt;"' in page
    assert AuditEntry.objects.count() == written, "nothing was done"
    assert type(row)._default_manager.filter(pk=row.pk).values().get() == {
        field.attname: getattr(row, field.attname) for field in row._meta.concrete_fields
    }


BACK = {"auditentry", "cluster", "tenant", "tier", "user", "workspace"}
"""What a page of the portal is about; others are rows there."""


@pytest.mark.parametrize("label", MODELS)
def test_each_object_leads_to_its_page_of_the_portal_and_back(label: str, operator: User) -> None:
    full_house(operator)
    Lock.objects.create(space="root:acme", namespace="web", reason="x")
    UsageHour.objects.create(tenant="acme", hour=timezone.now().replace(minute=0, second=0, microsecond=0))
    services.prices_change(actor=actor_of(operator), prices=[Price("requests", Decimal(1), 1000)], now=timezone.now())
    client = signed_in(operator)
    row = apps.get_model(label)._default_manager.order_by("pk")[0]
    console, page = url(label, "change", row.pk), page_of(row)
    assert f'<a href="{escape(page)}">Open in the portal</a>' in client.get(console).content.decode()
    shown = client.get(page)
    assert shown.status_code == 200
    assert (f'<a href="{console}">In the console</a>' in shown.content.decode()) == (label.partition(".")[2] in BACK)


def test_the_way_to_the_console_is_for_whom_it_is_open(acme: House) -> None:
    auditor = factories.user(is_auditor=True)
    for path in (reverse("tenant", args=["acme"]), reverse("workspace", args=[acme.workspace.pk])):
        assert "In the console" in signed_in(auditor).get(path).content.decode()
        assert "In the console" not in signed_in(acme.owner).get(path).content.decode()


def test_tenant_is_suspended_and_resumed_by_action(acme: House, operator: User) -> None:
    client = signed_in(operator)
    path = url("tenants.tenant", "changelist")
    client.post(path, {"action": "suspend", "_selected_action": ["acme"], "reason": "not paid", "confirmed": "yes"})
    assert Tenant.objects.get(name="acme").state == "suspended"
    client.post(path, {"action": "resume", "_selected_action": ["acme"], "confirmed": "yes"})
    assert Tenant.objects.get(name="acme").state == "active"


def test_operator_without_superuser_cannot_make_one(operator: User) -> None:
    """API-23."""
    staff, person = factories.user(is_staff=True), factories.user()
    path = url("tenants.user", "change", person.pk)
    signed_in(staff).post(path, {"name": "x", "status": "active", "is_staff": "on", "is_superuser": "on"})
    person.refresh_from_db()
    assert person.is_staff
    assert not person.is_superuser
    signed_in(operator).post(path, {"name": "x", "status": "active", "is_staff": "on", "is_superuser": "on"})
    person.refresh_from_db()
    assert person.is_superuser


@pytest.mark.parametrize(
    ("label", "typed", "elsewhere"),
    [
        ("tenants.user", {"name": "Typed"}, {"status": "disabled"}),
        ("tenants.user", {"name": "Typed"}, {"is_auditor": True}),
        ("tenants.cluster", {"client_url": "https://typed.test:6443"}, {"server": "https://moved.test:6443"}),
        ("tenants.cluster", {"client_url": "https://typed.test:6443"}, {"credential_kinds": ["gateway"]}),
    ],
)
def test_a_form_that_stood_open_turns_nothing_back(
    label: str, typed: dict[str, str], elsewhere: dict[str, Any], operator: User
) -> None:
    """What somebody else has changed meanwhile stays, for nobody has changed it in this form."""
    row: Any = factories.user() if label == "tenants.user" else factories.cluster()
    client, path = signed_in(operator), url(label, "change", row.pk)
    sent = as_opened(client, path)
    type(row)._default_manager.filter(pk=row.pk).update(**elsewhere)
    assert client.post(path, {**sent, **typed}).status_code == 302
    row.refresh_from_db()
    expected = {**typed, **elsewhere}
    assert {name: getattr(row, name) for name in expected} == expected


def test_hashes_and_sealed_credentials_are_on_no_page(acme: House, operator: User) -> None:
    made = factories.cluster(sealed_credential=b"SEALED-CANARY")
    client = signed_in(operator)
    pages = [url("tenants.user", "change", acme.owner.pk), url("tenants.cluster", "change", made.pk)]
    for page in pages:
        body = client.get(page).content.decode()
        assert "argon2" not in body
        assert "CANARY" not in body


def test_tier_is_made_and_changed_by_the_service(operator: User) -> None:
    client = signed_in(operator)
    data = {
        "name": "tiny",
        "display_name": "Tiny",
        "quota": '{"pods": "3"}',
        "limit_range": "[]",
        "workspaces_per_user": 1,
        "position": 0,
        "is_available": "on",
    }
    assert client.post(url("tenants.tier", "add"), data).status_code == 302
    assert Tier.objects.get(name="tiny").quota == {"pods": "3"}
    assert AuditEntry.objects.filter(action=Action.TIER_CREATED).exists()
    refused = client.post(url("tenants.tier", "change", "tiny"), {**data, "quota": '{"pods": "lots"}'}, follow=True)
    assert "Invalid value" in refused.content.decode()
    assert Tier.objects.get(name="tiny").quota == {"pods": "3"}


def test_last_owner_is_not_deleted(acme: House, operator: User) -> None:
    membership = acme.owner.memberships.get()
    body = signed_in(operator).post(url("tenants.membership", "delete", membership.pk), {"post": "yes"}, follow=True)
    assert "last owner" in body.content.decode()
    assert acme.owner.memberships.exists()


def test_changed_server_wipes_the_credential(operator: User) -> None:
    """API-32."""
    made = factories.cluster()
    client, path = signed_in(operator), url("tenants.cluster", "change", made.pk)
    client.post(path, {**as_opened(client, path), "server": "https://elsewhere.test:6443"})
    made.refresh_from_db()
    assert made.sealed_credential is None


def new_account(operator: User, **fields: str) -> Any:
    return signed_in(operator).post(url("tenants.user", "add"), {"email": "new@acme.test", "name": "New", **fields})


def test_account_is_made_with_a_password_typed_twice(operator: User) -> None:
    page = signed_in(operator).get(url("tenants.user", "add")).content.decode()
    assert all(f'name="{name}"' in page for name in ("email", "password1", "password2", "usable_password"))
    chosen = "a quiet green lamp"
    assert new_account(operator, password1=chosen, password2=chosen).status_code == 302
    assert stranger().post("/login/", {"username": "new@acme.test", "password": chosen}).status_code == 302
    assert AuditEntry.objects.filter(action=Action.USER_CREATED, actor=operator.email).exists()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"password1": "a quiet green lamp"},
        {"password2": "a quiet green lamp"},
        {"password1": "a quiet green lamp", "password2": "a quiet red lamp"},
        {"password1": "password1234", "password2": "password1234"},
        {"password1": "x" * 129, "password2": "x" * 129},
        {"usable_password": "false", "password1": "a quiet green lamp", "password2": "a quiet green lamp"},
    ],
)
def test_account_with_a_doubtful_password_is_not_made(operator: User, fields: dict[str, str]) -> None:
    response = new_account(operator, **fields)
    assert response.status_code == 200
    assert response.context["adminform"].form.errors
    assert not User.objects.filter(email="new@acme.test").exists()


def test_account_without_password_is_for_single_sign_on(operator: User) -> None:
    assert new_account(operator, usable_password="false").status_code == 302
    assert not User.objects.get(email="new@acme.test").has_usable_password()


def test_superuser_sets_another_password(operator: User) -> None:
    person, staff = factories.user(), factories.user(is_staff=True)
    path = reverse("admin:auth_user_password_change", args=[person.pk])
    assert path in signed_in(operator).get(url("tenants.user", "change", person.pk)).content.decode()
    browser = signed_in(person)
    chosen = {"password1": "a quiet green lamp", "password2": "a quiet green lamp"}
    assert signed_in(staff).post(path, chosen).status_code == 403
    assert signed_in(operator).get(path).status_code == 200
    assert signed_in(operator).post(path, {**chosen, "password2": "another"}).status_code == 200
    assert browser.get("/").status_code == 200
    assert signed_in(operator).post(path, chosen).status_code == 302
    assert browser.get("/").status_code == 302, "other sessions end"
    assert stranger().post("/login/", {"username": person.email, "password": chosen["password1"]}).status_code == 302
    event = AuditEntry.objects.filter(action=Action.USER_CHANGED).latest("sequence")
    assert (event.actor, event.target) == (operator.email, f"users/{person.pk}")
    assert signed_in(operator).get(path.replace(str(person.pk), "nobody")).status_code == 404


@pytest.mark.parametrize(
    ("label", "lookup"),
    [
        ("tenants.user", "password__startswith"),
        ("access.personalaccesstoken", "digest__startswith"),
        ("access.personalaccesstoken", "user__password__startswith"),
        ("tenants.cluster", "sealed_credential__startswith"),
        ("tenants.workspace", "user__password__startswith"),
    ],
)
def test_no_filter_tells_a_secret_letter_by_letter(label: str, lookup: str, acme: House, operator: User) -> None:
    """CT-19: a list that shows or hides a row answers questions about columns that it never shows."""
    client = signed_in(operator)
    assert client.get(url(label, "changelist"), {lookup: "a"}).status_code == 400
    assert client.get(url("tenants.user", "changelist"), {"is_staff__exact": "1"}).status_code == 200
