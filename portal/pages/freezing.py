"""What people read about a freeze: since when, by whom, why, and what it does not reach (GW28)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from django.db.models import Max, Q

from access.models import Credential, WebhookCredential
from audit.recorder import Actor
from tenants.models import Cluster, CredentialKind, Freeze, Role, Status, Tenant, Workspace
from tenants.suspensions import freezes_over


def freezes_shown(
    actor: Actor, tenant: Tenant, workspace: Workspace | None = None, *, now: datetime
) -> list[dict[str, Any]]:
    """The freezes that hold something still, each in words; for operators and auditors with what goes on nevertheless."""
    shown = []
    for freeze in freezes_over(tenant.pk, workspace):
        until = f" until {freeze.until:%d %b %Y %H:%M} UTC" if freeze.until else ""
        shown.append(
            {
                "title": "The tenant is frozen" if freeze.workspace_id is None else "Frozen",
                "text": f"{freeze.reason} (by {freeze.frozen_by}). It can be read and not written to{until}.",
                "remains": what_remains(freeze, now=now) if actor.sees_all else [],
            }
        )
    return shown


def what_remains(freeze: Freeze, *, now: datetime) -> list[str]:
    """What writes all the same: what runs, operators, and on registered clusters whoever speaks to them directly."""
    rows = Workspace.objects.filter(tenant=freeze.tenant_id).exclude(status=Status.DELETED)
    if freeze.workspace_id is not None:
        rows = rows.filter(pk=freeze.workspace_id)
    clusters = Cluster.objects.filter(workspaces__in=rows).exclude(kind=Cluster.Kind.EMBEDDED).distinct()
    names = list(clusters.order_by("name").values_list("name", flat=True)[:20])
    if not names:
        return []
    said = ["What runs goes on, and what the cluster itself does with it: restarts, scaling by autoscalers, jobs."]
    counting = Q(expires_at=None) | Q(expires_at__gt=now)
    asking = set(
        WebhookCredential.objects.filter(counting, cluster__name__in=names).values_list("cluster__name", flat=True)
    )
    past = [name for name in names if name not in asking]
    if not past:
        return said
    direct = Credential.objects.filter(
        workspace__in=rows.filter(cluster__name__in=past),
        kind=CredentialKind.DIRECT,
        revoked_at=None,
        expires_at__gt=now,
    ).exclude(role=Role.VIEWER)
    last = direct.aggregate(last=Max("expires_at"))["last"]
    where = ", ".join(past)
    if last is not None:
        count = direct.count()
        said.append(
            f"{count} direct credential{'' if count == 1 else 's'} can write on {where}, which asks no API server of ours, "
            f"until {last:%d %b %H:%M} UTC at the latest: revoke what is out, or suspend. No more are given out."
        )
    said.append(f"The workspace's own service accounts can write on {where} from inside.")
    return said
