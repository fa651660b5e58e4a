"""Whatever a tenant, a cluster or a stranger has had stored is text on every page, and nothing else (GW11)."""

from __future__ import annotations

import uuid
from datetime import timedelta
from html.parser import HTMLParser
from typing import Any
from urllib.parse import urlencode

from django.apps import apps
from django.contrib.sessions.models import Session
from django.db import Error, models, transaction
from django.test import Client
from django.urls import URLPattern, reverse
from django.utils import timezone

from access.models import Credential, Login, PersonalAccessToken
from audit.actions import Action
from audit.models import ApiRequest, AuditEntry, Outcome
from audit.recorder import record
from portal import urls
from portal.admin import admin
from tenants.models import (
    AccessRequest,
    Announcement,
    ClusterProbe,
    Freeze,
    Invitation,
    Notification,
    Offboarding,
    Operation,
    PasswordReset,
    PodConnection,
    PortalSession,
    Postponement,
    Recording,
    RecoveryCode,
    Role,
    SecondFactor,
    Status,
    Webhook,
    Workspace,
)
from tenants.services.invitations import digest_of
from tests import factories
from tests.portal.conftest import House, house, signed_in

FORGED = "javascript:a('\"></script><b data-forged onclick=a()>"
"""At the beginning of an address a program, in an attribute or between tags an element."""

_OURS = {"tenants", "access", "audit"}
_KEPT = {
    ("tenant", "name"),
    ("cluster", "name"),
    ("tier", "name"),
    ("user", "password"),
    ("workspace", "name"),
    ("login", "user_code"),
    ("credential", "jti"),
    ("cluster", "credential_kinds"),
    ("invitation", "digest"),
    ("passwordreset", "digest"),
    ("postponement", "kind"),
    ("postponement", "name"),
}
"""What pages are found by, and what proves who somebody is: names have rules of their own."""

_NO_PAGES = {"logout", "oidc_authentication_init", "oidc_authentication_callback", "oauth-token", "oauth-device"}
_NO_PAGES |= {"oauth-revoke", "login-plugin", "tenant-usage-export", "audit-export"}
# These sign whoever opens them out.
_NO_PAGES |= {"reset-by"}


_SECRET = "of-a-link"
"""Of the invitation."""


class Looking(HTMLParser):
    """Finds what a stored text has become where it is no text."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        said = self.get_starttag_text() or ""
        for name, value in attrs:
            target = (value or "").strip().lower()
            if name == "data-forged" or name.startswith("on"):
                self.found.append(said)
            leads = name in {"href", "src", "action", "formaction", "hx-get", "hx-post", "content"}
            if leads and (target.startswith(("javascript:", "data:text", "//")) or "url=javascript" in target):
                self.found.append(said)
            if name == "style":
                self.found.append(said)


def forge(value: Any, text: str) -> Any:
    if isinstance(value, str):
        return text
    if isinstance(value, list):
        return [forge(item, text) for item in value]
    if isinstance(value, dict):
        return {key: forge(item, text) for key, item in value.items()}
    return value


def store(text: str) -> int:
    """Put ``text`` into every column of every table that is made of words; how many there were."""
    done = 0
    for model in apps.get_models():
        if model._meta.app_label not in _OURS or not model._meta.managed or model is AuditEntry:
            continue
        for field in model._meta.concrete_fields:
            words = isinstance(field, models.CharField | models.TextField | models.JSONField)
            if not words or field.primary_key or field.choices or (model._meta.model_name, field.name) in _KEPT:
                continue
            for row in model._default_manager.all():
                said = getattr(row, field.name)
                new = forge(said, text) if isinstance(field, models.JSONField) else text[: field.max_length or 9999]
                if field.unique and not isinstance(field, models.JSONField):
                    new = f"{text[: (field.max_length or 9999) - 40]}{row.pk}"
                try:
                    with transaction.atomic():
                        model._default_manager.filter(pk=row.pk).update(**{field.name: new})
                        done += 1
                except Error:
                    # The database itself does not take it.
                    continue
    return done


def full_house(operator: Any) -> House:
    """With a row of everything that a page shows."""
    acme = house("acme")
    now = timezone.now()
    factories.cluster(
        unreached_since=now,
        unreached_why="x",
        last_error="x",
        version="x",
        opened="x",
        unclaimed_namespaces=[{"name": "x", "uid": "x", "tenant": "x", "workspace": "x", "created_at": "x"}],
    )
    ClusterProbe.objects.create(cluster=acme.workspace.cluster, at=now, latency_ms=3)
    layers = [{"layer": "lock", "at": now.isoformat(), "milliseconds": 1, "verified": True, "detail": "x"}]
    factories.workspace(
        acme.tenant,
        acme.owner,
        status=Status.SUSPENDED,
        suspended_at=now,
        suspended_reason="x",
        suspended_by="x",
        receipt=layers,
    )
    for person in (acme.owner, operator):
        factories.credential(acme.workspace, person)
        Login.objects.create(
            user=person,
            machine="x",
            ip_address="192.0.2.1",
            device_digest=str(person.pk),
            created_at=now,
            redeemed_at=now,
            expires_at=now + timedelta(hours=1),
        )
        PersonalAccessToken.objects.create(
            user=person, name="x", scope="read", digest=str(person.pk), expires_at=now + timedelta(days=1)
        )
    for person in (acme.owner, acme.viewer, operator):
        session = Session.objects.create(
            session_key=person.pk.hex, session_data="", expire_date=now + timedelta(days=1)
        )
        seen = PortalSession.objects.create(session=session, user=person, ip_address="192.0.2.1", user_agent="x")
        factories.passkey(person, pk=seen.pk)  # what stands below profile/ is known by one number here
    SecondFactor.objects.create(user=acme.viewer, sealed_secret=b"x")
    RecoveryCode.objects.create(user=acme.viewer, digest="x")
    PasswordReset.objects.create(
        user=acme.viewer, digest=digest_of(_SECRET), made_by="x", expires_at=now + timedelta(days=1)
    )
    factories.pod_connection(acme.workspace, acme.owner)
    factories.recording(acme.workspace, acme.owner, shown="x")
    Freeze.objects.create(tenant=acme.tenant, space="root:acme", reason="x", frozen_by="x")
    Offboarding.objects.create(tenant=acme.tenant, reason="x", begun_by="x", ends_at=now + timedelta(days=30))
    Announcement.objects.create(text="x", starts_at=now, created_by="x")
    Postponement.objects.create(
        kind="clusters",
        name=f"{acme.workspace.cluster.name}/away",
        reason="x",
        until=now + timedelta(days=1),
        postponed_by="x",
    )
    asked = factories.access_request(acme.tenant, acme.viewer)
    asked.comments.create(author="x", text="x")
    for person in (acme.owner, operator):
        Notification.objects.create(kind="request.opened", text="x", tenant=acme.tenant, request=asked, user=person)
    hook = Webhook.objects.create(tenant=acme.tenant, url="https://x.test/", sealed_secret=b"x", created_by="x")
    hook.deliveries.create(kind="request.opened", body="x", answer="x")
    factories.access_request(acme.tenant, acme.owner, answer="x", decided_at=now, decided_by="x", state="denied")
    Invitation.objects.create(
        tenant=acme.tenant,
        email="x@invited.test",
        role=Role.VIEWER,
        digest=digest_of(_SECRET),
        invited_by=acme.owner,
        expires_at=now + timedelta(days=1),
    )
    return acme


def addresses(acme: House, person: Any) -> list[str]:
    """Every page of the portal, and of the admin."""
    first = lambda model: str(model.objects.order_by("pk").values_list("pk", flat=True)[0])  # noqa: E731
    found = ApiRequest.objects.order_by("-created_at")[0]
    asked = str(AccessRequest.objects.get(state="open").pk)
    values = {
        "workspaces": {"pk": acme.workspace.pk, "resource": "configmaps", "name": "x", "key": "x"},
        "credentials": {"credential": Credential.objects.filter(issued_to=person)[0].jti},
        "connections": {"pk": first(PodConnection)},
        "logins": {"pk": str(Login.objects.filter(user=person)[0].pk)},
        "recordings": {"pk": first(Recording)},
        "join": {"secret": _SECRET},
        "profile": {"pk": str(PortalSession.objects.filter(user=person)[0].pk)},
        "inbox": {"pk": asked, "kind": "requests", "name": asked},
        "reports": {"kind": "costs"},
        "my-requests": {"kind": "role"},
        "announcements": {"pk": first(Announcement)},
        "webhooks": {"pk": first(Webhook)},
        "tenants": {"name": "acme", "user_id": acme.viewer.pk, "policy": "p", "pk": first(Invitation)},
        "tokens": {"pk": str(PersonalAccessToken.objects.filter(user=person)[0].pk)},
        "audit": {"pk": first(AuditEntry), "key": found.key},
        "operations": {"pk": first(Operation)},
        "tiers": {"name": acme.workspace.tier_id},
        "clusters": {"name": acme.workspace.cluster.name},
        "bulk": {"sort": "tenants"},
        "users": {
            "pk": acme.viewer.pk,
            "tenant": "acme",
            "session": PortalSession.objects.filter(user=acme.viewer)[0].pk,
        },
    }
    made = []
    for pattern in urls.urlpatterns:
        if isinstance(pattern, URLPattern) and pattern.name and pattern.name not in _NO_PAGES:
            known = values.get(str(pattern.pattern).partition("/")[0], {})
            made.append(reverse(pattern.name, kwargs={part: known[part] for part in pattern.pattern.converters}))
    if person.is_staff:
        for model in admin.site._registry:
            name = f"admin:{model._meta.app_label}_{model._meta.model_name}"
            made.append(reverse(f"{name}_changelist"))
            row = model._default_manager.first()
            if row is not None:
                made.append(reverse(f"{name}_change", args=[row.pk]))
    # What somebody is invited to is shown once the link was opened; who opens a link for a new password is signed out.
    return [*made, reverse("join"), reverse("reset-by", args=[_SECRET]), reverse("reset")]


def look(client: Client, path: str, told: list[str]) -> bool:
    """Note what a page makes of the texts; whether it shows them."""
    client.raise_request_exception = False
    answer = client.get(path)
    if answer.status_code == 500:
        told.append(f"{path} fails")
    body = answer.getvalue() if answer.streaming else answer.content
    if not answer.headers.get("Content-Type", "").startswith("text/html"):
        assert answer.headers["X-Content-Type-Options"] == "nosniff", path
        return False
    looking = Looking()
    looking.feed(body.decode())
    told += [f"{path}: {tag}" for tag in looking.found]
    return b"data-forged" in body


def test_no_stored_text_is_more_than_text_on_any_page(operator: Any) -> None:
    acme, text = full_house(operator), FORGED
    for chain in ("acme", "system"):
        record(
            Action.WORKSPACE_READY,
            chain=chain,
            actor=text,
            outcome=Outcome.DENIED,
            target=text,
            user_agent=text,
            workspace_id=acme.workspace.pk,
            detail={text: text, "reason": text, "changes": [text, {text: text}]},
        )
    factories.api_request(
        "acme", actor=text, path=text, user_agent=text, reason=text, step=text[:63], id=uuid.uuid4(), space=text
    )
    assert store(text) > 40
    told: list[str] = []
    shown = 0
    for person in (acme.owner, operator):
        person.refresh_from_db()
        client = signed_in(person)
        for path in addresses(acme, person):
            shown += look(client, path, told)
    assert not told
    assert shown > 30
    assert Workspace.objects.count()


def test_no_part_of_an_address_is_more_than_text_on_any_page(operator: Any) -> None:
    acme, text = full_house(operator), FORGED
    record(Action.WORKSPACE_READY, chain="acme", actor="x", outcome=Outcome.SUCCESS)
    factories.api_request("acme")
    names = ("q", "next", "chain", "actor", "tenant", "workspace", "month", "before", "after", "cursor", "page", "sort")
    names += ("user", "verb", "path", "resource", "namespace", "name", "action", "state", "redirect_uri", "machine")
    names += (
        "user_code",
        "outcome",
        "target",
        "since",
        "until",
        "role",
        "cluster",
        "error",
        "code",
        "subject",
        "group",
    )
    query = urlencode(dict.fromkeys(names, text))
    told: list[str] = []
    for person in (operator, None):
        client = signed_in(person) if person else Client()
        for path in addresses(acme, person or acme.owner):
            look(client, f"{path}?{query}", told)
            look(client, f"{path}{FORGED}", told)
    assert not told
