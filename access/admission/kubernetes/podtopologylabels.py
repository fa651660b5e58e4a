"""A pod on a node carries the node's zone and region."""

from __future__ import annotations

from typing import Any, Final

import orjson

from access.admission.base import Attributes, NoopPlugin
from kube.requests.logicalclusters import ROOT
from store.interface import Store
from store.types import Key

_COPIED: Final = ("topology.kubernetes.io/zone", "topology.kubernetes.io/region")


class PodTopologyLabels(NoopPlugin):
    """Kubernetes' plug-in of that name, in the system space: a tenant's space has no nodes to speak of (TS15)."""

    name = "PodTopologyLabels"
    kinds = frozenset({("", "pods")})

    def __init__(self, store: Store) -> None:
        self._store = store

    async def admit(self, attributes: Attributes) -> None:
        """Copy the labels to a pod that is put on a node, when it is made or bound."""
        body, old = attributes.object, attributes.old
        if body is None or attributes.cluster != ROOT:
            return
        node, before = _node(body), _node(old or {})
        if not node or before or attributes.subresource not in ("", "binding"):
            return
        key = Key(ROOT, "", "nodes", "", node)
        stored = await self._store.get(key, cached=True)
        labels = (orjson.loads(stored.data)["metadata"].get("labels") or {}) if stored is not None else {}
        copied = {name: labels[name] for name in _COPIED if name in labels}
        if copied:
            body["metadata"]["labels"] = (body["metadata"].get("labels") or {}) | copied


def _node(pod: dict[str, Any]) -> str:
    return (pod.get("spec") or {}).get("nodeName") or ""
