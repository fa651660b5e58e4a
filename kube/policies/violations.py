"""What an object does that the policy does not allow, field by field: the one function that every door asks.

Bodies come straight from clients and clusters: whatever is of another shape than the kind's is passed over, for
validation refuses it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from kube.kinds.builtins import BUILTINS
from kube.objects.podtemplates import TEMPLATES
from kube.policies import pods
from kube.policies.bodies import Body, Finding, mapping, members, missing_labels, only, text
from kube.policies.hosts import GATEWAY, HOLDERS, host_findings
from kube.policies.policy import Policy
from kube.requests.fielderrors import CAUSES_MAX, forbidden
from kube.requests.status import Cause

_CLASS_ANNOTATION: Final = "volume.beta.kubernetes.io/storage-class"
_INGRESS_ANNOTATION: Final = "kubernetes.io/ingress.class"


@dataclass(frozen=True, slots=True)
class Violation:
    """``rule`` is the policy's, ``field`` where the object says ``value``, ``message`` what to change."""

    rule: str
    field: str
    value: str
    message: str

    @property
    def cause(self) -> Cause:
        """As the answer to a request names it."""
        return forbidden(self.field, self.message)


def violations(policy: Policy, group: str, kind: str, old: Body | None, new: Body) -> list[Violation]:
    """What ``new`` does that ``policy`` forbids, and ``old``, where there was one, did not do already; ``CAUSES_MAX`` at most.

    ``group`` and ``kind`` are the object's; of others than those that ``judges`` names, and those that are refused
    altogether, nothing is said.
    """
    return list(islice(_violations(policy, group, kind, old, new), CAUSES_MAX))


def _violations(policy: Policy, group: str, kind: str, old: Body | None, new: Body) -> Iterator[Violation]:
    name = f"{kind}.{group}" if group else kind
    if old is None and name in policy.refused_kinds:
        yield Violation("refused_kinds", "kind", name, f"objects of the kind {name} are not created here")
    known: Counter[tuple[str, str]] | None = None
    for finding in _findings(policy, group, kind, new):
        violation = Violation(*finding)
        if old is not None:
            if known is None:
                known = Counter((rule, value) for rule, _, value, _ in _findings(policy, group, kind, old))
            known[violation.rule, violation.value] -= 1
            if known[violation.rule, violation.value] >= 0:
                continue
        yield violation


def judges(policy: Policy, group: str, kind: str) -> bool:
    """Whether ``violations`` could say anything of a kind; of any kind in the group, where ``kind`` is empty."""
    refused = ((each.partition(".")[2], each.partition(".")[0]) for each in policy.refused_kinds)
    return any(found[0] == group and kind in ("", found[1]) for found in (*_LOOKS, *refused))


def _findings(policy: Policy, group: str, kind: str, body: Body) -> Iterator[Finding]:
    look = _LOOKS.get((group, kind))
    return look(policy, body) if look is not None else iter(())


def _pod_maker(path: tuple[str, ...]) -> Callable[[Policy, Body], Iterator[Finding]]:
    def look(policy: Policy, body: Body) -> Iterator[Finding]:
        part: Any = body
        for name in path:
            part = mapping(part).get(name)
        prefix = "".join(f"{name}." for name in path)
        yield from pods.findings(policy, mapping(part), prefix)
        for index, claim in enumerate(members(mapping(mapping(part).get("spec")).get("volumes"))):
            ephemeral = mapping(mapping(claim).get("ephemeral")).get("volumeClaimTemplate")
            if ephemeral is not None:
                yield from _claim(
                    policy, mapping(ephemeral), f"{prefix}spec.volumes[{index}].ephemeral.volumeClaimTemplate."
                )

    return look


def _stateful_set(policy: Policy, body: Body) -> Iterator[Finding]:
    yield from _pod_maker(TEMPLATES["apps", "StatefulSet"])(policy, body)
    for index, claim in enumerate(members(mapping(body.get("spec")).get("volumeClaimTemplates"))):
        yield from _claim(policy, mapping(claim), f"spec.volumeClaimTemplates[{index}].")


def _claim(policy: Policy, body: Body, at: str = "") -> Iterator[Finding]:
    yield from missing_labels(policy.required_labels, body, at)
    annotations = mapping(mapping(body.get("metadata")).get("annotations"))
    # Where the annotation stands, empty too, it counts, and not the field.
    of_field = mapping(body.get("spec")).get("storageClassName")
    named = text(annotations.get(_CLASS_ANNOTATION, of_field))
    yield from _class("storage_classes", "storage class", policy.storage_classes, named, f"{at}spec.storageClassName")


def _service(policy: Policy, body: Body) -> Iterator[Finding]:
    yield from missing_labels(policy.required_labels, body)
    type_ = text(mapping(body.get("spec")).get("type")) or "ClusterIP"
    allowed = policy.service_types
    if allowed is not None and type_ not in allowed:
        yield "service_types", "spec.type", type_, f"a Service of the type {type_} is not allowed; {only(allowed)}"


def _ingress(policy: Policy, body: Body) -> Iterator[Finding]:
    yield from missing_labels(policy.required_labels, body)
    annotations = mapping(mapping(body.get("metadata")).get("annotations"))
    spec = mapping(body.get("spec"))
    for named in filter(None, (text(annotations.get(_INGRESS_ANNOTATION)), text(spec.get("ingressClassName")))):
        yield from _class("ingress_classes", "ingress class", policy.ingress_classes, named, "spec.ingressClassName")
    if not annotations.get(_INGRESS_ANNOTATION) and not spec.get("ingressClassName"):
        yield from _class("ingress_classes", "ingress class", policy.ingress_classes, "", "spec.ingressClassName")
    yield from host_findings(policy, "Ingress", body)


def _gateway(policy: Policy, body: Body) -> Iterator[Finding]:
    yield from missing_labels(policy.required_labels, body)
    named = text(mapping(body.get("spec")).get("gatewayClassName"))
    yield from _class("gateway_classes", "gateway class", policy.gateway_classes, named, "spec.gatewayClassName")
    yield from host_findings(policy, "Gateway", body)


def _class(rule: str, noun: str, allowed: tuple[str, ...] | None, named: str, at: str) -> Iterator[Finding]:
    """A class that is not named is the cluster's to choose, which the policy does not leave to it."""
    if allowed is None or named in allowed:
        return
    said = f'the {noun} "{named}" is not allowed' if named else f"the {noun} must be named"
    yield rule, at, named, f"{said}; {only(allowed)}"


_LOOKS: Final[Mapping[tuple[str, str], Callable[[Policy, Body], Iterator[Finding]]]] = {
    **{kind: _pod_maker(path) for kind, path in TEMPLATES.items()},
    ("apps", "StatefulSet"): _stateful_set,
    ("", "PersistentVolumeClaim"): _claim,
    ("", "Service"): _service,
    ("networking.k8s.io", "Ingress"): _ingress,
    (GATEWAY, "Gateway"): _gateway,
    **{
        (group, kind): lambda policy, body, kind=kind: host_findings(policy, kind, body)  # type: ignore[misc]
        for group, kind in HOLDERS
        if kind.endswith(("Route", "ListenerSet"))
    },
}

KINDS: Final[Mapping[tuple[str, str], tuple[str, str]]] = {
    **{
        (each.group, each.kind): (each.preferred.name, each.plural)
        for each in BUILTINS
        if (each.group, each.kind) in _LOOKS
    },
    **{(group, kind): ("v1", f"{kind.lower()}s") for group, kind in _LOOKS if group == GATEWAY},
}
"""Version and plural of the kinds that every policy looks at, by group and kind."""
