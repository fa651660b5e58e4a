"""Namespaces, configuration, access, admission and nodes."""

from __future__ import annotations

from typing import Any, Final

from kube.objects.columns.base import (
    Cells,
    TableConvertor,
    age_of,
    at,
    condition_of,
    convertor,
    format_selector,
    name_of,
    simple,
)
from kube.requests.durations import age, human_duration


def _event(item: dict[str, Any], now: float) -> list[Any]:
    """Both of the core group and of events.k8s.io, whose names for the same fields are tried second."""
    first = at(item, "firstTimestamp") or at(item, "deprecatedFirstTimestamp") or at(item, "eventTime")
    last = at(item, "lastTimestamp") or at(item, "deprecatedLastTimestamp") or first
    count = at(item, "count") or at(item, "deprecatedCount") or 1
    series = at(item, "series")
    if series is not None:
        last, count = at(series, "lastObservedTime"), at(series, "count", default=0)
    target = at(item, "involvedObject") or at(item, "regarding") or {}
    kind, name = str(at(target, "kind", default="")).lower(), at(target, "name")
    source = at(item, "source") or at(item, "deprecatedSource") or {}
    component = at(source, "component") or at(item, "reportingComponent") or at(item, "reportingController")
    host = at(source, "host") or at(item, "reportingInstance")
    return [
        age(last, now),
        at(item, "type", default=""),
        at(item, "reason", default=""),
        f"{kind}/{name}" if name else kind,
        at(target, "fieldPath", default=""),
        ", ".join(str(part) for part in (component, host) if part),
        str(at(item, "message") or at(item, "note") or "").strip(),
        age(first, now),
        count,
        name_of(item),
    ]


def _binding(item: dict[str, Any], now: float) -> list[Any]:
    subjects = at(item, "subjects", default=())

    def names(kind: str) -> str:
        chosen = [s for s in subjects if at(s, "kind") == kind]
        if kind == "ServiceAccount":
            return ", ".join(f"{at(s, 'namespace', default='')}/{at(s, 'name', default='')}" for s in chosen)
        return ", ".join(str(at(s, "name", default="")) for s in chosen)

    role = f"{at(item, 'roleRef', 'kind', default='')}/{at(item, 'roleRef', 'name', default='')}"
    return [name_of(item), role, age_of(item, now), names("User"), names("Group"), names("ServiceAccount")]


def _resource_quota(item: dict[str, Any], now: float) -> list[Any]:
    hard, used = at(item, "status", "hard", default={}), at(item, "status", "used", default={})
    requests = [f"{n}: {used.get(n, '0')}/{hard[n]}" for n in sorted(hard) if not n.startswith("limits.")]
    limits = [f"{n}: {used.get(n, '0')}/{hard[n]}" for n in sorted(hard) if n.startswith("limits.")]
    return [name_of(item), ", ".join(requests), ", ".join(limits), age_of(item, now)]


def _node(item: dict[str, Any], now: float) -> list[Any]:
    status = [{"True": "Ready", "False": "NotReady"}.get(at(condition_of(item, "Ready"), "status"), "Unknown")]
    if at(item, "spec", "unschedulable"):
        status.append("SchedulingDisabled")
    labels = at(item, "metadata", "labels", default={})
    prefix = "node-role.kubernetes.io/"
    roles = {key.removeprefix(prefix) for key in labels if key.startswith(prefix) and key != prefix}
    roles |= {labels["kubernetes.io/role"]} if labels.get("kubernetes.io/role") else set()
    info = at(item, "status", "nodeInfo", default={})
    addresses = {at(a, "type"): at(a, "address") for a in reversed(at(item, "status", "addresses", default=[]))}
    return [
        name_of(item),
        ",".join(status),
        ",".join(sorted(roles)) or "<none>",
        age_of(item, now),
        at(info, "kubeletVersion", default=""),
        addresses.get("InternalIP") or "<none>",
        addresses.get("ExternalIP") or "<none>",
        at(info, "osImage") or "<unknown>",
        at(info, "kernelVersion") or "<unknown>",
        at(info, "containerRuntimeVersion") or "<unknown>",
    ]


def _component(item: dict[str, Any], _now: float) -> list[Any]:
    found = next((c for c in at(item, "conditions", default=()) if at(c, "type") == "Healthy"), None)
    status = "Unknown" if found is None else "Healthy" if at(found, "status") == "True" else "Unhealthy"
    return [name_of(item), status, at(found, "message", default=""), at(found, "error", default="")]


def _signing_request(item: dict[str, Any], now: float) -> list[Any]:
    spec = at(item, "spec", default={})
    types = [at(c, "type") for c in at(item, "status", "conditions", default=())]
    status = "Approved" if "Approved" in types else "Denied" if "Denied" in types else "Pending"
    status += ",Failed" if "Failed" in types else ""
    status += ",Issued" if at(item, "status", "certificate") else ""
    seconds = at(spec, "expirationSeconds")
    return [
        name_of(item),
        age_of(item, now),
        at(spec, "signerName", default="<none>"),
        at(spec, "username", default=""),
        "<none>" if seconds is None else human_duration(seconds),
        status,
    ]


def _policy_binding(item: dict[str, Any], now: float) -> list[Any]:
    given = at(item, "spec", "paramRef")
    shown = "<unset>"
    if at(given, "name"):
        shown = f"{at(given, 'namespace', default='*')}/{given['name']}"
    elif at(given, "selector"):
        shown = format_selector(given["selector"])
    return [name_of(item), at(item, "spec", "policyName", default=""), shown, age_of(item, now)]


def _admission_policy(count: str) -> Cells:
    def cells(item: dict[str, Any], now: float) -> list[Any]:
        kind = at(item, "spec", "paramKind")
        shown = "<unset>" if kind is None else f"{at(kind, 'apiVersion', default='')}/{at(kind, 'kind', default='')}"
        return [name_of(item), len(at(item, "spec", count, default=())), shown, age_of(item, now)]

    return cells


def _api_service(item: dict[str, Any], now: float) -> list[Any]:
    service = at(item, "spec", "service")
    where = "Local" if service is None else f"{at(service, 'namespace')}/{at(service, 'name')}"
    found = condition_of(item, "Available")
    status = str(at(found, "status", default="Unknown"))
    if status == "False":
        status += f" ({at(found, 'reason', default='')})"
    return [name_of(item), where, status, age_of(item, now)]


def _flow_schema(item: dict[str, Any], now: float) -> list[Any]:
    spec = at(item, "spec", default={})
    return [
        name_of(item),
        at(spec, "priorityLevelConfiguration", "name", default=""),
        at(spec, "matchingPrecedence", default=0),
        at(spec, "distinguisherMethod", "type", default="<none>"),
        age_of(item, now),
        at(condition_of(item, "Dangling"), "status", default="?"),
    ]


def _priority_level(item: dict[str, Any], now: float) -> list[Any]:
    limited = at(item, "spec", "limited") or at(item, "spec", "exempt") or {}
    queuing = at(limited, "limitResponse", "queuing", default={})
    return [
        name_of(item),
        at(item, "spec", "type", default=""),
        at(limited, "nominalConcurrencyShares", default="<none>"),
        *(at(queuing, key, default="<none>") for key in ("queues", "handSize", "queueLengthLimit")),
        age_of(item, now),
    ]


def _priority_class(item: dict[str, Any], now: float) -> list[Any]:
    return [
        name_of(item),
        at(item, "value", default=0),
        bool(at(item, "globalDefault")),
        age_of(item, now),
        at(item, "preemptionPolicy", default=""),
    ]


def _config_map(item: dict[str, Any], now: float) -> list[Any]:
    size = len(at(item, "data", default=())) + len(at(item, "binaryData", default=()))
    return [name_of(item), size, age_of(item, now)]


CONVERTORS: Final[dict[tuple[str, str], TableConvertor]] = {
    ("", "ConfigMap"): convertor("Name|Data|Age", _config_map),
    ("", "Secret"): convertor("Name|Type|Data|Age", simple("type", "len:data")),
    ("", "ServiceAccount"): convertor("Name|Age", simple()),
    ("", "Namespace"): convertor("Name|Status|Age", simple("status.phase")),
    ("", "Tenant"): convertor("Name|Status|Age", simple("status.phase")),
    ("tenancy.kcp.io", "Workspace"): convertor(
        "Name|Type|Phase|URL|Age", simple("spec.type.name", "status.phase", "spec.URL")
    ),
    ("tenancy.kcp.io", "WorkspaceType"): convertor("Name|Age", simple()),
    ("core.kcp.io", "LogicalCluster"): convertor("Name|Phase|URL|Age", simple("status.phase", "status.URL")),
    ("apis.kcp.io", "APIBinding"): convertor("Name|Phase|Age", simple("status.phase")),
    ("", "Node"): convertor(
        "Name|Status|Roles|Age|Version|+Internal-IP|+External-IP|+OS-Image|+Kernel-Version|+Container-Runtime",
        _node,
    ),
    ("", "ComponentStatus"): convertor("Name|Status|Message|Error", _component),
    ("", "Event"): convertor(
        "Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+Name", _event
    ),
    ("events.k8s.io", "Event"): convertor(
        "Last Seen|Type|Reason|Object|+Subobject|+Source|Message|+First Seen|+Count|+Name", _event
    ),
    ("", "ResourceQuota"): convertor("Name|Request|Limit|Age", _resource_quota),
    ("tenancy.tenantry.io", "TenantQuota"): convertor("Name|Request|Limit|Age", _resource_quota),
    ("rbac.authorization.k8s.io", "RoleBinding"): convertor("Name|Role|Age|+Users|+Groups|+ServiceAccounts", _binding),
    ("rbac.authorization.k8s.io", "ClusterRoleBinding"): convertor(
        "Name|Role|Age|+Users|+Groups|+ServiceAccounts", _binding
    ),
    ("coordination.k8s.io", "Lease"): convertor("Name|Holder|Age", simple("spec.holderIdentity")),
    ("scheduling.k8s.io", "PriorityClass"): convertor(
        "Name|#Value|?Global-Default|Age|PreemptionPolicy", _priority_class
    ),
    ("node.k8s.io", "RuntimeClass"): convertor("Name|Handler|Age", simple("handler")),
    ("certificates.k8s.io", "CertificateSigningRequest"): convertor(
        "Name|Age|SignerName|Requestor|RequestedDuration|Condition", _signing_request
    ),
    ("apiregistration.k8s.io", "APIService"): convertor("Name|Service|Available|Age", _api_service),
    ("flowcontrol.apiserver.k8s.io", "FlowSchema"): convertor(
        "Name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL", _flow_schema
    ),
    ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration"): convertor(
        "Name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age", _priority_level
    ),
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): convertor(
        "Name|#Webhooks|Age", simple("len:webhooks")
    ),
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): convertor(
        "Name|#Webhooks|Age", simple("len:webhooks")
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): convertor(
        "Name|#Validations|ParamKind|Age", _admission_policy("validations")
    ),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): convertor(
        "Name|#Mutations|ParamKind|Age", _admission_policy("mutations")
    ),
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): convertor(
        "Name|PolicyName|ParamRef|Age", _policy_binding
    ),
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): convertor(
        "Name|PolicyName|ParamRef|Age", _policy_binding
    ),
}
"""(group, kind) → convertor."""
