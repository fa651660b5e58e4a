"""What kube-apiserver sets in an object besides its defaults: when it is made, and when it is changed (TS15).

``prepare_for_create`` and ``prepare_for_update`` run after the fields have found their owners and after admission, so what
they set is nobody's. Both change the new object, never the old one, nor what the new one shares with it.

No controller and no network is behind a space: Services get no cluster IP (one that is given is kept), Deployments no
status.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from kube.kinds.reststrategies import empty_status
from kube.objects.defaults import NAME_LABEL, TEMPLATE_GENERATION, Body, key_of
from kube.objects.patches import same
from kube.objects.podtemplates import TEMPLATES
from kube.quota.podresources import quality


def prepare_for_create(body: Body) -> None:
    """Fill what a new object of a built-in kind gets besides its defaults; ``metadata`` has its uid and its time."""
    key = key_of(body)
    status = empty_status(*key)
    if status is not None:
        body.setdefault("status", status)
    fill = _ON_CREATE.get(key)
    if fill is not None:
        fill(body)
    _settle(key, body)


def prepare_for_update(new: Body, old: Body) -> None:
    """Take over from the old object, or count on, what only the server writes."""
    key = key_of(new)
    fill = _ON_UPDATE.get(key)
    if fill is not None:
        fill(new, old)
    _settle(key, new)


def finished(body: Mapping[str, Any]) -> bool:
    """Whether a deleted object has nothing left to wait for.

    A tenant's always waits for its space: whoever empties that takes it away (TS1).
    """
    metadata, key = body["metadata"], key_of(body)
    waits = bool(metadata.get("finalizers")) or key == ("", "Tenant")
    waits = waits or (key == ("", "Namespace") and bool((body.get("spec") or {}).get("finalizers")))
    return bool(metadata.get("deletionTimestamp")) and not waits


_ZEROS: Final[dict[tuple[str, str], dict[str, Any]]] = {
    ("apps", "ControllerRevision"): {"revision": 0},
    ("apps", "StatefulSet"): {"spec.serviceName": "", "spec.ordinals.start": 0},
    ("scheduling.k8s.io", "PriorityClass"): {"value": 0},
}
"""What Go writes even when it is zero, where its parent is."""


_Gated = Mapping[str, "_Gated"]

_IN_CONTAINERS: Final[_Gated] = {"*": {"lifecycle": {"stopSignal": {}}}}
_IN_VOLUMES: Final[_Gated] = {"*": {"projected": {"sources": {"*": {"clusterTrustBundle": {}, "podCertificate": {}}}}}}
_IN_PODS: Final[_Gated] = {
    "spec": {
        "schedulingGroup": {},
        "containers": _IN_CONTAINERS,
        "initContainers": _IN_CONTAINERS,
        "volumes": _IN_VOLUMES,
    }
}


def _gated_of(key: tuple[str, str], template: Sequence[str]) -> _Gated:
    gated = _IN_PODS
    for name in reversed(template):
        gated = {name: gated}
    if key == ("apps", "StatefulSet"):
        return {"spec": {**gated["spec"], "updateStrategy": {"rollingUpdate": {"maxUnavailable": {}}}}}
    return gated


_OFF: Final = {key: _gated_of(key, template) for key, template in TEMPLATES.items()}
"""What is behind feature gates that are off by default: it is dropped as if nobody had set it.

Field by field, ``*`` is every item; what stands last goes.
"""

_GOES_WHEN_EMPTY: Final = "lifecycle"
"""The field that goes too when nothing else was in it."""


def _settle(key: tuple[str, str], body: Body) -> None:
    if key in _OFF:
        without = _without(body, _OFF[key])
        if without is not body:
            body |= without
    if key in _ZEROS:
        _write_zeros(_ZEROS[key], body)


def _without(node: Any, gated: _Gated) -> Any:
    """The node without what is gated; itself when there is nothing of it."""
    if "*" in gated:
        if not isinstance(node, list):
            return node
        items = [_without(item, gated["*"]) for item in node]
        return items if any(new is not old for new, old in zip(items, node, strict=True)) else node
    if not isinstance(node, dict):
        return node
    kept = node
    for name, below in gated.items():
        if name not in node:
            continue
        if below:
            left = _without(node[name], below)
            if left is node[name]:
                continue
            if left or name != _GOES_WHEN_EMPTY:
                kept = {**kept, name: left}
                continue
        kept = {key: value for key, value in kept.items() if key != name}
    return kept


def _write_zeros(zeros: Mapping[str, Any], body: Body) -> None:
    for path, zero in zeros.items():
        *parents, field = path.split(".")
        holder: Any = body
        for name in parents:
            if isinstance(holder, dict) and isinstance(holder.get(name), dict):
                holder[name] = holder = dict(holder[name])
            else:
                holder = None
        if isinstance(holder, dict):
            holder.setdefault(field, zero)


def _job_created(body: Body) -> None:
    """A job's pods are told by its uid, unless the author manages the selector."""
    spec, metadata = body["spec"], body["metadata"]
    if not spec.get("manualSelector"):
        uid, name = metadata["uid"], metadata["name"]
        labels = spec.setdefault("template", {}).setdefault("metadata", {}).setdefault("labels", {})
        # Labels that were taken over from the template are one with it.
        if labels == metadata.get("labels"):
            del metadata["labels"]
        for key, value in (("controller-uid", uid), ("job-name", name)):
            labels.setdefault(key, value)
            labels.setdefault(f"batch.kubernetes.io/{key}", value)
        selected = spec.setdefault("selector", {}).setdefault("matchLabels", {})
        selected.setdefault("batch.kubernetes.io/controller-uid", uid)
    labels = spec.get("template", {}).get("metadata", {}).get("labels")
    if labels and not metadata.get("labels"):
        metadata["labels"] = dict(labels)


def _service_created(body: Body) -> None:
    spec = body["spec"]
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    _settle_families(spec)


def _settle_families(spec: Body) -> None:
    if spec["type"] == "ExternalName":
        return
    if spec.get("clusterIP") == "None" and not spec.get("selector"):
        # Whoever fills in the endpoints may do so in both families.
        spec.setdefault("ipFamilyPolicy", "RequireDualStack")
        spec.setdefault("ipFamilies", ["IPv4", "IPv6"])
    spec.setdefault("ipFamilies", ["IPv6" if ":" in spec.get("clusterIP", "") else "IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _service_updated(new: Body, old: Body) -> None:
    """What was given stays, unless the client changes it; what belongs to another type goes."""
    before = old.get("spec", {})
    spec = dict(new["spec"])
    new["spec"] = spec
    if spec["type"] == "ExternalName":
        if before.get("type") != "ExternalName":
            for field in ("clusterIP", "clusterIPs"):
                if spec.get(field) == before.get(field):
                    spec.pop(field, None)
            for field in ("ipFamilies", "ipFamilyPolicy", "internalTrafficPolicy"):
                if spec.get(field) == before.get(field):
                    spec.pop(field, None)
        return
    if before.get("type") != "ExternalName":
        for field in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if not spec.get(field) and field in before:
                spec[field] = before[field]
    if spec.get("clusterIP") and (not spec.get("clusterIPs") or spec["clusterIP"] != before.get("clusterIP")):
        given = spec.get("clusterIPs") or []
        spec["clusterIPs"] = [spec["clusterIP"], *given[1:]]
    _settle_families(spec)


def _namespace_created(body: Body) -> None:
    spec = body.setdefault("spec", {})
    finalizers = spec.setdefault("finalizers", [])
    if "kubernetes" not in finalizers:
        finalizers.append("kubernetes")
    body["metadata"].setdefault("labels", {})[NAME_LABEL] = body["metadata"]["name"]
    body["status"] = {"phase": "Active"}


def _volume_created(body: Body) -> None:
    body["status"] = {"phase": "Pending", "lastPhaseTransitionTime": body["metadata"].get("creationTimestamp")}


def _claim_created(body: Body) -> None:
    """What a claim is filled from is named in two ways, the older of which knows claims and snapshots alone."""
    spec = body["spec"]
    source = spec.get("dataSource")
    if source is not None and (source.get("apiGroup", ""), source.get("kind", "")) not in _OLD_SOURCES:
        del spec["dataSource"]
        source = None
    reference = spec.get("dataSourceRef")
    if source is not None and reference is None:
        spec["dataSourceRef"] = dict(source)
    elif reference is not None and source is None and not reference.get("namespace"):
        spec["dataSource"] = dict(reference)


_OLD_SOURCES: Final = (("", "PersistentVolumeClaim"), ("snapshot.storage.k8s.io", "VolumeSnapshot"))


def _account_created(body: Body) -> None:
    """Of the secrets of a service account only their names are kept."""
    if body.get("secrets"):
        body["secrets"] = [{"name": secret["name"]} if secret.get("name") else {} for secret in body["secrets"]]


def _account_updated(new: Body, old: Body) -> None:  # noqa: ARG001 - one signature for all
    _account_created(new)


def _daemon_set_created(body: Body) -> None:
    body["metadata"]["annotations"][TEMPLATE_GENERATION] = "1"


def _daemon_set_updated(new: Body, old: Body) -> None:
    count = int((old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION) or 0)
    if not same(new["spec"].get("template"), old.get("spec", {}).get("template")):
        count += 1
    new["metadata"]["annotations"] = {**(new["metadata"].get("annotations") or {}), TEMPLATE_GENERATION: str(count)}


def _node_created(body: Body) -> None:
    """No pod goes to a node before its kubelet has said that it is ready."""
    taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
    spec = body.setdefault("spec", {})
    taints = spec.setdefault("taints", [])
    if not any(each.get("key") == taint["key"] and each.get("effect") == taint["effect"] for each in taints):
        taints.append(taint)


_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_APPARMOR_PROFILES: Final = {"unconfined": {"type": "Unconfined"}, "runtime/default": {"type": "RuntimeDefault"}}
_PROFILE_MAX: Final = 4095


_WAITING: Final = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "SchedulingGated",
    "message": "Scheduling is blocked due to non-empty scheduling gates",
}


def _pod_created(body: Body) -> None:
    spec = body["spec"]
    body["status"] = {"phase": "Pending", "qosClass": quality(spec)}
    if spec.get("schedulingGates"):
        since = {"lastProbeTime": None, "lastTransitionTime": body["metadata"].get("creationTimestamp")}
        body["status"]["conditions"] = [_WAITING | since]
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    if spec.get("os", {}).get("name") != "windows":
        _profiles_from_annotations(spec, body["metadata"].get("annotations") or {})


def _profiles_from_annotations(spec: Body, annotations: Body) -> None:
    """Who still names AppArmor profiles by annotations has them in the fields as well."""
    of_pod = spec.get("securityContext", {}).get("appArmorProfile")
    for field in ("initContainers", "containers"):
        for container in spec.get(field, ()):
            profile = _APPARMOR_PROFILES.get(given := annotations.get(f"{_APPARMOR}{container.get('name')}", ""))
            local = given.removeprefix("localhost/")
            if local not in (given, "") and local == local.strip() and len(local) <= _PROFILE_MAX:
                profile = {"type": "Localhost", "localhostProfile": local}
            context = container.get("securityContext", {})
            if profile is not None and profile != of_pod and "appArmorProfile" not in context:
                container["securityContext"] = {**context, "appArmorProfile": profile}


_ON_CREATE: Final[dict[tuple[str, str], Callable[[Body], None]]] = {
    ("", "Namespace"): _namespace_created,
    ("", "Node"): _node_created,
    ("", "PersistentVolume"): _volume_created,
    ("", "PersistentVolumeClaim"): _claim_created,
    ("", "Pod"): _pod_created,
    ("", "Service"): _service_created,
    ("", "ServiceAccount"): _account_created,
    ("apps", "DaemonSet"): _daemon_set_created,
    ("batch", "Job"): _job_created,
}

_ON_UPDATE: Final[dict[tuple[str, str], Callable[[Any, Any], None]]] = {
    ("", "Service"): _service_updated,
    ("", "ServiceAccount"): _account_updated,
    ("apps", "DaemonSet"): _daemon_set_updated,
}
