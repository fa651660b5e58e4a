"""What kube-apiserver accepts but warns of: fields that are ignored, deprecated, or better written otherwise (TS15)."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

from kube.quota.quantities import InvalidQuantity, parse_quantity
from kube.requests import names

Body = dict[str, Any]

_LABELS: Final = {
    "beta.kubernetes.io/arch": ("v1.14", "kubernetes.io/arch"),
    "beta.kubernetes.io/os": ("v1.14", "kubernetes.io/os"),
    "failure-domain.beta.kubernetes.io/region": ("v1.17", "topology.kubernetes.io/region"),
    "failure-domain.beta.kubernetes.io/zone": ("v1.17", "topology.kubernetes.io/zone"),
    "beta.kubernetes.io/instance-type": ("v1.17", "node.kubernetes.io/instance-type"),
}
_VOLUMES: Final = {
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_ANNOTATIONS: Final = {
    "scheduler.alpha.kubernetes.io/critical-pod": ("v1.16+", "priorityClassName"),
    "security.alpha.kubernetes.io/sysctls": ("v1.11+", "sysctls"),
    "security.alpha.kubernetes.io/unsafe-sysctls": ("v1.11+", "sysctls"),
}
_SECCOMP_POD: Final = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP: Final = "container.seccomp.security.alpha.kubernetes.io/"
_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_CLASS: Final = "kubernetes.io/ingress.class"
_STORAGE_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
_MOUNT_OPTIONS: Final = "volume.beta.kubernetes.io/mount-options"
_NULL: Final = "a null labelSelector results in matching no pod"
_HARD: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_RECOMMENDED: Final = "which can result in surprising behavior; a DNS label is recommended"


def warnings_for(body: Body) -> list[str]:
    """The warnings for a new object of a built-in kind, or for one that changed; it has its defaults."""
    advise = _ADVICE.get(str(body.get("kind", "")))
    return [] if advise is None else list(advise(body))


def _pod(body: Body) -> Iterator[str]:
    yield from _host_name(body, "the Pod's hostname")
    yield from _pod_spec(body.get("spec") or {}, "spec", body.get("metadata") or {}, "metadata")


def _controller(body: Body) -> Iterator[str]:
    yield from _host_name(body, "Pod names and hostnames")
    yield from _template((body.get("spec") or {}).get("template"), "spec.template")


def _stateful_set(body: Body) -> Iterator[str]:
    yield from _controller(body)
    spec = body.get("spec") or {}
    for index, claim in enumerate(spec.get("volumeClaimTemplates", ())):
        asked = (claim.get("spec") or {}).get("resources", {})
        for kind in ("requests", "limits"):
            path = f"spec.volumeClaimTemplates[{index}].resources.{kind}"
            yield from _fraction(asked.get(kind, {}), "storage", path)
    if spec.get("revisionHistoryLimit", 0) < 0:
        yield (
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
        )


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


def _cron_job(body: Body) -> Iterator[str]:
    yield from _host_name(body, "Pod names and hostnames")
    job = ((body.get("spec") or {}).get("jobTemplate") or {}).get("spec") or {}
    yield from _template(job.get("template"), "spec.jobTemplate.spec.template")


def _pod_template(body: Body) -> Iterator[str]:
    yield from _template(body.get("template"), "template")


def _template(template: Body | None, path: str) -> Iterator[str]:
    if template is not None:
        spec = template.get("spec") or {}
        yield from _pod_spec(spec, f"{path}.spec", template.get("metadata") or {}, f"{path}.metadata")
        if spec.get("terminationGracePeriodSeconds", 0) < 0:
            yield (
                f"{path}.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be "
                "treated as 1"
            )


def _host_name(body: Body, use: str) -> Iterator[str]:
    name = (body.get("metadata") or {}).get("name") or ""
    reasons = names.dns_label(name) if isinstance(name, str) and name else []
    if reasons:
        yield f"metadata.name: this is used in {use}, {_RECOMMENDED}: [{' '.join(reasons)}]"


def _old_label(key: str) -> str:
    version, new = _LABELS[key]
    return f'deprecated since {version}; use "{new}" instead'


def _pod_spec(spec: Body, path: str, metadata: Body, metadata_path: str) -> Iterator[str]:
    for key in spec.get("nodeSelector", {}):
        if key in _LABELS:
            yield f"{path}.nodeSelector[{key}]: {_old_label(key)}"
    affinity = spec.get("affinity", {})
    nodes, here = affinity.get("nodeAffinity", {}), f"{path}.affinity.nodeAffinity"
    yield from _terms(nodes.get(_HARD, {}).get("nodeSelectorTerms", ()), f"{here}.{_HARD}.nodeSelectorTerms")
    for index, term in enumerate(nodes.get(_SOFT, ())):
        yield from _expressions(term.get("preference", {}), f"{here}.{_SOFT}[{index}].preference")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        here, key = f"{path}.topologySpreadConstraints[{index}]", constraint.get("topologyKey", "")
        if key in _LABELS:
            yield f"{here}.topologyKey: {key} is {_old_label(key)}"
        if "labelSelector" not in constraint:
            yield f"{here}.labelSelector: {_NULL}"
    yield from _repeated(spec.get("hostAliases", ()), "ip", f"{path}.hostAliases")
    yield from _repeated(spec.get("imagePullSecrets", ()), "name", f"{path}.imagePullSecrets")
    yield from _volumes(spec.get("volumes", ()), path)
    yield from _annotations(metadata.get("annotations") or {}, spec, f"{metadata_path}.annotations")
    yield from _containers(spec, path)
    yield from _null_selectors(affinity, f"{path}.affinity")


def _terms(terms: Sequence[Body], path: str) -> Iterator[str]:
    for index, term in enumerate(terms):
        yield from _expressions(term, f"{path}[{index}]")


def _expressions(term: Body, path: str) -> Iterator[str]:
    for index, wanted in enumerate(term.get("matchExpressions", ())):
        key = wanted.get("key", "")
        if key in _LABELS:
            yield f"{path}.matchExpressions[{index}].key: {key} is {_old_label(key)}"


def _repeated(items: Sequence[Body], field: str, path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        value = item.get(field, "")
        if not value and field == "name":
            yield f'{path}[{index}].{field}: invalid empty {field} ""'
        elif value in seen:
            yield f'{path}[{index}].{field}: duplicate {field} "{value}"'
        seen.add(value)


def _volumes(volumes: Sequence[Body], path: str) -> Iterator[str]:
    for index, volume in enumerate(volumes):
        for field, words in _VOLUMES.items():
            if field in volume:
                yield f"{path}.volumes[{index}].{'storageOS' if field == 'storageos' else field}: {words}"
        for source in volume.get("projected", {}).get("sources", ()):
            if not source:
                yield f'volume "{volume.get("name", "")}" (Projected) has no sources provided'


def _annotations(annotations: dict[str, str], spec: Body, path: str) -> Iterator[str]:
    for key in annotations:
        if key.startswith(_APPARMOR):
            yield f'{path}[{key}]: deprecated since v1.30; use the "appArmorProfile" field instead'
    for key, (version, field) in _ANNOTATIONS.items():
        if key in annotations:
            yield f'{path}[{key}]: non-functional in {version}; use the "{field}" field instead'
    named = [(_SECCOMP_POD, spec)]
    for field in ("initContainers", "containers", "ephemeralContainers"):
        named += [(f"{_SECCOMP}{container.get('name')}", container) for container in spec.get(field, ())]
    for key, holder in named:
        if key in annotations and "seccompProfile" not in (holder.get("securityContext") or {}):
            yield f'{path}[{key}]: non-functional in v1.27+; use the "seccompProfile" field instead'


def _containers(spec: Body, path: str) -> Iterator[str]:
    ports: dict[tuple[Any, ...], str] = {}
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field, ())):
            here = f"{path}.{field}[{index}]"
            resources = container.get("resources", {})
            for name in ("memory", "ephemeral-storage"):
                for kind in ("limits", "requests"):
                    yield from _fraction(resources.get(kind, {}), name, f"{here}.resources.{kind}")
            seen: set[str] = set()
            for position, variable in enumerate(container.get("env", ())):
                name = variable.get("name", "")
                if name in seen:
                    words = "which may be dropped when using apply"
                    yield f'{here}.env[{position}]: hides previous definition of "{name}", {words}'
                seen.add(name)
            for position, port in enumerate(container.get("ports", ())) if field == "containers" else ():
                key = tuple(port.get(part) for part in ("containerPort", "protocol", "hostPort", "hostIP"))
                place = f"{here}.ports[{position}]"
                if key in ports:
                    yield f"{place}: duplicate port definition with {ports[key]}"
                ports.setdefault(key, place)


def _fraction(amounts: Body, name: str, path: str) -> Iterator[str]:
    try:
        quantity = parse_quantity(amounts[name]) if name in amounts else None
    except InvalidQuantity:
        return
    if quantity is not None and quantity.nanos % 10**9:
        yield f'{path}[{name}]: fractional byte value "{quantity}" is invalid, must be an integer'


def _null_selectors(affinity: Body, path: str) -> Iterator[str]:
    for field in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(field, {})
        for index, term in enumerate(pods.get(_HARD, ())):
            if "labelSelector" not in term:
                yield f"{path}.{field}.{_HARD}[{index}].labelSelector: {_NULL}"
        for index, term in enumerate(pods.get(_SOFT, ())):
            if "labelSelector" not in term.get("podAffinityTerm", {}):
                yield f"{path}.{field}.{_SOFT}[{index}].podAffinityTerm.labelSelector: {_NULL}"


def _service(body: Body) -> Iterator[str]:
    spec = body.get("spec") or {}
    kind = spec.get("type")
    if kind != "ExternalName" and spec.get("externalName"):
        yield 'spec.externalName is ignored when spec.type is not "ExternalName"'
    if spec.get("externalIPs"):
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'
    if kind != "ExternalName" and spec.get("clusterIP") == "None" and spec.get("sessionAffinity") == "ClientIP":
        yield "spec.SessionAffinity is ignored for headless services"


def _ingress(body: Body) -> Iterator[str]:
    if _CLASS in ((body.get("metadata") or {}).get("annotations") or {}):
        yield f"annotation \"{_CLASS}\" is deprecated, please use 'spec.ingressClassName' instead"


def _claim(body: Body) -> Iterator[str]:
    yield from _storage_annotations(body)
    resources = (body.get("spec") or {}).get("resources", {})
    for kind in ("requests", "limits"):
        yield from _fraction(resources.get(kind, {}), "storage", f"spec.resources.{kind}")


def _storage_annotations(body: Body) -> Iterator[str]:
    annotations = (body.get("metadata") or {}).get("annotations") or {}
    for key, version, field in (
        (_STORAGE_CLASS, "v1.8", "storageClassName"),
        (_MOUNT_OPTIONS, "v1.31", "mountOptions"),
    ):
        if key in annotations and (key == _STORAGE_CLASS or body.get("kind") == "PersistentVolume"):
            yield f'metadata.annotations[{key}]: deprecated since {version}; use "{field}" attribute instead'


def _volume(body: Body) -> Iterator[str]:
    yield from _storage_annotations(body)
    spec = body.get("spec") or {}
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        yield (
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. Instead, the recommended "
            "approach is to use dynamic provisioning."
        )
    terms = spec.get("nodeAffinity", {}).get("required", {}).get("nodeSelectorTerms", ())
    yield from _terms(terms, "spec.nodeAffinity.required.nodeSelectorTerms")


def _storage_class(body: Body) -> Iterator[str]:
    for index, term in enumerate(body.get("allowedTopologies", ())):
        for position, wanted in enumerate(term.get("matchLabelExpressions", ())):
            key = wanted.get("key", "")
            if key in _LABELS:
                yield f"allowedTopologies[{index}].matchLabelExpressions[{position}].key: {_old_label(key)}"


_ADVICE: Final[dict[str, Callable[[Body], Iterable[str]]]] = {
    "CronJob": _cron_job,
    "DaemonSet": _controller,
    "Deployment": _controller,
    "Ingress": _ingress,
    "Job": _controller,
    "PersistentVolume": _volume,
    "PersistentVolumeClaim": _claim,
    "Pod": _pod,
    "PodTemplate": _pod_template,
    "ReplicaSet": _controller,
    "ReplicationController": _controller,
    "Service": _service,
    "Secret": _secret,
    "StatefulSet": _stateful_set,
    "StorageClass": _storage_class,
}
