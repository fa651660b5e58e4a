"""Storage drivers: what they are, where they run, how much room they have, and classes of what they offer."""

from __future__ import annotations

from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    choice_causes,
    count_causes,
    duplicate,
    immutable,
    invalid,
    not_supported,
    reason_causes,
    required,
)
from kube.requests.status import Cause
from kube.validation.metadata import selector_causes
from kube.validation.quantities import amount_causes
from kube.validation.storage import parameter_causes, provisioner_causes
from kube.validation.volumes import driver_causes

_NODE_ID_MAX: Final = 256
_TOKEN_MIN: Final = 600
_TOKEN_MAX: Final = 1 << 32
_UPDATES_APART: Final = 10


def driver_object_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a CSIDriver."""
    spec = body.get("spec", {})
    causes = [
        required(f"spec.{shown}")
        for field, shown in (
            ("attachRequired", "attachedRequired"),
            ("podInfoOnMount", "podInfoOnMount"),
            ("storageCapacity", "storageCapacity"),
        )
        if field not in spec
    ]
    causes += choice_causes(spec, "fsGroupPolicy", ("File", "None", "ReadWriteOnceWithFSType"), "spec")
    causes += _token_causes(spec.get("tokenRequests", ()))
    causes += [
        not_supported("spec.volumeLifecycleModes", mode, ("Persistent", "Ephemeral"))
        for mode in spec.get("volumeLifecycleModes", ())
        if mode not in ("Persistent", "Ephemeral")
    ]
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if "seLinuxMount" not in spec:
        causes.append(required("spec.seLinuxMount"))
    if period is not None and period < _UPDATES_APART:
        detail = f"must be greater than or equal to {_UPDATES_APART} seconds"
        causes.append(invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, detail))
    secrets = spec.get("serviceAccountTokenInSecrets")
    if secrets is not None and not spec.get("tokenRequests"):
        detail = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        causes.append(invalid("spec.serviceAccountTokenInSecrets", secrets, detail))
    return causes


def _token_causes(requests: Any) -> list[Cause]:
    causes: list[Cause] = []
    known: set[str] = set()
    for index, request in enumerate(requests):
        here, audience, seconds = (
            f"spec.tokenRequests[{index}]",
            request.get("audience", ""),
            request.get("expirationSeconds"),
        )
        if audience in known:
            causes.append(duplicate(f"{here}.audience", audience))
            continue
        known.add(audience)
        here = f"{here}.expirationSeconds"
        if seconds is not None and seconds < _TOKEN_MIN:
            causes.append(invalid(here, seconds, "may not specify a duration less than 10 minutes"))
        if seconds is not None and seconds > _TOKEN_MAX:
            causes.append(invalid(here, seconds, "may not specify a duration larger than 2^32 seconds"))
    return causes


def driver_object_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What of a CSIDriver stays."""
    after, before = new.get("spec", {}), old.get("spec", {})
    fields = (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes"))
    return [
        immutable(f"spec.{shown}", after.get(field)) for field, shown in fields if after.get(field) != before.get(field)
    ]


def driver_node_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a CSINode."""
    causes: list[Cause] = []
    known: set[str] = set()
    for index, driver in enumerate(body.get("spec", {}).get("drivers") or ()):
        here, name, node = f"spec.drivers[{index}]", driver.get("name", ""), driver.get("nodeID", "")
        causes += driver_causes(name, f"{here}.name")
        if not node:
            causes.append(required(f"{here}.nodeID"))
        if len(node.encode()) > _NODE_ID_MAX:
            causes.append(invalid(f"{here}.nodeID", node, f"must be {_NODE_ID_MAX} characters or less"))
        causes += count_causes(driver.get("allocatable") or {}, f"{here}.allocatable", "count")
        if name in known:
            causes.append(duplicate(f"{here}.name", name))
        known.add(name)
        keys: list[str] = driver.get("topologyKeys") or []
        for position, key in enumerate(keys):
            causes += [] if key else [required(here)]
            causes += [duplicate(here, key)] if key in keys[:position] else []
            causes += reason_causes(here, key, names.qualified_name(key))
    return causes


def driver_node_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """A driver stays on a node as it was registered there; how much it takes may change."""
    causes: list[Cause] = []
    for before in old.get("spec", {}).get("drivers") or ():
        for after in new.get("spec", {}).get("drivers") or ():
            if before.get("name") != after.get("name"):
                continue
            one, other = (
                {key: value for key, value in each.items() if key != "allocatable"} for each in (after, before)
            )
            if one != other:
                fields = ("name", "nodeID", "topologyKeys", "allocatable")
                shown = {field[0].upper() + field[1:]: one.get(field) for field in fields}
                causes.append(immutable("spec.drivers", shown))
    return causes


def storage_capacity_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a CSIStorageCapacity."""
    causes = selector_causes(body["nodeTopology"], "nodeTopology") if body.get("nodeTopology") else []
    name = body.get("storageClassName", "")
    causes += reason_causes("storageClassName", name, names.dns_subdomain(name))
    return causes + (amount_causes(body["capacity"], "capacity") if "capacity" in body else [])


def attributes_class_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a VolumeAttributesClass."""
    causes = provisioner_causes(body.get("driverName", ""), "driverName")
    causes += parameter_causes(body.get("parameters", {}))
    if not body.get("parameters"):
        causes.append(required("parameters", "must contain at least one key/value pair"))
    return causes
