"""What stays as it was made: fields that no update changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kube.requests.fielderrors import forbidden, immutable, invalid
from kube.requests.status import Cause
from kube.validation.jobs import whole_job_spec_causes

IMMUTABLE: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("", "Secret"): ("type",),
    ("apps", "ControllerRevision"): ("data",),
    ("apps", "DaemonSet"): ("spec.selector",),
    ("apps", "Deployment"): ("spec.selector",),
    ("apps", "ReplicaSet"): ("spec.selector",),
    ("apiextensions.k8s.io", "CustomResourceDefinition"): ("spec.group", "spec.scope", "spec.names.plural"),
    ("discovery.k8s.io", "EndpointSlice"): ("addressType",),
    ("networking.k8s.io", "IngressClass"): ("spec.controller",),
    ("networking.k8s.io", "IPAddress"): ("spec.parentRef",),
    ("node.k8s.io", "RuntimeClass"): ("handler",),
    ("resource.k8s.io", "ResourceClaimTemplate"): ("spec",),
    ("storage.k8s.io", "CSIStorageCapacity"): ("nodeTopology", "storageClassName"),
    ("storage.k8s.io", "StorageClass"): ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode"),
    ("storage.k8s.io", "VolumeAttachment"): ("spec",),
}
"""(group, kind) → paths whose change is ``Invalid value: …: field is immutable``."""

_FORBIDDEN: Final[dict[tuple[str, str], dict[str, str]]] = {
    ("scheduling.k8s.io", "PriorityClass"): {
        "value": "may not be changed in an update.",
        "preemptionPolicy": "may not be changed in an update.",
    },
    ("storage.k8s.io", "VolumeAttributesClass"): {
        "driverName": "updates to driverName are forbidden.",
        "parameters": "updates to parameters are forbidden.",
    },
}
_JUDGED_OFTEN: Final = ("metadata.labels", "metadata.annotations", "metadata.ownerReferences")
_STATEFUL_MUTABLE: Final = (
    "replicas",
    "ordinals",
    "template",
    "updateStrategy",
    "revisionHistoryLimit",
    "persistentVolumeClaimRetentionPolicy",
    "minReadySeconds",
)


def immutable_causes(key: tuple[str, str], new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """The fixed fields of a kind that an update changes."""
    causes: list[Cause] = []
    for path in IMMUTABLE.get(key, ()):
        after = _at(new, path)
        if after != _at(old, path):
            causes.append(immutable(path, after))
    for path, detail in _FORBIDDEN.get(key, {}).items():
        if _at(new, path) != _at(old, path):
            causes.append(forbidden(path, detail))
    more = _MORE.get(key)
    return causes if more is None else causes + more(new, old)


def repeated(key: tuple[str, str], changed: list[Cause], metadata: list[Cause]) -> list[Cause]:
    """The causes in an update's metadata as often as kube-apiserver names them: it judges metadata several times.

    ``changed`` are those of what may not change, ``metadata`` those of the metadata as such.
    """
    shared = [cause for cause in metadata if cause.field.startswith(_JUDGED_OFTEN)]
    finalizers = [cause for cause in metadata if cause.field.startswith("metadata.finalizers")]
    whole = [] if key[0] == "apps" or key in (("batch", "Job"), ("", "Service")) else metadata
    return shared + changed + shared + changed + shared + finalizers + whole


def _claim_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """Only a claim that has its volume can grow."""
    if (old.get("status") or {}).get("phase") == "Bound" or _at(new, "spec.resources") == _at(old, "spec.resources"):
        return []
    detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    return [forbidden("spec", detail)]


def _job_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:  # noqa: ARG001 - one signature for all
    """A job's spec is judged a second time when it changes."""
    return whole_job_spec_causes(new.get("spec", {}))


def namespace_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:  # noqa: ARG001 - one signature for all
    """A namespace ends when it is deleted, and only then."""
    phase = (new.get("status") or {}).get("phase", "")
    ending = bool(new.get("metadata", {}).get("deletionTimestamp"))
    if phase == ("Terminating" if ending else "Active"):
        return []
    detail = "may only be 'Terminating' if `deletionTimestamp` is not empty"
    if not ending:
        detail = "may only be 'Active' if `deletionTimestamp` is empty"
    return [invalid("status.Phase", phase, detail)]


def immutable_object_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """A ConfigMap or Secret that was made immutable stays so, with its data."""
    if not old.get("immutable"):
        return []
    detail = "field is immutable when `immutable` is set"
    causes = [] if new.get("immutable") else [forbidden("immutable", detail)]
    return causes + [
        forbidden(field, detail) for field in ("data", "binaryData") if new.get(field, {}) != old.get(field, {})
    ]


def stateful_set_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """All but a few fields of a StatefulSet's spec stay."""
    after, before = (
        {key: value for key, value in body.get("spec", {}).items() if key not in _STATEFUL_MUTABLE}
        for body in (new, old)
    )
    if after == before:
        return []
    words = ", ".join(f"'{field}'" for field in _STATEFUL_MUTABLE[:-1])
    detail = f"updates to statefulset spec for fields other than {words} and 'minReadySeconds' are forbidden"
    return [forbidden("spec", detail)]


def _at(body: Any, path: str) -> Any:
    for name in path.split("."):
        body = body.get(name) if isinstance(body, dict) else None
    return body


_MORE: Final[dict[tuple[str, str], Callable[[dict[str, Any], dict[str, Any]], list[Cause]]]] = {
    ("", "PersistentVolumeClaim"): _claim_causes,
    ("batch", "Job"): _job_causes,
}
