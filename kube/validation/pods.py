"""Pod specs, in pods and in templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kube import names
from kube.status import Cause
from kube.validation.amounts import amount_causes, exceeds
from kube.validation.causes import duplicate, forbidden, invalid, key_path, not_found, not_supported, required
from kube.validation.metadata import annotation_causes, label_causes

_PROTOCOLS: Final = ("SCTP", "TCP", "UDP")
_RESTARTS: Final = ("Always", "Never", "OnFailure")
_DNS: Final = ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
_PULLS: Final = ("Always", "IfNotPresent", "Never")
_MESSAGES: Final = ("FallbackToLogsOnError", "File")


def template_causes(
    template: dict[str, Any],
    path: str,
    *,
    restarts: Sequence[str] = ("Always",),
    selector: dict[str, Any] | None,
) -> list[Cause]:
    """What is wrong with a pod template, and whether the controller's selector would find its pods."""
    metadata, spec = template.get("metadata", {}), template.get("spec", {})
    causes: list[Cause] = []
    labels = metadata.get("labels", {})
    if selector is not None and not _matches(selector, labels):
        detail = "`selector` does not match template `labels`"
        causes.append(invalid(f"{path}.metadata.labels", labels, detail))
    causes += label_causes(labels, f"{path}.metadata.labels")
    causes += annotation_causes(metadata.get("annotations", {}), f"{path}.metadata.annotations")
    causes += pod_spec_causes(spec, f"{path}.spec")
    policy = spec.get("restartPolicy")
    if policy in _RESTARTS and policy not in restarts:
        causes.append(not_supported(f"{path}.spec.restartPolicy", policy, restarts))
    return causes


def pod_spec_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with a pod spec."""
    causes: list[Cause] = []
    volumes = _volume_causes(spec.get("volumes", ()), f"{path}.volumes", causes)
    seen: set[str] = set()
    if not spec.get("containers"):
        causes.append(required(f"{path}.containers"))
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(field, ())):
            here = f"{path}.{field}[{index}]"
            name = container.get("name", "")
            if name in seen:
                causes.append(duplicate(f"{here}.name", name))
            elif name:
                seen.add(name)
            causes += _container_causes(container, here, volumes)
    causes += _choice(spec, "restartPolicy", _RESTARTS, path)
    causes += _choice(spec, "dnsPolicy", _DNS, path)
    for key, value in spec.get("nodeSelector", {}).items():
        causes += label_causes({key: value}, f"{path}.nodeSelector")
    for field in ("serviceAccountName", "nodeName", "priorityClassName", "schedulerName"):
        if spec.get(field):
            causes += [invalid(f"{path}.{field}", spec[field], reason) for reason in names.dns_subdomain(spec[field])]
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            causes += [invalid(f"{path}.{field}", spec[field], reason) for reason in names.dns_label(spec[field])]
    deadline = spec.get("activeDeadlineSeconds", 1)
    if not 1 <= deadline <= 2**31 - 1:
        detail = "must be between 1 and 2147483647, inclusive"
        causes.append(invalid(f"{path}.activeDeadlineSeconds", deadline, detail))
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        detail = "must be greater than or equal to 0"
        causes.append(invalid(f"{path}.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"], detail))
    return causes


def pod_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """A pod's spec stays, but for images, deadline, tolerations, grace period and scheduling gates."""
    detail = (
        "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
        "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
        "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
    )
    after, before = new.get("spec", {}), old.get("spec", {})
    late = _deadline_causes(after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds"))
    if late:
        return late
    lost = [item for item in before.get("tolerations", ()) if item not in after.get("tolerations", ())]
    if _fixed(after) != _fixed(before) or lost:
        return [forbidden("spec", detail)]
    return []


def _deadline_causes(new: int | None, old: int | None) -> list[Cause]:
    """A deadline is set once, and after that only brought forward."""
    path, detail = "spec.activeDeadlineSeconds", ""
    if new is not None and not 0 <= new <= 2**31 - 1:
        detail = "must be between 0 and 2147483647, inclusive"
    elif new is not None and old is not None and new > old:
        detail = "must be less than or equal to previous value"
    elif new is None and old is not None:
        detail = "must not update from a positive integer to nil value"
    return [invalid(path, new, detail)] if detail else []


def resource_causes(resources: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with resource requests and limits."""
    causes: list[Cause] = []
    limits = resources.get("limits", {})
    for field in ("limits", "requests"):
        for name, quantity in resources.get(field, {}).items():
            here = key_path(f"{path}.{field}", name)
            causes += [invalid(here, name, reason) for reason in names.qualified_name(name)]
            if "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
                causes.append(invalid(here, name, "must be a standard resource for containers"))
            causes += amount_causes(quantity, here)
    for name, quantity in resources.get("requests", {}).items():
        if name in limits and exceeds(quantity, limits[name]):
            detail = f"must be less than or equal to {name} limit of {limits[name]}"
            causes.append(invalid(f"{path}.requests", quantity, detail))
    return causes


_STANDARD: Final = frozenset(("cpu", "memory", "ephemeral-storage"))
_MUTABLE: Final = frozenset(
    (
        "activeDeadlineSeconds",
        "tolerations",
        "terminationGracePeriodSeconds",
        "schedulingGates",
        "nodeSelector",
    )
)


def _fixed(spec: dict[str, Any]) -> dict[str, Any]:
    """The parts of a pod's spec that no update changes. Scheduling gates open the node selector."""
    mutable = _MUTABLE if spec.get("schedulingGates") else _MUTABLE - {"nodeSelector"}
    fixed = {key: value for key, value in spec.items() if key not in mutable}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{key: v for key, v in c.items() if key != "image"} for c in fixed[field]]
    fixed.pop("ephemeralContainers", None)
    return fixed


def _container_causes(container: dict[str, Any], path: str, volumes: set[str]) -> list[Cause]:
    causes: list[Cause] = []
    name = container.get("name", "")
    if not name:
        causes.append(required(f"{path}.name"))
    else:
        causes += [invalid(f"{path}.name", name, reason) for reason in names.dns_label(name)]
    image = container.get("image", "")
    if not image:
        causes.append(required(f"{path}.image"))
    elif image != image.strip():
        causes.append(invalid(f"{path}.image", image, "must not have leading or trailing whitespace"))
    causes += _choice(container, "imagePullPolicy", _PULLS, path)
    causes += _choice(container, "terminationMessagePolicy", _MESSAGES, path)
    causes += _port_causes(container.get("ports", ()), f"{path}.ports")
    causes += _environment_causes(container, path)
    causes += resource_causes(container.get("resources", {}), f"{path}.resources")
    mounts: set[str] = set()
    for index, mount in enumerate(container.get("volumeMounts", ())):
        here = f"{path}.volumeMounts[{index}]"
        if not mount.get("name"):
            causes.append(required(f"{here}.name"))
        elif mount["name"] not in volumes:
            causes.append(not_found(f"{here}.name", mount["name"]))
        where = mount.get("mountPath", "")
        if not where:
            causes.append(required(f"{here}.mountPath"))
        elif where in mounts:
            causes.append(invalid(f"{here}.mountPath", where, "must be unique"))
        mounts.add(where)
    return causes


def _port_causes(ports: Sequence[dict[str, Any]], path: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, port in enumerate(ports):
        here = f"{path}[{index}]"
        name = port.get("name", "")
        if name:
            causes += [invalid(f"{here}.name", name, reason) for reason in port_name(name)]
            if name in seen:
                causes.append(duplicate(f"{here}.name", name))
            seen.add(name)
        if not port.get("containerPort"):
            causes.append(required(f"{here}.containerPort"))
        else:
            causes += port_causes(port["containerPort"], f"{here}.containerPort")
        if port.get("hostPort"):
            causes += port_causes(port["hostPort"], f"{here}.hostPort")
        causes += _choice(port, "protocol", _PROTOCOLS, here)
    return causes


def port_causes(port: int, path: str) -> list[Cause]:
    """What is wrong with a port's number."""
    if 1 <= port <= 65535:
        return []
    return [invalid(path, port, "must be between 1 and 65535, inclusive")]


def port_name(name: str) -> list[str]:
    """Why this is no name of a port (``IANA_SVC_NAME``)."""
    reasons = []
    if len(name) > 15:
        reasons.append("must be no more than 15 characters")
    if not all(c in "abcdefghijklmnopqrstuvwxyz0123456789-" for c in name):
        reasons.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not any(c in "abcdefghijklmnopqrstuvwxyz" for c in name):
        reasons.append("must contain at least one letter (a-z)")
    if "--" in name:
        reasons.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        reasons.append("must not begin or end with a hyphen")
    return reasons


def _environment_causes(container: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, variable in enumerate(container.get("env", ())):
        here = f"{path}.env[{index}]"
        name, source = variable.get("name", ""), variable.get("valueFrom")
        if not name:
            causes.append(required(f"{here}.name"))
        elif "=" in name or not name.isprintable() or not name.isascii():
            detail = "a valid environment variable name must consist only of printable ASCII characters other than '='"
            causes.append(invalid(f"{here}.name", name, detail))
        if source is not None:
            if variable.get("value"):
                detail = "may not be specified when `value` is not empty"
                causes.append(invalid(f"{here}.valueFrom", "", detail))
            if len(source) > 1:
                detail = "may not have more than one field specified at a time"
                causes.append(invalid(f"{here}.valueFrom", "", detail))
            if not source:
                detail = (
                    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or "
                    "`fileKeyRef`"
                )
                causes.append(invalid(f"{here}.valueFrom", "", detail))
    return causes


def _volume_causes(volumes: Sequence[dict[str, Any]], path: str, causes: list[Cause]) -> set[str]:
    """Adds what is wrong with the volumes to ``causes`` and returns their names."""
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        here = f"{path}[{index}]"
        name = volume.get("name", "")
        if not name:
            causes.append(required(f"{here}.name"))
        else:
            causes += [invalid(f"{here}.name", name, reason) for reason in names.dns_label(name)]
            if name in seen:
                causes.append(duplicate(f"{here}.name", name))
            seen.add(name)
        sources = [key for key in volume if key != "name"]
        if not sources:
            causes.append(required(here, "must specify a volume type"))
        for extra in sources[1:]:
            causes.append(forbidden(f"{here}.{extra}", "may not specify more than 1 volume type"))
    return seen


def _choice(body: dict[str, Any], field: str, choices: Sequence[str], path: str) -> list[Cause]:
    value = body.get(field)
    return [] if value is None or value in choices else [not_supported(f"{path}.{field}", value, choices)]


def _matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a (valid or not) selector matches labels; an invalid one is reported elsewhere."""
    if any(labels.get(key) != value for key, value in selector.get("matchLabels", {}).items()):
        return False
    for wanted in selector.get("matchExpressions", ()):
        key, values = wanted.get("key", ""), wanted.get("values", ())
        good = {
            "In": labels.get(key) in values,
            "NotIn": key not in labels or labels[key] not in values,
            "Exists": key in labels,
            "DoesNotExist": key not in labels,
        }
        if not good.get(wanted.get("operator", ""), True):
            return False
    return True
