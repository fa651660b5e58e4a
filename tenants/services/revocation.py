"""What ends with a person's rights: the credentials that were issued to them (RV-11)."""

from __future__ import annotations

import contextlib
from datetime import datetime

from celery import current_app
from django.db import connection, transaction
from django.utils import timezone

from audit.recorder import Actor
from tenants.models import Invitation, Tenant, User
from tenants.models.mailaddresses import address_key


def credentials_end(*, actor: Actor, user: User, tenant: str = "") -> int:
    """Revoke the living credentials of ``user`` in a tenant, or in all of them; how many there were.

    Call it in the transaction that takes the right away. One that is being issued is never handed out; of the others
    a worker deletes the anchors at once, and the tokens die with them.
    """
    now = timezone.now()
    # They are kept by the floor above; their rows point at the person.
    living = user.credentials.filter(revoked_at=None, failed_at=None).exclude(expires_at__lt=now)
    if tenant:
        living = living.filter(tenant_id=tenant)
    ended: int = living.update(revoked_at=now, revoked_by=actor.name[:254])
    credentials_changed()
    if ended:
        transaction.on_commit(_wake)
    return ended


def credentials_changed() -> None:
    """Tell the API servers, at the commit, to look again at the credentials in use; they look by themselves as well."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify('tenantry_credentials', '')")


def access_tokens_end(holder: User | Tenant) -> int:
    """Revoke the living personal access tokens of a person, or those for one tenant alone; how many there were."""
    rows = holder.access_tokens if isinstance(holder, User) else holder.personalaccesstoken_set
    living = rows.filter(revoked_at=None)
    ended: int = living.update(revoked_at=timezone.now())
    return ended


def invitations_end(user: User, tenant: str, *, before: datetime | None = None) -> int:
    """Let no invitation of a person to a tenant count any more that was made ``before``, or until now; how many did.

    Whoever decides about a membership decides about all of it: a link from before would bring back what was taken away,
    or give what was not. Call it while the person is known in the tenant.
    """
    now = timezone.now()
    waiting = Invitation.objects.filter(tenant_id=tenant, accepted_at=None, revoked_at=None)
    waiting = waiting.filter(created_at__lt=before or now)
    # Releases before have kept addresses as they were typed, in capitals too that the database may not know: of those that
    # wait, which are bounded, each is compared here.
    key = address_key(user.email)
    theirs = [pk for pk, email in waiting.values_list("pk", "email") if address_key(email) == key]
    return waiting.filter(pk__in=theirs).update(revoked_at=now)


def _wake() -> None:
    """Tell a worker to look; nothing depends on it, the sweep finds every ended credential."""
    # Redis may be away: the revocation is in PostgreSQL all the same.
    # A worker whose clock is ahead takes it for late, and waits for beat.
    with contextlib.suppress(Exception):
        current_app.send_task("access.credentials_expire", retry=False, expires=30)
