"""The metadata of every object: names, labels, annotations, owners, finalizers, and what an update may not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kube.kinds.resources import parse_api_version
from kube.requests import names
from kube.requests.fielderrors import count_causes, forbidden, immutable, invalid, required, too_long
from kube.requests.status import Cause
from kube.validation.serviceaddresses import address_name

Rule = Callable[[str], list[str]]

_RBAC: Final = "rbac.authorization.k8s.io"

NAME_RULES: Final[dict[tuple[str, str], Rule]] = {
    ("", "Event"): names.path_segment,
    ("", "Namespace"): names.dns_label,
    ("", "Tenant"): names.tenant_name,
    ("", "Service"): names.dns_label,
    ("apps", "StatefulSet"): names.dns_label,
    (_RBAC, "Role"): names.path_segment,
    (_RBAC, "RoleBinding"): names.path_segment,
    (_RBAC, "ClusterRole"): names.path_segment,
    (_RBAC, "ClusterRoleBinding"): names.path_segment,
    ("certificates.k8s.io", "CertificateSigningRequest"): names.path_segment,
    ("certificates.k8s.io", "ClusterTrustBundle"): names.path_segment,
    ("networking.k8s.io", "IPAddress"): address_name,
    ("policy", "PodDisruptionBudget"): names.path_segment,
    ("tenancy.kcp.io", "Workspace"): names.dns_label,
}
"""(group, kind) → the rule for its names; every other kind's is an RFC 1123 subdomain."""

_IMMUTABLE: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
)


def name_rule(group: str, kind: str) -> Rule:
    """The rule for the names of a kind."""
    return NAME_RULES.get((group, kind), names.dns_subdomain)


def metadata_causes(metadata: dict[str, Any], *, namespaced: bool, rule: Rule, path: str = "metadata") -> list[Cause]:
    """What is wrong with an object's metadata, whether it is new or not."""
    causes: list[Cause] = []
    prefix = metadata.get("generateName", "")
    if prefix:
        masked = names.mask_trailing_dash(prefix)
        if reasons := rule(masked):
            causes += [invalid(f"{path}.generateName", prefix, reason) for reason in reasons]
    name = metadata.get("name", "")
    if not name:
        causes.append(required(f"{path}.name", "name or generateName is required"))
    elif reasons := rule(name):
        causes += [invalid(f"{path}.name", name, reason) for reason in reasons]
    causes += _namespace_causes(metadata.get("namespace", ""), namespaced, path)
    causes += count_causes(metadata, path, "generation")
    for field, judge in _JUDGED:
        if value := metadata.get(field):
            causes += judge(value, f"{path}.{field}")
    return causes


def metadata_update_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What an update changes in the metadata that it may not."""
    causes = [
        immutable(f"metadata.{field}", new.get(field))
        for field in _IMMUTABLE
        if new.get(field) != old.get(field) and not (field == "deletionTimestamp" and field not in new)
    ]
    if not new.get("resourceVersion"):
        causes.append(invalid("metadata.resourceVersion", 0, "must be specified for an update"))
    if new.get("generation", 0) < old.get("generation", 0):
        causes.append(invalid("metadata.generation", new.get("generation", 0), "must not be decremented"))
    if old.get("deletionTimestamp"):
        added = [name for name in new.get("finalizers", ()) if name not in old.get("finalizers", ())]
        if added:
            words = ", ".join(f'"{name}"' for name in sorted(added))
            detail = "no new finalizers can be added if the object is being deleted, found new finalizers"
            causes.append(forbidden("metadata.finalizers", f"{detail} []string{{{words}}}"))
    return causes


def label_causes(labels: dict[str, str], path: str) -> list[Cause]:
    """What is wrong with labels."""
    causes: list[Cause] = []
    for key, value in labels.items():
        causes += [invalid(path, key, reason) for reason in names.qualified_name(key)]
        causes += [invalid(path, value, reason) for reason in names.label_value(value)]
    return causes


def annotation_causes(annotations: dict[str, str], path: str) -> list[Cause]:
    """What is wrong with annotations; together they take at most 256 KiB."""
    causes = [invalid(path, key, reason) for key in annotations for reason in names.qualified_name(key.lower())]
    size = sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items())
    if size > names.ANNOTATIONS_MAX:
        causes.append(too_long(path, names.ANNOTATIONS_MAX))
    return causes


def selector_causes(selector: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with a ``LabelSelector``."""
    causes = label_causes(selector.get("matchLabels", {}), f"{path}.matchLabels")
    for index, wanted in enumerate(selector.get("matchExpressions", ())):
        here = f"{path}.matchExpressions[{index}]"
        causes += operator_causes(wanted, here) + label_requirement_causes(wanted, here)
    return causes


def operator_causes(wanted: dict[str, Any], path: str, *, known: bool = True) -> list[Cause]:
    """What is wrong with a requirement's operator and how many values it has; with ``known`` it is one of the four."""
    operator, values = wanted.get("operator", ""), wanted.get("values", ())
    if operator in ("In", "NotIn"):
        detail = "must be specified when `operator` is 'In' or 'NotIn'"
        return [] if values else [required(f"{path}.values", detail)]
    if operator in ("Exists", "DoesNotExist"):
        detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
        return [forbidden(f"{path}.values", detail)] if values else []
    return [invalid(f"{path}.operator", operator, "not a valid selector operator")] if known else []


def label_requirement_causes(wanted: dict[str, Any], path: str) -> list[Cause]:
    """What is wrong with the label that a requirement is about, and with its values."""
    key = wanted.get("key", "")
    causes = [invalid(f"{path}.key", key, reason) for reason in names.qualified_name(key)]
    for position, value in enumerate(wanted.get("values", ())):
        causes += [invalid(f"{path}.values[{position}]", value, reason) for reason in names.label_value(value)]
    return causes


def _namespace_causes(namespace: str, namespaced: bool, path: str) -> list[Cause]:
    if namespaced:
        if not namespace:
            return [required(f"{path}.namespace")]
        reasons = names.dns_label(namespace)
        return [invalid(f"{path}.namespace", namespace, reason) for reason in reasons] if reasons else []
    return [forbidden(f"{path}.namespace", "not allowed on this type")] if namespace else []


def _owner_causes(owners: Any, path: str) -> list[Cause]:
    causes: list[Cause] = []
    controller = ""
    for owner in owners:
        version = owner.get("apiVersion", "")
        try:
            group = parse_api_version(version)
        except ValueError:
            group = ("", "")
            causes.append(invalid(f"{path}.apiVersion", version, "version must not be empty"))
        causes += [
            invalid(f"{path}.{field}", owner.get(field, ""), "must not be empty")
            for field in ("kind", "name", "uid")
            if not owner.get(field)
        ]
        if group == ("", "v1") and owner.get("kind") == "Event":
            causes.append(invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            name = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller:
                detail = (
                    'Only one reference can have Controller set to true. Found "true" in references for '
                    f"{controller} and {name}"
                )
                causes.append(invalid(path, list(owners), detail))
            controller = name
    return causes


_STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})

_ANY_FINALIZER: Final = frozenset(
    {
        ("", "Event"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"),
        ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"),
        ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"),
        ("apiextensions.k8s.io", "CustomResourceDefinition"),
        ("apiregistration.k8s.io", "APIService"),
        ("coordination.k8s.io", "Lease"),
        ("node.k8s.io", "RuntimeClass"),
        ("policy", "PodDisruptionBudget"),
    }
)
"""(group, kind) of the built-in kinds whose finalizers need not be anybody's, as those of custom objects."""


def own_finalizers(group: str, kind: str) -> bool:
    """Whether finalizers of a built-in kind are Kubernetes' own, or somebody's by their prefix."""
    return (group, kind) not in _ANY_FINALIZER


def kube_finalizer_causes(name: str, path: str) -> list[Cause]:
    """Why a built-in object cannot have this finalizer: it is neither Kubernetes' own nor anybody's."""
    if "/" in name or name in _STANDARD_FINALIZERS:
        return []
    return [invalid(path, name, "name is neither a standard finalizer name nor is it fully qualified")]


def _finalizer_causes(finalizers: Any, path: str) -> list[Cause]:
    causes = [invalid(path, name, reason) for name in finalizers for reason in names.qualified_name(name)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        detail = "finalizer orphan and foregroundDeletion cannot be both set"
        causes.append(invalid(path, list(finalizers), detail))
    return causes


_JUDGED: Final[tuple[tuple[str, Callable[[Any, str], list[Cause]]], ...]] = (
    ("labels", label_causes),
    ("annotations", annotation_causes),
    ("ownerReferences", _owner_causes),
    ("finalizers", _finalizer_causes),
)
"""What most objects have nothing of."""
