"""Behind the closed doors of a restored installation: people of tenants are told, operators open (P12)."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db.models import DateTimeField
from django.test import Client
from django.utils import timezone

from access.models import Credential, Login, PersonalAccessToken
from kube.requests.status import Conflict
from portal.backup import closing
from portal.backup.newer import Newer, freezes_keep, offboardings_keep
from portal.backup.opening import restored_open
from tenants.models import (
    Desired,
    Freeze,
    Offboarding,
    Operation,
    OperationState,
    Phase,
    Status,
    Tenant,
    User,
    Workspace,
)
from tenants.reconciler.lapses import lapses_sweep
from tenants.services.operating.offboarding import tenant_offboard
from tenants.services.tenants import tenant_suspend
from tenants.suspensions import installation_close, installation_closed
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer
from tests.portal.test_stored_texts import full_house
from tests.tenants.conftest import OPERATOR


def restored() -> None:
    """What a restore does to what it has put back."""
    installation_close(closing.REASON)
    list(closing.credentials_end_all(now=timezone.now()))
    list(closing.tenants_close(Newer()))
    list(freezes_keep(Newer()))
    list(offboardings_keep(Newer()))


def rest(client: Client) -> int:
    return int(client.get("/api/v1/workspaces/").status_code)


@pytest.mark.parametrize("path", ["/", "/workspaces/", "/profile/", "/tokens/", "/api/v1/workspaces/", "/api/v1/me/"])
def test_people_of_tenants_are_told_and_may_leave(acme: House, operator: User, path: str) -> None:
    installation_close(closing.REASON)
    for person in (acme.owner, acme.viewer):
        client = signed_in(person)
        answer = client.get(path)
        assert answer.status_code == 503
        assert closing.REASON in answer.content.decode()
        assert client.post("/logout/").status_code == 302
    assert signed_in(operator).get(path).status_code == 200


def test_a_token_of_a_person_opens_nothing_while_it_is_closed(acme: House, operator: User) -> None:
    """Even one that somehow lives: the door does not ask how."""
    installation_close(closing.REASON)
    assert rest(bearer(acme.owner)) == 503
    assert rest(bearer(operator)) == 200


def test_everything_issued_ends_and_every_workspace_is_closed_once_more(acme: House, globex: House) -> None:
    tokens = [bearer(acme.owner), bearer(globex.owner, tenant=globex.tenant)]
    credentials = [factories.credential(acme.workspace, acme.editor, kind=kind) for kind in ("direct", "gateway")]
    login = Login.objects.create(user=acme.owner, expires_at=timezone.now() + timedelta(hours=1))
    tenant_suspend(actor=OPERATOR, name="globex", reason="mining")
    generation = Workspace.objects.get(pk=globex.workspace.pk).generation
    restored()
    assert [rest(token) for token in tokens] == [401, 401]
    assert not PersonalAccessToken.objects.filter(revoked_at=None)
    assert not Credential.objects.filter(pk__in=[each.pk for each in credentials], revoked_at=None)
    assert Login.objects.get(pk=login.pk).revoked_at
    for house in (acme, globex):
        operation = Operation.objects.get(workspace=house.workspace, state=OperationState.PENDING)
        assert operation.desired == Desired.SUSPENDED
    assert Workspace.objects.get(pk=globex.workspace.pk).generation == generation + 1
    assert Tenant.objects.get(name="globex").suspended_by == OPERATOR.name


def test_an_operator_opens_once_clusters_have_confirmed(acme: House, globex: House, operator: User) -> None:
    """And what others have suspended stays so."""
    tenant_suspend(actor=OPERATOR, name="globex", reason="mining")
    restored()
    for person in (operator, acme.owner):
        person.refresh_from_db()
    client = signed_in(operator)
    assert "Closed to everybody but operators" in client.get("/").content.decode()
    assert signed_in(acme.owner).post("/restore/open/").status_code == 503
    page = client.post("/restore/open/")
    assert page.status_code == 422
    assert "Not confirmed yet" in page.content.decode()
    assert installation_closed()
    Workspace.objects.update(phase=Phase.SUSPENDED)
    assert client.post("/restore/open/").status_code == 302
    assert "Closed to everybody" not in client.get("/").content.decode()
    assert signed_in(acme.owner).get("/workspaces/").status_code == 200
    assert [tenant.state for tenant in Tenant.objects.filter(name__in=["acme", "globex"]).order_by("name")] == [
        "active",
        "suspended",
    ]
    assert Workspace.objects.get(pk=acme.workspace.pk).status == Status.ACTIVE
    assert Workspace.objects.get(pk=globex.workspace.pk).status == Status.SUSPENDED
    with pytest.raises(Conflict):
        restored_open(actor=OPERATOR)


def test_a_cluster_that_will_not_come_back_is_waited_for_no_longer(acme: House) -> None:
    restored()
    with pytest.raises(Conflict, match="acme-web"):
        restored_open(actor=OPERATOR)
    assert restored_open(actor=OPERATOR, despite_unconfirmed=True) == 1
    assert not installation_closed()


@pytest.mark.parametrize("manner", Offboarding.Manner.values)
def test_who_begins_to_leave_behind_closed_doors_keeps_nobody_else_outside(
    acme: House, globex: House, manner: str
) -> None:
    """Frozen, it opens and stays frozen; suspended, it stays closed."""
    restored()
    now = timezone.now()
    ends_at = now + timedelta(days=30)
    tenant_offboard(actor=OPERATOR, name="acme", reason="merger", ends_at=ends_at, manner=manner, now=now)
    frozen = manner == Offboarding.Manner.FREEZE
    assert restored_open(actor=OPERATOR, despite_unconfirmed=True) == 1 + frozen
    assert Tenant.objects.get(name="globex").state == "active"
    assert Tenant.objects.get(name="acme").state == ("active" if frozen else "suspended")
    assert Freeze.objects.filter(tenant="acme").exists() == frozen
    assert Offboarding.objects.get().ends_at == ends_at


def test_no_date_of_a_backup_ends_anything_for_good_once_it_is_open(operator: User) -> None:
    """With a row of everything, and every date of each long gone by."""
    acme = full_house(operator)
    long_ago = timezone.now() - timedelta(days=30)
    for model in (Tenant, Workspace, Freeze, Offboarding):
        dates = {field.name for field in model._meta.local_fields if isinstance(field, DateTimeField)}
        model._base_manager.update(**dict.fromkeys(dates - {"suspended_at", "deleted_at"}, long_ago))
    restored()
    there = set(Workspace.objects.exclude(status=Status.DELETED).values_list("pk", flat=True))
    restored_open(actor=OPERATOR, despite_unconfirmed=True)
    lapses_sweep(now=timezone.now())
    assert Tenant.objects.get(name=acme.tenant.name).state == "active"
    assert set(Workspace.objects.exclude(status=Status.DELETED).values_list("pk", flat=True)) == there
    assert Freeze.objects.filter(tenant=acme.tenant).exists()
