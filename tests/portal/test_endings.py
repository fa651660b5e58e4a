"""What ends by itself: warned of, renewed by a click, at last taken away or kept closed; suspensions until a time (GW25)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from kube.requests.status import Conflict, Forbidden
from portal.notices.sending import notices_send
from tenants.models import Membership, Notification, Role, Status, TenantState, User, Workspace
from tenants.reconciler.lapses import lapses_sweep
from tenants.services import tenant_suspend, workspace_suspend
from tenants.services.endings import workspace_end_at
from tenants.services.memberships import membership_end_at
from tenants.suspensions import installation_close, installation_open
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send
from tests.portal.test_requests import actions, actor, text
from tests.tenants.conftest import OPERATOR


def told(user: User) -> list[str]:
    notices_send(now=timezone.now())
    rows = Notification.objects.filter(user=user, kind="expiry.ahead")
    return list(rows.order_by("created_at", "id").values_list("text", flat=True))


def end(who: User, workspace: Workspace, days: int) -> Any:
    return signed_in(who).post(f"/workspaces/{workspace.pk}/end/", {"days": str(days)})


def test_a_workspace_that_nobody_renews_is_warned_of_and_kept_closed(acme: House) -> None:
    found, now = acme.workspace, timezone.now()
    assert end(acme.owner, found, 30).status_code == 302
    assert "Ends" in text(acme.editor, f"/workspaces/{found.pk}/")
    for after, times in ((22, 0), (24, 1), (24, 1), (29.5, 2), (29.6, 2)):
        lapses_sweep(now=now + timedelta(days=after))
        assert len(told(acme.editor)) == len(told(acme.owner)) == times
    assert told(acme.viewer) == []
    lapses_sweep(now=now + timedelta(days=31))
    found.refresh_from_db()
    assert (found.status, found.suspended_by) == (Status.SUSPENDED, "system:expiry")
    assert "Whoever renews it opens it again" in text(acme.editor, f"/workspaces/{found.pk}/")
    assert end(acme.viewer, found, 30).status_code == 422
    assert end(acme.editor, found, 30).status_code == 302, "its own user renews"
    found.refresh_from_db()
    assert (found.status, found.warned_days) == (Status.ACTIVE, None)
    assert actions()[-2:] == ["workspace.renew", "workspace.resume"]


def test_what_somebody_has_closed_is_opened_by_no_renewal(acme: House) -> None:
    found, now = acme.workspace, timezone.now()
    end(acme.owner, found, 7)
    lapses_sweep(now=now + timedelta(days=8))
    workspace_suspend(actor=OPERATOR, workspace_id=found.pk, reason="mining")
    assert end(acme.editor, found, 30).status_code == 422
    assert end(acme.owner, found, 30).status_code == 422
    found.refresh_from_db()
    assert (found.status, found.suspended_reason) == (Status.SUSPENDED, "mining")


def test_whose_workspace_it_is_renews_it_and_no_more(acme: House) -> None:
    found, now = acme.workspace, timezone.now()
    mine = actor(acme.editor)
    with pytest.raises(Forbidden, match="no end"):
        workspace_end_at(actor=mine, workspace_id=found.pk, expires_at=now + timedelta(days=9), now=now)
    end(acme.admin, found, 7)
    for until in (None, now + timedelta(days=91)):
        with pytest.raises(Forbidden, match="90 days"):
            workspace_end_at(actor=mine, workspace_id=found.pk, expires_at=until, now=now)
    assert end(acme.editor, found, 90).status_code == 302
    assert end(acme.owner, found, 0).status_code == 302
    found.refresh_from_db()
    assert found.expires_at is None


def test_a_membership_ends_with_its_credentials_unless_it_is_renewed(acme: House, globex: House) -> None:
    page = f"/tenants/acme/members/{acme.viewer.pk}/end/"
    assert signed_in(acme.editor).post(page, {"days": "7"}).status_code == 422
    assert signed_in(globex.owner).post(page, {"days": "7"}).status_code == 404
    assert signed_in(acme.admin).post(page, {"days": "7"}).status_code == 302
    assert signed_in(acme.admin).post(f"/tenants/acme/members/{acme.admin.pk}/end/", {"days": "0"}).status_code == 422
    lapses_sweep(now=timezone.now())
    assert "Your membership in acme ends on" in told(acme.viewer)[0]
    signed_in(acme.owner).post(page, {"days": "30"})
    row = Membership.objects.get(user=acme.viewer)
    assert row.expires_at is not None
    assert row.expires_at > timezone.now() + timedelta(days=29)
    credential = factories.credential(acme.workspace, acme.viewer)
    Membership.objects.filter(pk=row.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert signed_in(acme.viewer).get("/tenants/acme/").status_code == 404
    lapses_sweep(now=timezone.now())
    credential.refresh_from_db()
    assert not Membership.stored.filter(pk=row.pk).exists()
    assert credential.revoked_at is not None


def test_the_last_owner_stays(acme: House) -> None:
    now = timezone.now()
    with pytest.raises(Conflict, match="last owner"):
        membership_end_at(actor=OPERATOR, tenant="acme", user=acme.owner, expires_at=now + timedelta(days=1), now=now)
    other = factories.member(acme.tenant, Role.OWNER)
    membership_end_at(actor=OPERATOR, tenant="acme", user=acme.owner, expires_at=now + timedelta(days=1), now=now)
    removed = signed_in(other).post(f"/tenants/acme/members/{other.pk}/remove/")
    assert removed.status_code == 422, "the other one ends"


def test_a_suspension_ends_by_itself(acme: House, operator: User) -> None:
    until = timezone.now() + timedelta(hours=2)
    sent = {"reason": "maintenance", "until": f"{until:%Y-%m-%dT%H:%M}"}
    assert signed_in(operator).post(f"/workspaces/{acme.workspace.pk}/suspend/", sent).status_code == 302
    assert "It is resumed on" in text(acme.editor, f"/workspaces/{acme.workspace.pk}/")
    lapses_sweep(now=until - timedelta(minutes=5))
    acme.workspace.refresh_from_db()
    assert acme.workspace.status == Status.SUSPENDED
    lapses_sweep(now=until + timedelta(minutes=1))
    acme.workspace.refresh_from_db()
    assert (acme.workspace.status, acme.workspace.suspended_until) == (Status.ACTIVE, None)
    body = {"reason": "unpaid", "until": (timezone.now() + timedelta(days=1)).isoformat()}
    assert send(bearer(operator, "operate"), "POST", "tenants/acme/suspend", body).status_code == 200
    lapses_sweep(now=timezone.now() + timedelta(days=2))
    acme.tenant.refresh_from_db()
    assert acme.tenant.state == TenantState.ACTIVE
    past = {"reason": "x", "until": "2020-01-01T00:00"}
    assert signed_in(operator).post("/tenants/acme/suspend/", past).status_code == 422


def test_the_newest_word_about_a_suspension_counts(acme: House) -> None:
    """Whoever pulls the kill switch again without an end keeps it pulled."""
    until = timezone.now() + timedelta(hours=1)
    tenant_suspend(actor=OPERATOR, name="acme", reason="maintenance", until=until)
    tenant_suspend(actor=OPERATOR, name="acme", reason="mining")
    lapses_sweep(now=until + timedelta(minutes=1))
    acme.tenant.refresh_from_db()
    assert (acme.tenant.state, acme.tenant.suspended_until) == (TenantState.SUSPENDED, None)


def test_nothing_opens_while_the_platform_is_closed_after_a_restore(acme: House) -> None:
    until = timezone.now() + timedelta(hours=1)
    tenant_suspend(actor=OPERATOR, name="acme", reason="maintenance", until=until)
    installation_close("restored")
    lapses_sweep(now=until + timedelta(minutes=1))
    acme.tenant.refresh_from_db()
    assert acme.tenant.state == TenantState.SUSPENDED
    installation_open()
    lapses_sweep(now=until + timedelta(minutes=1))
    acme.tenant.refresh_from_db()
    assert acme.tenant.state == TenantState.ACTIVE


def test_a_workspace_does_not_open_within_a_closed_tenant(acme: House) -> None:
    until = timezone.now() + timedelta(hours=1)
    workspace_suspend(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="maintenance", until=until)
    tenant_suspend(actor=OPERATOR, name="acme", reason="unpaid")
    lapses_sweep(now=until + timedelta(minutes=1))
    acme.workspace.refresh_from_db()
    assert acme.workspace.status == Status.SUSPENDED
