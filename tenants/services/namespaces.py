"""Workspaces asked for and ended as Namespaces of a tenant's space: the same services, by their names there (GW18)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from uuid import UUID

from django.db import transaction

from audit.recorder import Actor
from kube.requests.status import AlreadyExists, Cause, Forbidden, Invalid, NotFound
from store.types import Operation, Stored
from tenants import actionlimits
from tenants.clusters.client import ClusterUnusable, Outcome, client_for, object_path
from tenants.clusters.objects import NAME_ANNOTATION, TIER_ANNOTATION
from tenants.models import Cluster, Tier, User
from tenants.naming import check_namespace_of
from tenants.placednamespaces import placed_namespace_create, placed_namespace_show
from tenants.rights import as_actor
from tenants.services.workspaces import workspace_delete, workspace_make


def namespace_order(
    *, caller: Actor, tenant: str, cluster: str, tier: str, body: Mapping[str, Any], held: Sequence[Operation]
) -> Stored:
    """Order a workspace for the Namespace ``body``, and show it in the space, together with what must hold.

    It belongs to the portal's user of the caller's name. ``cluster`` is a registered one; ``tier`` is what the
    tenant's workspaces get where the body's annotation names none (empty: the first that is offered). Raises as
    ``workspace_init`` does, ``AlreadyExists`` for a name that the cluster has already, and ``PreconditionFailed``.
    """
    actor, user = _person(caller, tenant)
    metadata = body["metadata"]
    annotations = metadata.get("annotations") or {}
    name = metadata["name"]
    chosen = annotations.get(TIER_ANNOTATION) or tier
    if not chosen:
        first = Tier.objects.filter(is_available=True).order_by("position", "name").first()
        chosen = first.name if first is not None else ""
    found = Cluster.objects.filter(name=cluster, kind=Cluster.Kind.EXTERNAL).first()
    if found is None:
        message = f'Unsupported value: "{cluster[:63]}": no cluster of this name is registered'
        causes = [Cause("FieldValueNotSupported", message, "metadata.labels[tenantry.io/cluster]")]
        raise Invalid(
            f'Namespace "{name}" is invalid: {causes[0].field}: {message}', kind="Namespace", name=name, causes=causes
        )
    check_namespace_of(tenant, name)
    # Before the cluster is asked: who asks for much waits, not the threads that wait for the cluster.
    actionlimits.take(actionlimits.INIT, user.id)
    _require_free(found, tenant, name)
    with transaction.atomic():
        workspace = workspace_make(
            actor=actor,
            user=user,
            tier_name=chosen,
            tenant_name=tenant,
            name=annotations.get(NAME_ANNOTATION) or name,
            cluster_name=cluster,
            namespace=name,
        )
        return placed_namespace_create(workspace, body, held)


@transaction.atomic
def namespace_end(*, caller: Actor, tenant: str, workspace_id: UUID) -> Stored | None:
    """Delete the workspace behind a Namespace; the object as it is on its way, or ``None``.

    Raises as ``workspace_delete`` does.
    """
    actor, _ = _person(caller, tenant)
    workspace = workspace_delete(actor=actor, workspace_id=workspace_id)
    if workspace.tenant_id != tenant:
        raise NotFound(f'workspaces "{workspace_id}" not found', kind="workspaces", name=str(workspace_id))
    return placed_namespace_show(workspace)


def _require_free(cluster: Cluster, tenant: str, name: str) -> None:
    """Whatever has the name on the cluster is not ours, and is never adopted. Raises ``AlreadyExists``.

    A cluster that does not answer is asked again by the worker.
    """
    try:
        answer = client_for(cluster, tenant).get(object_path("", "v1", "namespaces", name=name))
    except ClusterUnusable:
        return
    if answer.outcome is Outcome.DONE:
        raise AlreadyExists(
            f'namespaces "{name}" already exists on the cluster "{cluster.name}" and was not made here; choose another name',
            kind="namespaces",
            name=name,
        )


def _person(caller: Actor, tenant: str) -> tuple[Actor, User]:
    """The portal's user of the caller's name. Raises ``Forbidden`` with the remedy where there is none."""
    user = User.objects.filter(email__same=caller.name, status=User.Status.ACTIVE).first()
    if user is None or not (caller.operator or user.memberships.filter(tenant_id=tenant).exists()):
        raise Forbidden(
            f'namespaces on clusters are workspaces of people: "{caller.name}" is no member of {tenant} in the portal; '
            "let a member order it, or an owner invite a person of this name",
            kind="namespaces",
        )
    person = replace(
        as_actor(user),
        operator=caller.operator and user.is_staff,
        ip=caller.ip,
        user_agent=caller.user_agent,
        request_id=caller.request_id,
    )
    return person, user
