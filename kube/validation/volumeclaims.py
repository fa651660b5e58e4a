"""PersistentVolumeClaims, by themselves and as templates."""

from __future__ import annotations

from typing import Any, Final

from kube.quota.quantities import ZERO, Quantity
from kube.requests import names
from kube.requests.fielderrors import (
    forbidden,
    immutable,
    invalid,
    key_path,
    needed_causes,
    not_supported,
    reason_causes,
    required,
)
from kube.requests.status import Cause
from kube.validation.metadata import selector_causes
from kube.validation.quantities import amount, size_causes

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
    """A claim's spec stays, but for its volume while it has none, and for a bound claim's size and attributes."""
    after, before = dict(new.get("spec", {})), dict(old.get("spec", {}))
    bound = new.get("status", {}).get("phase") == "Bound"
    causes: list[Cause] = []
    # A bound claim may ask for another size, but not for none at all.
    sized = bound and bool(after.get("resources", {}).get("requests"))
    if _settled(after, before, bound=bound, sized=sized) != _settled(before, before, bound=bound, sized=sized):
        detail = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        causes.append(forbidden("spec", detail))
    size, was = _size(after.get("resources", {}).get("requests")), _size(before.get("resources", {}).get("requests"))
    if size < was and size <= _size(old.get("status", {}).get("capacity")):
        causes.append(forbidden("spec.resources.requests.storage", "field can not be less than status.capacity"))
    if after.get("volumeMode") != before.get("volumeMode"):
        causes.append(immutable("volumeMode", after.get("volumeMode")))
    name = after.get("volumeAttributesClassName")
    if (
        not name
        and before.get("volumeAttributesClassName") != name
        and ("currentVolumeAttributesClassName" in old.get("status", {}))
    ):
        to = "nil" if name is None else "empty string"
        detail = f"update to {to} is forbidden when status.currentVolumeAttributesClassName is not nil"
        causes.append(forbidden("spec.volumeAttributesClassName", detail))
    return causes


def _settled(spec: dict[str, Any], before: dict[str, Any], *, bound: bool, sized: bool) -> dict[str, Any]:
    """What of a spec must be equal to what was ``before``."""
    resources = spec.get("resources", {})
    requests = {name: amount(value) for name, value in resources.get("requests", {}).items()}
    if sized:
        requests.pop("storage", None)
    limits = {name: amount(value) for name, value in resources.get("limits", {}).items()}
    kept = {**spec, "resources": (requests, limits)}
    if not before.get("volumeName"):
        kept.pop("volumeName", None)
    if "storageClassName" not in before:
        kept.pop("storageClassName", None)
    if bound:
        kept.pop("volumeAttributesClassName", None)
    return kept


def _size(amounts: dict[str, Any] | None) -> Quantity:
    return amount((amounts or {}).get("storage")) or ZERO
