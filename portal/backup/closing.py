"""A restored installation is closed, and nothing that was ever issued opens it (P12; why: docs/decisions/012).

What ended after the backup would live again with it: so all of it ends, whether it is in the backup or not.

1. Sessions of the portal are in no backup, and no token of the provider for people counts; machines' logins, personal
   access tokens, people's credentials and the invitations that wait are revoked; requests are withdrawn, break-glass ends,
   and what waited to be told is not. Webhooks that were deleted since, or may have been, are gone.
2. Credentials of clusters for the webhooks end: operators issue new ones.
3. Service accounts of the system space are made anew; tenants' tokens and certificates of before end with the opening of
   their tenant (``credentials_spend``).
4. Every tenant is suspended, and every workspace once more: workers end on the clusters what was issued there, and prove it.
5. Where nobody knows what became of the accounts, no password counts and nobody is an operator but the one who is named;
   that links to the provider are those of the backup is said.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Final
from urllib.parse import urlsplit

import orjson
from django.db.models import Q

from access.models import Credential, Login, PersonalAccessToken, WebhookCredential
from portal.backup.newer import RESTORE, Newer, closings
from store import synchronous
from store.types import Range, Update
from tenants.clusters.changes import cluster_changed
from tenants.models import (
    AccessRequest,
    Delivery,
    Invitation,
    Membership,
    Notice,
    Passkey,
    PasswordReset,
    Phase,
    RequestState,
    SecondFactor,
    Status,
    Tenant,
    TenantState,
    User,
    Webhook,
    Workspace,
)
from tenants.models.people import next_epoch
from tenants.services import desiredstate
from tenants.services.revocation import credentials_changed
from tenants.services.tenants import tenant_suspend

REASON: Final = "The platform was restored from a backup and is not open yet."


def credentials_end_all(*, now: datetime) -> Iterator[str]:
    """Revoke whatever was issued to anybody, before and after the backup; says what has to be issued anew."""
    # Tokens of the provider are in no table: they are known by when they were issued.
    User.objects.update(session_epoch=next_epoch(now))
    Login.objects.filter(revoked_at=None).update(revoked_at=now, revoked_by=RESTORE.name)
    PersonalAccessToken.objects.filter(revoked_at=None).update(revoked_at=now)
    Credential.objects.filter(revoked_at=None).exclude(expires_at__lt=now).update(
        revoked_at=now, revoked_by=RESTORE.name
    )
    # What was used or revoked after the backup waits again in it.
    PasswordReset.objects.filter(ended_at=None).update(ended_at=now)
    Invitation.objects.filter(accepted_at=None, revoked_at=None).update(revoked_at=now)
    waiting = AccessRequest.objects.filter(state=RequestState.OPEN)
    waiting.update(state=RequestState.WITHDRAWN, decided_at=now, decided_by=RESTORE.name)
    Membership.stored.filter(break_glass=True).delete()
    Membership.stored.exclude(raised_role="").update(raised_role="", raised_until=None)
    Notice.objects.all().delete()
    Delivery.objects.all().delete()
    credentials_changed()
    asking = sorted(set(WebhookCredential.objects.values_list("cluster__name", flat=True)))
    WebhookCredential.objects.all().delete()
    for name in asking:
        cluster_changed(name)
        yield f"cluster {name} asks webhooks: its credential has ended, issue another (manage.py webhooks rotate {name})"


def system_accounts_renew() -> None:
    """Make the system space's service accounts anew: tokens name the account that they were issued for."""
    changes = []
    for stored in synchronous.objects_of(Range("root", "", "serviceaccounts"), portion=500):
        body = orjson.loads(stored.data)
        body["metadata"]["uid"] = str(uuid.uuid4())
        changes.append(Update(stored.key, stored.revision, body))
    if changes:
        synchronous.commit(changes)


def webhooks_end(newer: Newer) -> Iterator[str]:
    """Tell no address anything that was taken off since, or of which nobody knows whether it was."""
    for webhook in Webhook.objects.exclude(pk__in=newer.webhooks):
        webhook.delete()
        yield f"webhook to {urlsplit(webhook.url).hostname} of {webhook.tenant_id or 'the platform'}: make it anew"


def tenants_close(newer: Newer) -> Iterator[str]:
    """Suspend every tenant and workspace, whatever state the backup has them in; says which of them stay closed.

    None of them opens by itself: whoever closed it may have said otherwise since.
    """
    Tenant.objects.update(suspended_until=None)
    there = Workspace.objects.exclude(phase=Phase.DELETED).select_related("tenant")
    closed = there.filter(Q(status=Status.SUSPENDED) | Q(tenant__state=TenantState.SUSPENDED))
    for workspace in closed.order_by("pk").select_for_update(of=("self",), no_key=True):
        # Closed before the backup, opened since, and used: what was issued then lives on the cluster still.
        desiredstate.request_suspended(
            workspace,
            replace(RESTORE, name=workspace.suspended_by or RESTORE.name),
            workspace.suspended_reason or REASON,
            with_tenant=workspace.suspended_with_tenant,
            stop=workspace.stopped,
        )
    kept = closings(newer)
    for name in list(Tenant.objects.exclude(state=TenantState.SUSPENDED).values_list("name", flat=True)):
        who, reason = kept.get(name, (RESTORE.name, REASON))
        tenant_suspend(actor=RESTORE, name=name, reason=reason)
        if name in kept:
            Tenant.objects.filter(pk=name).update(suspended_by=who)
            yield f"tenant {name} stays closed: {reason}"


def accounts_forget(operator: str) -> str:
    """Let no password and no passkey count and leave one operator, who is given a new password: the answer; empty without anybody.

    That one is asked for no second factor: whoever restores may not have the phone of then. The others' stay.
    """
    chosen = _chosen(operator)
    Passkey.objects.all().delete()
    for user in User.objects.order_by("pk").select_for_update(no_key=True):
        user.set_unusable_password()
        user.is_staff = user.is_superuser = user.pk == getattr(chosen, "pk", None)
        user.is_auditor = False
        user.save(update_fields=["password", "is_staff", "is_auditor", "is_superuser"])
    if chosen is None:
        return ""
    password = secrets.token_urlsafe(15)
    chosen.refresh_from_db()
    chosen.set_password(password)
    chosen.password_given = False
    chosen.save(update_fields=["password", "password_given"])
    SecondFactor.objects.filter(user=chosen).delete()
    return f"{chosen.email} signs in with the password {password}"


def links_tell() -> Iterator[str]:
    """What nobody knows of the links to the provider where the database is lost, if the backup has any."""
    if count := User.objects.exclude(subject="").count():
        yield (
            f"links to the provider are as in the backup, of {count} account{'' if count == 1 else 's'}: those made since are"
            " gone, those ended or moved since are back; compare them in the console before you open"
        )


def _chosen(operator: str) -> User | None:
    active = User.objects.filter(status=User.Status.ACTIVE, is_staff=True).order_by("-is_superuser", "created_at")
    return (active.filter(email__same=operator) if operator else active).first()
