"""Where an ID leads that somebody has copied from a log, an error or an object: to what it is the ID of (GW14)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.urls import reverse

from access.credentials.selectors import credential_visible_to
from audit.recorder import Actor
from audit.selectors import refused_request
from kube.requests.status import StatusError
from portal.access.auditlog import entry_visible_to, is_visible
from portal.pages import labels
from tenants import selectors
from tenants.models import User
from tenants.requests.selectors import requests_visible_to

_REFUSED_SINCE: Final = timedelta(days=30)

Result = dict[str, str]


def found_by_id(actor: Actor, words: str, *, now: datetime) -> list[Result]:
    """What of the actor's has this UUID: people, credentials, requests, operations, events, refusals of the API server.

    Workspaces are found by their list (``tenants.selectors.workspaces_page``), with their UIDs. Nothing for what is no
    UUID. A fixed number of queries, each by an index.
    """
    try:
        wanted = UUID(words)
    except ValueError:
        return []
    found = [_operation(actor, wanted), _credential(actor, wanted), _asked(actor, wanted), _entry(actor, wanted)]
    found += [_refused(actor, wanted, now), _person(actor, wanted)]
    return [result for result in found if result is not None]


def _operation(actor: Actor, wanted: UUID) -> Result | None:
    row = selectors.workspaces_visible_to(actor).filter(operations=wanted).first()
    if row is None:
        return None
    return _result(row.name, reverse("workspace", args=[row.pk]), "boxes", row.tenant_id)


def _credential(actor: Actor, wanted: UUID) -> Result | None:
    try:
        row = credential_visible_to(actor, str(wanted))
    except StatusError:
        return None
    place = (
        reverse("workspace", args=[row.workspace_id]) if row.workspace_id else reverse("tenant", args=[row.tenant_id])
    )
    return _result(f"Credential of {row.issued_to.email}", place, "key-round", row.tenant_id)


def _asked(actor: Actor, wanted: UUID) -> Result | None:
    row = requests_visible_to(actor).filter(pk=wanted).first()
    return _result(str(row), reverse("request", args=[wanted]), "inbox", "Request") if row else None


def _entry(actor: Actor, wanted: UUID) -> Result | None:
    try:
        row = entry_visible_to(actor, wanted)
    except StatusError:
        return None
    return _result(labels.action_name(row.action), reverse("audit-entry", args=[wanted]), "scroll-text", row.chain)


def _refused(actor: Actor, wanted: UUID, now: datetime) -> Result | None:
    row = refused_request(str(wanted), since=now - _REFUSED_SINCE)
    if row is None or not (actor.sees_all or is_visible(actor, row.tenant, row.created_at)):
        return None
    return _result(f"{row.verb} {row.path}"[:80], reverse("audit-request", args=[row.key]), "route", f"{row.code}")


def _person(actor: Actor, wanted: UUID) -> Result | None:
    row = User.objects.filter(pk=wanted).first() if actor.sees_all else None
    return _result(row.email, reverse("user", args=[wanted]), "user", "User") if row else None


def _result(text: str, url: str, icon: str, kind: str) -> Result:
    return {"text": text, "url": url, "icon": icon, "kind": kind}
