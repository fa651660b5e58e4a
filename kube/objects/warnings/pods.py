"""What kube-apiserver accepts of a pod's spec but warns of (TS15)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from kube.objects.warnings.fields import address, claim_amounts, fraction, old_label, terms
from kube.requests import names

Body = dict[str, Any]

_VOLUMES: Final = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "ephemeral": "",
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
_SECCOMP_WORDS: Final = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_APPARMOR: Final = "container.apparmor.security.beta.kubernetes.io/"
_APPARMOR_WORDS: Final = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_APPARMOR_LOCAL: Final = "localhost/"
_APPARMOR_TYPES: Final = {"unconfined": "Unconfined", "runtime/default": "RuntimeDefault"}
_NULL: Final = "a null labelSelector results in matching no pod"
_HARD: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_SOFT: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_SOURCES: Final = {"configMap": "ConfigMap", "secret": "Secret", "downwardAPI": "DownwardAPI"}
_IN_BYTES: Final = ("memory", "ephemeral-storage")
_CONTAINERS: Final = ("initContainers", "containers", "ephemeralContainers")
_CERTIFICATE_PATHS: Final = {
    "certificateChainPath": "PodCertificate chain",
    "keyPath": "PodCertificate key",
    "credentialBundlePath": "PodCertificate credential bundle",
}


def of_pod(pod: Body) -> Iterator[str]:
    """The warnings for a pod."""
    metadata = pod.get("metadata") or {}
    # The fields have been filled from the annotations by now.
    for key in metadata.get("annotations") or {}:
        if key.startswith(_APPARMOR):
            yield f"metadata.annotations[{key}]: {_APPARMOR_WORDS}"
    yield from _spec(pod.get("spec") or {}, metadata.get("annotations") or {}, "")


def of_template(template: Body | None, path: str) -> Iterator[str]:
    """The warnings for a pod template that stands at ``path``."""
    if template is not None:
        annotations = (template.get("metadata") or {}).get("annotations") or {}
        yield from _spec(template.get("spec") or {}, annotations, f"{path}.")


def _spec(spec: Body, annotations: dict[str, str], before: str) -> Iterator[str]:
    path = f"{before}spec"
    for key in spec.get("nodeSelector", {}):
        if words := old_label(key):
            yield f"{path}.nodeSelector[{key}]: {words}"
    affinity = spec.get("affinity", {})
    if "nodeAffinity" in affinity:
        nodes, here = affinity["nodeAffinity"], f"{path}.affinity.nodeAffinity"
        yield from terms(nodes.get(_HARD, {}).get("nodeSelectorTerms", ()), f"{here}.{_HARD}.nodeSelectorTerms")
        yield from _preferences(nodes.get(_SOFT, ()), f"{here}.{_SOFT}")
    for index, constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        here, key = f"{path}.topologySpreadConstraints[{index}]", constraint.get("topologyKey", "")
        if words := old_label(key):
            yield f"{here}.topologyKey: {key} is {words}"
        if "labelSelector" not in constraint:
            yield f"{here}.labelSelector: {_NULL}"
    for key, (version, field) in _ANNOTATIONS.items():
        if key in annotations:
            yield f'{before}metadata.annotations[{key}]: non-functional in {version}; use the "{field}" field instead'
    yield from _volumes(spec.get("volumes", ()), path)
    aliases, secrets = spec.get("hostAliases", ()), spec.get("imagePullSecrets", ())
    if aliases:
        yield from _repeated(aliases, "ip", f"{path}.hostAliases")
    if secrets:
        yield from _repeated(secrets, "name", f"{path}.imagePullSecrets")
    for index, secret in enumerate(secrets):
        if not secret.get("name"):
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
    for name in _IN_BYTES:
        if "overhead" in spec:
            yield from fraction(spec["overhead"], name, f"{path}.overhead")
    yield from _containers(spec, annotations, before)
    yield from _ports(spec, path)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        yield (
            f"{path}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
        )
    if affinity:
        yield from _null_selectors(affinity, f"{path}.affinity")
    for index, server in enumerate(spec.get("dnsConfig", {}).get("nameservers", ())):
        yield from address(server, f"{path}.dnsConfig.nameservers[{index}]")
    for index, alias in enumerate(aliases):
        yield from address(alias.get("ip", ""), f"{path}.hostAliases[{index}].ip")


def _preferences(preferences: Sequence[Body], path: str) -> Iterator[str]:
    """Preferred nodes; what is wanted of their labels is not refused, whatever it is."""
    for index, preferred in enumerate(preferences):
        term, here = preferred.get("preference", {}), f"{path}[{index}].preference"
        yield from terms([term], here, numbered=False)
        for position, wanted in enumerate(term.get("matchExpressions", ())):
            for number, value in enumerate(wanted.get("values", ())):
                for words in names.label_value(value):
                    yield f"{here}.matchExpressions[{position}].values[{number}]: {value} is invalid, {words}"


def _repeated(items: Sequence[Body], field: str, path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        value = item.get(field, "")
        if value in seen:
            yield f'{path}[{index}].{field}: duplicate {field} "{value}"'
        seen.add(value)


def _volumes(volumes: Sequence[Body], path: str) -> Iterator[str]:
    for index, volume in enumerate(volumes):
        if _VOLUMES.keys().isdisjoint(volume):
            continue
        for field, words in _VOLUMES.items():
            if field not in volume:
                continue
            here = f"{path}.volumes[{index}].{'storageOS' if field == 'storageos' else field}"
            if words:
                yield f"{here}: {words}"
            else:
                claim = volume[field].get("volumeClaimTemplate", {}).get("spec", {})
                yield from claim_amounts(claim, f"{here}.volumeClaimTemplate.spec")
    for volume in volumes:
        yield from _overlaps(volume)


def _overlaps(volume: Body) -> Iterator[str]:
    """Paths within one volume that lie in each other."""
    name = volume.get("name", "")
    for field, title in _SOURCES.items():
        source = volume.get(field)
        if not source:
            continue
        shown = _shown(title, source.get("secretName" if field == "secret" else "name", ""))
        for words in _colliding((item.get("path", ""), "") for item in source.get("items", ())):
            yield f'volume "{name}" ({shown}): overlapping paths: {words}'
    sources = volume.get("projected", {}).get("sources", ())
    if not sources:
        return
    for source in sources:
        if not source:
            yield f'volume "{name}" (Projected) has no sources provided'
    for words in _colliding(entry for source in sources for entry in _projected(source)):
        yield f'volume "{name}" (Projected): overlapping paths: {words}'


def _projected(source: Body) -> Iterator[tuple[str, str]]:
    """The paths of a source of a projected volume, each with the name of the source."""
    for field, title in _SOURCES.items():
        part = source.get(field, {})
        for item in part.get("items", ()):
            yield item.get("path", ""), _shown(title, part.get("name", ""))
    if "serviceAccountToken" in source:
        yield source["serviceAccountToken"].get("path", ""), "ServiceAccountToken"
    if "clusterTrustBundle" in source:
        bundle = source["clusterTrustBundle"]
        yield bundle.get("path", ""), f'ClusterTrustBundle "{bundle.get("name", bundle.get("signerName", ""))}"'
    certificate = source.get("podCertificate", {})
    for field, title in _CERTIFICATE_PATHS.items():
        if field in certificate:
            yield certificate[field], title


def _shown(title: str, name: str) -> str:
    return title if title == "DownwardAPI" else f'{title} "{name}"'


def _colliding(entries: Iterable[tuple[str, str]]) -> Iterator[str]:
    seen: list[tuple[str, str]] = []
    for path, source in entries:
        entry = (path.rstrip("/"), source)
        for other in seen:
            inner, outer = f"{entry[0]}/", f"{other[0]}/"
            if entry[0] and other[0] and (inner.startswith(outer) or outer.startswith(inner)):
                yield f"{_entry(*entry)} with {_entry(*other)}"
        seen.append(entry)


def _entry(path: str, source: str) -> str:
    return f'"{path}" ({source})' if source else f'"{path}"'


def _containers(spec: Body, annotations: dict[str, str], before: str) -> Iterator[str]:
    security = spec.get("securityContext") or {}
    if _SECCOMP_POD in annotations and "seccompProfile" not in security:
        yield f"{before}metadata.annotations[{_SECCOMP_POD}]: {_SECCOMP_WORDS}"
    for container, path in _each(spec, f"{before}spec"):
        own, name = container.get("securityContext") or {}, container.get("name")
        if f"{_SECCOMP}{name}" in annotations and "seccompProfile" not in own:
            yield f"{before}metadata.annotations[{_SECCOMP}{name}]: {_SECCOMP_WORDS}"
        profile = annotations.get(f"{_APPARMOR}{name}")
        if before and profile is not None and "appArmorProfile" not in own:
            of_pod = security.get("appArmorProfile")
            if of_pod is None or of_pod != _profile(profile):
                yield f"{before}metadata.annotations[{_APPARMOR}{name}]: {_APPARMOR_WORDS}"
        for resource in _IN_BYTES:
            for kind in ("limits", "requests"):
                amounts = container.get("resources", {}).get(kind, {})
                if resource in amounts:
                    yield from fraction(amounts, resource, f"{path}.resources.{kind}")
        yield from _variables(container.get("env", ()), f"{path}.env")


def _each(spec: Body, path: str) -> Iterator[tuple[Body, str]]:
    for field in _CONTAINERS:
        for index, container in enumerate(spec.get(field, ())):
            yield container, f"{path}.{field}[{index}]"


def _profile(annotation: str) -> dict[str, str] | None:
    """The field that an AppArmor annotation stands for."""
    if annotation.startswith(_APPARMOR_LOCAL) and annotation != _APPARMOR_LOCAL:
        return {"type": "Localhost", "localhostProfile": annotation.removeprefix(_APPARMOR_LOCAL)}
    kind = _APPARMOR_TYPES.get(annotation)
    return {"type": kind} if kind is not None else None


def _variables(variables: Sequence[Body], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name, value = variable.get("name", ""), variable.get("value", "")
        own = f"$({name})"
        if name in seen and ("valueFrom" in variable or value == own or own not in value):
            yield f'{path}[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)


def _ports(spec: Body, path: str) -> Iterator[str]:
    """Ports of all containers that stand in each other's way, then their names."""
    ports = [
        (port, f"{here}.ports[{index}]")
        for container, here in _each(spec, path)
        for index, port in enumerate(container.get("ports", ()))
    ]
    for number, (port, here) in enumerate(ports):
        key = port.get("containerPort"), port.get("protocol")
        for other, there in ports[:number]:
            if (other.get("containerPort"), other.get("protocol")) == key and (words := _conflict(port, other)):
                yield f"{here}: {words} port definition with {there}"
    names_seen: dict[str, str] = {}
    for port, here in ports:
        name = port.get("name")
        if name and names_seen.setdefault(name, here) != here:
            first = names_seen[name]
            use = f"services and probes that select ports by name will use {first}"
            yield f'{here}: duplicate port name "{name}" with {first}, {use}'


def _conflict(port: Body, other: Body) -> str:
    host, others_host = port.get("hostPort", 0), other.get("hostPort", 0)
    address_of, others_address = port.get("hostIP", ""), other.get("hostIP", "")
    if (host, address_of) == (others_host, others_address):
        return "duplicate"
    if not host or not others_host:
        return "overlapping"
    return "dangerously ambiguous" if host == others_host and bool(address_of) != bool(others_address) else ""


def _null_selectors(affinity: Body, path: str) -> Iterator[str]:
    for field in ("podAffinity", "podAntiAffinity"):
        pods = affinity.get(field, {})
        for index, term in enumerate(pods.get(_HARD, ())):
            if "labelSelector" not in term:
                yield f"{path}.{field}.{_HARD}[{index}].labelSelector: {_NULL}"
        for index, term in enumerate(pods.get(_SOFT, ())):
            if "labelSelector" not in term.get("podAffinityTerm", {}):
                yield f"{path}.{field}.{_SOFT}[{index}].podAffinityTerm.labelSelector: {_NULL}"
