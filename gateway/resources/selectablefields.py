"""The fields that each resource can be selected by, as in kube-apiserver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from gateway.resources.kinds import Kind
from kube.requests.fieldselectors import FieldSelector

_NAMED: Final = frozenset({"metadata.name"})
_ALL: Final = _NAMED | {"metadata.namespace"}

_MORE: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("", "pods"): (
        "spec.nodeName",
        "spec.restartPolicy",
        "spec.schedulerName",
        "spec.serviceAccountName",
        "spec.hostNetwork",
        "status.phase",
        "status.podIP",
        "status.podIPs",
        "status.nominatedNodeName",
    ),
    ("", "events"): (
        "involvedObject.kind",
        "involvedObject.namespace",
        "involvedObject.name",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "involvedObject.resourceVersion",
        "involvedObject.fieldPath",
        "reason",
        "reportingComponent",
        "source",
        "type",
    ),
    ("", "secrets"): ("type",),
    ("", "namespaces"): ("status.phase",),
    ("", "nodes"): ("spec.unschedulable",),
    ("", "services"): ("spec.clusterIP", "spec.type"),
    ("", "replicationcontrollers"): ("status.replicas",),
    ("batch", "jobs"): ("status.successful",),
    ("certificates.k8s.io", "certificatesigningrequests"): ("spec.signerName",),
    ("resource.k8s.io", "resourceslices"): ("spec.driver", "spec.nodeName"),
}

_NAMESPACELESS: Final = frozenset(
    {
        ("", "namespaces"),
        ("", "nodes"),
        ("certificates.k8s.io", "certificatesigningrequests"),
        ("resource.k8s.io", "resourceslices"),
    }
)
"""Kinds without a namespace that say so; the others' is the empty one."""

_EVENTS: Final = {
    "regarding.kind": "involvedObject.kind",
    "regarding.namespace": "involvedObject.namespace",
    "regarding.name": "involvedObject.name",
    "regarding.uid": "involvedObject.uid",
    "regarding.apiVersion": "involvedObject.apiVersion",
    "regarding.resourceVersion": "involvedObject.resourceVersion",
    "regarding.fieldPath": "involvedObject.fieldPath",
    "reportingController": "source",
    "reason": "reason",
    "type": "type",
}
"""How events.k8s.io names the fields of events, which are kept as core ones."""


def supported(kind: Kind) -> frozenset[str]:
    """The fields that objects of ``kind`` can be selected by."""
    if kind.resource.custom:
        return _ALL.union(kind.served.selectable)
    if kind.resource.group == "events.k8s.io":
        return _ALL.union(_EVENTS)
    if kind.resource.storage_key in _NAMESPACELESS:
        return _NAMED.union(_MORE[kind.resource.storage_key])
    return _ALL.union(_MORE.get(kind.resource.storage_key, ()))


def refusal(kind: Kind) -> str:
    """What is said of a field that objects of ``kind`` cannot be selected by, with room for its name."""
    if (kind.resource.group, kind.resource.plural) == ("batch", "jobs"):
        return 'field label "{}" not supported for Job'
    if (kind.resource.group, kind.resource.plural) == ("resource.k8s.io", "resourceslices"):
        return "field label not supported for resource.k8s.io/v1, Kind=ResourceSlice: {}"
    if kind.resource.custom or kind.resource.group == "events.k8s.io" or kind.resource.storage_key in _MORE:
        return "field label not supported: {}"
    return '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'


def values(selector: FieldSelector, body: Mapping[str, Any]) -> dict[str, str]:
    """The values of the fields that ``selector`` asks for."""
    return {field: _value(body, field) for field in selector.asked}


def _value(body: Mapping[str, Any], path: str) -> str:
    path = _EVENTS.get(path, path)
    if path == "source":
        return str((body.get("source") or {}).get("component") or body.get("reportingComponent") or "")
    if path == "status.podIPs":
        return ",".join(str(each.get("ip", "")) for each in (body.get("status") or {}).get("podIPs") or ())
    node: Any = body
    for part in path.split("."):
        node = node.get(part) if isinstance(node, dict) else None
    if node is None:
        return {"spec.unschedulable": "false", "spec.hostNetwork": "false"}.get(path, "")
    return str(node).lower() if isinstance(node, bool) else str(node)
