"""Where pods may run, what they outrank and what they run, by the policy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kube.policies.bodies import Body, Finding, mapping, members, missing_labels, only, text
from kube.policies.images import comes_from, repository
from kube.policies.policy import Names, Policy

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

_EVERYBODYS: Final = ("node.kubernetes.io/not-ready:NoExecute", "node.kubernetes.io/unreachable:NoExecute")
_PRESSURE: Final = "node.kubernetes.io/memory-pressure:NoSchedule"
"""Tolerations that Kubernetes itself gives to pods."""


def findings(policy: Policy, pod: Body, at: str) -> Iterator[Finding]:
    """What a pod, or a template of pods, does that the policy does not allow; ``at`` is before its fields' paths."""
    spec, where = mapping(pod.get("spec")), f"{at}spec"
    if policy.required_labels:
        yield from missing_labels(policy.required_labels, pod, at)
    for fields, look in _LOOKS:
        if not fields.isdisjoint(spec):
            yield from look(policy, spec, where)


def _node(policy: Policy, spec: Body, at: str) -> Iterator[Finding]:
    name = text(spec.get("nodeName"))
    if name and policy.node_names is not None and name not in policy.node_names:
        yield "node_names", f"{at}.nodeName", name, f"leave it to the scheduler; {only(policy.node_names)}"
    for key, value in mapping(spec.get("nodeSelector")).items():
        label = f"{key}={value}"
        if not _is_open(policy.node_labels, str(key), label):
            said = f"nodes cannot be chosen by {label}: remove it; {only(policy.node_labels)}"
            yield "node_labels", f"{at}.nodeSelector[{key}]", label, said


def _affinity(policy: Policy, spec: Body, at: str) -> Iterator[Finding]:
    affinity = mapping(spec.get("affinity"))
    yield from _node_affinity(policy.node_labels, mapping(affinity.get("nodeAffinity")), f"{at}.affinity.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity(policy.affinity_namespaces, mapping(affinity.get(kind)), f"{at}.affinity.{kind}")


def _node_affinity(allowed: Names, affinity: Body, at: str) -> Iterator[Finding]:
    terms = [
        (f"{at}.{_REQUIRED}.nodeSelectorTerms[{index}]", mapping(term))
        for index, term in enumerate(members(mapping(affinity.get(_REQUIRED)).get("nodeSelectorTerms")))
    ]
    terms += [
        (f"{at}.{_PREFERRED}[{index}].preference", mapping(mapping(each).get("preference")))
        for index, each in enumerate(members(affinity.get(_PREFERRED)))
    ]
    for where, term in terms:
        for part in ("matchExpressions", "matchFields"):
            for index, expression in enumerate(members(term.get(part))):
                key, shown = text(mapping(expression).get("key")), _expression(mapping(expression))
                labels = [f"{key}={value}" for value in members(mapping(expression).get("values"))]
                chosen = part == "matchExpressions" and mapping(expression).get("operator") == "In" and bool(labels)
                openly = part == "matchExpressions" and _is_open(allowed, key, "")
                if allowed is None or openly or (chosen and all(_is_open(allowed, key, label) for label in labels)):
                    continue
                said = f"nodes cannot be chosen by {shown}: remove it; {only(allowed)}"
                yield "node_labels", f"{where}.{part}[{index}]", shown, said


def _expression(expression: Body) -> str:
    values = ",".join(str(value) for value in members(expression.get("values")))
    return f"{expression.get('key', '')} {expression.get('operator', '')} ({values})"


def _pod_affinity(allowed: Names, affinity: Body, at: str) -> Iterator[Finding]:
    if allowed is None:
        return
    terms = [(f"{at}.{_REQUIRED}[{index}]", each) for index, each in enumerate(members(affinity.get(_REQUIRED)))]
    terms += [
        (f"{at}.{_PREFERRED}[{index}].podAffinityTerm", mapping(each).get("podAffinityTerm"))
        for index, each in enumerate(members(affinity.get(_PREFERRED)))
    ]
    for where, term in terms:
        if mapping(term).get("namespaceSelector") is not None:
            said = "affinity looks at namespaces by their names only: remove it"
            yield "affinity_namespaces", f"{where}.namespaceSelector", "namespaceSelector", said
        for index, name in enumerate(members(mapping(term).get("namespaces"))):
            if name not in allowed:
                said = f'affinity may not look at the namespace "{name}": remove it; {only(allowed)}'
                yield "affinity_namespaces", f"{where}.namespaces[{index}]", str(name), said


def _tolerations(policy: Policy, spec: Body, at: str) -> Iterator[Finding]:
    allowed = policy.tolerations
    if allowed is None:
        return
    for index, toleration in enumerate(members(spec.get("tolerations"))):
        taint = mapping(toleration)
        if not any(_tolerates(entry, taint) for entry in (*allowed, *_EVERYBODYS, _PRESSURE)):
            shown = _taint(taint)
            said = f"the taint {shown} may not be tolerated: remove it; {only(allowed)}"
            yield "tolerations", f"{at}.tolerations[{index}]", shown, said


def _tolerates(entry: str, toleration: Body) -> bool:
    """Whether ``entry`` allows all that a toleration bears."""
    wanted, _, effect = entry.partition(":")
    key, stated, value = wanted.partition("=")
    if toleration.get("key") != key or (effect and toleration.get("effect") != effect):
        return False
    return not stated or (toleration.get("operator") in (None, "", "Equal") and toleration.get("value", "") == value)


def _taint(toleration: Body) -> str:
    key, value, effect = (str(toleration.get(name) or "") for name in ("key", "value", "effect"))
    equal = f"={value}" if toleration.get("operator") != "Exists" else ""
    return f"{key or '*'}{equal if key else ''}" + (f":{effect}" if effect else "")


def _classes(policy: Policy, spec: Body, at: str) -> Iterator[Finding]:
    name, priority = text(spec.get("priorityClassName")), spec.get("priority")
    # A cluster's default class is filled in before anybody is asked; what is not above zero outranks nobody.
    harmless = isinstance(priority, int) and priority <= 0
    if name and name not in policy.priority_classes and not harmless:
        said = f'the priority class "{name}" is not allowed: remove it; {only(policy.priority_classes)}'
        yield "priority_classes", f"{at}.priorityClassName", name, said
    name, allowed = text(spec.get("runtimeClassName")), policy.runtime_classes
    if name and allowed is not None and name not in allowed:
        said = f'the runtime class "{name}" is not allowed; {only(allowed)}'
        yield "runtime_classes", f"{at}.runtimeClassName", name, said


def _images(policy: Policy, spec: Body, at: str) -> Iterator[Finding]:
    allowed = policy.registries
    if allowed is None:
        return
    named = [
        (f"{at}.{part}[{index}].image", text(mapping(container).get("image")))
        for part in ("initContainers", "containers", "ephemeralContainers")
        for index, container in enumerate(members(spec.get(part)))
    ]
    named += [
        (f"{at}.volumes[{index}].image.reference", text(mapping(mapping(volume).get("image")).get("reference")))
        for index, volume in enumerate(members(spec.get("volumes")))
    ]
    for where, image in named:
        if image and not comes_from(image, allowed):
            said = f'the image "{image}" is {repository(image)}, which is not allowed; {only(allowed)}'
            yield "registries", where, image, said


_LOOKS: Final[tuple[tuple[frozenset[str], Callable[[Policy, Body, str], Iterator[Finding]]], ...]] = (
    (frozenset({"nodeName", "nodeSelector"}), _node),
    (frozenset({"affinity"}), _affinity),
    (frozenset({"tolerations"}), _tolerations),
    (frozenset({"priorityClassName", "runtimeClassName"}), _classes),
    (frozenset({"initContainers", "containers", "ephemeralContainers", "volumes"}), _images),
)
"""Who looks at a pod's spec, and at which of its fields: most pods have few of them."""


def _is_open(allowed: Names, key: str, label: str) -> bool:
    return allowed is None or key in allowed or label in allowed
