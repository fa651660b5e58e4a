"""The tokens that the gateway itself speaks to a cluster with, for a workspace: recorded before they are asked for (GW4).

They are a workspace's own, of one of its three accounts: should anything above err, the cluster asks its own RBAC
again and knows nothing beyond that namespace. Whoever asks for one keeps it in memory and nowhere else.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import transaction
from django.views.decorators.debug import sensitive_variables

from access.credentials.tokenrequests import BrokenPromise, ClusterToken, Unreached, token_request
from audit.actions import Action
from audit.models import Outcome
from audit.recorder import Actor
from kube.requests.status import Conflict, NotFound, ServiceUnavailable
from tenants.clusters import objects
from tenants.clusters.client import ClusterUnusable, Place, client_for, place_of
from tenants.models import Phase, Status, Workspace

GATEWAY: Final = Actor(name="system:apiserver", operator=True)


class NoAccess(ServiceUnavailable):
    """The cluster gave no token, which has been recorded; ``reached``: it has answered, which says nothing of others' tokens."""

    def __init__(self, message: str, *, reached: bool, retry_after: int) -> None:
        super().__init__(message, retry_after=retry_after)
        self.reached = reached


@sensitive_variables()
def workspace_token_issue(
    *, workspace_id: UUID, space: str, namespace: str, cluster: str, place: Place, role: str, now: datetime
) -> ClusterToken:
    """A token of the workspace's account of ``role`` (admin, editor or viewer).

    ``space``, ``namespace`` and ``cluster`` are what the caller takes the workspace to be, and ``place`` is where it takes
    the cluster to be; what they are says the database. Raises ``NotFound`` for another workspace, ``ServiceUnavailable``
    while it is not ready, of which ``NoAccess`` where the cluster is elsewhere or does not answer as agreed, ``Conflict``
    once it is closed; then no token is left.
    """
    workspace = _intend(workspace_id, space, namespace, cluster, role)
    try:
        if place_of(workspace.cluster) != place:
            raise BrokenPromise("it has been registered anew")
        client = client_for(workspace.cluster, workspace.tenant_id)
        token = token_request(client, workspace, account=objects.ACCOUNTS[role], now=now)
    except (BrokenPromise, ClusterUnusable) as error:
        _record(workspace, Outcome.FAILURE, {"role": role, "reason": str(error)})
        text = f'the cluster "{cluster}" gives no access: {error}'
        raise NoAccess(text, reached=not isinstance(error, Unreached), retry_after=5) from None
    with transaction.atomic():
        current = Workspace.objects.select_for_update(no_key=True).get(pk=workspace.pk)
        _record(workspace, Outcome.SUCCESS, {"role": role, "jti": token.jti, "expires": token.expires_at})
        if (current.status, current.service_accounts) != (Status.ACTIVE, workspace.service_accounts):
            # Its account is going, and the token with it.
            raise Conflict("The workspace was closed while its token was made.", kind="namespaces", name=namespace)
    return token


def _intend(workspace_id: UUID, space: str, namespace: str, cluster: str, role: str) -> Workspace:
    """The workspace, with the intent committed."""
    with transaction.atomic():
        rows = Workspace.objects.select_for_update(no_key=True, of=("self",)).select_related("tenant", "cluster")
        workspace = rows.filter(pk=workspace_id).first()
        if workspace is None or (workspace.tenant.cluster_path, workspace.k8s_namespace, workspace.cluster.name) != (
            space,
            namespace,
            cluster,
        ):
            raise NotFound(f'namespaces "{namespace}" not found', kind="namespaces", name=namespace)
        if workspace.status != Status.ACTIVE or workspace.tenant.state != "active":
            raise Conflict(f'the namespace "{namespace}" is closed', kind="namespaces", name=namespace)
        if workspace.phase != Phase.READY:
            raise ServiceUnavailable(f'the namespace "{namespace}" is not ready yet', retry_after=1)
        _record(workspace, Outcome.INTENT, {"role": role})
    return workspace


def _record(workspace: Workspace, outcome: Outcome, detail: dict[str, Any]) -> None:
    GATEWAY.record(
        Action.WORKSPACE_TOKEN_ISSUED,
        chain=workspace.tenant_id,
        outcome=outcome,
        target=f"workspaces/{workspace}",
        workspace_id=workspace.id,
        detail=detail,
    )
