"""Auditors see what operators see and change nothing: every page, every route, every page of the console (GW8)."""

from __future__ import annotations

import ast
import re
import uuid

import pyotp
import pytest
from django.urls import Resolver404, resolve, reverse
from django.utils import timezone

from access.models import Credential, Login, PersonalAccessToken
from audit.actions import Action
from audit.models import AuditEntry, Outcome
from audit.recorder import Actor, record
from kube.requests.status import Forbidden
from portal.admin import admin
from portal.api import urls as api_urls
from portal.middleware import _OWN
from portal.signin import accounts, factors
from tenants import actionlimits, services
from tenants.models import Cluster, PasswordReset, PortalSession, Role, SecondFactor, User, Workspace
from tests import factories
from tests.kept import kept
from tests.portal.conftest import House, signed_in
from tests.portal.test_api import bearer, send
from tests.portal.test_closed_doors import TRACES_OF_REFUSALS
from tests.portal.test_scopes import METHODS, QUESTIONS, TRACES, address, every_route
from tests.portal.test_stored_texts import addresses, full_house
from tests.requirements import ROOT
from tests.tenants.conftest import OPERATOR, actor_of

UNSAFE = ("POST", "PUT", "PATCH", "DELETE")

SIGNING_IN = {"login-code", "login-password", "login-factor", "login-further", "reset-by"}
"""Nobody who is signed in comes further there."""

FORMS = {
    *(
        "tenant-new",
        "tenant-suspend",
        "tenant-resume",
        "tenant-freeze",
        "tenant-thaw",
        "workspace-freeze",
        "workspace-thaw",
        "tenant-delete",
        "tenant-offboard",
        "tenant-retain",
        "view-as",
        "bulk",
        "tenant-quota-change",
        "tenant-policies-change",
    ),
    *("workspace-suspend", "workspace-resume", "workspace-delete", "workspace-tier", "workspace-abandon"),
    *("member-add", "member-invite", "member-role", "member-remove", "invitation-revoke", "policy-end"),
    *("tier-new", "tier-delete", "tier-policies-change", "prices"),
    *("cluster-new", "cluster-check", "cluster-credential", "cluster-delete"),
    *(
        "user-new",
        "user-status",
        "user-reset",
        "user-end",
        "user-rights",
        "user-address",
        "user-factor-remove",
        "user-session-end",
    ),
    "passkey-remove",
    *("operation-retry", "pod-connection-end", "login-revoke", "credential-revoke", "restore-open"),
    *("request-approve", "request-deny", "request-withdraw", "workspace-end", "member-end"),
    *("announcement-new", "announcement-end", "inbox-postpone"),
    *("webhook-new", "webhook-delete", "tenant-webhook-new"),
    *("workspace-kubeconfig", "tenant-kubeconfig", "workspace-new", "device", "oauth-authorize"),
}
"""What only asks whether something shall be changed need not be shown to whoever may not change it."""


def test_whoever_acts_without_asking_has_the_rights_of_the_account() -> None:
    """Who gave a first yes, who invited: an actor that is made of an account knows that it is an auditor's (as_actor)."""
    made = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in (ROOT / "tenants").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "Actor"
        if {each.arg for each in node.keywords} & {"user_id"} and "auditor" not in {each.arg for each in node.keywords}
    ]
    assert made == []


@pytest.fixture
def auditor() -> User:
    return factories.user("auditor@platform.test", is_auditor=True)


@pytest.fixture
def filled(operator: User) -> House:
    acme = full_house(operator)
    record(Action.WORKSPACE_READY, chain="acme", actor="x", outcome=Outcome.SUCCESS)
    factories.api_request("acme")
    return acme


def name_of(path: str) -> str:
    try:
        return resolve(path.partition("?")[0]).view_name
    except Resolver404:
        return ""


def pages(acme: House, operator: User) -> list[str]:
    """Every page of the portal and of the console, its forms too."""
    found = [path for path in addresses(acme, operator) if not path.startswith("/reset/")]
    for model in admin.site._registry:
        name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        found.append(reverse(f"{name}_add"))
        row = model._default_manager.first()
        if row is not None:
            found.append(reverse(f"{name}_delete", args=[row.pk]))
    return [*found, reverse("admin:index"), reverse("admin:auth_user_password_change", args=[operator.pk])]


def test_no_page_takes_anything_from_an_auditor(filled: House, operator: User, auditor: User) -> None:
    paths, client = pages(filled, operator), signed_in(auditor)
    client.get("/")
    before, sent = (
        kept(but=TRACES_OF_REFUSALS | TRACES),
        {"name": "x", "reason": "x", "role": "owner", "email": "x@x.test", "action": "suspend"},
    )
    asked = 0
    for path in paths:
        name = name_of(path)
        if name in _OWN | SIGNING_IN:
            continue
        for method in UNSAFE:
            actionlimits.refund(actionlimits.WRITES, auditor.pk)  # it is not by their number that they are refused
            answer = client.generic(
                method,
                path,
                "&".join(f"{key}={value}" for key, value in sent.items()),
                content_type="application/x-www-form-urlencoded",
            )
            assert answer.status_code in (403, 405), (method, path, answer.status_code)
            asked += 1
    assert kept(but=TRACES_OF_REFUSALS | TRACES) == before
    assert asked > 4 * 90


def test_no_route_takes_anything_from_an_auditor(filled: House, auditor: User) -> None:
    clients = [signed_in(auditor), bearer(auditor, "read"), bearer(auditor, "write")]
    personal = {str(pattern.pattern) for pattern in api_urls.urlpatterns if pattern.callback.view_class.personal}
    assert personal == {
        *("sessions/end-others", "sessions/<uuid:pk>/", "tokens/", "tokens/<uuid:pk>/"),
        "announcements/<uuid:pk>/dismiss",
    }
    before, asked = kept(but=TRACES_OF_REFUSALS | TRACES), 0
    for route, view, method in every_route():
        if route in QUESTIONS or route in personal or method in view.read_methods or method == "OPTIONS":
            continue
        for client in clients:
            actionlimits.refund(actionlimits.WRITES, auditor.pk)
            answer = send(client, method, address(route, filled), {})
            assert answer.status_code in (403, 405), (method, route, answer.content)
            assert b"BEGIN " not in answer.content
            asked += 1
    assert kept(but=TRACES_OF_REFUSALS | TRACES) == before
    assert asked > 100
    assert set(METHODS) >= set(UNSAFE)


def test_an_auditor_sees_what_operators_see(filled: House, operator: User, auditor: User) -> None:
    theirs, mine = signed_in(operator), signed_in(auditor)
    unlike = {}
    for path in pages(filled, operator):
        name = name_of(path)
        if name in SIGNING_IN | {"reset", "join", "session-end", "token-revoke"} or name.endswith(
            ("_add", "_delete", "password_change")
        ):
            continue
        seen, shown = theirs.get(path).status_code, mine.get(path).status_code
        if seen == 200 and shown != 200:
            unlike[name] = shown
    assert set(unlike) <= FORMS, unlike
    assert set(unlike.values()) <= {403, 404}
    clients = bearer(operator, "operate"), bearer(auditor, "read")
    for route, view, method in every_route():
        if method == "GET" and method in view.read_methods:
            path = address(route, filled)
            seen, shown = (send(client, method, path).status_code for client in clients)
            assert shown == seen or seen != 200, (route, seen, shown)


def test_no_page_offers_an_auditor_what_is_refused(filled: House, operator: User, auditor: User) -> None:
    """Every button and link of every page leads to something."""
    client, offered = signed_in(auditor), set()
    for path in pages(filled, operator):
        if path.startswith("/admin/"):
            continue
        answer = client.get(path)
        if answer.status_code == 200 and not answer.streaming:
            led = re.findall(r'(?:href|hx-get|hx-post|action)="(/[^"#]*)"', answer.content.decode())
            offered |= {
                (name_of(path), name_of(target))
                for target in led
                if name_of(path) not in FORMS and name_of(target) in FORMS
            }
    assert not offered


def test_no_secret_is_shown_to_an_auditor(filled: House, operator: User, auditor: User) -> None:
    secret, now = factors.secret_new(), timezone.now()
    SecondFactor.objects.filter(user=filled.viewer).delete()
    code = pyotp.TOTP(secret).at(now)
    codes = factors.factor_add(actor=actor_of(filled.viewer), user=filled.viewer, secret=secret, code=code, now=now)
    Cluster.objects.update(sealed_credential=b"a-sealed-credential")
    digests = ["a-sealed-credential"]
    for model, field in ((PersonalAccessToken, "digest"), (Login, "device_digest"), (PasswordReset, "digest")):
        for row in model.objects.all():  # type: ignore[attr-defined]
            digests.append(uuid.uuid4().hex)
            model.objects.filter(pk=row.pk).update(**{field: digests[-1]})  # type: ignore[attr-defined]
    theirs = signed_in(filled.viewer)
    assert theirs.get("/").status_code == 200
    key = PortalSession.objects.filter(user=filled.viewer).latest("created_at").session_id
    secrets = [secret, *codes, *digests, key, *User.objects.values_list("password", flat=True)]
    client, told = signed_in(auditor), []
    for path in pages(filled, operator):
        answer = client.get(path)
        body = (answer.getvalue() if answer.streaming else answer.content).decode()
        told += [(path, text) for text in secrets if text in body]
    for route, _, method in every_route():
        if method == "GET":
            answer = send(client, method, address(route, filled))
            body = (answer.getvalue() if answer.streaming else answer.content).decode()
            told += [(route, text) for text in secrets if text in body]
            assert "current-context" not in body, route
    assert not told


def test_services_refuse_an_auditor_by_themselves(filled: House, auditor: User) -> None:
    """A page that forgets to ask lets nothing through, whatever the auditor is a member of."""
    factories.member(filled.tenant, Role.OWNER, auditor)
    actor = Actor(name=auditor.email, user_id=auditor.pk, auditor=True)
    workspace = filled.workspace.pk
    for act in (
        lambda: services.tenant_suspend(actor=actor, name="acme", reason="x"),
        lambda: services.tenant_change(actor=actor, name="acme", display_name="x"),
        lambda: services.membership_set(actor=actor, tenant="acme", user=filled.viewer, role=Role.OWNER),
        lambda: services.workspace_delete(actor=actor, workspace_id=workspace),
        lambda: services.workspace_init(actor=actor, user=auditor, tenant="acme", tier="basic", name="x"),
        lambda: accounts.user_create(actor=actor, email="x@x.test"),
        lambda: accounts.access_end(actor=actor, user_id=filled.viewer.pk),
        lambda: factors.factor_remove(actor=actor, user_id=filled.viewer.pk),
    ):
        with pytest.raises(Forbidden):
            act()
    assert Workspace.objects.get(pk=workspace).status == "active"


def test_who_becomes_an_auditor_keeps_nothing_to_act_with(acme: House) -> None:
    factories.credential(acme.workspace, acme.owner)
    accounts.user_change(actor=OPERATOR, user_id=acme.owner.pk, is_auditor=True)
    assert Credential.objects.get().revoked_at is not None
    client = signed_in(User.objects.get(pk=acme.owner.pk))
    assert (
        client.post(f"/workspaces/{acme.workspace.pk}/kubeconfig/", {"role": "admin", "kind": "direct"}).status_code
        == 403
    )
    assert client.post("/tenants/acme/members/add/", {"email": "x@x.test", "role": "owner"}).status_code == 403


def test_an_auditor_changes_their_own_account(auditor: User) -> None:
    client = signed_in(auditor)
    assert client.post("/tokens/new/", {"name": "ci", "scope": "read", "tenant": "", "days": "30"}).status_code == 200
    sent = {"old": factories.PASSWORD, "password": "a much longer phrase"}
    assert client.post("/profile/password/", sent).status_code == 302
    assert client.post("/profile/sessions/end/").status_code == 302
    assert client.post("/logout/").status_code == 302


def test_an_operator_makes_one_and_nobody_is_both(acme: House, operator: User) -> None:
    desk = signed_in(operator)
    made = desk.post("/users/new/", {"email": "eye@acme.test", "password": "a long given phrase", "is_auditor": "on"})
    assert made.status_code == 302
    eye = User.objects.get(email="eye@acme.test")
    assert (eye.is_auditor, eye.is_staff) == (True, False)
    both = {"email": "both@acme.test", "is_auditor": "on", "is_staff": "on"}
    assert desk.post("/users/new/", both).status_code == 422
    for kind, rights in (("operator", (True, False)), ("auditor", (False, True)), ("user", (False, False))):
        assert desk.post(f"/users/{eye.pk}/rights/", {"kind": kind}).status_code == 302
        eye.refresh_from_db()
        assert (eye.is_staff, eye.is_auditor) == rights
    entry = AuditEntry.objects.filter(action="user.change").latest("sequence")
    assert entry.detail["before"] == {"is_staff": False, "is_auditor": True}
    page = desk.get("/users/").content.decode()
    assert "Auditor" not in page
