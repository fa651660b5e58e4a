"""The gateway's credential of a cluster takes over from the one before it, once it is proved (GW10, GW12)."""

from __future__ import annotations

from django.db import transaction

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.authentication.kubeconfig import RegisteredCluster
from kube.requests.status import Conflict
from tenants.clusters import encryption, selfcheck
from tenants.clusters.changes import cluster_changed
from tenants.models import Cluster
from tenants.rights import require_operator
from tenants.services import desiredstate
from tenants.services.clusters import access_of, locked, require_unchanged
from tenants.services.credentialtrials import cluster_identity, credential_prove


def cluster_credential_rotate(*, actor: Actor, name: str, kubeconfig: str) -> Cluster:
    """Put a new credential in the place of the cluster's, and wipe the old one. Operators only.

    It is tried first: the same cluster, by its identity, and all rights of the gateway's role and no more. Requests that
    have begun end with the old one; every API server hears of the new one from the commit on. Server and CA become those of
    the kubeconfig. Raises ``NotFound``; ``Invalid`` naming the field and what is wrong with it; ``Conflict`` where nobody
    can tell which cluster it was, and when another credential came first.
    """
    require_operator(actor)
    access = access_of(kubeconfig)
    with transaction.atomic():
        cluster = locked(name)
    before = cluster.sealed_credential
    identity = cluster_identity(cluster)
    if not identity:
        raise Conflict(
            f"Nobody can tell whether this is the same cluster: {name} has never said which it is, and does not now. "
            "Register it again with the kubeconfig.",
            kind="clusters",
            name=name,
        )
    credential_prove(access, cluster, identity)
    with transaction.atomic():
        cluster = locked(name)
        require_unchanged(cluster, before)
        cluster.identity = identity
        _take(actor, cluster, access, kubeconfig)
    return cluster


@transaction.atomic
def own_credential_renew(*, actor: Actor, name: str, kubeconfig: str) -> Cluster:
    """The same for the product's own API server, by a credential that the product has made itself. Operators only.

    It is not tried, for the server may not run yet; what else is said of the cluster stays as it is. Raises ``NotFound``,
    ``Invalid``.
    """
    require_operator(actor)
    access = access_of(kubeconfig)
    cluster = locked(name)
    _take(actor, cluster, access, kubeconfig)
    return cluster


def _take(actor: Actor, cluster: Cluster, access: RegisteredCluster, kubeconfig: str) -> None:
    cluster.server = access.server
    cluster.ca_data = access.certificate_authority.decode("ascii")
    cluster.sealed_credential = encryption.encrypt(kubeconfig)
    cluster.credential_expires_at = selfcheck.expiry_of(access)
    cluster.last_error = ""
    # What the last check found was found with the old one.
    cluster.checked_at = None
    cluster.save(
        update_fields=[
            "server",
            "ca_data",
            "sealed_credential",
            "credential_expires_at",
            "identity",
            "last_error",
            "checked_at",
        ]
    )
    desiredstate.retry_now(cluster.workspaces.all())
    cluster_changed(cluster.name)
    ends = cluster.credential_expires_at
    detail = {"server": access.server, "expires_at": ends.isoformat() if ends else None}
    actor.record(Action.CLUSTER_ROTATED, chain=SYSTEM_CHAIN, target=f"clusters/{cluster.name}", detail=detail)
