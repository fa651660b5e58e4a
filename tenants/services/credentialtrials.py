"""A credential of the gateway's is tried on its cluster before it takes the place of another (GW10, GW12)."""

from __future__ import annotations

from typing import Final

from django.utils import timezone

from kube.authentication.kubeconfig import RegisteredCluster
from kube.requests.status import Cause, Invalid
from tenants.clusters import selfcheck
from tenants.clusters.client import ClusterUnusable, client_to, client_with
from tenants.models import Cluster

_LASTING: Final = "expiry"
"""The finding that refuses nothing: a new credential may be short, and its end is announced like any other's."""


def cluster_identity(cluster: Cluster) -> str:
    """Which cluster it is: what is kept, or what it says now by the credential that it has. Empty when nobody can tell."""
    if cluster.identity:
        return cluster.identity
    try:
        return selfcheck.identity_of(client_to(cluster))
    except ClusterUnusable:
        return ""


def credential_prove(access: RegisteredCluster, cluster: Cluster, identity: str) -> str:
    """Try a credential: the user, every right of the gateway's role and no more, and the cluster ``identity``.

    What the cluster says that it is; an empty ``identity`` is that of one that nobody knows yet. Raises ``Invalid`` naming
    the kubeconfig and everything that is wrong with it.
    """
    report = selfcheck.check_credential(access, client_with(access), kind=cluster.kind, now=timezone.now())
    found = [each.found for each in report.findings if each.state == selfcheck.FAILED and each.name != _LASTING]
    if not found and identity and report.identity != identity:
        said = report.identity or "not said"
        other = f"the UID of its namespace kube-system is {said} instead of {identity}. Register it under a name of its own."
        found = [f"This is another cluster than {cluster.name}: {other}"]
    if found:
        causes = [Cause("FieldValueInvalid", words, "kubeconfig") for words in found]
        raise Invalid(f"Cluster is invalid: kubeconfig: {found[0]}", kind="Cluster", causes=causes)
    return report.identity
