"""Namespaces on a cluster that carry the labels of workspaces and belong to none (GW12).

What a workspace that was given up has left, what a restored database knows nothing of, or what another installation has
made there. They are shown to operators and never touched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.db.models import Q

from kube.requests.names import is_dns_label
from tenants.clusters import objects
from tenants.clusters.client import ClusterClient, Outcome, object_path
from tenants.models import Phase, Workspace

KEPT: Final = 500
"""As many are shown; who has more begins with these."""

_PAGE: Final = 500
_LABELS: Final = f"{objects.MANAGED_BY}={objects.PRODUCT},{objects.WORKSPACE_LABEL}"


@dataclass(frozen=True, slots=True)
class UnclaimedNamespace:
    """A namespace of nobody: whose it says it is, by its labels, and since when it is there, as the cluster writes it."""

    name: str
    uid: str
    tenant: str
    workspace: str
    created_at: str


def unclaimed_namespaces(client: ClusterClient, *, now: datetime) -> tuple[UnclaimedNamespace, ...] | None:
    """The namespaces of nobody, at most ``KEPT`` of them; ``None`` when the cluster did not say.

    ``now`` is the time of the question: a workspace that has ended since may have been listed while it was there.
    """
    found: list[UnclaimedNamespace] = []
    page: dict[str, str | int] = {"labelSelector": _LABELS, "limit": _PAGE}
    while True:
        answer = client.get(f"{object_path('', 'v1', 'namespaces')}?{urlencode(page)}")
        items = answer.body.get("items")
        if answer.outcome is not Outcome.DONE or not isinstance(items, list):
            return None
        found += _of_nobody(items, now)
        following = answer.metadata.get("continue")
        if not following or len(found) >= KEPT:
            return tuple(found[:KEPT])
        page["continue"] = following


def _of_nobody(items: Sequence[Mapping[str, Any]], now: datetime) -> Iterator[UnclaimedNamespace]:
    """Those of a page that no workspace claims, on whichever cluster it is registered: one may be so under two names."""
    carrying = list(filter(None, map(_read, items)))
    living = Workspace.objects.filter(~Q(phase=Phase.DELETED) | Q(deleted_at__gte=now))
    rows = living.filter(k8s_namespace__in=[each.name for each in carrying])
    claims = {
        (name, claim)
        for name, uid, pk in rows.values_list("k8s_namespace", "namespace_uid", "pk")
        # By its label too: one that is being made, or was restored on the cluster, is its workspace's to judge.
        for claim in (uid, str(pk))
    }
    return (each for each in carrying if not claims & {(each.name, each.uid), (each.name, each.workspace)})


def _read(item: Mapping[str, Any]) -> UnclaimedNamespace | None:
    """What is shown of a namespace; nothing of one that is on its way out, or that no cluster would call so."""
    metadata = item.get("metadata") or {}
    name, uid = metadata.get("name"), metadata.get("uid")
    if metadata.get("deletionTimestamp") or not uid or not isinstance(name, str) or not is_dns_label(name):
        # The name becomes part of a command that somebody copies.
        return None
    labels = metadata.get("labels") or {}
    tenant, workspace = (labels.get(key, "") for key in (objects.TENANT_LABEL, objects.WORKSPACE_LABEL))
    created = metadata.get("creationTimestamp")
    texts = (uid[:64], tenant, workspace, created if isinstance(created, str) else "")
    return UnclaimedNamespace(name, *(text[:64] if text.isprintable() else "" for text in texts))
