"""The defaults of pods and pod templates, as kube-apiserver sets them when it reads one."""

from __future__ import annotations

import re
from typing import Any, Final

from kube.quota.podresources import at_pod_level, of_containers
from kube.quota.quantities import InvalidQuantity

_FILE_MODE: Final = 0o644
_TOKEN_SECONDS: Final = 3600
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_HOOKS: Final = ("postStart", "preStop")


def fill_pod(pod: dict[str, Any]) -> None:
    """The defaults of a ``Pod``: those of every pod spec, and requests from limits."""
    spec = pod.setdefault("spec", {})
    fill_pod_spec(spec)
    spec.setdefault("enableServiceLinks", True)
    for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
        resources = container["resources"]
        if resources.get("limits"):
            resources["requests"] = {**resources["limits"], **resources.get("requests", {})}
    if spec.get("resources"):
        _fill_pod_level(spec, spec["resources"])
    status = pod.get("status") or {}
    if status.get("podIP") and not status.get("podIPs"):
        status["podIPs"] = [{"ip": status["podIP"]}]
    if spec.get("hostNetwork"):
        for container in (*spec.get("containers", ()), *spec.get("initContainers", ())):
            for port in container.get("ports", ()):
                if not port.get("hostPort"):
                    port["hostPort"] = port.get("containerPort", 0)


def _fill_pod_level(spec: dict[str, Any], resources: dict[str, Any]) -> None:
    """A pod as a whole asks for what its containers ask for, or else for as much as it is limited to."""
    limits, asked = dict(resources.get("limits") or {}), resources.get("requests") or {}
    for name, amount in _of_containers(spec, "limits").items() if limits or asked else ():
        if name.startswith("hugepages-") and name not in asked:
            limits.setdefault(name, amount)
    if not limits:
        return
    resources["limits"] = limits
    together = _of_containers(spec, "requests").items()
    requests = {name: amount for name, amount in together if not name.startswith("hugepages-")} | asked
    for name, amount in limits.items():
        if at_pod_level(name):
            requests.setdefault(name, amount)
    if requests:
        resources["requests"] = requests


def _of_containers(spec: dict[str, Any], kind: str) -> dict[str, str]:
    try:
        together = of_containers(spec, kind)
    except InvalidQuantity:
        # Validation says which it is.
        return {}
    return {name: str(amount) for name, amount in together.items() if at_pod_level(name)}


def fill_pod_template(template: dict[str, Any]) -> None:
    """The defaults of a pod template; ``metadata.creationTimestamp`` is shown as ``null`` by real servers."""
    template.setdefault("metadata", {})
    fill_pod_spec(template.setdefault("spec", {}))


def fill_pod_spec(spec: dict[str, Any]) -> None:
    """The defaults of a pod spec wherever it stands."""
    _default(spec, "dnsPolicy", "ClusterFirst")
    _default(spec, "restartPolicy", "Always")
    _default(spec, "schedulerName", "default-scheduler")
    spec.setdefault("securityContext", {})
    spec.setdefault("terminationGracePeriodSeconds", 30)
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(field, ()):
            _fill_container(container)
    for volume in spec.get("volumes", ()):
        _fill_volume(volume)


def _default(body: dict[str, Any], field: str, value: Any) -> None:
    """Set a field that is absent or empty."""
    if not body.get(field):
        body[field] = value


def _fill_container(container: dict[str, Any]) -> None:
    _default(container, "imagePullPolicy", pull_policy(container.get("image", "")))
    _default(container, "terminationMessagePath", "/dev/termination-log")
    _default(container, "terminationMessagePolicy", "File")
    container.setdefault("resources", {})
    for port in container.get("ports", ()):
        _default(port, "protocol", "TCP")
    for variable in container.get("env", ()):
        _fill_field_reference(variable.get("valueFrom", {}))
    for name in _PROBES:
        if name in container:
            _fill_probe(container[name])
    for name in _HOOKS:
        _fill_http_get(container.get("lifecycle", {}).get(name, {}))


def pull_policy(image: str) -> str:
    """``Always`` for the tag ``latest`` (also when it is not written), else ``IfNotPresent``."""
    found = _IMAGE.fullmatch(image) if len(image) <= _IMAGE_MAX else None
    if found is None or len(found["path"]) + len("" if found["host"] else "library/") > 255 or _ID.fullmatch(image):
        return "IfNotPresent"
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    return "Always" if tag == "latest" or not (tag or digest) else "IfNotPresent"


_IMAGE_MAX: Final = 1024
"""Characters: more than a host, a path of 255, a tag and a digest have together."""

_PART: Final = r"[a-z0-9]++(?:(?:\.|__?|-++)[a-z0-9]++)*+"
_HOST: Final = r"(?:[A-Za-z0-9][A-Za-z0-9-]*+(?:\.[A-Za-z0-9-]++)*+|\[[0-9a-fA-F:]+\])(?::[0-9]+)?"
_IMAGE: Final = re.compile(
    rf"(?P<host>{_HOST}/)?(?P<path>{_PART}(?:/{_PART})*+)(?::\w[\w.-]{{0,127}})?(?:@[A-Za-z][\w.+-]*:[0-9a-fA-F]{{32,}})?",
    re.ASCII,
)
_ID: Final = re.compile(r"[0-9a-f]{64}", re.ASCII)
"""What is an image's reference at all; what is none has no tag that could be ``latest``."""


def _fill_probe(probe: dict[str, Any]) -> None:
    for field, value in (
        ("timeoutSeconds", 1),
        ("periodSeconds", 10),
        ("successThreshold", 1),
        ("failureThreshold", 3),
    ):
        _default(probe, field, value)
    _fill_http_get(probe)
    if "grpc" in probe:
        probe["grpc"].setdefault("service", "")


def _fill_http_get(action: dict[str, Any]) -> None:
    if "httpGet" in action:
        _default(action["httpGet"], "path", "/")
        _default(action["httpGet"], "scheme", "HTTP")


def _fill_field_reference(source: dict[str, Any]) -> None:
    if "fieldRef" in source:
        _default(source["fieldRef"], "apiVersion", "v1")
    if "fileKeyRef" in source:
        source["fileKeyRef"].setdefault("optional", False)


_SOURCES: Final[dict[str, dict[str, Any]]] = {
    "azureDisk": {"cachingMode": "ReadWrite", "fsType": "ext4", "kind": "Shared", "readOnly": False},
    "hostPath": {"type": ""},
    "iscsi": {"iscsiInterface": "default"},
    "rbd": {"keyring": "/etc/ceph/keyring", "pool": "rbd", "user": "admin"},
    "scaleIO": {"fsType": "xfs", "storageMode": "ThinProvisioned"},
}


def fill_source(holder: dict[str, Any]) -> None:
    """The defaults of where a volume comes from, in a pod or as a PersistentVolume."""
    for field, defaults in _SOURCES.items():
        for name, value in defaults.items() if field in holder else ():
            holder[field].setdefault(name, value)


def _fill_volume(volume: dict[str, Any]) -> None:
    if volume.keys() <= {"name"}:
        volume["emptyDir"] = {}
    for field in ("secret", "configMap", "downwardAPI", "projected"):
        if field in volume:
            volume[field].setdefault("defaultMode", _FILE_MODE)
    fill_source(volume)
    if "image" in volume:
        _default(volume["image"], "pullPolicy", pull_policy(volume["image"].get("reference", "")))
    for item in volume.get("downwardAPI", {}).get("items", ()):
        _fill_field_reference(item)
    for source in volume.get("projected", {}).get("sources", ()):
        for item in source.get("downwardAPI", {}).get("items", ()):
            _fill_field_reference(item)
        if "serviceAccountToken" in source:
            source["serviceAccountToken"].setdefault("expirationSeconds", _TOKEN_SECONDS)
    claim = volume.get("ephemeral", {}).get("volumeClaimTemplate", {}).get("spec")
    if claim is not None:
        claim.setdefault("volumeMode", "Filesystem")
