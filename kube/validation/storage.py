"""Volumes and storage classes."""

from __future__ import annotations

from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    choice_causes,
    duplicate,
    forbidden,
    immutable,
    invalid,
    key_path,
    needed_causes,
    not_supported,
    reason_causes,
    required,
    too_long,
)
from kube.requests.status import Cause
from kube.validation.quantities import amount
from kube.validation.scheduling import node_selector_causes
from kube.validation.volumeclaims import access_causes, volume_mode_causes
from kube.validation.volumes import VOLUME_SOURCES, driver_causes, recycles_root, source_causes

_POLICIES: Final = ("Delete", "Recycle", "Retain")
_GROWING: Final = "controllerExpandSecretRef"
_LABELS: Final = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}
_PARAMETERS_MAX: Final = 512
_PARAMETERS_SIZE: Final = 256 * 1024


def volume_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a PersistentVolume."""
    spec = body.get("spec", {})
    causes = needed_causes(spec, "spec", "accessModes") + access_causes(spec.get("accessModes", ()), "spec.accessModes")
    capacity = spec.get("capacity")
    causes += [] if capacity else [required("spec.capacity")]
    if capacity is None or set(capacity) != {"storage"}:
        causes.append(not_supported("spec.capacity", capacity, ("storage",)))
    for name, quantity in (capacity or {}).items():
        causes += _capacity_causes(quantity, key_path("spec.capacity", name))
    causes += choice_causes(spec, "persistentVolumeReclaimPolicy", _POLICIES, "spec")
    affinity = spec.get("nodeAffinity")
    if affinity is not None:
        here = "spec.nodeAffinity.required"
        if "required" in affinity:
            causes += node_selector_causes(affinity["required"], here)
        else:
            causes.append(required(here, "must specify required node constraints"))
    causes += source_causes(spec, "spec", VOLUME_SOURCES)
    if "local" in spec and affinity is None:
        causes.append(required("spec.nodeAffinity", "Local volume requires node affinity"))
    if recycles_root(spec):
        detail = "may not be 'recycle' for a hostPath mount of '/'"
        causes.append(forbidden("spec.persistentVolumeReclaimPolicy", detail))
    if spec.get("storageClassName"):
        name = spec["storageClassName"]
        causes += reason_causes("spec.storageClassName", name, names.dns_subdomain(name))
    causes += volume_mode_causes(spec, "spec")
    return causes + _attribute_causes(spec)


def _attribute_causes(spec: dict[str, Any]) -> list[Cause]:
    name, here = spec.get("volumeAttributesClassName"), "spec.volumeAttributesClassName"
    if name is None:
        return []
    causes = (
        reason_causes(here, name, names.dns_subdomain(name))
        if name
        else [required(here, "an empty string is disallowed")]
    )
    if "csi" not in spec:
        causes.append(required("spec.csi", "has to be specified when using volumeAttributesClassName"))
    return causes


def _capacity_causes(quantity: Any, path: str) -> list[Cause]:
    found = amount(quantity)
    if found is None or found.nanos > 0:
        return []
    causes = [invalid(path, found.value(), "must be a valid resource quantity")] if found.nanos < 0 else []
    return [*causes, invalid(path, quantity, "must be greater than zero")]


def volume_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """A volume's source, mode and nodes stay; a secret for growing may be added, a class of attributes not taken away."""
    after, before = new.get("spec", {}), old.get("spec", {})
    causes: list[Cause] = []
    driver, was = after.get("csi"), before.get("csi")
    if driver and was and _GROWING not in was:
        driver = {key: value for key, value in driver.items() if key != _GROWING}
    if any({**after, "csi": driver}.get(field) != before.get(field) for field in VOLUME_SOURCES):
        detail = "spec.persistentvolumesource is immutable after creation"
        causes.append(forbidden("spec.persistentvolumesource", detail))
    if after.get("volumeMode") != before.get("volumeMode"):
        causes.append(immutable("volumeMode", after.get("volumeMode")))
    if "nodeAffinity" in before and _moved(after, before):
        detail = "field is immutable, except for updating from beta label to GA"
        causes.append(invalid("nodeAffinity", _affinity_shown(after.get("nodeAffinity")), detail))
    if "volumeAttributesClassName" in before and "volumeAttributesClassName" not in after:
        causes.append(forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden"))
    return causes


def _moved(after: dict[str, Any], before: dict[str, Any]) -> bool:
    """Whether a volume's nodes are others; a label of old may have taken its name of today."""

    def terms(spec: dict[str, Any], *, blank: bool) -> Any:
        found = ((spec.get("nodeAffinity") or {}).get("required") or {}).get("nodeSelectorTerms") or ()
        lists = [(number, field, each) for number, term in enumerate(found) for field in term for each in term[field]]
        return [(n, f, {**each, "key": ""}) if blank else each.get("key", "") for n, f, each in lists]

    names_now, names_then = terms(after, blank=False), terms(before, blank=False)
    return terms(after, blank=True) != terms(before, blank=True) or any(
        now not in (then, _LABELS.get(then)) for now, then in zip(names_now, names_then, strict=True)
    )


def _affinity_shown(affinity: dict[str, Any] | None) -> Any:
    """A volume's nodes as Go shows them."""

    def expressions(term: dict[str, Any], field: str) -> list[dict[str, Any]] | None:
        found = term.get(field)
        return found and [
            {"Key": e.get("key", ""), "Operator": e.get("operator", ""), "Values": e.get("values")} for e in found
        ]

    if affinity is None:
        return None
    terms = (affinity.get("required") or {}).get("nodeSelectorTerms")
    shown = terms and [
        {"MatchExpressions": expressions(term, "matchExpressions"), "MatchFields": expressions(term, "matchFields")}
        for term in terms
    ]
    return {"Required": {"NodeSelectorTerms": shown} if "required" in affinity else None}


def storage_class_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a StorageClass."""
    causes = provisioner_causes(body.get("provisioner", ""), "provisioner")
    causes += parameter_causes(body.get("parameters", {}))
    for field, choices in (
        ("reclaimPolicy", ("Delete", "Retain")),
        ("volumeBindingMode", ("Immediate", "WaitForFirstConsumer")),
    ):
        value = body.get(field)
        causes += [] if value in (None, *choices) else [not_supported(field, value, choices)]
    return causes + _topology_causes(body.get("allowedTopologies", ()))


def provisioner_causes(name: str, path: str) -> list[Cause]:
    """What is wrong with the name of a program that makes volumes."""
    return reason_causes(path, name.lower(), names.qualified_name(name.lower())) if name else [required(path)]


def parameter_causes(parameters: dict[str, str]) -> list[Cause]:
    """What is wrong with what such a program is told."""
    if len(parameters) > _PARAMETERS_MAX:
        return [too_long("parameters", _PARAMETERS_MAX)]
    causes = [invalid("parameters", "", "field can not be empty.") for key in parameters if not key]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in parameters.items())
    return [*causes, too_long("parameters", _PARAMETERS_SIZE)] if size > _PARAMETERS_SIZE else causes


def _topology_causes(terms: Any) -> list[Cause]:
    causes: list[Cause] = []
    known: list[dict[str, frozenset[str]]] = [{}]
    for index, term in enumerate(terms):
        path = f"allowedTopologies[{index}].matchLabelExpressions"
        raw: dict[str, frozenset[str]] = {}
        for position, wanted in enumerate(term.get("matchLabelExpressions", ())):
            here, key, values = f"{path}[{position}]", wanted.get("key", ""), wanted.get("values", ())
            causes += [] if values else [required(f"{here}.values")]
            causes += [
                duplicate(f"{here}.values[{number}]", value)
                for number, value in enumerate(values)
                if value in values[:number]
            ]
            causes += reason_causes(f"{here}.key", key, names.qualified_name(key))
            causes += [duplicate(f"{here}.key", key)] if key in raw else []
            raw[key] = frozenset(values)
        causes += [duplicate(path, "")] if raw in known else []
        known.append(raw)
    return causes


def attachment_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a VolumeAttachment."""
    spec = body.get("spec", {})
    causes = driver_causes(spec.get("attacher", ""), "spec.attacher")
    source, here = spec.get("source", {}), "spec.source"
    volume, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    if volume is None and inline is None:
        causes.append(required(here, "must specify exactly one of inlineVolumeSpec and persistentVolumeName"))
    elif volume is not None and inline is not None:
        detail = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"
        causes.append(forbidden(here, detail))
    elif volume is not None:
        name = f"{here}.persistentVolumeName"
        causes += reason_causes(name, volume, names.dns_subdomain(volume)) if volume else [required(name)]
    node = spec.get("nodeName", "")
    return causes + reason_causes("spec.nodeName", node, names.dns_subdomain(node))
