"""Closed doors (GW5): a lock in the database is enough to refuse, even while a cluster cannot be reached.

What is frozen is read and not written (GW28); it is known and told of as locks are.

API servers keep all locks in memory. ``tenantry_locks`` is notified when the transaction commits; its payload is
only a hint, the table is the truth. A lock closes to everybody but the system tenant's own users: the worker that
makes a suspension true goes through the same door.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import connection
from django.db.models import Q
from django.db.models.functions import Now, TruncSecond

from tenants.models import Freeze, Lock, Tenant, Workspace

CHANNEL = "tenantry_locks"

_INSTALLATION = "root"
"""The space above all tenants': a lock of it closes everything to everybody but the system tenant's own users."""


def lock_set(*, space: str, namespace: str = "", reason: str) -> None:
    """Close a logical cluster, or one namespace of it, from the commit on. Closing twice keeps the newer reason."""
    Lock.objects.update_or_create(space=space, namespace=namespace, defaults={"reason": reason[:512]})
    _notify(space, namespace)


def lock_clear(*, space: str, namespace: str = "") -> None:
    """Open it again from the commit on; what is open stays open."""
    Lock.objects.filter(space=space, namespace=namespace).delete()
    _notify(space, namespace)


def workspace_unlock(workspace: Workspace) -> None:
    """Open a workspace that is ready, from the commit on."""
    lock_clear(space=workspace.tenant.cluster_path, namespace=workspace.k8s_namespace)


def freeze_set(*, tenant: Tenant, workspace: Workspace | None, reason: str, by: str, until: datetime | None) -> Freeze:
    """Refuse writes in a tenant's space, or in one workspace, from the commit on. The newer words count."""
    namespace = workspace.k8s_namespace if workspace else ""
    made, _ = Freeze.objects.update_or_create(
        space=tenant.cluster_path,
        namespace=namespace,
        defaults={"reason": reason, "frozen_by": by[:254], "until": until},
        create_defaults={
            "tenant": tenant,
            "workspace": workspace,
            "reason": reason,
            "frozen_by": by[:254],
            "until": until,
        },
    )
    _notify(tenant.cluster_path, namespace)
    return made


def freeze_clear(tenant: Tenant, workspace: Workspace | None) -> bool:
    """Let writes through again from the commit on; whether they were refused."""
    namespace = workspace.k8s_namespace if workspace else ""
    gone, _ = Freeze.objects.filter(space=tenant.cluster_path, namespace=namespace).delete()
    _notify(tenant.cluster_path, namespace)
    return bool(gone)


def freezes_over(tenant: str, workspace: Workspace | None = None) -> list[Freeze]:
    """What holds a tenant still, or one workspace of it: its own freeze and the tenant's, which comes first."""
    concerned = Q(workspace=None) if workspace is None else Q(workspace=None) | Q(workspace=workspace)
    return list(Freeze.objects.filter(concerned, tenant=tenant).order_by("namespace"))


def credentials_spend(tenant: Tenant) -> None:
    """From the commit on nothing counts that was made out to the tenant's name so far (TS1, P5).

    To the next full second: tokens say no more of when they were issued.
    """
    moment = TruncSecond(Now()) + timedelta(seconds=1)
    Tenant.objects.filter(pk=tenant.pk).update(credentials_not_before=moment)
    tenant.refresh_from_db(fields=["credentials_not_before"])
    _notify(tenant.cluster_path, "")


def installation_close(reason: str) -> None:
    """Close the whole installation from the commit on, as a restore does (P12)."""
    lock_set(space=_INSTALLATION, reason=reason)


def installation_open() -> None:
    """Open it again from the commit on; what is closed by itself stays closed."""
    lock_clear(space=_INSTALLATION)


def installation_closed() -> str:
    """Why the whole installation is closed; empty while it is open."""
    return Lock.objects.filter(space=_INSTALLATION, namespace="").values_list("reason", flat=True).first() or ""


def locks_all() -> dict[tuple[str, str], str]:
    """Every lock as (space, namespace) → reason; an empty namespace closes the whole space."""
    return {
        (space, namespace): reason
        for space, namespace, reason in Lock.objects.values_list("space", "namespace", "reason")
    }


def _notify(space: str, namespace: str) -> None:
    # Inside the transaction on purpose: PostgreSQL delivers on commit only. Locks are rare, so its global lock is too.
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, f"{space} {namespace}".strip()])
