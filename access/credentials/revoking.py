"""Ends credentials one by one: the anchor Secret goes, and with it the token within 10 s (the API server's cache)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Q

from access.credentials.issuing import anchor_gone
from access.credentials.selectors import credential_visible_to
from access.models import Credential
from audit.actions import Action
from audit.recorder import Actor
from tenants.clusters import ClusterUnusable, client_for

_ABANDONED: Final = timedelta(minutes=10)
_BATCH: Final = 200


def credential_revoke(*, actor: Actor, jti: str, now: datetime) -> Credential:
    """Revoke one credential; whoever it was issued to and the tenant's admins may. Twice is once.

    ``revocation_confirmed_at`` is set only when the cluster showed that the anchor is gone; else a worker goes on.
    Raises ``NotFound``.
    """
    credential = credential_visible_to(actor, jti)
    workspace = credential.workspace
    with transaction.atomic():
        current = Credential.objects.select_for_update().get(pk=credential.pk)
        if current.revoked_at is None:
            current.revoked_at, current.revoked_by = now, actor.name[:254]
            current.save(update_fields=["revoked_at", "revoked_by"])
            actor.record(
                Action.CREDENTIAL_REVOKED,
                chain=workspace.tenant_id,
                target=f"workspaces/{workspace}/credentials/{credential.jti or credential.id}",
                workspace_id=workspace.id,
                detail={"id": str(credential.id), "jti": credential.jti, "issued_to": credential.issued_to.email},
            )
    _confirm(credential, now)
    return Credential.objects.select_related("issued_to", "workspace").get(pk=credential.pk)


def credentials_expire(*, now: datetime) -> int:
    """Delete the anchors of ended credentials that are still there; how many were confirmed (a worker's sweep)."""
    ended = Q(revoked_at__isnull=False) | Q(failed_at__isnull=False) | Q(expires_at__lt=now)
    # An intent without an outcome: whoever wrote it has died in between.
    ended |= Q(expires_at=None, issued_at__lt=now - _ABANDONED)
    rows = Credential.objects.filter(ended, revocation_confirmed_at=None).select_related("workspace__cluster")
    confirmed, away = 0, set()
    for credential in rows.order_by("issued_at")[:_BATCH]:
        cluster = credential.workspace.cluster_id
        if cluster in away:
            continue
        if _confirm(credential, now):
            confirmed += 1
        else:
            # One that does not answer is not asked two hundred times; the next sweep comes soon.
            away.add(cluster)
    return confirmed


def _confirm(credential: Credential, now: datetime) -> bool:
    workspace = credential.workspace
    try:
        client = client_for(workspace.cluster, workspace.tenant_id)
    except ClusterUnusable:
        return False
    if not anchor_gone(client, workspace, credential.anchor):
        return False
    Credential.objects.filter(pk=credential.pk, revocation_confirmed_at=None).update(revocation_confirmed_at=now)
    return True
