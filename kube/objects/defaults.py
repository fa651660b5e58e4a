"""The defaults that kube-apiserver fills into objects and that clients rely on (TS15).

``fill_defaults`` runs whenever an object is read from a body or a patch, before anybody owns a field of it; what the
server sets besides is ``kube.objects.strategies``'. It changes the object it is given, which its caller owns.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, Final

from kube.kinds.resources import parse_api_version
from kube.objects.poddefaults import fill_pod, fill_pod_template, fill_source

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
NAME_LABEL: Final = "kubernetes.io/metadata.name"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
"""The annotation in which a DaemonSet counts the versions of its template."""

Body = dict[str, Any]


def fill_defaults(body: Body) -> None:
    """Fill the defaults of a built-in kind; a kind without any is left as it is."""
    key = key_of(body)
    fill = _DEFAULTS.get(key)
    if fill is not None:
        fill(body)
    times = _CONDITION_TIMES.get(key)
    if times is not None:
        for condition in (body.get("status") or {}).get("conditions") or ():
            for field in times:
                condition.setdefault(field, None)


def key_of(body: Mapping[str, Any]) -> tuple[str, str]:
    """(group, kind) of an object, with the version where versions have defaults of their own; empty for no kind."""
    version = body.get("apiVersion", "")
    # What is longer names nothing, and is not worth remembering.
    group = _group(version) if isinstance(version, str) and len(version) <= _VERSION_MAX else None
    return ("", "") if group is None else (group, body.get("kind", ""))


_VERSION_MAX: Final = 253 + 1 + 63
"""Characters of the longest apiVersion that there can be: a group, and a version of it."""


@lru_cache(maxsize=256)
def _group(api_version: str) -> str | None:
    try:
        group, version = parse_api_version(api_version)
    except ValueError:
        return None
    return f"{group}/{version}" if group == "autoscaling" else group


def _default(body: Body, field: str, value: Any) -> None:
    if not body.get(field):
        body[field] = value


def _spec(body: Body) -> Body:
    spec: Body = body.setdefault("spec", {})
    return spec


def _of(body: Body, field: str) -> Body:
    """A map of the object, made when it is missing, for this object alone."""
    found: Body = dict(body.get(field) or {})
    body[field] = found
    return found


def _template(body: Body) -> None:
    fill_pod_template(_spec(body).setdefault("template", {}))


def _deployment(body: Body) -> None:
    spec = _spec(body)
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    spec.setdefault("progressDeadlineSeconds", 600)
    strategy = spec.setdefault("strategy", {})
    _default(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")
    _template(body)


def _replica_set(body: Body) -> None:
    _spec(body).setdefault("replicas", 1)
    _template(body)


def _replication_controller(body: Body) -> None:
    spec = _spec(body)
    spec.setdefault("replicas", 1)
    labels = spec.get("template", {}).get("metadata", {}).get("labels")
    if labels:
        _default(spec, "selector", dict(labels))
        _default(body.setdefault("metadata", {}), "labels", dict(labels))
    if "template" in spec:
        _template(body)


def _stateful_set(body: Body) -> None:
    spec = _spec(body)
    spec.setdefault("replicas", 1)
    spec.setdefault("revisionHistoryLimit", 10)
    _default(spec, "podManagementPolicy", "OrderedReady")
    strategy = spec.setdefault("updateStrategy", {})
    if not strategy.get("type"):
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    retention = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    _default(retention, "whenDeleted", "Retain")
    _default(retention, "whenScaled", "Retain")
    for claim in spec.get("volumeClaimTemplates", ()):
        _claim(claim)
        claim |= {"apiVersion": "v1", "kind": "PersistentVolumeClaim"}  # whatever a client calls it
    _template(body)


def _daemon_set(body: Body) -> None:
    annotations = _of(body.setdefault("metadata", {}), "annotations")
    annotations.setdefault(TEMPLATE_GENERATION, "0")
    spec = _spec(body)
    spec.setdefault("revisionHistoryLimit", 10)
    strategy = spec.setdefault("updateStrategy", {})
    _default(strategy, "type", "RollingUpdate")
    if strategy["type"] == "RollingUpdate":
        rolling = strategy.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)
    _template(body)


def _job(body: Body) -> None:
    _job_spec(_spec(body))
    labels = body["spec"].get("template", {}).get("metadata", {}).get("labels")
    if labels:
        _default(body.setdefault("metadata", {}), "labels", dict(labels))
    _template(body)


def _job_spec(spec: Body) -> None:
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
    spec.setdefault("completionMode", "NonIndexed")
    spec.setdefault("suspend", False)
    spec.setdefault("manualSelector", False)
    spec.setdefault("podReplacementPolicy", "Failed" if "podFailurePolicy" in spec else "TerminatingOrFailed")
    for rule in spec.get("podFailurePolicy", {}).get("rules", ()):
        for condition in rule.get("onPodConditions", ()):
            _default(condition, "status", "True")


def _cron_job(body: Body) -> None:
    spec = _spec(body)
    _default(spec, "concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.setdefault("jobTemplate", {})
    template.setdefault("metadata", {})
    _template(template)


def _autoscaler_v1(body: Body) -> None:
    spec = _spec(body)
    spec.setdefault("minReplicas", 1)
    if "autoscaling.alpha.kubernetes.io/metrics" not in (body.get("metadata", {}).get("annotations") or {}):
        spec.setdefault("targetCPUUtilizationPercentage", 80)


def _autoscaler(body: Body) -> None:
    spec = _spec(body)
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        target = {"type": "Utilization", "averageUtilization": 80}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": target}}]
    if "behavior" in spec:
        percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
        pods = {"type": "Pods", "value": 4, "periodSeconds": 15}
        up = spec["behavior"].setdefault("scaleUp", {})
        up.setdefault("stabilizationWindowSeconds", 0)
        down = spec["behavior"].setdefault("scaleDown", {})
        for rules, policies in ((up, [pods, percent]), (down, [dict(percent)])):
            rules.setdefault("selectPolicy", "Max")
            rules.setdefault("policies", policies)


def _service(body: Body) -> None:
    spec = _spec(body)
    _default(spec, "type", "ClusterIP")
    _default(spec, "sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        client = spec.setdefault("sessionAffinityConfig", {}).setdefault("clientIP", {})
        client.setdefault("timeoutSeconds", 10800)
    else:
        spec.pop("sessionAffinityConfig", None)
    for port in spec.get("ports", ()):
        _default(port, "protocol", "TCP")
        if port.get("targetPort") in (None, 0, ""):
            port["targetPort"] = port.get("port", 0)
    external = spec["type"] in ("NodePort", "LoadBalancer") or (
        spec["type"] == "ClusterIP" and bool(spec.get("externalIPs"))
    )
    if external:
        _default(spec, "externalTrafficPolicy", "Cluster")
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for entry in ((body.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
            if entry.get("ip"):
                entry.setdefault("ipMode", "VIP")


def _endpoints(body: Body) -> None:
    for subset in body.get("subsets", ()):
        for port in subset.get("ports", ()):
            _default(port, "protocol", "TCP")


def _event(body: Body) -> None:
    body.setdefault("source", {})
    body.setdefault("reportingComponent", "")
    body.setdefault("reportingInstance", "")


def _new_event(body: Body) -> None:
    body.setdefault("deprecatedSource", {})


def _node(body: Body) -> None:
    """What a node's kubelet reports is written out even where it is empty; all of a node may be taken unless told."""
    _of(body, "spec")
    status = _of(body, "status")
    if status.get("capacity") is not None:
        status.setdefault("allocatable", dict(status["capacity"]))
    endpoint = _of(_of(status, "daemonEndpoints"), "kubeletEndpoint")
    endpoint.setdefault("Port", 0)
    info = _of(status, "nodeInfo")
    for field in _NODE_INFO:
        info.setdefault(field, "")


_NODE_INFO: Final = (
    "architecture",
    "bootID",
    "containerRuntimeVersion",
    "kernelVersion",
    "kubeProxyVersion",
    "kubeletVersion",
    "machineID",
    "operatingSystem",
    "osImage",
    "systemUUID",
)


def _endpoint_slice(body: Body) -> None:
    for endpoint in body.get("endpoints", ()):
        endpoint.setdefault("conditions", {})
    for port in body.get("ports", ()):
        port.setdefault("name", "")
        port.setdefault("protocol", "TCP")


def _ingress_class(body: Body) -> None:
    if "parameters" in _spec(body):
        body["spec"]["parameters"].setdefault("scope", "Cluster")


def _network_policy(body: Body) -> None:
    spec = _spec(body)
    if not spec.get("policyTypes"):
        spec["policyTypes"] = ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"]
    for rule in (*spec.get("ingress", ()), *spec.get("egress", ())):
        for port in rule.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _secret(body: Body) -> None:
    _default(body, "type", "Opaque")
    plain = body.pop("stringData", None)
    if plain:
        # The object that was there may share its data with this one.
        body["data"] = dict(body.get("data") or {})
        body["data"] |= {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}


def _namespace(body: Body) -> None:
    metadata = body.setdefault("metadata", {})
    if metadata.get("name") and ("resourceVersion" in metadata or not metadata.get("generateName")):
        # A name that the server makes up is not known yet when a new object's fields get their owners.
        metadata.setdefault("labels", {})[NAME_LABEL] = metadata["name"]
    _default(body.setdefault("status", {}), "phase", "Active")


def _limit_range(body: Body) -> None:
    for limit in _spec(body).get("limits", ()):
        if limit.get("type") == "Container":
            default = limit.setdefault("default", {})
            request = limit.setdefault("defaultRequest", {})
            for source, target in (
                (limit.get("max", {}), default),
                (default, request),
                (limit.get("min", {}), request),
            ):
                for name, quantity in source.items():
                    target.setdefault(name, quantity)


def _volume(body: Body) -> None:
    spec = _spec(body)
    _default(spec, "persistentVolumeReclaimPolicy", "Retain")
    fill_source(spec)
    spec.setdefault("volumeMode", "Filesystem")
    _default(body.setdefault("status", {}), "phase", "Pending")


def _claim(body: Body) -> None:
    _spec(body).setdefault("volumeMode", "Filesystem")
    _default(body.setdefault("status", {}), "phase", "Pending")


def _role_binding(body: Body) -> None:
    _default(body.setdefault("roleRef", {}), "apiGroup", RBAC_GROUP)
    for subject in body.get("subjects", ()):
        if subject.get("kind") in ("User", "Group"):
            _default(subject, "apiGroup", RBAC_GROUP)


def _storage_class(body: Body) -> None:
    body.setdefault("reclaimPolicy", "Delete")
    body.setdefault("volumeBindingMode", "Immediate")


def _priority_class(body: Body) -> None:
    body.setdefault("preemptionPolicy", "PreemptLowerPriority")


def _csi_driver(body: Body) -> None:
    spec = _spec(body)
    spec.setdefault("attachRequired", True)
    for field in ("podInfoOnMount", "storageCapacity", "requiresRepublish", "seLinuxMount"):
        spec.setdefault(field, False)
    spec.setdefault("fsGroupPolicy", "ReadWriteOnceWithFSType")
    _default(spec, "volumeLifecycleModes", ["Persistent"])


def _device_claim(body: Body) -> None:
    _device_requests(_spec(body))


def _device_claim_template(body: Body) -> None:
    _device_requests(_of(_spec(body), "spec"))


def _device_requests(spec: Body) -> None:
    for request in (spec.get("devices") or {}).get("requests") or ():
        for wanted in (request.get("exactly"), *(request.get("firstAvailable") or ())):
            if wanted is None:
                continue
            _default(wanted, "allocationMode", "ExactCount")
            if wanted["allocationMode"] == "ExactCount" and not wanted.get("count"):
                wanted["count"] = 1
            for toleration in wanted.get("tolerations") or ():
                _default(toleration, "operator", "Equal")


def _webhooks(body: Body) -> None:
    for webhook in body.get("webhooks", ()):
        webhook.setdefault("failurePolicy", "Fail")
        webhook.setdefault("matchPolicy", "Equivalent")
        webhook.setdefault("namespaceSelector", {})
        webhook.setdefault("objectSelector", {})
        webhook.setdefault("timeoutSeconds", 10)
        if body["kind"] == "MutatingWebhookConfiguration":
            webhook.setdefault("reinvocationPolicy", "Never")
        for rule in webhook.get("rules", ()):
            rule.setdefault("scope", "*")
        if "service" in webhook.get("clientConfig", {}):
            webhook["clientConfig"]["service"].setdefault("port", 443)


def _api_service(body: Body) -> None:
    if "service" in _spec(body):
        _spec(body)["service"].setdefault("port", 443)


def _admission_policy(body: Body) -> None:
    spec = _spec(body)
    spec.setdefault("failurePolicy", "Fail")
    _match_resources(spec.get("matchConstraints"))


def _admission_binding(body: Body) -> None:
    _match_resources(_spec(body).get("matchResources"))


def _match_resources(match: Body | None) -> None:
    if match is not None:
        match.setdefault("matchPolicy", "Equivalent")
        match.setdefault("namespaceSelector", {})
        match.setdefault("objectSelector", {})
        for rule in (*match.get("resourceRules", ()), *match.get("excludeResourceRules", ())):
            rule.setdefault("scope", "*")


def _definition(body: Body) -> None:
    """A CustomResourceDefinition's names and conversion."""
    spec = _spec(body)
    names = spec.setdefault("names", {})
    kind = names.get("kind", "")
    _default(names, "singular", kind.lower())
    _default(names, "listKind", f"{kind}List" if kind else "")
    spec.setdefault("conversion", {"strategy": "None"})


def _pod_template(body: Body) -> None:
    if "template" in body:
        fill_pod_template(body["template"])


_ADMISSION: Final = "admissionregistration.k8s.io"

_DEFAULTS: Final[dict[tuple[str, str], Callable[[Body], None]]] = {
    ("", "Endpoints"): _endpoints,
    ("", "Event"): _event,
    ("", "LimitRange"): _limit_range,
    ("", "Namespace"): _namespace,
    ("", "Node"): _node,
    ("", "PersistentVolume"): _volume,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Pod"): fill_pod,
    ("", "PodTemplate"): _pod_template,
    ("", "ReplicationController"): _replication_controller,
    ("", "Secret"): _secret,
    ("", "Service"): _service,
    ("apps", "DaemonSet"): _daemon_set,
    ("apps", "Deployment"): _deployment,
    ("apps", "ReplicaSet"): _replica_set,
    ("apps", "StatefulSet"): _stateful_set,
    ("autoscaling/v1", "HorizontalPodAutoscaler"): _autoscaler_v1,
    ("autoscaling/v2", "HorizontalPodAutoscaler"): _autoscaler,
    ("batch", "CronJob"): _cron_job,
    ("batch", "Job"): _job,
    ("discovery.k8s.io", "EndpointSlice"): _endpoint_slice,
    ("events.k8s.io", "Event"): _new_event,
    ("networking.k8s.io", "IngressClass"): _ingress_class,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    (RBAC_GROUP, "ClusterRoleBinding"): _role_binding,
    (RBAC_GROUP, "RoleBinding"): _role_binding,
    ("resource.k8s.io", "ResourceClaim"): _device_claim,
    ("resource.k8s.io", "ResourceClaimTemplate"): _device_claim_template,
    ("scheduling.k8s.io", "PriorityClass"): _priority_class,
    ("storage.k8s.io", "CSIDriver"): _csi_driver,
    ("storage.k8s.io", "StorageClass"): _storage_class,
    ("apiextensions.k8s.io", "CustomResourceDefinition"): _definition,
    (_ADMISSION, "MutatingAdmissionPolicy"): _admission_policy,
    (_ADMISSION, "MutatingAdmissionPolicyBinding"): _admission_binding,
    (_ADMISSION, "MutatingWebhookConfiguration"): _webhooks,
    (_ADMISSION, "ValidatingAdmissionPolicy"): _admission_policy,
    (_ADMISSION, "ValidatingAdmissionPolicyBinding"): _admission_binding,
    (_ADMISSION, "ValidatingWebhookConfiguration"): _webhooks,
    ("apiregistration.k8s.io", "APIService"): _api_service,
}

_CONDITION_TIMES: Final[dict[tuple[str, str], tuple[str, ...]]] = {
    ("", "Node"): ("lastHeartbeatTime", "lastTransitionTime"),
    ("", "PersistentVolumeClaim"): ("lastProbeTime", "lastTransitionTime"),
    ("", "Pod"): ("lastProbeTime", "lastTransitionTime"),
    ("", "ReplicationController"): ("lastTransitionTime",),
    ("apps", "DaemonSet"): ("lastTransitionTime",),
    ("apps", "Deployment"): ("lastTransitionTime", "lastUpdateTime"),
    ("apps", "ReplicaSet"): ("lastTransitionTime",),
    ("apps", "StatefulSet"): ("lastTransitionTime",),
    ("autoscaling/v2", "HorizontalPodAutoscaler"): ("lastTransitionTime",),
    ("batch", "Job"): ("lastProbeTime", "lastTransitionTime"),
}
"""The times in conditions that show as ``null`` when they are not set."""
