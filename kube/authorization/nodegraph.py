"""Which node needs which objects: the references of the pods that are bound to it (AZ4).

The same edges as in Kubernetes' node authorizer: a pod refers to its ServiceAccount, and to Secrets, ConfigMaps,
PersistentVolumeClaims and ResourceClaims by its volumes, containers and pull secrets; a volume is reached by the claim
that it says it is bound to, and refers to the Secrets of its driver. A mirror pod, which its node writes itself, refers
to nothing, and must not (``reference_of``). Attachments of volumes and slices of devices name their node themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from kube.authentication.identity import NODE_PREFIX, NODES

MIRROR: Final = "kubernetes.io/config.mirror"
"""The annotation of pods that a kubelet runs by itself, and shows."""

GRAPHED: Final = (
    ("", "pods"),
    ("", "persistentvolumes"),
    ("storage.k8s.io", "volumeattachments"),
    ("resource.k8s.io", "resourceslices"),
)
"""What a graph is made of, by group and resource."""

_APART: Final = frozenset(
    {
        "awsElasticBlockStore",
        "azureDisk",
        "cephfs",
        "cinder",
        "downwardAPI",
        "emptyDir",
        "fc",
        "flexVolume",
        "flocker",
        "gcePersistentDisk",
        "gitRepo",
        "hostPath",
        "image",
        "iscsi",
        "nfs",
        "photonPersistentDisk",
        "portworxVolume",
        "quobyte",
        "rbd",
        "scaleIO",
        "storageos",
        "vsphereVolume",
    }
)
"""Volumes that need no object of the API."""

_REFERRING: Final = {
    "configMap": "configmaps (via configmap volumes)",
    "secret": "secrets (via secret volumes)",
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
    "azureFile": "secrets (via azureFile volumes)",
}
_PROJECTED: Final = {
    "configMap": "configmaps (via projected volumes)",
    "secret": "secrets (via projected volumes)",
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


class ObjectReference(NamedTuple):
    """An object of one space; no two groups that count here have a resource of one name."""

    resource: str
    namespace: str
    name: str


def node_of(user: str, groups: tuple[str, ...]) -> str:
    """The node whose kubelet this is, or nothing."""
    return user[len(NODE_PREFIX) :] if NODES in groups and user.startswith(NODE_PREFIX) else ""


class NodeGraph:
    """The pods and volumes of one space, and what they refer to."""

    def __init__(self) -> None:
        self._nodes: dict[ObjectReference, str] = {}
        self._references: dict[ObjectReference, frozenset[ObjectReference]] = {}
        self._referrers: dict[ObjectReference, set[ObjectReference]] = {}

    def put(self, resource: str, manifest: Mapping[str, Any]) -> None:
        """Take in a pod, a volume, an attachment or a slice as it is now."""
        metadata = manifest.get("metadata") or {}
        place = ObjectReference(resource, str(metadata.get("namespace") or ""), str(metadata.get("name") or ""))
        self.remove(*place)
        spec = manifest.get("spec") or {}
        if resource == "pods":
            node = spec.get("nodeName")
            if not node:
                return
            self._nodes[place] = str(node)
            mirror = MIRROR in (metadata.get("annotations") or {})
            found = frozenset() if mirror else frozenset(_of_pod(place.namespace, place.name, spec, manifest))
        elif resource != "persistentvolumes":
            if spec.get("nodeName"):
                self._nodes[place] = str(spec["nodeName"])
            return
        else:
            claim = _inner(spec, "claimRef")
            bound = frozenset(_place("persistentvolumeclaims", str(claim.get("namespace") or ""), claim.get("name")))
            if not bound:
                return
            # Whoever writes claims could name any volume in them; the volume names the claim that has it.
            self._referrers[place] = set(bound)
            found = frozenset(_of_volume(spec))
        self._references[place] = found
        for target in found:
            self._referrers.setdefault(target, set()).add(place)

    def remove(self, resource: str, namespace: str, name: str) -> None:
        """Forget an object."""
        place = ObjectReference(resource, namespace, name)
        self._nodes.pop(place, None)
        if resource == "persistentvolumes":
            self._referrers.pop(place, None)
        for target in self._references.pop(place, ()):
            referrers = self._referrers[target]
            referrers.discard(place)
            if not referrers:
                del self._referrers[target]

    def is_needed(self, place: ObjectReference, node: str) -> bool:
        """Whether a way of references leads from a pod on this node to the object; a pod on it leads to itself."""
        return any(found == node for found in self.nodes_needing(place))

    def nodes_needing(self, place: ObjectReference) -> Iterator[str]:
        """Every node from a pod on which such a way leads, once for each pod."""
        waiting, seen = [place], {place}
        while waiting:
            current = waiting.pop()
            node = self._nodes.get(current)
            if node is not None:
                yield node
            for referrer in self._referrers.get(current, ()):
                if referrer not in seen:
                    seen.add(referrer)
                    waiting.append(referrer)


def reference_of(spec: Mapping[str, Any]) -> str:
    """What kind of object the spec of a pod refers to, in Kubernetes' words; empty when to none."""
    if spec.get("serviceAccountName"):
        return "serviceaccounts"
    plain = {key: value for key, value in spec.items() if key != "volumes"}
    kinds = {place.resource for place in _of_pod("any", "any", plain, {})}
    for kind in ("secrets", "configmaps"):
        if kind in kinds:
            return kind
    if spec.get("resourceClaims"):
        return "resourceclaims"
    for volume in _maps(spec.get("volumes")):
        sources = {key for key, value in volume.items() if key != "name" and value is not None}
        if "projected" in sources:
            for source in _maps(_inner(volume, "projected").get("sources")):
                for key in source:
                    if key != "downwardAPI":
                        return _PROJECTED.get(key, "something unknown")
        elif any(_inner(volume, kind).get("secretRef") for kind in sources & _APART):
            return "secrets"
        elif not sources <= _APART:
            return next((_REFERRING[key] for key in _REFERRING if key in sources), "something unknown")
    return ""


def _of_pod(
    namespace: str, name: str, spec: Mapping[str, Any], manifest: Mapping[str, Any]
) -> Iterator[ObjectReference]:
    yield ObjectReference("serviceaccounts", namespace, str(spec.get("serviceAccountName") or "default"))
    for secret in _maps(spec.get("imagePullSecrets")):
        yield from _place("secrets", namespace, secret.get("name"))
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        for container in _maps(spec.get(kind)):
            for source in _maps(container.get("envFrom")):
                yield from _place("secrets", namespace, _inner(source, "secretRef").get("name"))
                yield from _place("configmaps", namespace, _inner(source, "configMapRef").get("name"))
            for variable in _maps(container.get("env")):
                source = _inner(variable, "valueFrom")
                yield from _place("secrets", namespace, _inner(source, "secretKeyRef").get("name"))
                yield from _place("configmaps", namespace, _inner(source, "configMapKeyRef").get("name"))
    for volume in _maps(spec.get("volumes")):
        yield from _of_pod_volume(namespace, name, volume)
    made = {
        entry.get("name"): entry.get("resourceClaimName")
        for entry in _maps(_inner(manifest, "status").get("resourceClaimStatuses"))
    }
    for claim in _maps(spec.get("resourceClaims")):
        yield from _place("resourceclaims", namespace, claim.get("resourceClaimName") or made.get(claim.get("name")))
    extended = _inner(_inner(manifest, "status"), "extendedResourceClaimStatus")
    yield from _place("resourceclaims", namespace, extended.get("resourceClaimName"))


def _of_pod_volume(namespace: str, pod: str, volume: Mapping[str, Any]) -> Iterator[ObjectReference]:
    yield from _place("secrets", namespace, _inner(volume, "secret").get("secretName"))
    yield from _place("configmaps", namespace, _inner(volume, "configMap").get("name"))
    yield from _place("persistentvolumeclaims", namespace, _inner(volume, "persistentVolumeClaim").get("claimName"))
    if isinstance(volume.get("ephemeral"), Mapping):
        yield from _place("persistentvolumeclaims", namespace, f"{pod}-{volume.get('name')}")
    yield from _place("secrets", namespace, _inner(_inner(volume, "csi"), "nodePublishSecretRef").get("name"))
    for driver in ("cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"):
        yield from _place("secrets", namespace, _inner(_inner(volume, driver), "secretRef").get("name"))
    yield from _place("secrets", namespace, _inner(volume, "azureFile").get("secretName"))
    for source in _maps(_inner(volume, "projected").get("sources")):
        yield from _place("secrets", namespace, _inner(source, "secret").get("name"))
        yield from _place("configmaps", namespace, _inner(source, "configMap").get("name"))


def _of_volume(spec: Mapping[str, Any]) -> Iterator[ObjectReference]:
    home = str(_inner(spec, "claimRef").get("namespace") or "")
    driver = _inner(spec, "csi")
    for field in ("nodePublishSecretRef", "nodeStageSecretRef", "nodeExpandSecretRef"):
        reference = _inner(driver, field)
        yield from _place("secrets", str(reference.get("namespace") or home), reference.get("name"))
    for kind in ("cephfs", "cinder", "flexVolume", "iscsi", "rbd", "scaleIO", "storageos"):
        reference = _inner(_inner(spec, kind), "secretRef")
        yield from _place("secrets", str(reference.get("namespace") or home), reference.get("name"))
    azure = _inner(spec, "azureFile")
    yield from _place("secrets", str(azure.get("secretNamespace") or home), azure.get("secretName"))


def _place(resource: str, namespace: str, name: object) -> Iterator[ObjectReference]:
    if isinstance(name, str) and name and namespace:
        yield ObjectReference(resource, namespace, name)


def _inner(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}


def _maps(value: object) -> Iterator[Mapping[str, Any]]:
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, Mapping))
