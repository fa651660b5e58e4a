"""An e-mail address is one person's: none that is like it is taken for it, and who shows that it is theirs has it alone (GW14)."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from datetime import timedelta
from io import StringIO
from typing import Any, Final

import pytest
from django.contrib import auth
from django.core.exceptions import ValidationError
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.utils import timezone
from pyotp import TOTP

from audit.models import AuditEntry
from kube.requests.status import Forbidden, Invalid
from portal.notices.sending import notices_send
from portal.signin import attempts
from portal.signin.accounts import address_prove, email_follow
from portal.signin.factors import factor_of
from portal.signin.oidc.mapping import Rights
from portal.signin.oidc.people import Person, user_admit
from portal.signin.ranks import RANKS, has_rank
from portal.signin.resets import password_link_ask
from tenants.models import Invitation, Membership, PasswordReset, Role, User
from tenants.models.mailaddresses import address_key, check_address
from tenants.rights import person_locked
from tenants.selectors import user_by_email
from tenants.services.memberships import membership_remove, membership_set
from tenants.services.namespaces import _person
from tests import factories
from tests.portal.authenticator import Authenticator
from tests.portal.conftest import House, signed_in, stranger
from tests.portal.test_api import bearer, send
from tests.portal.test_attempts import use_up
from tests.portal.test_invitations import accept, invite
from tests.portal.test_new_passwords import ask, link_of, made
from tests.portal.test_passkeys import NEW, added, offered, used
from tests.portal.test_sessions import is_ended, machine_of
from tests.portal.test_signin_steps import OWN, opened, present, secret_on, with_app
from tests.requirements import FLOORS, ROOT
from tests.tenants.conftest import OPERATOR, actor_of

MADE_ASCII: Final = """
SELECT chr(code) FROM generate_series(128, %s) AS code
WHERE code NOT BETWEEN 55296 AND 57343 AND (lower(chr(code)) || upper(chr(code))) ~ '[ -~]'
"""
LOOKALIKES: Final = ("m\u0131ke@corp.test", "mi\u212ae@corp.test", "mike@corp.te\u017ft", "m\u0130ke@corp.test")
SAME_MAIL: Final = (
    "cor\u00adp.test",
    "corp\u3002test",
    "\uff43orp.test",
    "corp.te\u00dft",
    "c\u200borp.test",
    "o\ufb03ce.test",
)
"""Mail for these goes to a domain of ASCII."""

SOURCES: Final = [p for floor in FLOORS for p in (ROOT / floor).rglob("*.py") if "migrations" not in p.parts]


def made_ascii() -> list[str]:
    """Each letter of which the database, or Python, makes one of ASCII by changing its case."""
    with connection.cursor() as cursor:
        cursor.execute(MADE_ASCII, [sys.maxunicode])
        found = {letter for (letter,) in cursor.fetchall()}
    forms = {chr(code): chr(code).lower() + chr(code).upper() + chr(code).casefold() for code in range(128, 0x110000)}
    return sorted(found | {letter for letter, made in forms.items() if any(each.isascii() for each in made)})


def is_refused(email: str) -> bool:
    try:
        check_address(email)
    except ValidationError:
        return True
    return False


def by_mail(person: User, mail_server: list[Any]) -> None:
    """Set a password by a link that goes to the address."""
    ask(person.email)
    browser = stranger()
    browser.get(link_of(str(mail_server[-1].body)))
    assert browser.post("/reset/", {"password": OWN}).status_code == 302


def test_no_letter_that_becomes_one_of_ascii_is_in_an_address() -> None:
    letters = made_ascii()
    assert set("\u0130\u0131\u017f\u212a") <= set(letters)
    shapes = ("mi{}ke@corp.test", "mike@co{}rp.test", "mike@corp.te{}st")
    assert [shape.format(each) for each in letters for shape in shapes if not is_refused(shape.format(each))] == []
    assert [domain for domain in SAME_MAIL if not is_refused(f"mike@{domain}")] == []
    assert is_refused("\u00c4nna@corp.test"), "letters beyond ASCII are a domain's alone"
    assert [each for each in letters if not each.isascii() and address_key(each).isascii()] == []


@pytest.mark.parametrize(
    "email", ["mike@corp.test", "Mike@Corp.test", "mike@m\u00fcnchen.test", "mike@\u4f8b\u3048.test"]
)
def test_other_alphabets_stay(email: str) -> None:
    check_address(email)


@pytest.mark.parametrize("email", LOOKALIKES)
def test_nobody_is_invited_or_known_by_such_an_address(acme: House, operator: User, email: str) -> None:
    body = {"email": email, "role": "viewer", "days": "7"}
    page = signed_in(acme.owner).post("/tenants/acme/members/invite/", body)
    assert (page.status_code, "taken for another" in page.content.decode()) == (422, True)
    assert send(bearer(acme.owner), "POST", "tenants/acme/invitations/", {**body, "days": 7}).status_code == 400
    assert send(bearer(operator, "operate"), "POST", "users/", {"email": email}).status_code == 400
    email_follow(actor=OPERATOR, user=acme.viewer, email=email)
    assert not User.objects.filter(email=email).exists()


@pytest.mark.parametrize(
    ("email", "known"),
    [*((each, False) for each in LOOKALIKES), (LOOKALIKES[0], True), (LOOKALIKES[2], True)],
)
def test_who_has_such_an_address_from_before_is_nobody_else(acme: House, email: str, known: bool) -> None:
    """By no way in which people are named: neither without an account of the other, nor beside one where that can be."""
    lookalike = factories.user(email)
    mike = factories.user("mike@corp.test") if known else None
    if mike is None:
        with pytest.raises(Invalid, match="no such account"):
            user_by_email("mike@corp.test", field="email")
        with pytest.raises(Forbidden):
            _person(actor_of(User(email="mike@corp.test", is_staff=True)), "acme")
    body = {"email": "Mike@corp.test ", "role": "viewer"}
    added = signed_in(acme.owner).post("/tenants/acme/members/add/", body)
    assert added.status_code == (302 if mike else 422)
    send(bearer(acme.owner), "POST", "tenants/acme/members/", body)
    password_link_ask(email=body["email"], now=lookalike.created_at)
    assert auth.authenticate(username=body["email"], password=factories.PASSWORD) == mike
    assert not Membership.objects.filter(user=lookalike).exists()
    assert not PasswordReset.objects.filter(user=lookalike).exists()
    assert PasswordReset.objects.filter(user=mike).exists() == known


@pytest.mark.parametrize("email", ["MIKE@corp.test", " mike@CORP.TEST "])
def test_each_spelling_counts_for_the_one_account(settings: Any, email: str) -> None:
    settings.EMAIL_URL = "smtp://mail.test"
    use_up(attempts.LINK_ACCOUNT, "mike@corp.test")
    factories.user("mike@corp.test")
    assert stranger().post("/forgotten/", {"email": email}).status_code == 200
    assert not PasswordReset.objects.exists()
    assert user_by_email(email, field="email").email == "mike@corp.test"


@pytest.mark.parametrize("email", ["anna@M\u00dcNCHEN.test", " Anna@M\u00fcnchen.TEST "])
def test_each_spelling_invites_the_one_person(acme: House, email: str) -> None:
    """And a decision about them ends the link, however the address was typed for it."""
    link, again = invite(acme.owner, email, "admin"), {"email": "anna@m\u00fcnchen.test", "role": "viewer"}
    invited = signed_in(acme.owner).post("/tenants/acme/members/invite/", {**again, "days": "7"})
    assert (invited.status_code, "invited to acme already" in invited.content.decode()) == (422, True)
    User.objects.create_user(email, factories.PASSWORD)
    assert signed_in(acme.owner).post("/tenants/acme/members/add/", again).status_code == 302
    assert stranger().get(link).status_code == 404


def test_an_invitation_in_a_spelling_of_before_meets_its_person_and_no_more(acme: House) -> None:
    """Releases before have kept addresses as they were typed: what is decided about the person ends such a link too."""
    anna, typed = factories.user("anna@m\u00fcnchen.test"), "Anna@M\u00dcNCHEN.test"
    for decided in (False, True):
        link = invite(acme.owner, anna.email, "admin")
        Invitation.objects.filter(accepted_at=None, revoked_at=None).update(email=typed)
        if decided:
            membership_set(actor=OPERATOR, tenant="acme", user=anna, role=Role.VIEWER)
            assert stranger().get(link).status_code == 404
        else:
            assert accept(signed_in(anna), link).status_code == 302
        assert Membership.objects.get(user=anna).role == ("viewer" if decided else "admin")
        membership_remove(actor=OPERATOR, tenant="acme", user=anna)


@pytest.mark.parametrize("email", LOOKALIKES)
def test_what_such_an_address_was_sent_before_is_nobody_elses(acme: House, email: str) -> None:
    """Python makes k of one of them: the person of the address in ASCII is not whom that link is for."""
    assert address_key(email) != "mike@corp.test"
    link = invite(acme.owner, "mike@corp.test", "admin")
    Invitation.objects.update(email=email)
    mike = factories.user("mike@corp.test")
    accept(signed_in(mike), link)
    assert not Membership.objects.filter(user=mike).exists()


def examined() -> dict[str, str]:
    """What ``manage.py doctor`` finds of addresses."""
    said = StringIO()
    call_command("doctor", "addresses", "--output", "json", stdout=said)
    (found,) = json.loads(said.getvalue())["findings"]
    return dict(found)


@pytest.mark.parametrize("email", [*LOOKALIKES, "mike@corp\u3002test"])
def test_the_doctor_names_who_has_such_an_address_and_another_one_mends_it(
    acme: House, operator: User, mail_server: list[Any], settings: Any, email: str
) -> None:
    settings.EMAIL_IS_SET = True
    assert examined()["state"] == "ok"
    lookalike, console = factories.member(acme.tenant, Role.EDITOR, factories.user(email)), signed_in(operator)
    found = examined()
    assert (found["state"], f"{email} (for mike@corp.test)" in found["found"]) == ("warning", True)
    assert "Change address" in found["remedy"]
    assert "Change address" in console.get(f"/users/{lookalike.pk}/").content.decode()
    page, link = f"/users/{lookalike.pk}/address/", link_of(made(operator, lookalike))
    for refused in (email, LOOKALIKES[2], "Acme@", acme.owner.email.upper()):
        assert console.post(page, {"email": refused}).status_code == 422
    assert (User.objects.get(pk=lookalike.pk).email, stranger().get(link).status_code) == (email, 302)
    assert console.post(page, {"email": " Mike@Corp.test"}).status_code == 302
    mike = User.objects.get(email__same="mike@corp.test")
    assert (mike, mike.email, examined()["state"]) == (lookalike, "Mike@corp.test", "ok")
    assert stranger().get(link).status_code == 404, "it went to the other mailbox"
    assert present(stranger(), mike).status_code == 302
    assert present(stranger(), lookalike).status_code in {401, 422}
    assert mike.memberships.get().role == "editor"
    said = AuditEntry.objects.filter(action="user.change").latest("sequence").detail
    assert (said["before"], said["after"]) == ({"email": email}, {"email": "Mike@corp.test"})
    notices_send(now=timezone.now())
    assert (mail_server[-1].to, f"changed from {email} to Mike@corp.test" in mail_server[-1].body) == (
        [mike.email],
        True,
    )


def test_who_gives_others_another_address(acme: House, operator: User) -> None:
    """Operators, but not to themselves; superusers alone to superusers."""
    deputy, auditor = factories.user(is_staff=True), factories.user(is_auditor=True)
    own = (operator, operator, 422), (deputy, deputy, 422)
    of_superusers = (deputy, operator, 422), (operator, factories.operator(), 302)
    of_others = (deputy, auditor, 302), (auditor, acme.viewer, 403), (acme.owner, acme.viewer, 403)
    for number, (by, whose, status) in enumerate((*own, *of_superusers, *of_others)):
        email = f"new-{number}@corp.test"
        assert signed_in(by).post(f"/users/{whose.pk}/address/", {"email": email}).status_code == status
        assert (User.objects.get(pk=whose.pk).email == email) == (status == 302)


def test_people_are_looked_up_in_one_way() -> None:
    """By ``email__same``: each other comparison has an alphabet of its own."""
    others = ("email__iexact", "filter(email=", "get(email=")
    assert [(str(path), each) for path in SOURCES for each in others if each in path.read_text("utf-8")] == []


@pytest.mark.parametrize("way", ["mail", "provider"])
def test_whoever_shows_whose_an_address_is_has_the_account_alone(
    acme: House, operator: User, mail_server: list[Any], way: str
) -> None:
    """Who has the link of an invitation makes the account of anybody's address, and stays in it by nothing (GW14)."""
    squatter = stranger()
    accept(squatter, invite(acme.owner, "chief@globex.test", "viewer"), name="Chief", password=factories.PASSWORD)
    chief, passkey = User.objects.get(email="chief@globex.test"), Authenticator()
    assert added(chief, passkey).status_code == 302
    app, _ = with_app(chief)
    machine, token = machine_of(squatter, chief, "laptop"), bearer(chief)
    halfway, wide = stranger(), link_of(made(operator, chief, keep_factors="on"))
    assert present(halfway, chief).headers["Location"] == "/login/code/"
    enrolling = signed_in(chief)
    enrolling.get("/profile/factor/")
    if way == "mail":
        by_mail(chief, mail_server)
        let_in = present(stranger(), chief, OWN)
        assert let_in.headers["Location"] == "/tenants/", "and no factor of another's is asked for"
    else:
        fields = {"name": "", "status": "active", "issuer": "https://id.globex.test", "subject": "u-1"}
        assert signed_in(operator).post(f"/admin/tenants/user/{chief.pk}/change/", fields).status_code == 302
        assert not User.objects.get(pk=chief.pk).has_usable_password()
    assert not User.objects.get(pk=chief.pk).address_unproven
    assert [each.get("/profile/").status_code for each in (squatter, enrolling)] == [302, 302]
    assert send(token, "GET", "me/").status_code == 401
    assert is_ended(machine)
    assert used(stranger(), passkey).status_code == 401
    assert present(stranger(), chief).status_code == 401
    halfway.post("/login/code/", {"code": app.now()})
    assert opened(halfway) == []
    assert stranger().get(wide).status_code == 404
    said = AuditEntry.objects.get(action="user.change", detail__changed="whose the address is")
    assert (said.detail["tokens_ended"], said.detail["machines_ended"]) == (1, 1)


def test_nobody_is_given_a_rank_whose_address_nobody_has_shown_to_be_theirs(
    acme: House, operator: User, mail_server: list[Any]
) -> None:
    accept(stranger(), invite(acme.owner, "newt@acme.test", "viewer"), name="Newt", password=factories.PASSWORD)
    newt, console = User.objects.get(email="newt@acme.test"), signed_in(operator)
    for kind in ("operator", "auditor"):
        page = console.post(f"/users/{newt.pk}/rights/", {"kind": kind})
        assert (page.status_code, "Nobody has shown yet" in page.content.decode()) == (422, True)
        asked = send(bearer(operator, "operate"), "PATCH", f"users/{newt.pk}/", {kind: True})
        assert asked.status_code == 409
    fields = {"name": "", "status": "active", "issuer": "", "subject": ""}
    for rank in RANKS:
        console.post(f"/admin/tenants/user/{newt.pk}/change/", {**fields, rank: "on"})
    assert not has_rank(User.objects.get(pk=newt.pk))
    by_mail(newt, mail_server)
    assert console.post(f"/users/{newt.pk}/rights/", {"kind": "operator"}).status_code == 302
    assert User.objects.get(pk=newt.pk).is_staff


def test_whoever_approves_is_told_that_it_may_be_somebody_else_who_asks(acme: House, operator: User) -> None:
    console, script, told = signed_in(operator), bearer(operator, "operate"), []
    for person in (factories.user("chief@acme.test", address_unproven=True), factories.user()):
        found = factories.access_request(acme.tenant, person)
        page = console.get(f"/inbox/{found.pk}/approve/").content.decode()
        (listed,) = [each for each in send(script, "GET", "requests/").json()["results"] if each["id"] == str(found.pk)]
        said = send(script, "GET", f"requests/{found.pk}/").json()
        told.append((f"Nobody has shown yet that {person.email} is theirs" in page, listed["asked_by_proven"]))
        assert (said["asked_by"], said["asked_by_proven"]) == (person.email, listed["asked_by_proven"])
    assert told == [(True, False), (False, True)]


@pytest.mark.parametrize("rank", RANKS)
def test_a_mailbox_alone_opens_no_account_of_rank(mail_server: list[Any], rank: str) -> None:
    """One that was given its rank before that took a proof: what is asked for after the password stays."""
    person = factories.user(address_unproven=True, **{rank: True})
    with_app(person)
    factories.passkey(person)
    by_mail(person, mail_server)
    browser = stranger()
    assert present(browser, person, OWN).headers["Location"] == "/login/code/"
    assert opened(browser) == []
    assert (User.objects.get(pk=person.pk).address_unproven, person.passkeys.count()) == (False, 1)


def test_who_was_linked_by_the_release_before_comes_in_alone_and_with_their_rank() -> None:
    """It left what had opened the account until then, and the account could be given no rank by its groups."""
    person = factories.user("newt@acme.test", issuer="https://id.test", subject="u-1", address_unproven=True)
    squatter, who = signed_in(person), Person("https://id.test", "u-1", person.email, "Newt")
    admitted = user_admit(actor=OPERATOR, person=who, rights=Rights(operator=True, roles={}))
    assert (admitted, admitted.is_staff, admitted.address_unproven) == (person, True, False)
    assert not admitted.has_usable_password()
    assert squatter.get("/profile/").status_code == 302


@pytest.mark.parametrize("invited", [True, False])
def test_what_nobody_could_sign_in_by_takes_nothing_away(operator: User, invited: bool) -> None:
    """A subject of no provider, and a link of one's own account, by which its only way in could end."""
    person, fields = factories.user(address_unproven=invited), {"name": "", "status": "active", "subject": "u-1"}
    path, console = "/admin/tenants/user/{}/change/", signed_in(operator)
    answer = console.post(path.format(person.pk), {**fields, "issuer": ""}, follow=True)
    assert "name the provider as well" in answer.content.decode()
    own = {**fields, "issuer": "https://id.acme.test", "is_staff": "on", "is_superuser": "on"}
    assert "link yourself" in console.post(path.format(operator.pk), own, follow=True).content.decode()
    for user in (person, operator):
        kept = User.objects.get(pk=user.pk)
        assert (kept.subject, kept.check_password(factories.PASSWORD)) == ("", True)
    linked = {**fields, "issuer": "https://id.acme.test"}
    assert console.post(path.format(person.pk), linked).status_code == 302
    console.post(path.format(person.pk), {**linked, "issuer": ""})
    assert User.objects.get(pk=person.pk).issuer == "https://id.acme.test"


def with_token(browser: Client, person: User) -> Any:
    ends = (timezone.now() + timedelta(days=1)).isoformat()
    return send(browser, "POST", "tokens/", {"name": "t", "scope": "read", "expires_at": ends})


def with_factor(browser: Client, person: User) -> Any:
    secret = secret_on(browser, "/profile/factor/")
    return browser.post("/profile/factor/", {"code": TOTP(secret).now(), "old": factories.PASSWORD})


def with_passkey(browser: Client, person: User) -> Any:
    answer = Authenticator().make(offered(browser, NEW))
    return browser.post(NEW, {"name": "Phone", "old": factories.PASSWORD, "passkey": answer})


def with_password(browser: Client, person: User) -> Any:
    return browser.post("/profile/password/", {"old": factories.PASSWORD, "password": OWN})


@pytest.mark.parametrize(
    ("module", "add"),
    [
        ("access.credentials.tokens", with_token),
        ("portal.signin.factors", with_factor),
        ("portal.signin.passkeys", with_passkey),
        ("portal.signin.accounts", with_password),
    ],
)
def test_nothing_is_added_by_a_request_that_all_access_ended_under(
    acme: House, monkeypatch: pytest.MonkeyPatch, module: str, add: Callable[[Client, User], Any]
) -> None:
    """It waits for the account's row, and whoever had that until then has proven whose the address is."""
    browser, person = signed_in(acme.owner), acme.owner

    def once_proven(user: User) -> None:
        address_prove(actor=OPERATOR, user=User.objects.get(pk=user.pk))
        person_locked(user)

    monkeypatch.setattr(f"{module}.person_locked", once_proven)
    assert add(browser, person).status_code in (401, 403, 422)
    assert User.objects.get(pk=person.pk).check_password(factories.PASSWORD)
    assert (person.access_tokens.count(), person.passkeys.count(), factor_of(person)) == (0, 0, None)


def test_one_way_alone_makes_an_address_proven() -> None:
    """Which ends what opened the account before."""
    said = [line for path in SOURCES for line in path.read_text("utf-8").splitlines() if "address_unproven = " in line]
    assert [line.strip() for line in said if "models." not in line] == ["user.address_unproven = False"]
