"""The way in: everything that is wrong with an object, all at once (TS15).

``create_causes`` and ``update_causes`` take objects that were decoded by their schema and filled with defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kube.authorization import abac
from kube.cel.evaluation import violations
from kube.cel.rules import rules_of
from kube.customresources.validation import MAX_CAUSES, object_causes
from kube.kinds.resources import Resource
from kube.kinds.schemas import Definitions
from kube.quota.tenantquotas import TENANT_QUOTAS
from kube.requests.fielderrors import invalid
from kube.requests.status import Cause
from kube.validation import (
    abacpolicies,
    admissionpolicies,
    admissionwebhooks,
    autoscaling,
    certificates,
    cluster,
    configuration,
    controllers,
    devices,
    drivers,
    endpoints,
    events,
    immutability,
    jobs,
    networking,
    pods,
    podupdates,
    quotas,
    rbac,
    reportedstatuses,
    serviceaddresses,
    services,
    storage,
    volumeclaims,
)
from kube.validation.metadata import (
    kube_finalizer_causes,
    metadata_causes,
    metadata_update_causes,
    name_rule,
    own_finalizers,
)
from kube.validation.schema import required_causes
from kube.validation.workloadstatuses import status_causes

Judge = Callable[[dict[str, Any]], list[Cause]]
Comparison = Callable[[dict[str, Any], dict[str, Any]], list[Cause]]


def create_causes(resource: Resource, version: str, body: dict[str, Any], definitions: Definitions) -> list[Cause]:
    """What is wrong with a new object; empty when it is good.

    ``metadata.name`` must be set (a generated name is made before), and ``metadata.namespace`` for namespaced kinds.
    """
    key = (resource.group, resource.kind)
    first = None if resource.custom else _FIRST_JUDGES.get(key)
    early = [] if first is None else first(body)
    if early:
        return early
    judge = _NEW_JUDGES.get(key) or _JUDGES.get(key)
    return _whole_causes(resource, version, body, definitions, judge)


def state_causes(resource: Resource, version: str, body: dict[str, Any], definitions: Definitions) -> list[Cause]:
    """What is wrong with an object that exists, however it came to be as it is."""
    judge = _JUDGES.get((resource.group, resource.kind))
    return _whole_causes(resource, version, body, definitions, judge)


def _whole_causes(
    resource: Resource, version: str, body: dict[str, Any], definitions: Definitions, judge: Judge | None
) -> list[Cause]:
    metadata = _metadata_causes(resource, body)
    if resource.custom:
        return _custom_causes(resource, version, body, None, metadata)
    own = _own_causes(resource, version, body, definitions, judge)
    if (resource.group, resource.kind) in _METADATA_LAST:
        return own or metadata
    return metadata + own


def _own_causes(
    resource: Resource, version: str, body: dict[str, Any], definitions: Definitions, judge: Judge | None
) -> list[Cause]:
    """What is wrong with a built-in object beside its metadata. Kinds without a judge are judged by their schema."""
    if judge is not None:
        return judge(body)
    schema = definitions.schema(resource.group, version, resource.kind)
    return [] if schema is None else _unique(required_causes(body, schema))


def update_causes(
    resource: Resource, version: str, new: dict[str, Any], old: dict[str, Any], definitions: Definitions
) -> list[Cause]:
    """What is wrong with an update: with the new state itself, and with what it changes."""
    changed = metadata_update_causes(new.get("metadata", {}), old.get("metadata", {}))
    metadata = _metadata_causes(resource, new)
    if resource.custom:
        return _custom_causes(resource, version, new, old, changed + metadata)
    key = (resource.group, resource.kind)
    first, compare = _FIRST_JUDGES.get(key), _COMPARISONS.get(key)
    own = [] if first is None else first(new)
    settled = _SETTLED.get(key)
    same = settled is not None and new.get(settled) == old.get(settled)
    judged = {field: value for field, value in new.items() if field != settled} if same else new
    own += _own_causes(resource, version, judged, definitions, _JUDGES.get(key))
    fixed = immutability.immutable_causes(key, new, old)
    causes = fixed + own if resource.kind in _FIXED_FIRST else own + fixed
    reported = _REPORTED.get(key)
    later = status_causes(key, new, old) + ([] if reported is None else reported(new, old))
    later += [] if compare is None else compare(new, old)
    causes += [cause for cause in later if cause not in causes]
    return immutability.repeated(key, changed, metadata) + causes if changed or metadata else causes


def _metadata_causes(resource: Resource, body: dict[str, Any]) -> list[Cause]:
    metadata = body.get("metadata", {})
    rule = name_rule(resource.group, resource.kind)
    causes = metadata_causes(metadata, namespaced=resource.namespaced, rule=rule)
    if not resource.custom and own_finalizers(resource.group, resource.kind):
        for index, name in enumerate(metadata.get("finalizers", ())):
            causes += kube_finalizer_causes(name, f"metadata.finalizers[{index}]")
    return causes


def _custom_causes(
    resource: Resource, version: str, new: dict[str, Any], old: dict[str, Any] | None, before: list[Cause]
) -> list[Cause]:
    """What is wrong with a custom object beside what was found before, by its schema and its rules, or with a change of one.

    What was wrong before and was left as it was is not held against a change (Kubernetes' ratcheting). Rules are asked
    about objects that are wrong, too, as long as these are of the types and the sizes by which the rules were weighed.
    """
    served = resource.version(version)
    schema = None if served is None else served.schema
    found = [] if schema is None else object_causes(schema, new, old)
    bounded = len(found) < MAX_CAUSES
    causes = before + found + _scale_causes(resource, version, new)
    rules = None if schema is None else rules_of(schema)
    if rules is not None:
        if not causes or (bounded and not any(cause.reason in _BLOCKING for cause in causes)):
            causes += violations(rules, new, old)
        else:
            causes.append(_UNCHECKED)
    return _unique(causes)


_BLOCKING: Final = frozenset(
    {
        "FieldValueNotSupported",
        "FieldValueRequired",
        "FieldValueTooLong",
        "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)
"""Reasons for which the rules of a custom object are not asked."""

_UNCHECKED: Final = invalid(
    "<nil>",
    None,
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation",
)


def _scale_causes(resource: Resource, version: str, body: dict[str, Any]) -> list[Cause]:
    """What is wrong with the numbers that a custom object's scale shows."""
    served = resource.version(version)
    if served is None or served.scale is None:
        return []
    causes = []
    for path in (served.scale.replicas, served.scale.status_replicas):
        value: Any = body
        for name in path:
            value = value.get(name) if isinstance(value, dict) else None
        if isinstance(value, int) and not isinstance(value, bool) and value < 0:
            causes.append(invalid("." + ".".join(path), value, "should be a non-negative integer"))
    return causes


def _unique(causes: list[Cause]) -> list[Cause]:
    """Several judges may find the same thing: the first one's words stay."""
    return list({(cause.field, cause.reason, cause.message): cause for cause in causes}.values())


_JUDGES: Final[dict[tuple[str, str], Judge]] = {
    (abac.GROUP, "Policy"): abacpolicies.policy_causes,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicy"): admissionpolicies.mutating_policy_causes,
    ("admissionregistration.k8s.io", "MutatingAdmissionPolicyBinding"): admissionpolicies.mutating_binding_causes,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicy"): admissionpolicies.policy_causes,
    ("admissionregistration.k8s.io", "ValidatingAdmissionPolicyBinding"): admissionpolicies.binding_causes,
    ("admissionregistration.k8s.io", "MutatingWebhookConfiguration"): admissionwebhooks.configuration_causes,
    ("admissionregistration.k8s.io", "ValidatingWebhookConfiguration"): admissionwebhooks.configuration_causes,
    (TENANT_QUOTAS[0], "TenantQuota"): quotas.resource_quota_causes,
    ("", "ConfigMap"): configuration.config_map_causes,
    ("", "Endpoints"): endpoints.endpoints_causes,
    ("", "Event"): events.event_causes,
    ("", "LimitRange"): quotas.limit_range_causes,
    ("", "Node"): cluster.node_causes,
    ("", "PersistentVolume"): storage.volume_causes,
    ("", "PersistentVolumeClaim"): volumeclaims.claim_causes,
    ("", "Pod"): pods.changed_pod_causes,
    ("", "PodTemplate"): controllers.pod_template_causes,
    ("", "ReplicationController"): controllers.replication_controller_causes,
    ("", "ResourceQuota"): quotas.resource_quota_causes,
    ("", "Secret"): configuration.secret_causes,
    ("", "Service"): services.service_causes,
    ("apps", "ControllerRevision"): controllers.revision_causes,
    ("apps", "DaemonSet"): controllers.daemon_set_causes,
    ("apps", "Deployment"): controllers.deployment_causes,
    ("apps", "ReplicaSet"): controllers.replica_set_causes,
    ("apps", "StatefulSet"): controllers.stateful_set_causes,
    ("autoscaling", "HorizontalPodAutoscaler"): autoscaling.autoscaler_causes,
    ("batch", "CronJob"): jobs.cron_job_causes,
    ("batch", "Job"): jobs.job_causes,
    ("coordination.k8s.io", "Lease"): cluster.lease_causes,
    ("discovery.k8s.io", "EndpointSlice"): endpoints.endpoint_slice_causes,
    ("events.k8s.io", "Event"): events.event_causes,
    ("networking.k8s.io", "IPAddress"): serviceaddresses.taken_causes,
    ("networking.k8s.io", "Ingress"): networking.ingress_causes,
    ("networking.k8s.io", "IngressClass"): networking.ingress_class_causes,
    ("networking.k8s.io", "NetworkPolicy"): networking.network_policy_causes,
    ("node.k8s.io", "RuntimeClass"): cluster.runtime_class_causes,
    ("policy", "PodDisruptionBudget"): controllers.disruption_budget_causes,
    (rbac.GROUP, "ClusterRole"): rbac.role_causes,
    (rbac.GROUP, "ClusterRoleBinding"): rbac.binding_causes,
    (rbac.GROUP, "Role"): rbac.role_causes,
    (rbac.GROUP, "RoleBinding"): rbac.binding_causes,
    ("resource.k8s.io", "DeviceClass"): devices.device_class_causes,
    ("scheduling.k8s.io", "PriorityClass"): configuration.priority_class_causes,
    ("storage.k8s.io", "CSIDriver"): drivers.driver_object_causes,
    ("storage.k8s.io", "CSINode"): drivers.driver_node_causes,
    ("storage.k8s.io", "CSIStorageCapacity"): drivers.storage_capacity_causes,
    ("storage.k8s.io", "StorageClass"): storage.storage_class_causes,
    ("storage.k8s.io", "VolumeAttachment"): storage.attachment_causes,
    ("storage.k8s.io", "VolumeAttributesClass"): drivers.attributes_class_causes,
}

_NEW_JUDGES: Final[dict[tuple[str, str], Judge]] = {
    ("", "Namespace"): cluster.namespace_causes,
    ("", "Pod"): pods.pod_causes,
    ("apps", "StatefulSet"): controllers.new_stateful_set_causes,
    ("certificates.k8s.io", "CertificateSigningRequest"): certificates.new_request_causes,
    ("events.k8s.io", "Event"): events.new_event_causes,
    ("networking.k8s.io", "Ingress"): networking.new_ingress_causes,
    ("networking.k8s.io", "ServiceCIDR"): serviceaddresses.range_causes,
    ("resource.k8s.io", "ResourceClaim"): devices.claim_causes,
    ("resource.k8s.io", "ResourceClaimTemplate"): devices.claim_template_causes,
}
"""Judges of new objects alone, where they differ."""

_METADATA_LAST: Final = frozenset({("", "Event"), ("policy", "PodDisruptionBudget")})
"""Kinds of which the metadata is looked at when nothing else is wrong."""

_FIRST_JUDGES: Final[dict[tuple[str, str], Judge]] = {("", "Service"): services.service_address_causes}
"""Judges who must be content before anything else is looked at."""

_FIXED_FIRST: Final = ("DaemonSet", "VolumeAttributesClass")
"""Kinds of which what may not change is named before what is wrong."""

_SETTLED: Final[dict[tuple[str, str], str]] = {("discovery.k8s.io", "EndpointSlice"): "endpoints"}
"""Fields that are not judged again while they stay as they were."""

_COMPARISONS: Final[dict[tuple[str, str], Comparison]] = {
    ("", "ConfigMap"): immutability.immutable_object_causes,
    ("", "Namespace"): immutability.namespace_causes,
    ("", "Node"): cluster.node_update_causes,
    ("", "PersistentVolume"): storage.volume_update_causes,
    ("", "PersistentVolumeClaim"): volumeclaims.claim_update_causes,
    ("", "Pod"): podupdates.pod_update_causes,
    ("", "ResourceQuota"): quotas.resource_quota_update_causes,
    ("", "Secret"): immutability.immutable_object_causes,
    ("", "Service"): services.service_update_causes,
    ("apps", "StatefulSet"): immutability.stateful_set_causes,
    ("batch", "Job"): jobs.job_update_causes,
    ("certificates.k8s.io", "CertificateSigningRequest"): certificates.request_update_causes,
    ("events.k8s.io", "Event"): events.event_update_causes,
    ("networking.k8s.io", "ServiceCIDR"): serviceaddresses.range_update_causes,
    (rbac.GROUP, "ClusterRoleBinding"): rbac.binding_update_causes,
    (rbac.GROUP, "RoleBinding"): rbac.binding_update_causes,
    ("resource.k8s.io", "ResourceClaim"): devices.claim_update_causes,
    ("storage.k8s.io", "CSIDriver"): drivers.driver_object_update_causes,
    ("storage.k8s.io", "CSINode"): drivers.driver_node_update_causes,
}

_REPORTED: Final[dict[tuple[str, str], Comparison]] = {
    ("", "PersistentVolumeClaim"): reportedstatuses.claim_status_causes,
    ("", "Service"): reportedstatuses.balancer_causes,
    ("networking.k8s.io", "Ingress"): reportedstatuses.entry_causes,
    ("policy", "PodDisruptionBudget"): reportedstatuses.condition_causes,
}
"""Judges of what is said in a status, where somebody else says it."""
