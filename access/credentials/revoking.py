"""Ends credentials one by one.

Of a cluster's token the anchor Secret goes, and with it the token within 10 s (the API server's cache). The portal's own
tokens end with their row: the product's API servers are told when the transaction commits.
"""

from __future__ import annotations

import time
from collections import defaultdict
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.db import transaction
from django.db.models import F, Q, Window
from django.db.models.functions import RowNumber

from access.credentials.selectors import credential_visible_to
from access.models import Credential
from audit.actions import Action
from audit.recorder import Actor
from tenants.clusters.anchors import AnchorState, anchor_end
from tenants.clusters.client import PATIENCE_SECONDS, ClusterUnusable, client_for
from tenants.models import CredentialKind, Phase, Workspace
from tenants.services.revocation import credentials_changed
from tenants.services.sweeping import apart

_ABANDONED: Final = timedelta(minutes=10)
_BATCH: Final = 200
_FIRST_WAIT: Final = timedelta(seconds=5)
_LONGEST_WAIT: Final = timedelta(minutes=10)


def credential_revoke(*, actor: Actor, jti: str, now: datetime) -> Credential:
    """Revoke one credential; whoever it was issued to and the tenant's admins may. Twice is once.

    ``revocation_confirmed_at`` is set only when the cluster showed that the anchor is gone; else a worker goes on.
    Raises ``NotFound``.
    """
    credential = credential_visible_to(actor, jti)
    place = f"workspaces/{credential.workspace}" if credential.workspace else f"tenants/{credential.tenant_id}"
    with transaction.atomic():
        current = Credential.objects.select_for_update(no_key=True).get(pk=credential.pk)
        if current.revoked_at is None:
            current.revoked_at, current.revoked_by = now, actor.name[:254]
            if credential.kind != CredentialKind.DIRECT:
                current.revocation_confirmed_at = now
                credentials_changed()
            current.save(update_fields=["revoked_at", "revoked_by", "revocation_confirmed_at"])
            actor.record(
                Action.CREDENTIAL_REVOKED,
                chain=credential.tenant_id,
                target=f"{place}/credentials/{credential.jti or credential.id}",
                workspace_id=credential.workspace_id,
                detail={"id": str(credential.id), "jti": credential.jti, "issued_to": credential.issued_to.email},
            )
    if credential.kind == CredentialKind.DIRECT:
        _confirm(credential, now)
    return Credential.objects.select_related("issued_to", "workspace").get(pk=credential.pk)


def credentials_expire(*, now: datetime) -> int:
    """Delete the anchors of ended credentials that are still there; how many were confirmed (a worker's sweep).

    The tenants take turns, and what cannot be confirmed waits longer each time, so that it holds up nobody else's: a
    tenant may keep its anchors alive. Only a cluster that does not answer is put aside, until the next sweep.
    """
    ended = Q(revoked_at__isnull=False) | Q(failed_at__isnull=False) | Q(expires_at__lt=now)
    # An intent without an outcome: whoever wrote it has died in between.
    ended |= Q(expires_at=None, issued_at__lt=now - _ABANDONED)
    due = Q(confirm_after=None) | Q(confirm_after__lte=now)
    turn = Window(
        RowNumber(),
        partition_by=F("tenant_id"),
        order_by=[F("confirm_attempts"), F("revoked_at").asc(nulls_last=True), F("issued_at")],
    )
    rows = Credential.objects.filter(ended, due, kind=CredentialKind.DIRECT, revocation_confirmed_at=None)
    # A cluster on which a workspace was given up is asked for nothing of it any more.
    rows = rows.exclude(workspace__phase=Phase.DELETED).annotate(turn=turn)
    confirmed, away, spent = 0, set(), defaultdict[UUID, float](float)
    for credential in rows.select_related("workspace__cluster").order_by("confirm_attempts", "turn")[:_BATCH]:
        cluster = _workspace(credential).cluster_id
        if cluster in away:
            continue
        begun, state = time.monotonic(), None
        with apart(f"the end of credential {credential.pk}"):
            state = _confirm(credential, now)
        confirmed += state is AnchorState.GONE
        spent[cluster] += time.monotonic() - begun
        if state is AnchorState.SILENT or spent[cluster] > PATIENCE_SECONDS:
            # One that does not answer, or slowly, is not asked two hundred times; the next sweep comes soon.
            away.add(cluster)
    return confirmed


def _workspace(credential: Credential) -> Workspace:
    """What a cluster's token is always for."""
    assert credential.workspace is not None  # noqa: S101 - a constraint of the database
    return credential.workspace


def _confirm(credential: Credential, now: datetime) -> AnchorState:
    workspace = _workspace(credential)
    try:
        client = client_for(workspace.cluster, workspace.tenant_id)
    except ClusterUnusable:
        return AnchorState.SILENT
    state = anchor_end(client, workspace, credential.anchor, credential.anchor_uid, now=now)
    row = Credential.objects.filter(pk=credential.pk, revocation_confirmed_at=None)
    if state is AnchorState.GONE:
        row.update(revocation_confirmed_at=now)
    elif state is not AnchorState.SILENT:
        wait = min(_FIRST_WAIT * 2 ** min(credential.confirm_attempts, 8), _LONGEST_WAIT)
        row.update(confirm_attempts=F("confirm_attempts") + 1, confirm_after=now + wait)
    return state
