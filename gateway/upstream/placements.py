"""Where the objects of a namespace live: in the store, or on a registered cluster (GW18).

A Namespace says so itself, by labels that the product alone writes; they are read from the store's cached objects. A
placement means the workspace by its UID: whatever comes later under the same name is another one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from kube.requests.logicalclusters import is_tenant_space
from store.interface import Reader
from store.types import Key, Stored
from tenants.clusters.objects import CLUSTER_LABEL, WORKSPACE_LABEL

_MARK: Final = CLUSTER_LABEL.encode()
_REMEMBERED: Final = 16_384


@dataclass(frozen=True, slots=True)
class Placement:
    """One placed namespace: the workspace (its UID), the cluster's name, and the namespace, the same in both worlds.

    ``space`` is the logical cluster that shows it, ``phase`` the Namespace object's.
    """

    workspace: str
    cluster: str
    space: str
    namespace: str
    phase: str


class Placements:
    """Placements by space and namespace, from whatever the store holds in memory."""

    def __init__(self, store: Reader) -> None:
        self._store = store
        self._known: dict[tuple[str, str], tuple[Stored, Placement | None]] = {}

    async def of(self, space: str, namespace: str) -> Placement | None:
        """The placement of a namespace; ``None`` for a stored one, and for one that is not there.

        A namespace that this process does not know is asked for: another process may just have made it.
        """
        if not namespace or not is_tenant_space(space):
            return None
        key = Key(space, "", "namespaces", "", namespace)
        stored = await self._store.get(key, cached=True) or await self._store.get(key)
        if stored is None:
            return None
        place = (space, namespace)
        known = self._known.get(place)
        if known is not None and known[0] is stored:
            return known[1]
        placement = _placement(stored)
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        self._known[place] = (stored, placement)
        return placement


def _placement(stored: Stored) -> Placement | None:
    if _MARK not in stored.data:
        return None
    body = orjson.loads(stored.data)
    cluster, workspace = cluster_of(body), workspace_of(body)
    if not cluster or not workspace:
        return None
    return Placement(workspace, cluster, stored.key.space, stored.key.name, str(body["status"]["phase"]))


def cluster_of(namespace: Mapping[str, Any]) -> str | None:
    """The cluster that a Namespace names, ``None`` where it names none."""
    found: str | None = (namespace["metadata"].get("labels") or {}).get(CLUSTER_LABEL)
    return found


def workspace_of(namespace: Mapping[str, Any]) -> str:
    """The UID of the workspace that a Namespace shows, empty for none."""
    return str((namespace["metadata"].get("labels") or {}).get(WORKSPACE_LABEL) or "")
