"""Workers' sweeps: what cannot be done of one tenant's keeps nobody else's from being done (GW15, GW25)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
from django.core import mail
from django.core.mail import EmailMessage
from django.core.mail.backends.locmem import EmailBackend as LocmemBackend
from django.db.models import Model
from django.utils import timezone

from access.credentials.warnings import credentials_announce
from access.models import PersonalAccessToken
from portal.notices.sending import notices_send
from tenants.models import (
    AccessRequest,
    Delivery,
    Freeze,
    Membership,
    Notice,
    Notification,
    Offboarding,
    Role,
    Tenant,
    Workspace,
)
from tenants.reconciler.lapses import lapses_sweep
from tenants.services import membership_set, tenant_suspend, workspace_suspend
from tenants.services.operating.freezing import tenant_freeze
from tenants.services.operating.offboarding import tenant_offboard
from tests import factories
from tests.databases import owning
from tests.portal.conftest import House
from tests.portal.test_api import bearer
from tests.tenants.conftest import OPERATOR

NOW = timezone.now()
PAST, SOON = NOW - timedelta(seconds=1), NOW + timedelta(hours=1)


def membership(house: House) -> Model:
    Membership.objects.filter(user=house.viewer).update(expires_at=PAST)
    return Membership.stored.get(user=house.viewer)


def membership_to_end(house: House) -> Model:
    Membership.objects.filter(user=house.viewer).update(expires_at=SOON)
    return Membership.objects.get(user=house.viewer)


def request(house: House) -> Model:
    made = factories.access_request(house.tenant, house.viewer)
    AccessRequest.objects.filter(pk=made.pk).update(expires_at=PAST)
    return made


def workspace(house: House) -> Model:
    Workspace.objects.filter(pk=house.workspace.pk).update(expires_at=PAST)
    return house.workspace


def workspace_to_end(house: House) -> Model:
    Workspace.objects.filter(pk=house.workspace.pk).update(expires_at=SOON)
    return house.workspace


def suspended_workspace(house: House) -> Model:
    workspace_suspend(actor=OPERATOR, workspace_id=house.workspace.pk, reason="mining")
    Workspace.objects.filter(pk=house.workspace.pk).update(suspended_until=PAST)
    return house.workspace


def suspended_tenant(house: House) -> Model:
    tenant_suspend(actor=OPERATOR, name=house.tenant.name, reason="unpaid")
    Tenant.objects.filter(pk=house.tenant.pk).update(suspended_until=PAST)
    return house.tenant


def freeze(house: House) -> Model:
    tenant_freeze(actor=OPERATOR, name=house.tenant.name, reason="moving", until=None)
    Freeze.objects.filter(tenant=house.tenant).update(until=PAST)
    return Freeze.objects.get(tenant=house.tenant)


def offboarding(house: House) -> Model:
    tenant_offboard(actor=OPERATOR, name=house.tenant.name, reason="x", ends_at=NOW + timedelta(days=30), now=NOW)
    Offboarding.objects.filter(tenant=house.tenant).update(ends_at=PAST)
    return house.tenant


def offboarding_to_end(house: House) -> Model:
    tenant_offboard(actor=OPERATOR, name=house.tenant.name, reason="x", ends_at=NOW + timedelta(days=30), now=NOW)
    Offboarding.objects.filter(tenant=house.tenant).update(ends_at=SOON)
    return Offboarding.objects.get(tenant=house.tenant)


def token(house: House) -> Model:
    bearer(house.viewer)
    PersonalAccessToken.objects.filter(user=house.viewer).update(created_at=NOW - timedelta(days=90), expires_at=SOON)
    return PersonalAccessToken.objects.get(user=house.viewer)


def notice(house: House) -> Model:
    membership_set(actor=OPERATOR, tenant=house.tenant.name, user=house.viewer, role=Role.EDITOR)
    return Notice.objects.get(tenant=house.tenant)


@pytest.fixture
def refuse() -> Iterator[Callable[[Model], None]]:
    """Have the database neither change a row nor take it away, until the test is over."""
    undone: list[str] = []

    def of(row: Model) -> None:
        table, key = row._meta.db_table, row._meta.pk
        assert key is not None
        with owning() as cursor:
            cursor.execute(
                "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
                " $$ BEGIN RAISE EXCEPTION 'refused'; END $$;"
                f"CREATE TRIGGER refuse BEFORE UPDATE OR DELETE ON {table} FOR EACH ROW"
                f" WHEN (OLD.{key.column}::text = '{row.pk}') EXECUTE FUNCTION refuse()"
            )
        undone.append(f"DROP TRIGGER refuse ON {table}; DROP FUNCTION refuse()")

    yield of
    with owning() as cursor:
        cursor.execute("".join(undone))


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("made", "sweep"),
    [
        *((each, lapses_sweep) for each in (membership, membership_to_end, request, workspace, workspace_to_end)),
        *((each, lapses_sweep) for each in (suspended_workspace, suspended_tenant, freeze)),
        *((each, lapses_sweep) for each in (offboarding, offboarding_to_end)),
        *((token, credentials_announce), (notice, notices_send)),
    ],
)
def test_one_that_cannot_be_done_keeps_no_other_from_being_done(
    acme: House,
    globex: House,
    refuse: Callable[[Model], None],
    made: Callable[[House], Model],
    sweep: Callable[..., int],
) -> None:
    """The database refuses to change one row, or to take it away, as it does where a rule of it is broken."""
    refused, other = made(acme), made(globex)
    later = factories.workspace(globex.tenant, globex.editor, "later", expires_at=SOON)
    before = row_of(other)
    refuse(refused)
    kept = row_of(refused)
    sweep(now=NOW)
    assert row_of(refused) == kept
    assert row_of(other) != before
    if sweep is lapses_sweep and not isinstance(refused, Tenant):
        later.refresh_from_db()
        assert later.warned_days == 1, "what comes last in the sweep is done too"
    assert AccessRequest.objects.filter(state="open").count() == (1 if made is request else 0)


def row_of(row: Model) -> object:
    return type(row)._base_manager.filter(pk=row.pk).values().first()


@pytest.mark.django_db(transaction=True)
def test_a_notification_that_goes_while_its_e_mail_is_sent_holds_up_nobody_elses(
    acme: House, globex: House, settings: Any
) -> None:
    """A person who is told very much loses the oldest of it, also what is under way."""
    settings.EMAIL_IS_SET = True
    settings.EMAIL_BACKEND = f"{__name__}.Forgetful"
    for tenant, user in (("acme", acme.viewer), ("globex", globex.viewer)):
        membership_set(actor=OPERATOR, tenant=tenant, user=user, role=Role.EDITOR)
    now = timezone.now()
    notices_send(now=now)
    assert {message.to[0] for message in mail.outbox} == {acme.viewer.email, globex.viewer.email}
    assert not Delivery.objects.exists()


class Forgetful(LocmemBackend):
    """A mail server that takes its time: what it is given has been pushed out of the list when it answers."""

    def send_messages(self, messages: Sequence[EmailMessage]) -> int:
        Notification.objects.filter(user__email__in=[to for each in messages for to in each.to]).delete()
        return super().send_messages(messages)
