"""The pages of what is closed, held still or ending offer nothing that is refused: every button there is, pressed (GW5, GW14)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urldefrag, urljoin

import pytest
from django.contrib.messages import get_messages
from django.db import transaction
from django.test import Client
from django.urls import resolve
from django.utils import timezone

from tenants.models import Operation, OperationState, Phase, Role, User, Workspace
from tenants.services.invitations import invitation_create
from tenants.services.notices import webhook_create
from tenants.services.operating.freezing import tenant_freeze, workspace_freeze
from tenants.services.operating.offboarding import tenant_offboard
from tenants.services.tenants import tenant_delete, tenant_suspend
from tenants.services.workspaces import workspace_delete, workspace_suspend
from tests import factories
from tests.portal.conftest import House, house, signed_in
from tests.tenants.conftest import OPERATOR, actor_of

TENANT = ("", "members/", "policies/", "quota/", "objects/", "webhooks/", "usage/")
"""Pages of a tenant, below its own."""
CHOOSING = ("/my-requests/new/quota/", "/my-requests/new/leave/", "/workspaces/new/", "/tokens/new/")
"""Where a tenant is chosen."""
ELSEWHERE = {"logout", "notifications-read", "announcement-dismiss", "explain", "inbox-postpone"}
ELSEWHERE |= {"workspace-kubeconfig", "tenant-kubeconfig"}
"""What changes nothing of a tenant, and what needs a cluster that answers."""
AT_AN_OPEN_DOOR = {
    *("workspace-new", "workspace-delete", "workspace-tier", "workspace-end"),
    *("member-add", "member-invite", "member-role", "member-remove", "member-end", "invitation-revoke"),
    *("tenant-webhook-new", "webhook-delete", "credential-revoke", "request-new"),
    *("request-approve", "request-deny", "request-comment"),
}
"""What an owner is offered there."""


@dataclass
class Form:
    """One that a page posts: where to, and what it is sent if nobody changes anything."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)


class Offered(HTMLParser):
    """Where a page's buttons lead, and its forms."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.page, self.links = page, set[str]()
        self.forms: list[Form] = []
        self._form: Form | None = None
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = {name: value or "" for name, value in attrs}
        name, value, form = said.get("name", ""), said.get("value", ""), self._form
        if tag == "a" and (said.get("hx-target") == "#dialog" or "btn" in said.get("class", "").split()):
            self.links.add(urldefrag(urljoin(self.page, said["href"])).url)
        if tag == "form":
            self._form = Form(urljoin(self.page, said.get("action", ""))) if said.get("method") == "post" else None
            self.forms += [self._form] if self._form else []
        if form is None:
            return
        if tag == "select":
            self._select = name
        elif tag == "option" and value and ("selected" in said or self._select not in form.fields):
            form.fields[self._select] = value
        elif tag == "input" and said.get("type") == "radio":
            form.fields.setdefault(name, value)
        elif tag in {"input", "textarea"} and (said.get("type") != "checkbox" or "checked" in said):
            form.fields[name] = value

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._form = None

    @classmethod
    def by(cls, client: Client, path: str) -> Offered:
        answer = client.get(path)
        offered = cls(path.partition("?")[0])
        if answer.status_code == 200 and not answer.streaming:
            offered.feed(answer.content.decode())
        return offered


def pressed(client: Client, acme: House, pages: list[str]) -> Iterator[tuple[str, str]]:
    """Each button of these pages by the name of what it does, and how it was refused; empty where it was not."""
    forms: dict[str, Form] = {}
    for page in pages:
        shown = Offered.by(client, page)
        dialogs = [Offered.by(client, link) for link in sorted(shown.links)]
        forms |= {form.action: form for each in (shown, *dialogs) for form in each.forms}
    for form in forms.values():
        name = resolve(form.action.partition("?")[0]).url_name or ""
        if name in ELSEWHERE:
            continue
        known = {"tenant-delete": acme.tenant.name, "workspace-delete": acme.workspace.name, "workspace-new": "another"}
        typed = {"name": known.get(name, "x"), "email": f"{name}@acme.test", "reason": "because", "text": "because"}
        typed |= {"url": "https://hooks.test/", "hard": "pods: 2000", "answer": "because"}
        typed |= {"tier": "other"} if name == "workspace-tier" else {}
        sent = {
            key: typed.get(key, value) if value in {"", acme.workspace.tier_id} else value
            for key, value in form.fields.items()
        }
        with transaction.atomic():
            answer = client.post(form.action, sent)
            denied = [str(each) for each in get_messages(answer.wsgi_request) if "deny" in each.tags]
            refused = answer.status_code >= 400 or bool(denied)
            transaction.set_rollback(True)
        yield name, f"{form.action}: {answer.status_code} {denied or words(answer)}" if refused else ""


def words(answer: Any) -> str:
    """What a refused form says."""
    errors = re.findall(r'(?:role="alert"|field__error")>(.*?)</(?:div|p)>', answer.content.decode(), re.DOTALL)
    return " ".join(re.sub("<[^>]*>", " ", " ".join(errors)).split())


def leaving(manner: str) -> Callable[[House], object]:
    def leave(acme: House) -> object:
        now = timezone.now()
        ends_at = now + timedelta(days=30)
        return tenant_offboard(actor=OPERATOR, name="acme", reason="merger", ends_at=ends_at, manner=manner, now=now)

    leave.__name__ = f"leaving_{manner}"
    return leave


def suspended(acme: House) -> None:
    tenant_suspend(actor=OPERATOR, name="acme", reason="unpaid")


def ending(acme: House) -> None:
    tenant_delete(actor=OPERATOR, name="acme")


def frozen(acme: House) -> None:
    tenant_freeze(actor=OPERATOR, name="acme", reason="audit")


def workspace_closed(acme: House) -> None:
    workspace_suspend(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="mining")


def workspace_still(acme: House) -> None:
    workspace_freeze(actor=OPERATOR, workspace_id=acme.workspace.pk, reason="audit")


def workspace_ending(acme: House) -> None:
    workspace_delete(actor=OPERATOR, workspace_id=acme.workspace.pk)


def workspace_gone(acme: House) -> None:
    workspace_ending(acme)
    Workspace.objects.filter(pk=acme.workspace.pk).update(phase=Phase.DELETED)


def failing(acme: House) -> None:
    """Held still while it is tried in vain to make the workspace."""
    work = Operation.objects.filter(workspace=acme.workspace)
    work.update(state=OperationState.FAILED, error="refused", finished_at=None)
    frozen(acme)


CLOSED = (suspended, ending, frozen, leaving("freeze"), leaving("suspend"), failing)
CLOSED_WITHIN = (workspace_closed, workspace_still, workspace_ending, workspace_gone)


@pytest.fixture
def acme() -> House:
    """With something of everything that a tenant's pages let its people change."""
    factories.tier("other", workspaces_per_user=9)
    made, now = house("acme"), timezone.now()
    factories.user("member-add@acme.test")
    factories.member(made.tenant, Role.OWNER)
    owner = actor_of(made.owner)
    invitation_create(actor=owner, tenant="acme", email="new@acme.test", role="viewer", days=7, now=now)
    webhook_create(actor=owner, tenant="acme", url="https://example.org/", kinds=[], now=now)
    factories.credential(made.workspace, made.owner)
    factories.access_request(made.tenant, made.viewer)
    Workspace.objects.filter(pk=made.workspace.pk).update(expires_at=now + timedelta(days=3))
    made.workspace.refresh_from_db()
    return made


def refused(acme: House, person: User, *more: str) -> tuple[set[str], list[str]]:
    """What the person is offered on the pages of tenant and workspace, and ``more``, and what of it is refused."""
    client = signed_in(person)
    requests = [f"/inbox/{each.pk}/" for each in acme.tenant.requests.all()]
    pages = [f"/tenants/acme/{below}" for below in TENANT] + [f"/workspaces/{acme.workspace.pk}/", "/inbox/"]
    found = list(pressed(client, acme, [*pages, *requests, *more]))
    return {name for name, _ in found}, [why for _, why in found if why]


def test_at_an_open_door_all_that_is_offered_works(acme: House, operator: User) -> None:
    # There is no quota of which more could be asked for.
    offered, no = refused(acme, acme.owner, *CHOOSING[1:])
    assert (AT_AN_OPEN_DOOR - offered, no) == (set(), [])
    assert [why for person in (acme.editor, acme.viewer, operator) for why in refused(acme, person)[1]] == []
    assert [page for page in CHOOSING if '<option value="acme"' not in read(acme.owner, page)] == []


@pytest.mark.parametrize("close", [*CLOSED, *CLOSED_WITHIN], ids=lambda each: each.__name__)
def test_nothing_is_offered_of_what_is_closed_that_is_refused(acme: House, operator: User, close: Any) -> None:
    close(acme)
    acme.workspace.refresh_from_db()
    people = {"owner": acme.owner, "editor": acme.editor, "viewer": acme.viewer, "operator": operator}
    assert [(who, why) for who, person in people.items() for why in refused(acme, person)[1]] == []
    if close in CLOSED:
        assert [page for page in CHOOSING if '<option value="acme"' in read(acme.owner, page)] == []


def read(person: User, page: str) -> str:
    return signed_in(person).get(page).content.decode()
