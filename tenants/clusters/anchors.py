"""The anchor of a token: the Secret that it is bound to, by its uid. When that one is gone, so is the token (GW3)."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from tenants.clusters import objects
from tenants.clusters.client import Answer, ClusterClient, Outcome
from tenants.models import Workspace

MARKED_DEAD: Final = timedelta(seconds=75)
"""kube-apiserver refuses a token whose anchor has been marked as deleted for 60 s, though a finalizer keeps the object,
and remembers what it accepted for 10 s."""


class AnchorState(StrEnum):
    """What is known of an anchor after it was deleted."""

    GONE = "gone"
    """The token is dead: the anchor is gone, or was marked as deleted for long enough."""
    THERE = "still there"
    REFUSED = "refused"
    SILENT = "does not answer"
    """Of the cluster nothing is known: it need not be asked for others now."""


def anchor_end(client: ClusterClient, workspace: Workspace, name: str, uid: str, *, now: datetime) -> AnchorState:
    """Delete an anchor; a second deletion proves that it is gone (the gateway may not read secrets).

    With ``uid`` another Secret that a tenant made under the name is left alone, and proves the same.
    """
    path = objects.path(workspace, "secrets", name)
    first = client.delete(path, uid=uid)
    if first.outcome is Outcome.DONE:
        return _fate(client.delete(path, uid=uid), uid, now)
    return _fate(first, uid, now)


def _fate(answer: Answer, uid: str, now: datetime) -> AnchorState:
    if answer.outcome is Outcome.ABSENT:
        return AnchorState.GONE
    marked_at = answer.metadata.get("deletionTimestamp")
    if uid and answer.metadata.get("uid") == uid and marked_at:
        try:
            if now - datetime.fromisoformat(str(marked_at)) > MARKED_DEAD:
                return AnchorState.GONE
        except (TypeError, ValueError):
            return AnchorState.THERE
    if not answer.reached:
        return AnchorState.SILENT
    return AnchorState.REFUSED if answer.outcome is Outcome.DENIED else AnchorState.THERE
