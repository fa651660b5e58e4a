"""Ends connections into pods."""

from __future__ import annotations

from uuid import UUID

from django.db import connection, transaction

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from tenants.models import PodConnection, Tenant, Workspace
from tenants.openstreams import connection_visible_to


@transaction.atomic
def pod_connection_end(*, actor: Actor, connection_id: UUID) -> None:
    """Have somebody's connection into a pod ended; the tenant's admins and operators may. Twice is once.

    The process that has it open hears of it with the commit, tells the client who ended it, and takes the row away.
    Whoever was in may come again: what ends a right ends for good. Raises ``NotFound``, ``Forbidden``.
    """
    found = connection_visible_to(actor, connection_id)
    if not PodConnection.objects.filter(pk=found.pk, ended_by="").update(ended_by=actor.name[:254]):
        return
    workspace = Workspace.objects.filter(tenant_id=found.tenant, k8s_namespace=found.namespace).first()
    actor.record(
        Action.CONNECTION_ENDED,
        chain=found.tenant if Tenant.objects.filter(name=found.tenant).exists() else SYSTEM_CHAIN,
        target=f"namespaces/{found.namespace}/pods/{found.pod}",
        workspace_id=workspace.pk if workspace is not None else None,
        detail={"caller": found.caller, "way": found.way, "credential": found.credential},
    )
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify('tenantry_connections', '')")
