"""Volumes, claims and storage classes."""

from __future__ import annotations

from typing import Any, Final

from kube import names
from kube.status import Cause
from kube.validation.amounts import size_causes
from kube.validation.causes import forbidden, immutable, invalid, key_path, not_supported, required
from kube.validation.metadata import selector_causes

_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES: Final = ("Block", "Filesystem")
_PLAIN: Final = frozenset(
    (
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    )
)
"""The fields of a volume's spec that are not its source."""


def claim_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a PersistentVolumeClaim."""
    spec = body.get("spec", {})
    causes = _mode_causes(spec)
    if "selector" in spec:
        causes += selector_causes(spec["selector"], "spec.selector")
    here = key_path("spec.resources", "storage")
    size = spec.get("resources", {}).get("requests", {}).get("storage")
    if size is None:
        causes.append(required(here))
    else:
        causes += size_causes(size, here)
    if spec.get("storageClassName"):
        name = spec["storageClassName"]
        causes += [invalid("spec.storageClassName", name, reason) for reason in names.dns_subdomain(name)]
    return causes


def claim_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """A claim's spec stays, but for its size, its attributes class, and its volume while it has none."""
    after, before = _fixed_claim(new), _fixed_claim(old)
    if not old.get("spec", {}).get("volumeName"):
        after.pop("volumeName", None)
    if not before.get("storageClassName"):
        after.pop("storageClassName", None)
        before.pop("storageClassName", None)
    if after == before:
        return []
    detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    return [forbidden("spec", detail)]


def volume_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a PersistentVolume."""
    spec = body.get("spec", {})
    causes = _mode_causes(spec)
    if not spec.get("capacity"):
        causes.append(required("spec.capacity"))
    elif "storage" not in spec["capacity"] or len(spec["capacity"]) > 1:
        causes.append(not_supported("spec.capacity", spec["capacity"], ["storage"]))
    sources = [field for field in spec if field not in _PLAIN]
    if not sources:
        causes.append(required("spec", "must specify a volume type"))
    for extra in sources[1:]:
        causes.append(forbidden(f"spec.{extra}", "may not specify more than 1 volume type"))
    policy = spec.get("persistentVolumeReclaimPolicy")
    choices = ("Delete", "Recycle", "Retain")
    if policy not in (None, *choices):
        causes.append(not_supported("spec.persistentVolumeReclaimPolicy", policy, choices))
    return causes


def volume_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """A volume's source and mode stay."""
    after, before = new.get("spec", {}), old.get("spec", {})
    causes: list[Cause] = []
    if {k: v for k, v in after.items() if k not in _PLAIN} != {k: v for k, v in before.items() if k not in _PLAIN}:
        detail = "spec.persistentvolumesource is immutable after creation"
        causes.append(forbidden("spec.persistentvolumesource", detail))
    if after.get("volumeMode") != before.get("volumeMode"):
        causes.append(immutable("spec.volumeMode", after.get("volumeMode")))
    return causes


def storage_class_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a StorageClass."""
    causes: list[Cause] = []
    provisioner = body.get("provisioner", "")
    if not provisioner:
        causes.append(required("provisioner"))
    else:
        reasons = names.qualified_name(provisioner.lower())
        causes += [invalid("provisioner", provisioner, reason) for reason in reasons]
    for field, choices in (
        ("reclaimPolicy", ("Delete", "Retain")),
        ("volumeBindingMode", ("Immediate", "WaitForFirstConsumer")),
    ):
        if body.get(field) not in (None, *choices):
            causes.append(not_supported(field, body[field], choices))
    return causes


def _mode_causes(spec: dict[str, Any]) -> list[Cause]:
    modes = spec.get("accessModes", ())
    causes = [] if modes else [required("spec.accessModes", "at least 1 access mode is required")]
    causes += [not_supported("spec.accessModes", mode, _MODES) for mode in modes if mode not in _MODES]
    if "ReadWriteOncePod" in modes and len(modes) > 1:
        detail = "may not use ReadWriteOncePod with other access modes"
        causes.append(forbidden("spec.accessModes", detail))
    if spec.get("volumeMode") not in (None, *_VOLUME_MODES):
        causes.append(not_supported("spec.volumeMode", spec["volumeMode"], _VOLUME_MODES))
    return causes


def _fixed_claim(body: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in body.get("spec", {}).items()
        if key not in ("resources", "volumeAttributesClassName")
    }
