"""The console: every model to read, and only what services change to change."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.urls import reverse

from audit.actions import Action
from audit.models import AuditEntry
from tenants.models import Tenant, Tier, User
from tests import factories
from tests.portal.conftest import House, signed_in

MODELS = sorted(model._meta.label_lower for model in admin.site._registry)


def url(label: str, what: str, *args: object) -> str:
    return reverse(f"admin:{label.replace('.', '_')}_{what}", args=args)


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
    with django_assert_max_num_queries(10):  # type: ignore[operator]
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


def test_suspend_action_goes_through_the_service(acme: House, operator: User) -> None:
    client = signed_in(operator)
    path = url("tenants.workspace", "changelist")
    data = {"action": "suspend", "_selected_action": [str(acme.workspace.pk)]}
    refused = client.post(path, data, follow=True).content.decode()
    assert "Required value" in refused
    client.post(path, {**data, "reason": "mining"})
    acme.workspace.refresh_from_db()
    assert (acme.workspace.status, acme.workspace.suspended_reason) == ("suspended", "mining")
    assert AuditEntry.objects.filter(action=Action.WORKSPACE_SUSPENDED, actor=operator.email).exists()
    client.post(path, {"action": "resume", "_selected_action": [str(acme.workspace.pk)]})
    acme.workspace.refresh_from_db()
    assert acme.workspace.status == "active"


def test_tenant_is_suspended_and_resumed_by_action(acme: House, operator: User) -> None:
    client = signed_in(operator)
    path = url("tenants.tenant", "changelist")
    client.post(path, {"action": "suspend", "_selected_action": ["acme"], "reason": "not paid"})
    assert Tenant.objects.get(name="acme").state == "suspended"
    client.post(path, {"action": "resume", "_selected_action": ["acme"]})
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
    data = {
        "server": "https://elsewhere.test:6443",
        "client_url": "",
        "ca_data": made.ca_data,
        "tenant_role": "x",
        "is_default": "on",
    }
    signed_in(operator).post(url("tenants.cluster", "change", made.pk), data)
    made.refresh_from_db()
    assert made.sealed_credential is None
