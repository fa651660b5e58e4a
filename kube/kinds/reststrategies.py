"""What kube-apiserver does differently from kind to kind without any rule behind it, as data (TS15).

Keys are (group, plural) of the storage resource, as in ``Resource.storage_key``.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Final

StorageKey = tuple[str, str]

_GENERATION_GROUPS: Final = frozenset(
    {
        "apps",
        "policy",
        "networking.k8s.io",
        "apiextensions.k8s.io",
        "admissionregistration.k8s.io",
        "discovery.k8s.io",
        "batch",
        "scheduling.k8s.io",
    }
)
_GENERATIONS: Final = frozenset(
    {
        ("", "pods"),
        ("", "podtemplates"),
        ("", "replicationcontrollers"),
        ("resource.k8s.io", "deviceclasses"),
        ("resource.k8s.io", "resourceslices"),
    }
)
_NO_GENERATIONS: Final = frozenset(
    {
        ("apps", "controllerrevisions"),
        ("networking.k8s.io", "ipaddresses"),
        ("networking.k8s.io", "servicecidrs"),
    }
)

COUNTED_METADATA: Final[dict[StorageKey, str]] = {
    ("apps", "deployments"): "annotations",
    ("discovery.k8s.io", "endpointslices"): "labels",
}
"""Metadata whose change counts as a new generation."""

RETURN_DELETED_OBJECT: Final = frozenset(
    {
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("", "pods"),
        ("", "podtemplates"),
        ("", "replicationcontrollers"),
        ("", "resourcequotas"),
        ("", "serviceaccounts"),
        ("", "services"),
        ("resource.k8s.io", "deviceclasses"),
        ("resource.k8s.io", "resourceclaims"),
        ("resource.k8s.io", "resourceclaimtemplates"),
        ("resource.k8s.io", "resourceslices"),
        ("storage.k8s.io", "csidrivers"),
        ("storage.k8s.io", "csinodes"),
        ("storage.k8s.io", "storageclasses"),
        ("storage.k8s.io", "volumeattachments"),
        ("storage.k8s.io", "volumeattributesclasses"),
    }
)
"""Kinds whose deletion is answered with the object and not with a ``Status``."""

DEPRECATED: Final[dict[tuple[str, str, str], str]] = {
    ("", "v1", "endpoints"): ("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice"),
    ("", "v1", "componentstatuses"): "v1 ComponentStatus is deprecated in v1.19+",
}
"""Warnings of every request for a (group, version, plural)."""

ALLOW_CREATE_ON_UPDATE: Final = frozenset(
    {
        ("", "endpoints"),
        ("", "events"),
        ("", "limitranges"),
        ("", "services"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
        ("rbac.authorization.k8s.io", "clusterrolebindings"),
        ("rbac.authorization.k8s.io", "clusterroles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
        ("rbac.authorization.k8s.io", "roles"),
    }
)
"""Kinds of which a PUT makes what is not there."""

STATUS_FROM_THE_START: Final = frozenset({("", "nodes")})
"""Kinds with a status subresource that begin with the status that their maker gives: a kubelet registers so."""

NO_UNCONDITIONAL_UPDATE: Final = frozenset(
    {
        ("admissionregistration.k8s.io", "mutatingwebhookconfigurations"),
        ("admissionregistration.k8s.io", "validatingwebhookconfigurations"),
        ("apiextensions.k8s.io", "customresourcedefinitions"),
        ("coordination.k8s.io", "leases"),
        ("node.k8s.io", "runtimeclasses"),
        ("policy", "poddisruptionbudgets"),
        ("storage.k8s.io", "csistoragecapacities"),
        ("storage.k8s.io", "volumeattachments"),
    }
)
"""Kinds whose PUT must name the revision that it replaces; that of custom ones must, too."""

_EMPTY_STATUS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): {},
    ("apiregistration.k8s.io", "APIService"): {},
    ("", "ReplicationController"): {"replicas": 0},
    ("", "ResourceQuota"): {},
    ("", "Service"): {"loadBalancer": {}},
    ("", "PersistentVolumeClaim"): {"phase": "Pending"},
    ("apps", "DaemonSet"): {
        "currentNumberScheduled": 0,
        "desiredNumberScheduled": 0,
        "numberMisscheduled": 0,
        "numberReady": 0,
    },
    ("apps", "Deployment"): {},
    ("apps", "ReplicaSet"): {"replicas": 0},
    ("apps", "StatefulSet"): {"availableReplicas": 0, "replicas": 0},
    ("autoscaling/v1", "HorizontalPodAutoscaler"): {"currentReplicas": 0, "desiredReplicas": 0},
    ("autoscaling/v2", "HorizontalPodAutoscaler"): {"currentMetrics": None, "desiredReplicas": 0},
    ("batch", "CronJob"): {},
    ("batch", "Job"): {},
    ("certificates.k8s.io", "CertificateSigningRequest"): {},
    ("networking.k8s.io", "Ingress"): {"loadBalancer": {}},
    ("networking.k8s.io", "ServiceCIDR"): {},
    ("policy", "PodDisruptionBudget"): {
        "currentHealthy": 0,
        "desiredHealthy": 0,
        "disruptionsAllowed": 0,
        "expectedPods": 0,
    },
    ("resource.k8s.io", "ResourceClaim"): {},
    ("storage.k8s.io", "VolumeAttachment"): {"attached": False},
}


def counts_generations(place: StorageKey) -> bool:
    """Whether built-in objects of this resource carry ``metadata.generation``."""
    return place in _GENERATIONS or (place[0] in _GENERATION_GROUPS and place not in _NO_GENERATIONS)


def empty_status(group: str, kind: str) -> dict[str, Any] | None:
    """The status of a new object; ``None`` for kinds without one. ``group`` is ``autoscaling/<version>`` there."""
    status = _EMPTY_STATUS.get((group, kind))
    return None if status is None else deepcopy(status)
