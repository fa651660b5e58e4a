"""PersistentVolumeClaims, by themselves and as templates."""

from __future__ import annotations

from typing import Any, Final

from kube import names
from kube.status import Cause
from kube.validation.amounts import size_causes
from kube.validation.causes import (
    forbidden,
    invalid,
    key_path,
    needed_causes,
    not_supported,
    reason_causes,
    required,
)
from kube.validation.metadata import selector_causes

_MODES: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_VOLUME_MODES: Final = ("Block", "Filesystem")


def claim_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a PersistentVolumeClaim."""
    return claim_spec_causes(body.get("spec", {}), "spec")


def claim_spec_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with a claim's spec."""
    modes = spec.get("accessModes", ())
    causes = [] if modes else [required(f"{path}.accessModes", "at least 1 access mode is required")]
    causes += selector_causes(spec.get("selector", {}), f"{path}.selector")
    causes += access_causes(modes, f"{path}.accessModes")
    here = key_path(f"{path}.resources", "storage")
    size = spec.get("resources", {}).get("requests", {}).get("storage")
    causes += [required(here)] if size is None else size_causes(size, here)
    if spec.get("storageClassName"):
        name = spec["storageClassName"]
        causes += reason_causes(f"{path}.storageClassName", name, names.dns_subdomain(name))
    causes += volume_mode_causes(spec, path)
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    if source is not None:
        causes += _source_causes(source, f"{path}.dataSource")
    if reference is not None:
        causes += _source_causes(reference, f"{path}.dataSourceRef")
        namespace = reference.get("namespace")
        if namespace:
            causes += reason_causes(f"{path}.dataSourceRef.namespace", namespace, names.dns_label(namespace))
    causes += _agreement_causes(source, reference, path)
    if spec.get("volumeAttributesClassName"):
        name = spec["volumeAttributesClassName"]
        causes += reason_causes(f"{path}.volumeAttributesClassName", name, names.dns_subdomain(name))
    return causes


def access_causes(modes: Any, path: str) -> list[Cause]:
    """What is wrong with access modes."""
    causes = [not_supported(path, mode, _MODES) for mode in modes if mode not in _MODES]
    if "ReadWriteOncePod" in modes and any(mode in _MODES and mode != "ReadWriteOncePod" for mode in modes):
        causes.append(forbidden(path, "may not use ReadWriteOncePod with other access modes"))
    return causes


def volume_mode_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with the mode of a volume or of a claim to one."""
    mode = spec.get("volumeMode")
    return [] if mode in (None, *_VOLUME_MODES) else [not_supported(f"{path}.volumeMode", mode, _VOLUME_MODES)]


def _source_causes(source: dict[str, Any], path: str) -> list[Cause]:
    causes = needed_causes(source, path, "name", "kind")
    group, kind = source.get("apiGroup", ""), source.get("kind", "")
    if not group and kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        causes.append(invalid(path, kind, detail))
    return causes + (reason_causes(f"{path}.apiGroup", group, names.dns_subdomain(group)) if group else [])


def _agreement_causes(source: dict[str, Any] | None, reference: dict[str, Any] | None, path: str) -> list[Cause]:
    """The two ways to name what a volume is filled from must name the same."""
    if source is None or reference is None:
        return []
    if reference.get("namespace"):
        return [invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified")]
    fields = ("apiGroup", "kind", "name")
    same = all(source.get(field, "") == reference.get(field, "") for field in fields)
    return [] if same else [invalid(path, {}, "must match dataSourceRef")]


def claim_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """A claim's spec stays, but for its size, its attributes class, and its volume while it has none."""
    after, before = _fixed(new), _fixed(old)
    if not old.get("spec", {}).get("volumeName"):
        after.pop("volumeName", None)
    if not before.get("storageClassName"):
        after.pop("storageClassName", None)
        before.pop("storageClassName", None)
    if after == before:
        return []
    detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    return [forbidden("spec", detail)]


def _fixed(body: dict[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key, value in body.get("spec", {}).items()
        if key not in ("resources", "volumeAttributesClassName")
    }
