"""Reads of open streams: how many there are, and who is in which pod now (D3)."""

from __future__ import annotations

from uuid import UUID

from django.db.models import QuerySet, Sum
from django.db.models.functions import Now

from audit.recorder import Actor
from kube.requests.status import NotFound
from tenants.models import LIVING, Membership, PodConnection, Role, StreamCount, Workspace
from tenants.rights import require_role


def streams_counted(actor: Actor) -> int:
    """How many streams are open in the actor's tenants; operators see all."""
    rows = StreamCount.objects.filter(seen_at__gt=Now() - LIVING)
    if not actor.sees_all:
        mine = Membership.objects.filter(user_id=actor.user_id)  # type: ignore[misc]
        rows = rows.filter(tenant__in=mine.values("tenant_id"))
    return rows.aggregate(all=Sum("open"))["all"] or 0


def streams_into(workspace: Workspace) -> int:
    """How many streams are open in a workspace's namespace, as the API servers have reported last."""
    rows = StreamCount.objects.filter(tenant=workspace.tenant_id, namespace=workspace.k8s_namespace)
    return rows.filter(seen_at__gt=Now() - LIVING).aggregate(all=Sum("open"))["all"] or 0


def connections_visible_to(actor: Actor) -> QuerySet[PodConnection]:
    """Who is in which pod now, the newest first: of the tenants whose admin the actor is; operators see all."""
    rows = PodConnection.objects.filter(seen_at__gt=Now() - LIVING).order_by("-opened_at", "id")
    if actor.sees_all:
        return rows
    managed = Membership.objects.filter(Membership.as_one_of([Role.OWNER, Role.ADMIN]), user_id=actor.user_id)  # type: ignore[misc]
    return rows.filter(tenant__in=managed.values("tenant_id"))


def connection_visible_to(actor: Actor, connection_id: UUID) -> PodConnection:
    """One that is open. Raises ``NotFound``, and ``Forbidden`` for whoever is no admin of the tenant."""
    found = PodConnection.objects.filter(pk=connection_id, seen_at__gt=Now() - LIVING).first()
    if found is None:
        raise NotFound("The connection has ended.", kind="connections", name=str(connection_id))
    require_role(actor, found.tenant, Role.ADMIN)
    return found
