"""Volumes, claims, classes and devices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kube.objects.columns.base import (
    TableConvertor,
    age_of,
    at,
    convertor,
    is_default,
    name_of,
    simple,
)

_MODES: Final = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _modes(modes: Iterable[str]) -> str:
    given = set(modes)
    return ",".join(short for mode, short in _MODES.items() if mode in given)


def _phase(item: dict[str, Any]) -> str:
    return "Terminating" if at(item, "metadata", "deletionTimestamp") else at(item, "status", "phase", default="")


def _volume(item: dict[str, Any], now: float) -> list[Any]:
    spec = at(item, "spec", default={})
    claim = at(spec, "claimRef")
    return [
        name_of(item),
        str(at(spec, "capacity", "storage", default="0")),
        _modes(at(spec, "accessModes", default=())),
        at(spec, "persistentVolumeReclaimPolicy", default=""),
        _phase(item),
        "" if claim is None else f"{at(claim, 'namespace', default='')}/{at(claim, 'name', default='')}",
        at(spec, "storageClassName", default=""),
        at(spec, "volumeAttributesClassName", default="<unset>"),
        at(item, "status", "reason", default=""),
        age_of(item, now),
        at(spec, "volumeMode", default="<unset>"),
    ]


def _claim(item: dict[str, Any], now: float) -> list[Any]:
    spec, status = at(item, "spec", default={}), at(item, "status", default={})
    bound = bool(at(spec, "volumeName"))
    return [
        name_of(item),
        _phase(item),
        at(spec, "volumeName", default=""),
        str(at(status, "capacity", "storage", default="0")) if bound else "",
        _modes(at(status, "accessModes", default=())) if bound else "",
        at(spec, "storageClassName", default=""),
        at(spec, "volumeAttributesClassName", default="<unset>"),
        age_of(item, now),
        at(spec, "volumeMode", default="<unset>"),
    ]


def _storage_class(item: dict[str, Any], now: float) -> list[Any]:
    keys = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")
    return [
        name_of(item) + (" (default)" if is_default(item, *keys) else ""),
        at(item, "provisioner", default=""),
        at(item, "reclaimPolicy", default="Delete"),
        at(item, "volumeBindingMode", default="Immediate"),
        bool(at(item, "allowVolumeExpansion")),
        age_of(item, now),
    ]


def _resource_claim(item: dict[str, Any], now: float) -> list[Any]:
    states = ["deleted"] if at(item, "metadata", "deletionTimestamp") else []
    if at(item, "status", "allocation") is None:
        states += [] if states else ["pending"]
    else:
        states.append("allocated")
        states += ["reserved"] if at(item, "status", "reservedFor") else []
    return [name_of(item), ",".join(states), age_of(item, now)]


def _csi_driver(item: dict[str, Any], now: float) -> list[Any]:
    spec = at(item, "spec", default={})
    requests = at(spec, "tokenRequests")
    audiences = "<unset>" if requests is None else ",".join(str(at(r, "audience", default="")) for r in requests)
    return [
        name_of(item),
        bool(at(spec, "attachRequired", default=True)),
        bool(at(spec, "podInfoOnMount")),
        bool(at(spec, "storageCapacity")),
        audiences,
        bool(at(spec, "requiresRepublish")),
        ",".join(at(spec, "volumeLifecycleModes", default=())) or "<none>",
        age_of(item, now),
    ]


CONVERTORS: Final[dict[tuple[str, str], TableConvertor]] = {
    ("", "PersistentVolume"): convertor(
        "Name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass|VolumeAttributesClass|Reason|Age"
        "|+VolumeMode",
        _volume,
    ),
    ("", "PersistentVolumeClaim"): convertor(
        "Name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age|+VolumeMode", _claim
    ),
    ("storage.k8s.io", "StorageClass"): convertor(
        "Name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age", _storage_class
    ),
    ("storage.k8s.io", "VolumeAttributesClass"): convertor("Name|DriverName|Age", simple("driverName")),
    ("storage.k8s.io", "VolumeAttachment"): convertor(
        "Name|@Attacher|PV|Node|?Attached|Age",
        simple("spec.attacher", "spec.source.persistentVolumeName", "spec.nodeName", "bool:status.attached"),
    ),
    ("storage.k8s.io", "CSINode"): convertor("Name|#Drivers|Age", simple("len:spec.drivers")),
    ("storage.k8s.io", "CSIDriver"): convertor(
        "Name|?AttachRequired|?PodInfoOnMount|?StorageCapacity|TokenRequests|?RequiresRepublish|Modes|Age",
        _csi_driver,
    ),
    ("resource.k8s.io", "DeviceClass"): convertor("Name|Age", simple()),
    ("resource.k8s.io", "ResourceClaim"): convertor("Name|State|Age", _resource_claim),
    ("resource.k8s.io", "ResourceClaimTemplate"): convertor("Name|Age", simple()),
    ("resource.k8s.io", "ResourceSlice"): convertor(
        "Name|Node|Driver|Pool|Age", simple("spec.nodeName=<none>", "spec.driver", "spec.pool.name")
    ),
}
"""(group, kind) → convertor."""
