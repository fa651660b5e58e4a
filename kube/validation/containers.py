"""Containers of pods: images, environment, ports, mounts and devices."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    choice_causes,
    duplicate,
    forbidden,
    invalid,
    needed_causes,
    not_found,
    not_supported,
    reason_causes,
    required,
    too_many,
)
from kube.requests.status import Cause
from kube.validation.configuration import data_key
from kube.validation.downwardapi import field_reference_causes, resource_reference_causes
from kube.validation.filepaths import local_path_causes, relative_path_causes
from kube.validation.probes import hook_causes, hook_free_causes, number_causes, port_name
from kube.validation.resourcelists import requirement_causes
from kube.validation.security import security_context_causes

PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_PULLS: Final = ("Always", "IfNotPresent", "Never")
_MESSAGES: Final = ("File", "FallbackToLogsOnError")
_PROPAGATIONS: Final = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY: Final = ("Disabled", "Enabled", "IfPossible")
_RESTARTS: Final = ("Always", "Never", "OnFailure")
_VARIABLE: Final = re.compile(r"[ -<>-~]+", re.ASCII)
_VARIABLE_WORDS: Final = (
    "a valid environment variable name must consist only of printable ASCII characters other than '='"
)
_EXIT_CODES: Final = 255
_ENV_FIELDS: Final = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_NOT_EPHEMERAL: Final = ("ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle")


@dataclass(frozen=True, slots=True)
class PodContext:
    """What containers may refer to: the pod's volumes and claims, its grace period and its restart policy."""

    volumes: Mapping[str, dict[str, Any]]
    claims: Collection[str]
    grace: int | None
    restart: str
    host_users: bool


def container_causes(spec: dict[str, Any], path: str, around: PodContext) -> list[Cause]:
    """What is wrong with the containers of a pod, of all three kinds."""
    containers, init = spec.get("containers", ()), spec.get("initContainers", ())
    causes = [] if containers else [required(f"{path}.containers")]
    seen: set[str] = set()
    for index, container in enumerate(containers):
        here = f"{path}.containers[{index}]"
        causes += _common_causes(container, here, around)
        causes += _unique_causes(container, here, seen)
        causes += hook_causes(container, here, around.grace)
    causes += _host_port_causes(containers, f"{path}.containers")
    for index, container in enumerate(init):
        here = f"{path}.initContainers[{index}]"
        causes += _common_causes(container, here, around)
        causes += _unique_causes(container, here, seen)
        sidecar = container.get("restartPolicy") == "Always"
        causes += _host_port_causes([container], f"{path}.initContainers")
        causes += hook_causes(container, here, around.grace) if sidecar else hook_free_causes(container, here)
    targets = {str(container.get("name", "")) for container in (*containers, *init)}
    for index, container in enumerate(spec.get("ephemeralContainers", ())):
        here = f"{path}.ephemeralContainers[{index}]"
        causes += _common_causes(container, here, around) + image_causes([container], f"{path}.ephemeralContainers")
        causes += _unique_causes(container, here, seen)
        causes += _ephemeral_causes(container, here, targets)
    return causes


def image_causes(containers: Iterable[dict[str, Any]], path: str) -> list[Cause]:
    """The images of pods, though not of templates, that have blanks around them."""
    detail = "must not have leading or trailing whitespace"
    images = [(index, str(container.get("image", ""))) for index, container in enumerate(containers)]
    return [invalid(f"{path}[{index}].image", image, detail) for index, image in images if image != image.strip()]


def _unique_causes(container: dict[str, Any], path: str, seen: set[str]) -> list[Cause]:
    name = container.get("name", "")
    if name in seen:
        return [duplicate(f"{path}.name", name)]
    if name:
        seen.add(name)
    return []


def _ephemeral_causes(container: dict[str, Any], path: str, targets: Collection[str]) -> list[Cause]:
    causes: list[Cause] = []
    target, detail = container.get("targetContainerName"), "cannot be set for an Ephemeral Container"
    if target and target not in targets:
        causes.append(not_found(f"{path}.targetContainerName", target))
    causes += [forbidden(f"{path}.{field}", detail) for field in _NOT_EPHEMERAL if container.get(field)]
    for index, mount in enumerate(container.get("volumeMounts", ())):
        for field in ("subPath", "subPathExpr"):
            if mount.get(field):
                causes.append(forbidden(f"{path}.volumeMounts[{index}].{field}", detail))
    return causes


def _common_causes(container: dict[str, Any], path: str, around: PodContext) -> list[Cause]:
    name = container.get("name", "")
    causes = reason_causes(f"{path}.name", name, names.dns_label(name)) if name else [required(f"{path}.name")]
    causes += needed_causes(container, path, "image")
    causes += choice_causes(container, "terminationMessagePolicy", _MESSAGES, path)
    causes += _port_causes(container.get("ports", ()), f"{path}.ports")
    causes += _variable_causes(container.get("env", ()), f"{path}.env", around)
    causes += _variables_causes(container.get("envFrom", ()), f"{path}.envFrom")
    causes += _mount_causes(container, f"{path}.volumeMounts", around)
    causes += _device_causes(container, f"{path}.volumeDevices", around)
    causes += choice_causes(container, "imagePullPolicy", _PULLS, path)
    causes += requirement_causes(container.get("resources", {}), f"{path}.resources", claims=around.claims)
    causes += _resize_causes(container.get("resizePolicy", ()), f"{path}.resizePolicy", around.restart)
    causes += _restart_causes(container, path)
    context = container.get("securityContext", {})
    return causes + security_context_causes(context, f"{path}.securityContext", host_users=around.host_users)


def _restart_causes(container: dict[str, Any], path: str) -> list[Cause]:
    causes = choice_causes(container, "restartPolicy", _RESTARTS, path)
    rules, actions = container.get("restartPolicyRules", ()), ("Restart", "RestartAllContainers")
    if rules and "restartPolicy" not in container:
        causes.append(required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"))
    for index, rule in enumerate(rules):
        here = f"{path}.restartPolicyRules[{index}]"
        if rule.get("action") not in actions:
            causes.append(not_supported(f"{here}.action", rule.get("action", ""), actions))
        if "exitCodes" not in rule:
            causes.append(required(f"{here}.exitCodes", "must be specified"))
        else:
            causes += _exit_code_causes(rule["exitCodes"], f"{here}.exitCodes")
    return causes


def _exit_code_causes(codes: dict[str, Any], path: str) -> list[Cause]:
    operator, operators = codes.get("operator", ""), ("In", "NotIn")
    causes = [] if operator in operators else [not_supported(f"{path}.operator", operator, operators)]
    if len(codes.get("values", ())) > _EXIT_CODES:
        causes.append(too_many(f"{path}.values", len(codes["values"]), _EXIT_CODES))
    return causes


def _port_causes(ports: Sequence[dict[str, Any]], path: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        here, name = f"{path}[{index}]", port.get("name", "")
        reasons = port_name(name) if name else []
        causes += reason_causes(f"{here}.name", name, reasons)
        if name and not reasons:
            causes += [duplicate(f"{here}.name", name)] if name in seen else []
            seen.add(name)
        number = port.get("containerPort")
        causes += number_causes(number, f"{here}.containerPort") if number else [required(f"{here}.containerPort")]
        if port.get("hostPort"):
            causes += number_causes(port["hostPort"], f"{here}.hostPort")
        causes += choice_causes(port, "protocol", PROTOCOLS, here)
    return causes


def _host_port_causes(containers: Sequence[dict[str, Any]], path: str) -> list[Cause]:
    """The ports of the node that several containers want."""
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports", ())):
            number = port.get("hostPort")
            key = f"{port.get('protocol', 'TCP')}/{port.get('hostIP', '')}/{number}"
            if number and key in seen:
                causes.append(duplicate(f"{path}[{index}].ports[{position}].hostPort", key))
            elif number:
                seen.add(key)
    return causes


def _variable_causes(variables: Sequence[dict[str, Any]], path: str, around: PodContext) -> list[Cause]:
    causes: list[Cause] = []
    for index, variable in enumerate(variables):
        here = f"{path}[{index}]"
        name, source = variable.get("name", ""), variable.get("valueFrom")
        if not name:
            causes.append(required(f"{here}.name"))
        elif not _VARIABLE.fullmatch(name):
            causes.append(invalid(f"{here}.name", name, _VARIABLE_WORDS))
        if source is not None:
            causes += _value_causes(source, f"{here}.valueFrom", around)
            causes += _one_source_causes(source, bool(variable.get("value")), f"{here}.valueFrom")
    return causes


def _one_source_causes(source: dict[str, Any], valued: bool, path: str) -> list[Cause]:
    if not source:
        kinds = "`fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        return [invalid(path, "", f"must specify one of: {kinds}")]
    if valued:
        return [invalid(path, "", "may not be specified when `value` is not empty")]
    return [] if len(source) == 1 else [invalid(path, "", "may not have more than one field specified at a time")]


def _value_causes(source: dict[str, Any], path: str, around: PodContext) -> list[Cause]:
    causes: list[Cause] = []
    if "fieldRef" in source:
        causes += field_reference_causes(source["fieldRef"], _ENV_FIELDS, f"{path}.fieldRef")
    if "resourceFieldRef" in source:
        here = f"{path}.resourceFieldRef"
        causes += resource_reference_causes(source["resourceFieldRef"], here, in_volume=False)
    for field in ("configMapKeyRef", "secretKeyRef"):
        if field in source:
            here = f"{path}.{field}"
            name, key = source[field].get("name", ""), source[field].get("key", "")
            causes += reason_causes(f"{here}.name", name, names.dns_subdomain(name))
            causes += reason_causes(f"{here}.key", key, data_key(key)) if key else [required(f"{here}.key")]
    if "fileKeyRef" in source:
        file, here = source["fileKeyRef"], f"{path}.fileKeyRef"
        causes += needed_causes(file, here, "key")
        where, volume = file.get("path", ""), file.get("volumeName", "")
        causes += local_path_causes(where, f"{here}.path") if where else [required(f"{here}.path")]
        if not volume:
            causes.append(required(f"{here}.volumeName"))
        elif volume not in around.volumes:
            causes.append(not_found(f"{here}.volumeName", volume))
    return causes


def _variables_causes(sources: Sequence[dict[str, Any]], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, source in enumerate(sources):
        here, prefix = f"{path}[{index}]", source.get("prefix", "")
        if prefix and not _VARIABLE.fullmatch(prefix):
            causes.append(invalid(f"{here}.prefix", prefix, _VARIABLE_WORDS))
        given = [field for field in ("configMapRef", "secretRef") if field in source]
        for field in given:
            name, where = source[field].get("name", ""), f"{here}.{field}.name"
            causes += reason_causes(where, name, names.dns_subdomain(name)) if name else [required(where)]
        if not given:
            causes.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif len(given) > 1:
            causes.append(invalid(path, "", "may not have more than one field specified at a time"))
    return causes


def _mount_causes(container: dict[str, Any], path: str, around: PodContext) -> list[Cause]:
    causes: list[Cause] = []
    devices = {device.get("name", ""): device.get("devicePath", "") for device in container.get("volumeDevices", ())}
    seen: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        here, name, where = f"{path}[{index}]", mount.get("name", ""), mount.get("mountPath", "")
        causes += needed_causes(mount, here, "name")
        if name not in around.volumes:
            causes.append(not_found(f"{here}.name", name))
        causes += needed_causes(mount, here, "mountPath")
        if where in seen:
            causes.append(invalid(f"{here}.mountPath", where, "must be unique"))
        seen.add(where)
        if name in devices:
            causes.append(invalid(f"{here}.name", name, "must not already exist in volumeDevices"))
        if where in devices.values():
            causes.append(invalid(f"{here}.mountPath", where, "must not already exist as a path in volumeDevices"))
        causes += _part_causes(mount, here, path)
        causes += _propagation_causes(mount, container, path)
    return causes


def _part_causes(mount: dict[str, Any], here: str, path: str) -> list[Cause]:
    part, pattern = mount.get("subPath", ""), mount.get("subPathExpr", "")
    causes = relative_path_causes(part, f"{path}.subPath") if part else []
    if part and pattern:
        causes.append(invalid(f"{here}.subPathExpr", pattern, "subPathExpr and subPath are mutually exclusive"))
    return causes + (relative_path_causes(pattern, f"{path}.subPathExpr") if pattern else [])


def _propagation_causes(mount: dict[str, Any], container: dict[str, Any], path: str) -> list[Cause]:
    causes = choice_causes(mount, "mountPropagation", _PROPAGATIONS, path)
    propagation, privileged = mount.get("mountPropagation"), container.get("securityContext", {}).get("privileged")
    if propagation == "Bidirectional" and not privileged:
        detail = "Bidirectional mount propagation is available only to privileged containers"
        causes.append(forbidden(f"{path}.mountPropagation", detail))
    here, recursive = f"{path}.recursiveReadOnly", mount.get("recursiveReadOnly")
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            causes.append(forbidden(here, "may only be specified when readOnly is true"))
        if propagation not in (None, "None"):
            causes.append(forbidden(here, "may only be specified when mountPropagation is None or not specified"))
        return causes
    return causes + choice_causes(mount, "recursiveReadOnly", _READ_ONLY, path)


def _device_causes(container: dict[str, Any], path: str, around: PodContext) -> list[Cause]:
    causes: list[Cause] = []
    mounts = {mount.get("name", ""): mount.get("mountPath", "") for mount in container.get("volumeMounts", ())}
    seen_names: set[str] = set()
    seen_paths: set[str] = set()
    for index, device in enumerate(container.get("volumeDevices", ())):
        here, name, where = f"{path}[{index}]", device.get("name", ""), device.get("devicePath", "")
        volume = around.volumes.get(name)
        causes += needed_causes(device, here, "name")
        if name in seen_names:
            causes.append(invalid(f"{here}.name", name, "must be unique"))
        if volume is None:
            causes.append(not_found(f"{here}.name", name))
        elif not volume.keys() & {"persistentVolumeClaim", "ephemeral"}:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            causes.append(invalid(f"{here}.name", name, detail))
        causes += needed_causes(device, here, "devicePath")
        if where in seen_paths:
            causes.append(invalid(f"{here}.devicePath", where, "must be unique"))
        if ".." in where.split("/"):
            causes.append(invalid(f"{here}.devicePath", where, "can not contain backsteps ('..')"))
        else:
            seen_paths.add(where)
        if name in mounts:
            causes.append(invalid(f"{here}.name", name, "must not already exist in volumeMounts"))
        if where in mounts.values():
            causes.append(invalid(f"{here}.devicePath", where, "must not already exist as a path in volumeMounts"))
        seen_names |= {name} if name else set()
    return causes


def _resize_causes(policies: Sequence[dict[str, Any]], path: str, restart: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        name, wanted = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if name in seen:
            causes.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)
        for value, choices in ((name, ("cpu", "memory")), (wanted, ("NotRequired", "RestartContainer"))):
            if not value:
                causes.append(required(path))
            elif value not in choices:
                causes.append(not_supported(path, value, choices))
        if restart == "Never" and wanted != "NotRequired":
            causes.append(invalid(path, wanted, "must be 'NotRequired' when pod `restartPolicy` is 'Never'"))
    return causes
