"""What changes of a pod that exists: images, deadlines, where it may run while it is gated, and what its node reports."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address
from typing import Any, Final

from kube.requests import names
from kube.requests.fielderrors import forbidden, immutable, invalid, key_path, reason_causes
from kube.requests.status import Cause
from kube.validation.addresses import address_causes, parse_address
from kube.validation.pods import MIRROR
from kube.validation.profiles import APPARMOR

_INT32: Final = 2**31 - 1
_SYSTEM_CONDITIONS: Final = ("PodScheduled", "Ready", "Initialized")
_STATUSES: Final = (
    ("containerStatuses", "containers"),
    ("initContainerStatuses", "initContainers"),
    ("ephemeralContainerStatuses", ""),
)
_FIXED: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def pod_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What is wrong with a change of a pod, or of its status."""
    causes = _annotation_causes(*(body.get("metadata", {}).get("annotations") or {} for body in (new, old)))
    if (new.get("status") or {}) != (old.get("status") or {}):
        return [*causes, *_status_causes(new, old)]
    return causes + _spec_causes(new.get("spec", {}), old.get("spec", {}))


def _annotation_causes(new: dict[str, str], old: dict[str, str]) -> list[Cause]:
    """What marks a pod of a kubelet's file, or names its profile, stays."""
    causes = []
    for key in {**old, **new}:
        if new.get(key) == old.get(key) or not (key == MIRROR or key.startswith(APPARMOR)):
            continue
        noun = "mirror pod annotation" if key == MIRROR else "AppArmor annotations"
        verb = "remove or update" if key in old else "add"
        causes.append(forbidden(key_path("metadata.annotations", key), f"may not {verb} {noun}"))
    return causes


def _spec_causes(after: dict[str, Any], before: dict[str, Any]) -> list[Cause]:
    for field in ("containers", "initContainers"):
        if len(after.get(field, ())) != len(before.get(field, ())):
            return [forbidden(f"spec.{field}", "pod updates may not add or remove containers")]
    deadline, was = after.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    causes = _deadline_causes(deadline, was)
    if causes and deadline is not None:
        return causes
    kept = [_untimed(item) for item in after.get("tolerations", ())]
    if any(_untimed(item) not in kept for item in before.get("tolerations", ())):
        words = "existing toleration can not be modified except its tolerationSeconds"
        causes.append(forbidden("spec.tolerations", words))
    gates = [gate.get("name", "") for gate in before.get("schedulingGates", ())]
    for index, gate in enumerate(after.get("schedulingGates", ())):
        if gate.get("name", "") not in gates:
            words = f"only deletion is allowed, but found new scheduling gate '{gate.get('name', '')}'"
            causes.append(forbidden(f"spec.schedulingGates[{index}].name", words))
    if gates:
        causes += _placement_causes(after, before)
    return causes if _fixed(after, before) == _fixed(before, before) else [*causes, forbidden("spec", _FIXED)]


def _untimed(toleration: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}


def _deadline_causes(new: int | None, old: int | None) -> list[Cause]:
    """A deadline is set once, and after that only brought forward."""
    path, detail = "spec.activeDeadlineSeconds", ""
    if new is not None and not 0 <= new <= _INT32:
        detail = f"must be between 0 and {_INT32}, inclusive"
    elif new is not None and old is not None and new > old:
        detail = "must be less than or equal to previous value"
    elif new is None and old is not None:
        detail = "must not update from a positive integer to nil value"
    return [invalid(path, new, detail)] if detail else []


def _placement_causes(after: dict[str, Any], before: dict[str, Any]) -> Iterator[Cause]:
    """Where a gated pod may run becomes narrower only."""
    selector: dict[str, str] = after.get("nodeSelector", {})
    if any(selector.get(key) != value for key, value in before.get("nodeSelector", {}).items()):
        words = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid("spec.nodeSelector", selector or None, words)
    terms, earlier = (
        (_node_affinity(spec).get(_REQUIRED) or {}).get("nodeSelectorTerms") or [] for spec in (after, before)
    )
    path = f"spec.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms"
    if earlier and len(terms) != len(earlier):
        yield invalid(path, terms or None, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
        return
    for index, was in enumerate(earlier):
        if not _only_adds(terms[index], was):
            words = "only additions are allowed (no mutations or deletions)"
            yield invalid(f"{path}[{index}]", terms[index], words)


def _node_affinity(spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    return found


def _only_adds(new: dict[str, Any], old: dict[str, Any]) -> bool:
    fields = ("matchExpressions", "matchFields")
    if not any(old.get(field) for field in fields):
        return not any(new.get(field) for field in fields)
    return all((new.get(field) or [])[: len(old.get(field) or ())] == (old.get(field) or []) for field in fields)


def _fixed(spec: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    """What of a spec must be equal to what was ``before``."""
    open_fields = {"activeDeadlineSeconds", "tolerations", "schedulingGates"}
    gated = bool(before.get("schedulingGates"))
    if gated:
        open_fields.add("nodeSelector")
    grace, was = (each.get("terminationGracePeriodSeconds") for each in (spec, before))
    if was is not None and was < 0 and grace in (1, was):
        open_fields.add("terminationGracePeriodSeconds")
    fixed = {key: value for key, value in spec.items() if key not in open_fields}
    for field in ("containers", "initContainers"):
        if field in fixed:
            fixed[field] = [{key: v for key, v in c.items() if key != "image"} for c in fixed[field]]
    if gated and "affinity" in fixed:
        fixed["affinity"] = {key: value for key, value in fixed["affinity"].items() if key != "nodeAffinity"}
        if not fixed["affinity"]:
            del fixed["affinity"]
    return fixed


def _status_causes(new: dict[str, Any], old: dict[str, Any]) -> Iterator[Cause]:
    """What a pod's status may not say, or not take back."""
    after, before, spec = new.get("status") or {}, old.get("status") or {}, old.get("spec", {})
    for index, condition in enumerate(after.get("conditions") or ()):
        here, kind = f"status.conditions[{index}]", condition.get("type", "")
        if condition.get("observedGeneration", 0) < 0:
            yield invalid(
                f"{here}.observedGeneration", condition["observedGeneration"], "must be a non-negative integer"
            )
        if kind not in _SYSTEM_CONDITIONS:
            yield from reason_causes(f"{here}.Type", kind, names.qualified_name(kind))
    nominated, here = after.get("nominatedNodeName", ""), "status.nominatedNodeName"
    if nominated and nominated != before.get("nominatedNodeName", ""):
        yield from reason_causes(here, nominated, names.dns_subdomain(nominated))
        if spec.get("nodeName"):
            yield forbidden(here, "may not be set on pods that are already bound to a node")
    if after.get("observedGeneration", 0) < 0:
        yield invalid("status.observedGeneration", after["observedGeneration"], "must be a non-negative integer")
    if after.get("qosClass") != before.get("qosClass"):
        yield immutable("status.qosClass", after.get("qosClass", ""))
    for field, containers in _STATUSES:
        for index in _revived(after.get(field) or (), before.get(field) or (), spec, containers):
            yield forbidden(f"status.{field}[{index}].state", "may not be transitioned to non-terminated state")
    yield from _claim_causes(after.get("resourceClaimStatuses") or (), spec)
    yield from _address_causes(after, before, "podIPs")
    hosts = after.get("hostIPs") or ()
    if hosts and hosts[0].get("ip", "") != after.get("hostIP", ""):
        yield invalid("status.hostIPs[0].ip", hosts[0].get("ip", ""), "must be equal to `hostIP`")
    yield from _address_causes(after, before, "hostIPs")


def _revived(after: Any, before: Any, spec: dict[str, Any], field: str) -> Iterator[int]:
    """Which containers had ended for good and are said to have not."""
    every = [*spec.get("containers", ()), *spec.get("initContainers", ())]
    if field and any(
        rule.get("action") == "RestartAllContainers" for each in every for rule in each.get("restartPolicyRules", ())
    ):
        return
    for index, was in enumerate(before):
        ended = (was.get("state") or {}).get("terminated")
        now = next((each for each in after if each.get("name") == was.get("name")), None)
        if ended is None or now is None or (now.get("state") or {}).get("terminated") is not None:
            continue
        container = next((each for each in spec.get(field, ()) if each.get("name") == was.get("name")), None)
        if container is None or not _restarts(container, spec, ended.get("exitCode", 0)):
            yield index


def _restarts(container: dict[str, Any], spec: dict[str, Any], code: int) -> bool:
    """Whether a container that ended with this code is started again."""
    for rule in container.get("restartPolicyRules", ()):
        codes = rule.get("exitCodes") or {}
        if (code in codes.get("values", ())) is (codes.get("operator") == "In"):
            return bool(rule.get("action") == "Restart")
    policy = container.get("restartPolicy") or spec.get("restartPolicy", "Always")
    return bool(policy == "Always" or (policy == "OnFailure" and code != 0))


def _claim_causes(statuses: Any, spec: dict[str, Any]) -> Iterator[Cause]:
    claims = {claim.get("name") for claim in spec.get("resourceClaims", ())}
    for index, status in enumerate(statuses):
        here, name, made = (
            f"status.resourceClaimStatuses[{index}]",
            status.get("name", ""),
            status.get("resourceClaimName"),
        )
        if name not in claims:
            yield invalid(f"{here}.name", name, "must match the name of an entry in `spec.resourceClaims`")
        if made is not None:
            yield from reason_causes(f"{here}.resourceClaimName", made, names.dns_subdomain(made))


def _address_causes(after: dict[str, Any], before: dict[str, Any], field: str) -> Iterator[Cause]:
    known = [each.get("ip", "") for each in before.get(field) or ()]
    texts = [each.get("ip", "") for each in after.get(field) or ()]
    for index, text in enumerate(texts):
        if text not in known:
            yield from address_causes(text, f"status.{field}[{index}]")
    found = [parse_address(text) for text in texts]
    families = {isinstance(each, IPv4Address) for each in found if each is not None}
    if len(texts) > 1 and None not in found and (len(texts) > 2 or len(families) < 2):
        yield invalid(
            f"status.{field}", [{"IP": text} for text in texts], "may specify no more than one IP for each IP family"
        )
