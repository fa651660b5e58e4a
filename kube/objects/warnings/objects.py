"""What kube-apiserver accepts but warns of: fields that are ignored, deprecated, or better written otherwise (TS15)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kube.objects.warnings import pods
from kube.objects.warnings.fields import address, claim_amounts, network, old_label, terms
from kube.quota.quantities import InvalidQuantity, parse_quantity
from kube.requests import names

Body = dict[str, Any]

_OF_VOLUMES: Final = {
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_CLASS: Final = "kubernetes.io/ingress.class"
_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_STORAGE_ANNOTATIONS: Final = {
    _STORAGE_CLASS: ("v1.8", "storageClassName"),
    "volume.beta.kubernetes.io/mount-options": ("v1.31", "mountOptions"),
}
_TOPOLOGY_HINTS: Final = "service.kubernetes.io/topology-aware-hints"
_MOUNTABLE: Final = "kubernetes.io/enforce-mountable-secrets"
_MANAGED_BY: Final = "endpoints.kubernetes.io/managed-by"
_UNLESS_HEADLESS: Final = ("loadBalancerIP", "externalIPs")
_MANY_COMPLETIONS: Final = 100_000
_MUCH_PARALLELISM: Final = 10_000
_TOO_MANY: Final = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might "
    "not be able to track completedIndexes when a big number of indexes fail"
)
_RECOMMENDED: Final = "which can result in surprising behavior; a DNS label is recommended"


def warnings_for(body: Body, old: Body | None = None) -> list[str]:
    """The warnings for a new object of a built-in kind, or for one that was ``old``; it has its defaults."""
    kind = str(body.get("kind", ""))
    advise = _ADVICE.get(kind)
    if old is None:
        return [*_host_name(body, _NAMED_AFTER.get(kind, "")), *(advise(body) if advise else ())]
    if advise is None or kind in _WHEN_NEW:
        return []
    if kind in _WHEN_CHANGED and all(body.get(part) == old.get(part) for part in ("spec", "template")):
        return []
    if kind == "ServiceAccount" and _MOUNTABLE in _annotations(old):
        return []
    return list(advise(body))


def status_warnings_for(body: Body) -> list[str]:
    """The warnings for an object whose status was written."""
    status = body.get("status") or {}
    places = {
        "Pod": [(f"status.{field}", ".ip", status.get(field, ())) for field in ("podIPs", "hostIPs")],
        "Ingress": [("status.loadBalancer.ingress", "", status.get("loadBalancer", {}).get("ingress", ()))],
        "Service": [("status.loadBalancer.ingress", "", status.get("loadBalancer", {}).get("ingress", ()))],
    }
    return [
        words
        for path, field, items in places.get(str(body.get("kind", "")), ())
        for index, item in enumerate(items)
        for words in address(item.get("ip", ""), f"{path}[{index}]{field}")
    ]


def _host_name(body: Body, use: str) -> list[str]:
    name = (body.get("metadata") or {}).get("name") or ""
    reasons = names.dns_label(name) if use and isinstance(name, str) and name else []
    return [f"metadata.name: this is used in {use}, {_RECOMMENDED}: [{' '.join(reasons)}]"] if reasons else []


def _annotations(body: Body) -> Body:
    return (body.get("metadata") or {}).get("annotations") or {}


def _controller(body: Body) -> Iterator[str]:
    yield from pods.of_template((body.get("spec") or {}).get("template"), "spec.template")


def _stateful_set(body: Body) -> Iterator[str]:
    spec = body.get("spec") or {}
    yield from _controller(body)
    for index, claim in enumerate(spec.get("volumeClaimTemplates", ())):
        yield from claim_amounts(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}]")
    if spec.get("revisionHistoryLimit", 0) < 0:
        yield (
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
        )


def _job(body: Body) -> Iterator[str]:
    yield from _job_spec(body.get("spec") or {}, "spec")


def _cron_job(body: Body) -> Iterator[str]:
    job = (body.get("spec") or {}).get("jobTemplate") or {}
    yield from _job_spec(job.get("spec") or {}, "spec.jobTemplate.spec")


def _job_spec(spec: Body, path: str) -> Iterator[str]:
    many = spec.get("completions", 0) > _MANY_COMPLETIONS and spec.get("parallelism", 0) > _MUCH_PARALLELISM
    if many and spec.get("completionMode") == "Indexed":
        yield f"{path}: {_TOO_MANY}"
    yield from pods.of_template(spec.get("template"), f"{path}.template")


def _pod_template(body: Body) -> Iterator[str]:
    yield from pods.of_template(body.get("template"), "template")


def _secret(body: Body) -> Iterator[str]:
    if body.get("type") != "kubernetes.io/tls":
        return
    for key, words in (("tls.crt", "certificate"), ("tls.key", "key")):
        try:
            text = base64.b64decode((body.get("data") or {}).get(key) or "")
        except ValueError:
            return
        if b"-----BEGIN " not in text:
            yield f"tls: failed to find any PEM data in {words} input"
            return


def _service_account(body: Body) -> Iterator[str]:
    if _MOUNTABLE in _annotations(body):
        yield (
            f"metadata.annotations[{_MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate access to "
            "mounted secrets"
        )


def _quota(body: Body) -> Iterator[str]:
    hard = (body.get("spec") or {}).get("hard", {})
    for name in ("cpu", "memory", "storage", "ephemeral-storage"):
        bare = name if name in ("cpu", "memory") else ""
        request = next((key for key in (f"requests.{name}", bare) if key in hard), "")
        limit = f"limits.{name}"
        if not request or limit not in hard:
            continue
        try:
            asked, allowed = parse_quantity(hard[request]), parse_quantity(hard[limit])
        except InvalidQuantity:
            continue
        if asked > allowed:
            yield f"ResourceQuota {request} ({asked}) should be less than {limit} ({allowed})"


def _service(body: Body) -> Iterator[str]:
    spec = body.get("spec") or {}
    kind, outside = spec.get("type"), spec.get("externalIPs", ())
    alias, headless = kind == "ExternalName", kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if _TOPOLOGY_HINTS in _annotations(body):
        yield f"annotation {_TOPOLOGY_HINTS} is deprecated, please use service.kubernetes.io/topology-mode instead"
    for index, own in enumerate(spec.get("clusterIPs", ())):
        yield from address(own, f"spec.clusterIPs[{index}]")
    if headless:
        yield from (f"spec.{field} is ignored for headless services" for field in _UNLESS_HEADLESS if spec.get(field))
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    for index, other in enumerate(outside):
        yield from address(other, f"spec.externalIPs[{index}]")
    if outside and not headless and not alias:
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    yield from address(spec.get("loadBalancerIP", ""), "spec.loadBalancerIP")
    for index, source in enumerate(spec.get("loadBalancerSourceRanges", ())):
        yield from network(source, f"spec.loadBalancerSourceRanges[{index}]")
    if alias and outside:
        yield 'spec.externalIPs is ignored when spec.type is "ExternalName"'
    if not alias and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'


def _endpoints(body: Body) -> Iterator[str]:
    if ((body.get("metadata") or {}).get("labels") or {}).get(_MANAGED_BY) == "endpoint-controller":
        return
    for index, subset in enumerate(body.get("subsets", ())):
        for field in ("addresses", "notReadyAddresses"):
            for position, item in enumerate(subset.get(field, ())):
                yield from address(item.get("ip", ""), f"subsets[{index}].{field}[{position}].ip")


def _endpoint_slice(body: Body) -> Iterator[str]:
    if body.get("addressType") == "FQDN":
        yield "spec.addressType: FQDN endpoints are deprecated"


def _ingress(body: Body) -> Iterator[str]:
    if _CLASS in _annotations(body) and "ingressClassName" not in (body.get("spec") or {}):
        yield f"annotation \"{_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"


def _network_policy(body: Body) -> Iterator[str]:
    spec = body.get("spec") or {}
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction, ())):
            for position, peer in enumerate(rule.get(peers, ())):
                block, here = peer.get("ipBlock", {}), f"spec.{direction}[{index}].{peers}[{position}].ipBlock"
                yield from network(block.get("cidr", ""), f"{here}.cidr")
                for number, part in enumerate(block.get("except", ())):
                    yield from network(part, f"{here}.except[{number}]")


def _node(body: Body) -> Iterator[str]:
    spec = body.get("spec") or {}
    if "configSource" in spec:
        yield "spec.configSource: the feature is removed"
    if spec.get("externalID"):
        yield "spec.externalID: this field is deprecated, and is unused by Kubernetes"
    for index, own in enumerate(spec.get("podCIDRs", ())):
        yield from network(own, f"spec.podCIDRs[{index}]")


def _claim(body: Body) -> Iterator[str]:
    yield from _storage_annotations(body, (_STORAGE_CLASS,))
    yield from claim_amounts(body.get("spec") or {}, "spec")


def _storage_annotations(body: Body, keys: Iterable[str]) -> Iterator[str]:
    for key in keys:
        if key in _annotations(body):
            version, field = _STORAGE_ANNOTATIONS[key]
            yield f'metadata.annotations[{key}]: deprecated since {version}; use "{field}" attribute instead'


def _volume(body: Body) -> Iterator[str]:
    yield from _storage_annotations(body, _STORAGE_ANNOTATIONS)
    spec = body.get("spec") or {}
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield (
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended "
            "approach is to use dynamic provisioning."
        )
    chosen = spec.get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", ())
    yield from terms(chosen, "spec.nodeAffinity.required.nodeSelectorTerms")
    for field, words in _OF_VOLUMES.items():
        if field in spec:
            yield f"spec.{'storageOS' if field == 'storageos' else field}: {words}"


def _storage_class(body: Body) -> Iterator[str]:
    for index, term in enumerate(body.get("allowedTopologies", ())):
        for position, wanted in enumerate(term.get("matchLabelExpressions", ())):
            if words := old_label(wanted.get("key", "")):
                yield f"allowedTopologies[{index}].matchLabelExpressions[{position}].key: {words}"


def _capacity(body: Body) -> Iterator[str]:
    selector = body.get("nodeTopology") or {}
    yield from terms([selector], "nodeTopology", numbered=False)
    for key in selector.get("matchLabels", {}):
        if words := old_label(key):
            yield f"nodeTopology.matchLabels.{key}: {words}"


def _storage_driver(body: Body) -> Iterator[str]:
    spec = body.get("spec") or {}
    if spec.get("tokenRequests") and "serviceAccountTokenInSecrets" not in spec:
        yield (
            "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver, set to true to prevent possible "
            "logging of tokens in volume attributes"
        )


def _runtime_class(body: Body) -> Iterator[str]:
    for key in (body.get("scheduling") or {}).get("nodeSelector", {}):
        if words := old_label(key):
            yield f"scheduling.nodeSelector: {words}"


_NAMED_AFTER: Final = {
    "Pod": "the Pod's hostname",
    **dict.fromkeys(("CronJob", "Deployment", "Job", "ReplicaSet", "ReplicationController"), "Pod names and hostnames"),
}
"""Kinds whose names become names of hosts, and of which."""

_WHEN_NEW: Final = frozenset(("CSIDriver", "EndpointSlice", "Ingress", "Pod", "ResourceQuota"))
_WHEN_CHANGED: Final = frozenset(
    (
        "CronJob",
        "DaemonSet",
        "Deployment",
        "Job",
        "PodTemplate",
        "ReplicaSet",
        "ReplicationController",
        "StatefulSet",
    )
)


_ADVICE: Final[dict[str, Callable[[Body], Iterable[str]]]] = {
    "CSIDriver": _storage_driver,
    "CSIStorageCapacity": _capacity,
    "CronJob": _cron_job,
    "DaemonSet": _controller,
    "Deployment": _controller,
    "EndpointSlice": _endpoint_slice,
    "Endpoints": _endpoints,
    "Ingress": _ingress,
    "Job": _job,
    "NetworkPolicy": _network_policy,
    "Node": _node,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _claim,
    "Pod": pods.of_pod,
    "PodTemplate": _pod_template,
    "ReplicaSet": _controller,
    "ReplicationController": _controller,
    "ResourceQuota": _quota,
    "RuntimeClass": _runtime_class,
    "Secret": _secret,
    "Service": _service,
    "ServiceAccount": _service_account,
    "StatefulSet": _stateful_set,
    "StorageClass": _storage_class,
}
