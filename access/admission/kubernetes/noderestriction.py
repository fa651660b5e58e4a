"""A kubelet writes what is its own, and does not choose what runs on its node (AZ4).

The conditions of Kubernetes' NodeRestriction, in its words: they hold whatever RBAC gives to nodes besides.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from cryptography import x509
from cryptography.x509.oid import NameOID

from access.admission.base import CREATE, DELETE, Attributes, NoopPlugin
from kube.authentication.identity import NODE_PREFIX
from kube.authorization.nodegraph import MIRROR, node_of, reference_of
from kube.requests.logicalclusters import ROOT
from kube.requests.status import NotFound
from store.interface import Reader
from store.types import Key, Operation

_LEASES: Final = "kube-node-lease"
_RESERVED: Final = "node-restriction.kubernetes.io"
_KUBERNETES: Final = ("kubernetes.io", "k8s.io")
_OWN_NAMESPACES: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
_OWN_LABELS: Final = frozenset(
    {
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "node.kubernetes.io/instance-type",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
        "beta.kubernetes.io/instance-type",
    }
)
"""The labels of Kubernetes that a kubelet gives its node."""

_SIGNERS: Final = frozenset({"kubernetes.io/kubelet-serving", "kubernetes.io/kube-apiserver-client-kubelet"})
_MEASURED: Final = ("capacity", "conditions", "allocatedResources", "allocatedResourceStatuses")

Body = Mapping[str, Any]


class NodeRestriction(NoopPlugin):
    """What a node writes is its own: its Node, lease, CSINode, slices, mirror pods, and the state of its pods."""

    name = "NodeRestriction"

    def __init__(self, store: Reader) -> None:
        self._store = store

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` in kube-apiserver's words, and ``NotFound`` for a mirror pod of a node that is not."""
        principal, resource = attributes.principal, attributes.resource
        node = node_of(principal.name, principal.groups) if principal.is_system else ""
        if not node:
            return ()
        why = ""
        match (resource.group, resource.plural):
            case ("", "pods"):
                why = await self._pod(attributes, node)
            case ("", "nodes"):
                why = _node(attributes, node)
            case ("", "persistentvolumeclaims"):
                why = _claim(attributes, node)
            case ("coordination.k8s.io", "leases"):
                if attributes.namespace != _LEASES:
                    why = f'can only access leases in the "{_LEASES}" system namespace'
                elif attributes.name != node:
                    why = "can only access node lease with the same name as the requesting node"
            case ("storage.k8s.io", "csinodes") if attributes.name != node:
                why = "can only access CSINode with the same name as the requesting node"
            case ("resource.k8s.io", "resourceslices"):
                why = _slice(attributes, node)
            case ("certificates.k8s.io", "certificatesigningrequests"):
                why = _request(attributes, node)
        if why:
            raise attributes.forbidden(why)
        return ()

    async def _pod(self, attributes: Attributes, node: str) -> str:
        old, new, part = attributes.old, attributes.object, attributes.subresource
        if attributes.operation == DELETE and part in ("", "eviction"):
            verb = "evict" if part else "delete"
            ours = old is not None and _node_name(old) == node
            return "" if ours else f'node "{node}" can only {verb} pods with spec.nodeName set to itself'
        if part == "status" and old is not None and new is not None:
            return _status(old, new, node)
        if part:
            return f"unexpected pod subresource \"{part}\", only 'status' and 'eviction' are allowed"
        if attributes.operation != CREATE or new is None:
            return (
                f'unexpected operation "{attributes.operation}", node "{node}" can only create and delete mirror pods'
            )
        return await self._mirror(new, node)

    async def _mirror(self, pod: Body, node: str) -> str:
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        if MIRROR not in (metadata.get("annotations") or {}):
            return f'pod does not have "{MIRROR}" annotation, node "{node}" can only create mirror pods'
        if _node_name(pod) != node:
            return f'node "{node}" can only create pods with spec.nodeName set to itself'
        owners = metadata.get("ownerReferences") or []
        if len(owners) > 1:
            return f'node "{node}" can only create pods with a single owner reference set to itself'
        owner = owners[0] if owners else {}
        if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
            return f'node "{node}" can only create pods with an owner reference set to itself'
        if owner.get("controller") is not True:
            return f'node "{node}" can only create pods with a controller owner reference set to itself'
        if owner.get("blockOwnerDeletion"):
            return f'node "{node}" must not set blockOwnerDeletion on an owner reference'
        stored = await self._store.get(Key(ROOT, "", "nodes", "", node), cached=True)
        if stored is None:
            raise NotFound(f'nodes "{node}" not found', kind="nodes", name=node)
        uid = orjson.loads(stored.data)["metadata"]["uid"]
        if owner.get("uid") != uid:
            return f"node {node} UID mismatch: expected {str(owner.get('uid'))[:64]} got {uid}"
        referred = reference_of(spec)
        return f'node "{node}" can not create pods that reference {referred}' if referred else ""


def _node_name(body: Body) -> object:
    return (body.get("spec") or {}).get("nodeName")


def _status(old: Body, new: Body, node: str) -> str:
    if _node_name(old) != node:
        return f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'  # noqa: S608 - no SQL
    if (old["metadata"].get("labels") or {}) != (new["metadata"].get("labels") or {}):
        return f'node "{node}" cannot update labels through pod status'
    before, after = old.get("status") or {}, new.get("status") or {}
    if (before.get("resourceClaimStatuses") or []) != (after.get("resourceClaimStatuses") or []):
        return f'node "{node}" cannot update resource claim statues'
    if before.get("extendedResourceClaimStatus") != after.get("extendedResourceClaimStatus"):
        return f'node "{node}" cannot update extended resource claim status'
    return ""


def _node(attributes: Attributes, node: str) -> str:
    if attributes.name != node:
        return f'node "{node}" is not allowed to modify node "{attributes.name}"'
    new, old = attributes.object, attributes.old
    if new is None:
        return ""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    source = spec.get("configSource")
    if old is None and source is not None:
        return f'node "{node}" is not allowed to create pods with a non-nil configSource'
    if source is not None and source != before.get("configSource"):
        return f'node "{node}" is not allowed to update configSource to a new non-nil configSource'
    if old is not None:
        if (spec.get("taints") or []) != (before.get("taints") or []):
            return f'node "{node}" is not allowed to modify taints'
        if (new["metadata"].get("ownerReferences") or []) != (old["metadata"].get("ownerReferences") or []):
            return f'node "{node}" is not allowed to modify ownerReferences'
    refused = _reserved((old or {"metadata": {}})["metadata"].get("labels") or {}, new["metadata"].get("labels") or {})
    if not refused:
        return ""
    labels = ", ".join(refused)
    if old is None:
        return f'node "{node}" is not allowed to set the following labels: {labels}'
    return f"is not allowed to modify labels: {labels}"


def _reserved(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """The labels that differ and are not a kubelet's to give: they would draw workloads to its node."""
    changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    return [
        key
        for key in changed
        if _is_of(key, (_RESERVED,))
        or (_is_of(key, _KUBERNETES) and key not in _OWN_LABELS and not _is_of(key, _OWN_NAMESPACES))
    ]


def _is_of(key: str, namespaces: Sequence[str]) -> bool:
    prefix, slash, _ = key.partition("/")
    return bool(slash) and any(prefix == namespace or prefix.endswith(f".{namespace}") for namespace in namespaces)


def _claim(attributes: Attributes, node: str) -> str:
    old, new = attributes.old, attributes.object
    if attributes.subresource != "status" or old is None or new is None:
        return "may only update PVC status"
    if _unmeasured(old) != _unmeasured(new):
        return f'node "{node}" is not allowed to update fields other than status.quantity and status.conditions'
    return ""


def _unmeasured(claim: Body) -> dict[str, Any]:
    metadata = {
        key: value for key, value in claim["metadata"].items() if key not in ("resourceVersion", "managedFields")
    }
    status = {key: value for key, value in (claim.get("status") or {}).items() if key not in _MEASURED}
    return {**claim, "metadata": metadata, "status": status}


def _slice(attributes: Attributes, node: str) -> str:
    verb, body = ("create", attributes.object) if attributes.operation == CREATE else ("delete", attributes.old)
    if attributes.operation not in (CREATE, DELETE) or (body is not None and _node_name(body) == node):
        return ""
    return f"can only {verb} ResourceSlice with the same NodeName as the requesting node"


def _request(attributes: Attributes, node: str) -> str:
    spec = (attributes.object or {}).get("spec") or {}
    if attributes.operation != CREATE or spec.get("signerName") not in _SIGNERS:
        return ""
    try:
        asked = x509.load_pem_x509_csr(base64.b64decode(str(spec.get("request") or ""), validate=True))
        names = [str(name.value) for name in asked.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    except (ValueError, binascii.Error):
        return "unable to parse csr"
    return "" if names == [f"{NODE_PREFIX}{node}"] else f"can only create a node CSR with CN={NODE_PREFIX}{node}"
