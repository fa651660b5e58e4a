"""Joining a tenant by a link: made, shown once, used once, by whom it is for alone (GW14)."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.sessions.models import Session
from django.test import Client
from django.utils import timezone

from audit.models import AuditEntry
from kube.requests.status import Conflict
from portal.backup.closing import credentials_end_all
from portal.signin.accounts import user_change
from portal.signin.resets import password_link_create, password_link_use
from tenants.models import Invitation, Membership, PasswordReset, Role, User
from tenants.services.memberships import (
    membership_break_glass,
    membership_end_at,
    membership_remove,
    membership_set,
    memberships_lapse,
)
from tenants.services.tenants import tenant_suspend
from tests import factories
from tests.portal.conftest import House, signed_in, stranger
from tests.portal.test_api import bearer, send
from tests.tenants.conftest import OPERATOR, actor_of

PASSWORD = "a long and windy road"


def invite(by: User, email: str = "newt@acme.test", role: str = "editor", days: str = "7") -> str:
    """The link's path, as the page shows it this once."""
    answer = signed_in(by).post("/tenants/acme/members/invite/", {"email": email, "role": role, "days": days})
    assert answer.status_code == 200, answer.content.decode()
    return re.search(r"http://testserver(/join/[\w-]+/)", answer.content.decode())[1]  # type: ignore[index]


def opened(browser: Client, link: str) -> str:
    """The page to which a link leads, whose address has no secret."""
    answer = browser.get(link)
    assert (answer.status_code, answer.headers.get("Location")) == (302, "/join/")
    return str(browser.get("/join/").content.decode())


def accept(browser: Client, link: str, **sent: str) -> Any:
    """Open a link and send its form."""
    opened(browser, link)
    return browser.post("/join/", sent)


def actions(chain: str = "acme") -> list[str]:
    return list(AuditEntry.objects.filter(chain=chain).order_by("sequence").values_list("action", flat=True))


def test_a_newcomer_sets_a_password_and_is_in(acme: House) -> None:
    link = invite(acme.owner)
    assert "newt@acme.test" in signed_in(acme.admin).get("/tenants/acme/members/").content.decode()
    browser = stranger()
    page = opened(browser, link)
    assert "Join acme" in page
    assert acme.owner.email in page
    weak = browser.post("/join/", {"name": "Newt", "password": "short"})
    assert (weak.status_code, User.objects.filter(email="newt@acme.test").exists()) == (422, False)
    answer = browser.post("/join/", {"name": "Newt", "password": PASSWORD}, follow=True)
    assert answer.redirect_chain == [("/tenants/acme/", 302)]
    newt = User.objects.get(email="newt@acme.test")
    assert (newt.name, newt.memberships.get().role, newt.check_password(PASSWORD)) == ("Newt", "editor", True)
    assert stranger().get(link).status_code == 404, "once"
    assert actions()[-2:] == ["invitation.create", "invitation.accept"]
    assert {"user.create", "session.open"} <= set(actions("system"))


def test_the_secret_is_kept_nowhere(acme: House) -> None:
    secret = invite(acme.owner).split("/")[2]
    opened(stranger(), f"/join/{secret}/")
    sessions = [each.get_decoded() for each in Session.objects.all()]
    kept = [*Invitation.objects.values_list(), *AuditEntry.objects.values_list(), *sessions]
    assert secret not in repr(kept)


def test_somebody_with_an_account_signs_in_and_accepts(acme: House) -> None:
    person, other = factories.user("Jane@Elsewhere.test"), factories.user()
    link = invite(acme.owner, "jane@elsewhere.test", "viewer")
    assert "/login/?next=/join/" in opened(stranger(), link)
    assert accept(stranger(), link, password=PASSWORD).status_code == 200
    assert not person.memberships.exists(), "whoever has the link alone is nobody"
    theirs = signed_in(other)
    assert "signed in as somebody else" in opened(theirs, link)
    theirs.post("/join/")
    assert not Membership.objects.filter(user=other).exists()
    assert accept(signed_in(person), link).status_code == 302
    assert person.memberships.get().role == "viewer"


def test_an_invitation_ends_by_time_by_hand_and_with_a_restore(acme: House, operator: User) -> None:
    link = invite(acme.owner)
    row = Invitation.objects.get()
    answer = signed_in(acme.admin).post(f"/tenants/acme/invitations/{row.pk}/revoke/")
    assert (answer.status_code, stranger().get(link).status_code) == (302, 404)
    link = invite(operator)
    Invitation.objects.filter(revoked_at=None).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert stranger().get(link).status_code == 404
    link = invite(operator)
    list(credentials_end_all(now=timezone.now()))
    assert stranger().get(link).status_code == 404
    assert actions().count("invitation.revoke") == 1


def test_whoever_invited_and_is_an_auditor_since_has_invited_nobody(acme: House, operator: User) -> None:
    link = invite(acme.admin, "one@acme.test")
    user_change(actor=actor_of(operator), user_id=acme.admin.pk, is_auditor=True)
    refused = accept(stranger(), link, password=PASSWORD)
    assert (refused.status_code, "may not do so any more" in refused.content.decode()) == (422, True)


def test_whoever_invited_must_still_be_able_to(acme: House) -> None:
    """Who was removed, lowered or disabled meanwhile has invited nobody."""
    links = [invite(acme.admin, "one@acme.test"), invite(acme.admin, "two@acme.test")]
    membership_remove(actor=OPERATOR, tenant="acme", user=acme.admin)
    refused = accept(stranger(), links[0], password=PASSWORD)
    assert (refused.status_code, "may not do so any more" in refused.content.decode()) == (422, True)
    assert not User.objects.filter(email="one@acme.test").exists(), "all or nothing"
    Membership.objects.create(tenant=acme.tenant, user=acme.admin, role=Role.ADMIN)
    User.objects.filter(pk=acme.admin.pk).update(status=User.Status.DISABLED)
    assert accept(stranger(), links[1], password=PASSWORD).status_code == 422


def _set(role: str) -> Any:
    return lambda person: membership_set(actor=OPERATOR, tenant="acme", user=person, role=Role(role))


def _removed(person: User) -> None:
    _set("admin")(person)
    membership_remove(actor=OPERATOR, tenant="acme", user=person)


def _ending(person: User) -> None:
    _set("viewer")(person)
    soon, now = timezone.now() + timedelta(days=1), timezone.now()
    membership_end_at(actor=OPERATOR, tenant="acme", user=person, expires_at=soon, now=now)


def _lapsed(person: User) -> None:
    _ending(person)
    Membership.objects.filter(user=person).update(expires_at=timezone.now())
    memberships_lapse()


def _glass(person: User) -> None:
    now = timezone.now()
    membership_break_glass(actor=OPERATOR, tenant="acme", user=person, role=Role.EDITOR, minutes=5, now=now)


@pytest.mark.parametrize("decided", [_set("viewer"), _set("editor"), _removed, _ending, _lapsed, _glass])
def test_what_is_decided_about_somebody_ends_the_links_from_before(acme: House, decided: Any) -> None:
    """Whoever was made less, or put out, leaves and is back by the old link as more: not here."""
    person = factories.user("jane@elsewhere.test")
    link = invite(acme.owner, person.email, "admin")
    decided(person)
    browser = signed_in(person)
    if Membership.objects.filter(user=person).exists():
        assert browser.post(f"/tenants/acme/members/{person.pk}/remove/", {"confirm": person.email}).status_code == 302
    assert browser.get(link).status_code == 404
    assert not Membership.objects.filter(user=person).exists()
    again = invite(acme.owner, person.email, "viewer")
    assert accept(browser, again).status_code == 302
    assert Membership.objects.get(user=person).role == "viewer"


def test_a_link_that_was_made_since_a_membership_ended_brings_back(acme: House) -> None:
    person = factories.member(acme.tenant, Role.VIEWER, factories.user("jane@elsewhere.test"))
    Membership.objects.filter(user=person).update(expires_at=timezone.now())
    link = invite(acme.owner, person.email, "viewer")
    memberships_lapse()
    assert accept(signed_in(person), link).status_code == 302


def test_an_address_that_a_tenant_has_made_an_account_of_is_nobody_elsewhere(acme: House, globex: House) -> None:
    """Whoever makes a link can use it: others would add them as the person whose address it is."""
    accept(stranger(), invite(acme.admin, "chief@globex.test", "viewer"), name="Chief", password=PASSWORD)
    squatter, script = User.objects.get(email="chief@globex.test"), bearer(globex.owner, "write")
    body = {"email": squatter.email, "role": "admin"}
    added = signed_in(globex.owner).post("/tenants/globex/members/add/", body)
    assert (added.status_code, "invite the address" in added.content.decode()) == (422, True)
    assert send(script, "POST", "tenants/globex/members/", body).status_code == 409
    asked = {"kind": "role", "tenant": "globex", "role": "admin", "reason": "I am the chief"}
    wish = send(bearer(squatter, "write"), "POST", "requests/", asked).json()["id"]
    assert send(script, "POST", f"requests/{wish}/approve", {}).status_code == 409
    glass = {"tenant": "globex", "user": squatter, "role": Role.EDITOR, "minutes": 5, "now": timezone.now()}
    with pytest.raises(Conflict, match="invite the address"):
        membership_break_glass(actor=actor_of(globex.owner), **glass)
    assert not Membership.objects.filter(user=squatter, tenant="globex").exists()
    # What proves it: a link that was mailed to the address and used.
    now = timezone.now()
    made = password_link_create(actor=OPERATOR, user_id=squatter.pk, now=now)
    PasswordReset.objects.filter(pk=made.reset.pk).update(made_by="")
    password_link_use(actor=OPERATOR, digest=made.reset.digest, password="another windy road", now=now)
    assert send(script, "POST", "tenants/globex/members/", body).status_code == 201


def test_who_may_invite_as_what(acme: House, globex: House) -> None:
    """As with members: admins up to admin, owners everybody; editors and strangers nobody."""
    asked = {"email": "new@acme.test", "role": "owner", "days": "7"}
    page = "/tenants/acme/members/invite/"
    assert signed_in(acme.admin).post(page, asked).status_code == 422
    assert [signed_in(who).post(page, asked).status_code for who in (acme.editor, globex.owner)] == [403, 404]
    assert signed_in(acme.owner).post(page, asked).status_code == 200
    assert signed_in(acme.owner).post(page, asked).status_code == 422, "invited already"
    assert signed_in(acme.owner).post(page, {**asked, "email": acme.viewer.email}).status_code == 422
    row = Invitation.objects.get()
    for who, status in ((acme.editor, 403), (globex.owner, 404)):
        assert signed_in(who).post(f"/tenants/acme/invitations/{row.pk}/revoke/").status_code == status
    assert "Invited, not here yet" not in signed_in(acme.viewer).get("/tenants/acme/members/").content.decode()


def test_a_closed_tenant_lets_nobody_join(acme: House) -> None:
    link = invite(acme.owner)
    tenant_suspend(actor=OPERATOR, name="acme", reason="unpaid")
    refused = accept(stranger(), link, password=PASSWORD)
    assert (refused.status_code, "unpaid" in refused.content.decode()) == (422, True)


def test_the_rest_api_invites_lists_and_revokes(acme: House) -> None:
    path, body = "tenants/acme/invitations/", {"email": "new@acme.test", "role": "viewer", "days": 1}
    client = bearer(acme.owner)
    made = send(client, "POST", path, body)
    assert (made.status_code, made.headers["Cache-Control"]) == (201, "no-store")
    link = made.json()["link"].removeprefix("http://testserver")
    (row,) = send(client, "GET", path).json()["results"]
    assert (row["email"], row["role"], row["invited_by"]) == ("new@acme.test", "viewer", acme.owner.email)
    assert "link" not in row
    assert stranger().get(link).status_code == 302
    ended = send(client, "POST", f"{path}{row['id']}/revoke")
    assert (ended.status_code, stranger().get(link).status_code) == (200, 404)
    assert send(bearer(acme.editor), "GET", path).status_code == 403
    wrong: list[dict[str, Any]] = [{**body, "days": 31}, {**body, "role": "king"}, {**body, "email": "x"}]
    assert [send(client, "POST", path, each).status_code for each in wrong] == [400] * 3


@pytest.mark.parametrize("secret", ["x", "0" * 43, "a" * 2000])
def test_other_links_say_nothing(secret: str) -> None:
    assert Client().get(f"/join/{secret}/").status_code == 404
