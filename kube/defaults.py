"""The defaults that kube-apiserver fills into objects and that clients rely on (TS15).

``fill_defaults`` runs whenever an object is read from a body or a patch; ``fill_on_create`` once, for a new object
that has its name, namespace and uid. Both change the object they are given, which its caller owns.

No controller runs here: Services get no cluster IP (a cluster IP that is given is kept), Deployments no status.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Final

from kube.poddefaults import fill_pod, fill_pod_template
from kube.resources import parse_api_version
from kube.traits import empty_status

RBAC_GROUP: Final = "rbac.authorization.k8s.io"
NAME_LABEL: Final = "kubernetes.io/metadata.name"

Body = dict[str, Any]


def fill_defaults(body: Body) -> None:
    """Fill the defaults of a built-in kind; a kind without any is left as it is."""
    fill = _DEFAULTS.get(_key(body))
    if fill is not None:
        fill(body)


def fill_on_create(body: Body) -> None:
    """Fill what a new object of a built-in kind gets besides its defaults, ``metadata.uid`` being set."""
    key = _key(body)
    status = empty_status(*key)
    if status is not None:
        body.setdefault("status", status)
    fill = _ON_CREATE.get(key)
    if fill is not None:
        fill(body)


def _key(body: Body) -> tuple[str, str]:
    try:
        group, version = parse_api_version(body.get("apiVersion", ""))
    except ValueError:
        return ("", "")
    return (f"{group}/{version}" if group == "autoscaling" else group, body.get("kind", ""))


def _default(body: Body, field: str, value: Any) -> None:
    if not body.get(field):
        body[field] = value


def _spec(body: Body) -> Body:
    spec: Body = body.setdefault("spec", {})
    return spec


def _template(body: Body) -> None:
    template = _spec(body).get("template")
    if template is not None:
        fill_pod_template(template)


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
        claim.setdefault("apiVersion", "v1")
        claim.setdefault("kind", "PersistentVolumeClaim")
    _template(body)


def _daemon_set(body: Body) -> None:
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


def _cron_job(body: Body) -> None:
    spec = _spec(body)
    _default(spec, "concurrencyPolicy", "Allow")
    spec.setdefault("suspend", False)
    spec.setdefault("successfulJobsHistoryLimit", 3)
    spec.setdefault("failedJobsHistoryLimit", 1)
    template = spec.get("jobTemplate", {})
    template.setdefault("metadata", {})
    if "template" in template.get("spec", {}):
        fill_pod_template(template["spec"]["template"])


def _label_job(body: Body) -> None:
    """A job's pods are told by its uid, unless the author manages the selector."""
    spec, metadata = body["spec"], body["metadata"]
    if spec.get("manualSelector"):
        return
    uid, name = metadata["uid"], metadata["name"]
    labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
    labels |= {
        "batch.kubernetes.io/controller-uid": uid,
        "batch.kubernetes.io/job-name": name,
        "controller-uid": uid,
        "job-name": name,
    }
    spec.setdefault("selector", {}).setdefault("matchLabels", {})["batch.kubernetes.io/controller-uid"] = uid


def _autoscaler_v1(body: Body) -> None:
    _spec(body).setdefault("minReplicas", 1)


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
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]


def _service_families(body: Body) -> None:
    spec = body["spec"]
    if spec["type"] != "ExternalName":
        spec.setdefault("ipFamilies", ["IPv6" if ":" in spec.get("clusterIP", "") else "IPv4"])
        spec.setdefault("ipFamilyPolicy", "SingleStack")


def _endpoints(body: Body) -> None:
    for subset in body.get("subsets", ()):
        for port in subset.get("ports", ()):
            _default(port, "protocol", "TCP")


def _endpoint_slice(body: Body) -> None:
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
        data = body.setdefault("data", {})
        data |= {key: base64.b64encode(value.encode()).decode() for key, value in plain.items()}


def _namespace(body: Body) -> None:
    metadata = body.setdefault("metadata", {})
    if metadata.get("name"):
        metadata.setdefault("labels", {})[NAME_LABEL] = metadata["name"]
    _default(body.setdefault("status", {}), "phase", "Active")


def _namespace_created(body: Body) -> None:
    finalizers = _spec(body).setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")
    body["status"] = {"phase": "Active"}


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
    spec.setdefault("volumeMode", "Filesystem")
    _default(body.setdefault("status", {}), "phase", "Pending")


def _claim(body: Body) -> None:
    _spec(body).setdefault("volumeMode", "Filesystem")
    _default(body.setdefault("status", {}), "phase", "Pending")


def _pod_created(body: Body) -> None:
    spec = body["spec"]
    body["status"] = {"phase": "Pending", "qosClass": _quality(spec)}
    if not spec.get("priorityClassName"):
        spec.setdefault("priority", 0)
        spec.setdefault("preemptionPolicy", "PreemptLowerPriority")
    tolerations = spec.get("tolerations") or []
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            missing = {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
            tolerations = [*tolerations, missing]
    spec["tolerations"] = tolerations


def _tolerates(toleration: Body, key: str) -> bool:
    return toleration.get("key") in (None, "", key) and toleration.get("effect") in (None, "", "NoExecute")


def _quality(spec: Body) -> str:
    """The quality-of-service class: by cpu and memory requests and limits of all containers."""
    containers = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    guaranteed = bool(containers)
    burstable = False
    for container in containers:
        resources = container.get("resources", {})
        requests, limits = resources.get("requests", {}), resources.get("limits", {})
        for name in ("cpu", "memory"):
            burstable = burstable or name in requests or name in limits
            guaranteed = guaranteed and name in limits and requests.get(name) == limits[name]
    return "Guaranteed" if guaranteed else "Burstable" if burstable else "BestEffort"


def _role_binding(body: Body) -> None:
    if "roleRef" in body:
        _default(body["roleRef"], "apiGroup", RBAC_GROUP)
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
    ("", "LimitRange"): _limit_range,
    ("", "Namespace"): _namespace,
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
    ("networking.k8s.io", "IngressClass"): _ingress_class,
    ("networking.k8s.io", "NetworkPolicy"): _network_policy,
    (RBAC_GROUP, "ClusterRoleBinding"): _role_binding,
    (RBAC_GROUP, "RoleBinding"): _role_binding,
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
}

_ON_CREATE: Final[dict[tuple[str, str], Callable[[Body], None]]] = {
    ("", "Namespace"): _namespace_created,
    ("", "Pod"): _pod_created,
    ("", "Service"): _service_families,
    ("batch", "Job"): _label_job,
}
