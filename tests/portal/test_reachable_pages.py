"""Nobody is offered what is refused: whoever follows every link and opens every form from the overview on (GW14, GW13)."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urlencode, urljoin, urlsplit

import pytest
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from audit.actions import Action
from tenants import actionlimits
from tenants.models import Invitation, Role, User
from tests import factories
from tests.portal.conftest import House, house, signed_in
from tests.portal.test_stored_texts import full_house

LEADS = ("href", "src", "hx-get", "hx-post", "action", "formaction")
ALIKE, OF_A_PAGE = 4, 16
"""Addresses that differ in the values of their query alone, or in its fields, of which so many are opened: filters, orders."""

REFUSED = {403, 404, 500}


class Leads(HTMLParser):
    """Where a page leads: its links, its parts that are fetched later, its forms, and what their choices ask for."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._form, self._select = "", ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        if "download" not in said or said["download"] == "":
            self.found += [said[name] for name in LEADS if said.get(name)]
        if tag == "form":
            self._form = said.get("action", "") or "?" if said.get("method", "get").lower() == "get" else ""
        if tag == "select":
            self._select = said.get("name", "")
        if tag == "option" and self._form and self._select and said.get("value"):
            self.found.append(f"{self._form.partition('?')[0]}?{urlencode({self._select: said['value']})}")

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = ""
        if tag == "select":
            self._select = ""


@dataclass
class Walk:
    """Of somebody, from the overview on: what was opened, and what of it was refused, with the page that offers it."""

    client: Client
    person: User
    opened: dict[str, int] = field(default_factory=dict)
    refused: dict[str, tuple[int, str]] = field(default_factory=dict)

    def whole(self) -> Walk:
        self.client.raise_request_exception = False
        waiting, alike = deque([("/", "")]), Counter[tuple[str, ...]]()
        while waiting:
            path, offered_by = waiting.popleft()
            page, _, query = path.partition("?")
            kind = (page, *sorted(name for name, _ in parse_qsl(query, keep_blank_values=True)))
            if path in self.opened or alike[kind] >= ALIKE or alike[page, ""] >= OF_A_PAGE:
                continue
            alike.update([kind, (page, "")])
            found = self.open(path, offered_by)
            # Where the console leads is Django's, and its own tests'.
            waiting += [] if page.startswith("/admin/") else [(each, path) for each in found]
        return self

    def open(self, path: str, offered_by: str) -> list[str]:
        cache.clear()
        actionlimits.refund(actionlimits.EXPORT, self.person.pk)
        answer = self.client.get(path)
        self.opened[path] = answer.status_code
        if answer.status_code in REFUSED:
            self.refused[path] = answer.status_code, offered_by
        body = answer.getvalue() if answer.streaming else answer.content
        if answer.status_code in {301, 302}:
            return self.ours(path, [answer["Location"]])
        if answer.status_code != 200 or not answer.headers.get("Content-Type", "").startswith("text/html"):
            return []
        leads = Leads()
        leads.feed(body.decode())
        return self.ours(path, leads.found)

    @staticmethod
    def ours(page: str, found: list[str]) -> list[str]:
        """Those that this site answers: other sites, files that every page has, and places on the same page are not."""
        led = [urlsplit(urljoin(f"http://testserver{page}", each)) for each in found]
        return [
            each._replace(scheme="", netloc="", fragment="").geturl()
            for each in led
            if each.netloc == "testserver" and not each.path.startswith("/static/")
        ]


PEOPLE = [*Role.values, "owner of a closed tenant", "viewer of a closed tenant", "admin of two", "auditor", "operator"]


@pytest.fixture
def people(operator: User) -> dict[str, User]:
    """Of a tenant that stands as it should, of one of which everything is closed, and of the platform."""
    closed, open_ = full_house(operator), house("globex")
    for of in (closed, open_):
        lived_in(of)
    return {
        **{role: getattr(open_, role) for role in Role.values},
        "owner of a closed tenant": closed.owner,
        "viewer of a closed tenant": closed.viewer,
        "admin of two": of_two(open_),
        "auditor": factories.user(is_auditor=True),
        "operator": operator,
    }


def lived_in(of: House) -> None:
    """With what every person and the product itself did there, some of it in the platform's chain."""
    name = of.tenant.name
    for person in (of.owner, of.admin, of.editor, of.viewer):
        for action in (Action.WORKSPACE_READY, Action.KUBECONFIG_ISSUED):
            factories.event(name, action, person, of=of.workspace, reason="x")
        factories.event("system", Action.SIGN_IN, person)
        factories.credential(of.workspace, person)
        if not of.tenant.requests.filter(asked_by=person).exists():
            factories.access_request(of.tenant, person)
        factories.api_request(name, actor=person.email)
        factories.recording(of.workspace, person, shown="x")
    factories.event("system", Action.WORKSPACE_READY, factories.operator(), of=of.workspace)
    Invitation.objects.create(
        tenant=of.tenant,
        email="y@invited.test",
        role=Role.VIEWER,
        digest=name,
        invited_by=of.owner,
        expires_at=timezone.now(),
    )


def of_two(other: House) -> User:
    """Who administers two tenants and was a member of a third, where they did something."""
    person = factories.member(other.tenant, Role.ADMIN)
    factories.member(factories.tenant("initech"), Role.ADMIN, person)
    third = house("hooli")
    factories.member(third.tenant, Role.EDITOR, person)
    for action in (Action.WORKSPACE_READY, Action.KUBECONFIG_ISSUED):
        factories.event("hooli", action, person, of=third.workspace)
    factories.credential(third.workspace, person)
    factories.recording(third.workspace, person, shown="x")
    factories.access_request(third.tenant, person)
    person.memberships.filter(tenant=third.tenant).delete()
    return person


@pytest.mark.parametrize("who", PEOPLE)
def test_nobody_is_offered_what_is_refused(people: dict[str, User], who: str) -> None:
    walk = Walk(signed_in(people[who]), people[who]).whole()
    assert not walk.refused, walk.refused
    assert len(walk.opened) > 40
