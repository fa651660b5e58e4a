"""References to a pod's own fields and resources (the downward API)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from kube.quota.quantities import InvalidQuantity, parse_quantity
from kube.requests import names
from kube.requests.fielderrors import invalid, not_supported, reason_causes, required
from kube.requests.status import Cause

_SUBSCRIPT: Final = re.compile(r"(metadata\.(?:annotations|labels))\['(.*)'\]", re.DOTALL)
_KNOWN: Final = frozenset(
    (
        "metadata.annotations",
        "metadata.labels",
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.serviceAccountName",
        "spec.schedulerName",
        "status.phase",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    )
)
_RESOURCES: Final = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGE: Final = ("limits.hugepages-", "requests.hugepages-")
_CPU_DIVISORS: Final = ("1m", "1")
_DIVISORS: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")


def field_reference_causes(reference: dict[str, Any], supported: Sequence[str], path: str) -> list[Cause]:
    """What is wrong with a ``fieldRef`` where only the fields in ``supported``, and subscripts, may be used."""
    version, field = reference.get("apiVersion", ""), reference.get("fieldPath", "")
    if not version:
        return [required(f"{path}.apiVersion")]
    if not field:
        return [required(f"{path}.fieldPath")]
    here = f"{path}.fieldPath"
    if version != "v1":
        return [invalid(here, field, f"error converting fieldPath: unsupported pod version: {version}")]
    subscript = _SUBSCRIPT.fullmatch(field)
    if subscript is not None:
        key = subscript[2].lower() if subscript[1] == "metadata.annotations" else subscript[2]
        return reason_causes(path, key, names.qualified_name(key))
    if field not in _KNOWN:
        return [invalid(here, field, f"error converting fieldPath: field label not supported: {field}")]
    return [] if field in supported else [not_supported(here, field, supported)]


def resource_reference_causes(reference: dict[str, Any], path: str, *, in_volume: bool) -> list[Cause]:
    """What is wrong with a ``resourceFieldRef``."""
    resource = reference.get("resource", "")
    causes: list[Cause] = []
    if in_volume and not reference.get("containerName"):
        causes.append(required(f"{path}.containerName"))
    elif not resource:
        causes.append(required(f"{path}.resource"))
    elif resource not in _RESOURCES and not resource.startswith(_HUGE):
        causes.append(not_supported(f"{path}.resource", resource, _RESOURCES))
    return causes + _divisor_causes(resource, reference.get("divisor", "0"), path)


def _divisor_causes(resource: str, divisor: Any, path: str) -> list[Cause]:
    try:
        text = str(parse_quantity(divisor))
    except InvalidQuantity:
        return []
    kind = resource.partition(".")[2]
    what = {"cpu": "cpu", "memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(kind)
    if what is None:
        if not resource.startswith(_HUGE):
            return []
        what = "hugepages"
    choices: Sequence[str] = _CPU_DIVISORS if kind == "cpu" else _DIVISORS
    if text in ("0", *choices):
        return []
    words = " and ".join(choices) if kind == "cpu" else ", ".join(choices)
    detail = f"only divisor's values {words} are supported with the {what} resource"
    return [invalid(f"{path}.divisor", resource, detail)]
