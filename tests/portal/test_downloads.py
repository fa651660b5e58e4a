"""Long files are read while they are sent: who loses the right meanwhile is sent no more of them (CT-07, GW13, GW28)."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.utils import timezone

from access.models import PersonalAccessToken
from audit.actions import Action
from kube.requests.status import Forbidden
from portal.signin.accounts import access_end
from tenants.models import Role, User
from tenants.services import membership_remove, membership_set
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send
from tests.tenants.conftest import OPERATOR

PORTAL = Path(__file__).parents[2] / "portal"

OF_A_TENANT: dict[str, Callable[[User], Any]] = {
    "audit": lambda who: signed_in(who).get("/audit/export/?chain=acme"),
    "audit as CSV": lambda who: signed_in(who).get("/audit/export/?chain=acme&format=csv"),
    "audit of one's own": lambda who: signed_in(who).get("/audit/export/"),
    "archive": lambda who: signed_in(who).post("/tenants/acme/export/"),
    "audit by token": lambda who: send(bearer(who), "GET", "audit-logs/export?tenant=acme"),
    "archive by token": lambda who: send(bearer(who), "POST", "tenants/acme/export"),
}
OF_THE_PLATFORM: dict[str, Callable[[User], Any]] = {
    "all audit": lambda who: signed_in(who).get("/audit/export/"),
    "charges": lambda who: signed_in(who).get("/charges/?format=csv"),
    "report": lambda who: signed_in(who).get("/reports/dormant-people/?format=csv"),
    "charges by token": lambda who: send(bearer(who, "operate"), "GET", "charges/?format=csv"),
}


def removed(who: User) -> None:
    membership_remove(actor=OPERATOR, tenant="acme", user=who)


def invited_again(who: User) -> None:
    """Whoever comes back has not had the right all the time."""
    removed(who)
    membership_set(actor=OPERATOR, tenant="acme", user=who, role=Role.OWNER)


def lowered(who: User) -> None:
    membership_set(actor=OPERATOR, tenant="acme", user=who, role=Role.VIEWER)


def shut_out(who: User) -> None:
    access_end(actor=OPERATOR, user_id=who.pk)


def signed_out(_who: User) -> None:
    Session.objects.all().delete()
    PersonalAccessToken.objects.update(revoked_at=timezone.now())


def demoted(who: User) -> None:
    User.objects.filter(pk=who.pk).update(is_staff=False)


@pytest.fixture(autouse=True)
def _asked_with_every_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("portal.http.standing.ASKED_EVERY", 1)


def pieces(answer: Any) -> Iterator[bytes]:
    assert answer.status_code == 200, answer.content
    return iter(answer.streaming_content)


@pytest.fixture
def full(acme: House) -> House:
    """A second owner, so that the first can go, and something to read for each."""
    factories.member(acme.tenant, Role.OWNER)
    for _ in range(3):
        factories.event("acme", Action.WORKSPACE_READY, acme.owner, of=acme.workspace)
    return acme


def cut_off(answer: Any, ending: Callable[[], None]) -> None:
    """What was sent before stays with its reader; what follows is not read any more, and does not end well."""
    with closing(answer):
        lines = pieces(answer)
        assert next(lines)
        ending()
        with pytest.raises(Forbidden):
            next(lines)
        assert next(lines, None) is None


@pytest.mark.parametrize("ending", [removed, invited_again, lowered, shut_out, signed_out])
@pytest.mark.parametrize("name", OF_A_TENANT)
def test_a_download_ends_with_a_right_of_its_reader(full: House, name: str, ending: Callable[[User], None]) -> None:
    cut_off(OF_A_TENANT[name](full.owner), lambda: ending(full.owner))


@pytest.mark.parametrize("ending", [shut_out, signed_out, demoted])
@pytest.mark.parametrize("name", OF_THE_PLATFORM)
def test_what_is_read_of_all_tenants_ends_with_the_rank(
    full: House, operator: User, name: str, ending: Callable[[User], None]
) -> None:
    User.objects.filter(pk=operator.pk).update(is_superuser=False)
    assert full.tenant.name == "acme"
    cut_off(OF_THE_PLATFORM[name](operator), lambda: ending(operator))


@pytest.mark.parametrize("name", OF_A_TENANT)
def test_who_is_given_more_reads_on(full: House, name: str) -> None:
    lines = pieces(OF_A_TENANT[name](full.owner))
    begun = next(lines)
    factories.member(factories.tenant("globex"), Role.OWNER, who=full.owner)
    User.objects.filter(pk=full.owner.pk).update(is_staff=True)
    assert begun + b"".join(lines)


def test_everything_that_is_sent_while_it_is_read_passes_there() -> None:
    """A response that streams by itself, or before the middleware, would be asked nothing."""
    made = []
    for file in sorted(PORTAL.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            called = [node.func] if isinstance(node, ast.Call) else node.bases if isinstance(node, ast.ClassDef) else []
            names = {each.id if isinstance(each, ast.Name) else getattr(each, "attr", "") for each in called}
            if names & {"StreamingHttpResponse", "FileResponse"}:
                made.append(f"{file.relative_to(PORTAL)}: {getattr(node, 'name', 'a call')}")
    # The program for kubectl is everybody's, and nothing that is read from the database.
    assert made == ["access/auditlog.py: Lines", "views/signin/logins.py: a call"]
    last = settings.MIDDLEWARE.index("portal.middleware.ScopeMiddleware")
    assert "django.contrib.auth.middleware.AuthenticationMiddleware" in settings.MIDDLEWARE[:last]
