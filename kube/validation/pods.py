"""Pods and pod templates as wholes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import (
    choice_causes,
    duplicate,
    forbidden,
    invalid,
    key_path,
    range_causes,
    reason_causes,
    required,
    too_long,
)
from kube.requests.jsonsyntax import syntax_error
from kube.requests.status import Cause
from kube.validation.addresses import address_causes
from kube.validation.containers import PodContext, container_causes, image_causes
from kube.validation.metadata import annotation_causes, label_causes
from kube.validation.profiles import APPARMOR, SECCOMP, SECCOMP_CONTAINER, profile_causes
from kube.validation.resourcelists import container_resource_causes, pod_level_causes, resource_amount_causes
from kube.validation.scheduling import affinity_causes, spread_causes, toleration_causes
from kube.validation.security import (
    host_process_causes,
    host_user_causes,
    pod_context_causes,
    seccomp_text_causes,
    system_causes,
)
from kube.validation.volumes import volume_list_causes

_RESTARTS: Final = ("Always", "OnFailure", "Never")
_DNS: Final = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTION: Final = ("PreemptLowerPriority", "Never")
_INT32: Final = 2**31 - 1
_HOST_MAX: Final = 64
_SEARCH_FORMAT: Final = r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
_SEARCH_WORDS: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must "
    f"start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '{_SEARCH_FORMAT}')"
)
MIRROR: Final = "kubernetes.io/config.mirror"
"""Marks what a kubelet runs from a file of its own."""
_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_TOLERATIONS: Final = "scheduler.alpha.kubernetes.io/tolerations"


def pod_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with a new Pod."""
    causes = _pod_causes(body)
    spec = body.get("spec", {})
    if spec.get("ephemeralContainers"):
        causes.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("schedulingGates") and spec.get("nodeName"):
        causes.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return causes + profile_causes(body.get("metadata", {}).get("annotations", {}), spec)


def changed_pod_causes(body: dict[str, Any]) -> list[Cause]:
    """What is wrong with the new state of a Pod that exists."""
    return _pod_causes(body)


def _pod_causes(body: dict[str, Any]) -> list[Cause]:
    metadata, spec = body.get("metadata", {}), body.get("spec", {})
    causes = _annotation_causes(metadata.get("annotations", {}), spec, "metadata.annotations")
    causes += pod_spec_causes(spec, "spec", pod_name=metadata.get("name", ""))
    for field in ("containers", "initContainers"):
        causes += image_causes(spec.get(field, ()), f"spec.{field}")
    return causes


def template_causes(template: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with a pod template."""
    metadata, spec = template.get("metadata", {}), template.get("spec", {})
    annotations = metadata.get("annotations", {})
    causes = label_causes(metadata.get("labels", {}), f"{path}.labels")
    causes += annotation_causes(annotations, f"{path}.annotations")
    causes += _annotation_causes(annotations, spec, f"{path}.annotations")
    causes += pod_spec_causes(spec, f"{path}.spec")
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        causes.append(forbidden(f"{path}.spec.ephemeralContainers", detail))
    return causes


def pod_spec_causes(spec: dict[str, Any], path: str, pod_name: str = "") -> list[Cause]:
    """What is wrong with a pod spec; ``pod_name`` is empty for a template's."""
    causes, volumes = volume_list_causes(spec.get("volumes", ()), f"{path}.volumes", pod_name)
    claims = [str(claim["name"]) for claim in spec.get("resourceClaims", ()) if claim.get("name")]
    causes += _claim_causes(spec.get("resourceClaims", ()), f"{path}.resourceClaims")
    around = PodContext(
        volumes=volumes,
        claims=claims,
        grace=spec.get("terminationGracePeriodSeconds"),
        restart=spec.get("restartPolicy", ""),
        host_users=spec.get("hostUsers", True),
    )
    causes += container_causes(spec, path, around)
    causes += pod_level_causes(spec, f"{path}.resources", claims)
    causes += _host_network_causes(spec, path, of_pod=bool(pod_name))
    causes += choice_causes(spec, "restartPolicy", _RESTARTS, path)
    causes += choice_causes(spec, "dnsPolicy", _DNS, path)
    causes += label_causes(spec.get("nodeSelector", {}), f"{path}.nodeSelector")
    causes += pod_context_causes(spec, path)
    causes += affinity_causes(spec.get("affinity", {}), f"{path}.affinity")
    causes += _dns_causes(spec, f"{path}.dnsConfig")
    causes += _gate_causes(spec, path)
    causes += spread_causes(spec.get("topologySpreadConstraints", ()), f"{path}.topologySpreadConstraints")
    causes += host_process_causes(spec, path) + host_user_causes(spec, path)
    return causes + _identity_causes(spec, path) + system_causes(spec, path)


def _identity_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    """The pod's names, its deadline, and what it tolerates."""
    causes: list[Cause] = []
    for field in ("serviceAccountName", "nodeName"):
        if spec.get(field):
            causes += reason_causes(f"{path}.{field}", spec[field], names.dns_subdomain(spec[field]))
    if "activeDeadlineSeconds" in spec:
        causes += range_causes(spec["activeDeadlineSeconds"], 1, _INT32, f"{path}.activeDeadlineSeconds")
    for field in ("hostname", "subdomain"):
        if spec.get(field):
            causes += reason_causes(f"{path}.{field}", spec[field], names.dns_label(spec[field]))
    causes += _override_causes(spec, path)
    causes += toleration_causes(spec.get("tolerations", ()), f"{path}.tolerations")
    for index, alias in enumerate(spec.get("hostAliases", ())):
        here = f"{path}.hostAliases[{index}]"
        causes += address_causes(alias.get("ip", ""), f"{here}.ip")
        for position, host in enumerate(alias.get("hostnames", ())):
            causes += reason_causes(f"{here}.hostnames[{position}]", host, names.dns_subdomain(host))
    if spec.get("priorityClassName"):
        name = spec["priorityClassName"]
        causes += reason_causes(f"{path}.priorityClassName", name, names.dns_subdomain(name))
    if "runtimeClassName" in spec:
        name = spec["runtimeClassName"]
        causes += reason_causes(f"{path}.runtimeClassName", name, names.dns_subdomain(name))
    causes += choice_causes(spec, "preemptionPolicy", _PREEMPTION, path)
    for name, quantity in spec.get("overhead", {}).items():
        here = key_path(f"{path}.overhead.limits", name)
        causes += container_resource_causes(name, here) + resource_amount_causes(name, quantity, here)
    return causes


def _override_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    """A host name of the pod's own is a name that hosts can have, and the only thing that says it."""
    host, here = spec.get("hostnameOverride"), f"{path}.hostnameOverride"
    if host is None:
        return []
    causes = [too_long(here, _HOST_MAX)] if len(host) > _HOST_MAX else []
    causes += reason_causes(here, host, names.dns_subdomain(host))
    others = ("setHostnameAsFQDN", "hostNetwork")
    return causes + [forbidden(here, f"may not be specified when {f} is true") for f in others if spec.get(f)]


def _claim_causes(claims: Sequence[dict[str, Any]], path: str) -> list[Cause]:
    causes: list[Cause] = []
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        here, name = f"{path}[{index}]", claim.get("name", "")
        if not name:
            causes.append(required(f"{here}.name"))
        elif name in seen:
            causes.append(duplicate(f"{here}.name", name))
        else:
            causes += reason_causes(f"{here}.name", name, names.dns_label(name))
            seen.add(name)
        direct, template = claim.get("resourceClaimName"), claim.get("resourceClaimTemplateName")
        shown = {"Name": name, "ResourceClaimName": direct, "ResourceClaimTemplateName": template}
        if direct is not None and template is not None:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            causes.append(invalid(here, shown, detail))
        if direct is None and template is None:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            causes.append(invalid(here, shown, detail))
        for field, value in (("resourceClaimName", direct), ("resourceClaimTemplateName", template)):
            if value is not None:
                causes += reason_causes(f"{here}.{field}", value, names.dns_subdomain(value))
    return causes


def _host_network_causes(spec: dict[str, Any], path: str, *, of_pod: bool) -> list[Cause]:
    if not spec.get("hostNetwork"):
        return []
    causes: list[Cause] = []
    for index, container in enumerate(spec.get("containers", ())):
        for position, port in enumerate(container.get("ports", ())):
            host, inside = port.get("hostPort", 0), port.get("containerPort", 0)
            if (of_pod or host) and host != inside:
                here = f"{path}.containers[{index}].ports[{position}].hostPort"
                causes.append(invalid(here, host, "must match `containerPort` when `hostNetwork` is true"))
    return causes


def _dns_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    config = spec.get("dnsConfig")
    servers = (config or {}).get("nameservers", [])
    if spec.get("dnsPolicy") == "None":
        if config is None:
            return [required(path, "must provide `dnsConfig` when `dnsPolicy` is None")]
        if not servers:
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            return [required(f"{path}.nameservers", detail)]
    if config is None:
        return []
    searches = config.get("searches", [])
    causes: list[Cause] = []
    if len(servers) > 3:
        causes.append(invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        causes += address_causes(server, f"{path}.nameservers[{index}]")
    if len(searches) > 32:
        causes.append(invalid(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        causes.append(invalid(f"{path}.searches", searches, detail))
    for index, search in enumerate(searches):
        plain = search.removesuffix(".")
        if search != "." and not re.fullmatch(_SEARCH_FORMAT, plain[:1024], re.ASCII):
            causes.append(invalid(f"{path}.searches[{index}]", plain, _SEARCH_WORDS))
    for index, option in enumerate(config.get("options", ())):
        if not option.get("name"):
            causes.append(required(f"{path}.options[{index}]", "must not be empty"))
    return causes


def _gate_causes(spec: dict[str, Any], path: str) -> list[Cause]:
    causes: list[Cause] = []
    for index, gate in enumerate(spec.get("readinessGates", ())):
        kind = gate.get("conditionType", "")
        causes += reason_causes(f"{path}.readinessGates[{index}].conditionType", kind, names.qualified_name(kind))
    seen: set[str] = set()
    for index, gate in enumerate(spec.get("schedulingGates", ())):
        here, name = f"{path}.schedulingGates[{index}]", gate.get("name", "")
        causes += reason_causes(here, name, names.qualified_name(name))
        causes += [duplicate(here, name)] if name in seen else []
        seen.add(name)
    return causes


def _annotation_causes(annotations: dict[str, str], spec: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with the annotations that mean something for a pod."""
    causes: list[Cause] = []
    if MIRROR in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        causes.append(invalid(key_path(path, MIRROR), annotations[MIRROR], detail))
    if annotations.get(_TOLERATIONS):
        causes += _toleration_text_causes(annotations[_TOLERATIONS], path)
    cost = annotations.get(_COST)
    if cost is not None and not _is_int32(cost):
        causes.append(invalid(key_path(path, _COST), cost, "must be a 32bit integer"))
    for key, profile in annotations.items():
        if key == SECCOMP or key.startswith(SECCOMP_CONTAINER):
            causes += seccomp_text_causes(profile, f"{path}.{key}")
    containers = {
        container.get("name")
        for field in ("containers", "initContainers", "ephemeralContainers")
        for container in spec.get(field, ())
    }
    for key, profile in annotations.items():
        if key.startswith(APPARMOR):
            name, here = key.removeprefix(APPARMOR), key_path(path, key)
            causes += [] if name in containers else [invalid(here, name, "container not found")]
            if profile not in ("", "runtime/default", "unconfined") and not profile.startswith("localhost/"):
                causes.append(invalid(here, profile, f'invalid AppArmor profile name: "{profile}"'))
    return causes


def _is_int32(text: str) -> bool:
    """Whether this is a whole number of 32 bits without a sign or zeros in front."""
    return bool(re.fullmatch(r"0|-?[1-9][0-9]{0,9}", text, re.ASCII)) and -(2**31) <= int(text) <= _INT32


def _toleration_text_causes(text: str, path: str) -> list[Cause]:
    problem = syntax_error(text.encode())
    if not problem and not text.strip().startswith("["):
        problem = "json: cannot unmarshal object into Go value of type []core.Toleration"
    return [invalid(path, _TOLERATIONS, problem)] if problem else []


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a valid ``LabelSelector`` matches labels."""
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
