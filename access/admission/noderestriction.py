"""A kubelet makes no other node, and does not choose what runs on its own (AZ4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from access.admission.base import CREATE, Attributes, Quiet
from kube.nodegraph import node_of
from kube.status import Forbidden
from store.types import Operation

_OWN: Final = frozenset({("", "nodes"), ("coordination.k8s.io", "leases"), ("storage.k8s.io", "csinodes")})
_RESERVED: Final = "node-restriction.kubernetes.io/"


class NodeRestriction(Quiet):
    """What a node writes of nodes, leases and csinodes has its own name; its taints and reserved labels stay."""

    name = "NodeRestriction"

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` in kube-apiserver's words."""
        principal, resource = attributes.principal, attributes.resource
        node = node_of(principal.name, principal.groups) if principal.is_system else ""
        if not node or (resource.group, resource.plural) not in _OWN:
            return ()
        if attributes.operation == CREATE and attributes.name != node:
            raise self._refused(attributes, f'node "{node}" cannot create the object of another node')
        if resource.plural == "nodes" and attributes.object is not None and attributes.old is not None:
            if _taints(attributes.object) != _taints(attributes.old):
                raise self._refused(attributes, f'node "{node}" is not allowed to modify taints')
            if _reserved(attributes.object) != _reserved(attributes.old):
                raise self._refused(attributes, f'node "{node}" is not allowed to modify labels: {_RESERVED}')
        elif attributes.object is not None and resource.plural == "nodes" and _reserved(attributes.object):
            raise self._refused(attributes, f'node "{node}" is not allowed to set labels: {_RESERVED}')
        return ()

    @staticmethod
    def _refused(attributes: Attributes, why: str) -> Forbidden:
        resource = attributes.resource
        return Forbidden(
            f'{resource.qualified_name} "{attributes.name}" is forbidden: {why}',
            group=resource.group,
            kind=resource.plural,
            name=attributes.name,
        )


def _taints(node: Mapping[str, Any]) -> object:
    return (node.get("spec") or {}).get("taints") or []


def _reserved(node: Mapping[str, Any]) -> dict[str, str]:
    labels = (node.get("metadata") or {}).get("labels") or {}
    return {key: value for key, value in labels.items() if key.split("/")[0].endswith(_RESERVED.rstrip("/"))}
