"""The way in: everything that is wrong with an object, all at once (TS15).

``create_causes`` and ``update_causes`` take objects that were decoded by their schema and filled with defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kube import abac
from kube.cel.evaluation import violations
from kube.cel.rules import rules_of
from kube.customobjects import object_causes
from kube.resources import Resource
from kube.schemas import Definitions, Schema
from kube.status import Cause
from kube.validation import configuration, networking, policies, rbac, storage, updates, workloads
from kube.validation.metadata import metadata_causes, metadata_update_causes, name_rule
from kube.validation.pods import pod_spec_causes, pod_update_causes
from kube.validation.schema import required_causes

Judge = Callable[[dict[str, Any]], list[Cause]]
Comparison = Callable[[dict[str, Any], dict[str, Any]], list[Cause]]


def create_causes(resource: Resource, version: str, body: dict[str, Any], definitions: Definitions) -> list[Cause]:
    """What is wrong with a new object, or with the new state of one; empty when it is good.

    ``metadata.name`` must be set (a generated name is made before), and ``metadata.namespace`` for namespaced kinds.
    """
    rule = name_rule(resource.group, resource.kind)
    causes = metadata_causes(body.get("metadata", {}), namespaced=resource.namespaced, rule=rule)
    schema = _schema(resource, version, definitions)
    if schema is not None:
        causes += custom_causes(schema, body, None) if resource.custom else required_causes(body, schema)
    judge = None if resource.custom else _JUDGES.get((resource.group, resource.kind))
    if judge is not None:
        causes += judge(body)
    return _unique(causes)


def update_causes(
    resource: Resource, version: str, new: dict[str, Any], old: dict[str, Any], definitions: Definitions
) -> list[Cause]:
    """What is wrong with an update: with the new state itself, and with what it changes."""
    causes = metadata_update_causes(new.get("metadata", {}), old.get("metadata", {}))
    if resource.custom:
        rule = name_rule(resource.group, resource.kind)
        causes += metadata_causes(new.get("metadata", {}), namespaced=resource.namespaced, rule=rule)
        schema = _schema(resource, version, definitions)
        causes += custom_causes(schema, new, old) if schema is not None else []
    else:
        causes += create_causes(resource, version, new, definitions)
        key = (resource.group, resource.kind)
        compare = _COMPARISONS.get(key)
        causes += updates.immutable_causes(key, new, old)
        causes += [] if compare is None else compare(new, old)
    return _unique(causes)


def custom_causes(schema: Schema, new: dict[str, Any], old: dict[str, Any] | None) -> list[Cause]:
    """What is wrong with a custom object by its schema and its rules, or with a change of one.

    What was wrong before and was left as it was is not held against a change (Kubernetes' ratcheting).
    """
    causes = object_causes(schema, new)
    if causes and old is not None:
        known = set(object_causes(schema, old))
        causes = [cause for cause in causes if cause not in known]
    if causes:
        return causes
    rules = rules_of(schema)
    return [] if rules is None else violations(rules, new, old)


def _schema(resource: Resource, version: str, definitions: Definitions) -> Schema | None:
    if resource.custom:
        served = resource.version(version)
        return None if served is None else served.schema
    return definitions.schema(resource.group, version, resource.kind)


def _unique(causes: list[Cause]) -> list[Cause]:
    """Several judges may find the same thing: the first one's words stay."""
    return list({(cause.field, cause.reason, cause.message): cause for cause in causes}.values())


def _pod(body: dict[str, Any]) -> list[Cause]:
    return pod_spec_causes(body.get("spec", {}), "spec")


_JUDGES: Final[dict[tuple[str, str], Judge]] = {
    (abac.GROUP, "Policy"): policies.policy_causes,
    ("", "ConfigMap"): configuration.config_map_causes,
    ("", "LimitRange"): configuration.limit_range_causes,
    ("", "PersistentVolume"): storage.volume_causes,
    ("", "PersistentVolumeClaim"): storage.claim_causes,
    ("", "Pod"): _pod,
    ("", "PodTemplate"): workloads.pod_template_causes,
    ("", "ReplicationController"): workloads.replication_controller_causes,
    ("", "ResourceQuota"): configuration.resource_quota_causes,
    ("", "Secret"): configuration.secret_causes,
    ("", "Service"): networking.service_causes,
    ("apps", "DaemonSet"): workloads.controller_causes,
    ("apps", "Deployment"): workloads.controller_causes,
    ("apps", "ReplicaSet"): workloads.controller_causes,
    ("apps", "StatefulSet"): workloads.controller_causes,
    ("autoscaling", "HorizontalPodAutoscaler"): workloads.autoscaler_causes,
    ("batch", "CronJob"): workloads.cron_job_causes,
    ("batch", "Job"): workloads.job_causes,
    ("networking.k8s.io", "Ingress"): networking.ingress_causes,
    ("networking.k8s.io", "IngressClass"): networking.ingress_class_causes,
    ("networking.k8s.io", "NetworkPolicy"): networking.network_policy_causes,
    ("policy", "PodDisruptionBudget"): workloads.disruption_budget_causes,
    (rbac.GROUP, "ClusterRole"): rbac.role_causes,
    (rbac.GROUP, "ClusterRoleBinding"): rbac.binding_causes,
    (rbac.GROUP, "Role"): rbac.role_causes,
    (rbac.GROUP, "RoleBinding"): rbac.binding_causes,
    ("scheduling.k8s.io", "PriorityClass"): configuration.priority_class_causes,
    ("storage.k8s.io", "StorageClass"): storage.storage_class_causes,
}

_COMPARISONS: Final[dict[tuple[str, str], Comparison]] = {
    ("", "ConfigMap"): updates.sealed_causes,
    ("", "PersistentVolume"): storage.volume_update_causes,
    ("", "PersistentVolumeClaim"): storage.claim_update_causes,
    ("", "Pod"): pod_update_causes,
    ("", "Secret"): updates.sealed_causes,
    ("", "Service"): networking.service_update_causes,
    ("apps", "StatefulSet"): updates.stateful_set_causes,
    ("batch", "Job"): workloads.job_update_causes,
    (rbac.GROUP, "ClusterRoleBinding"): rbac.binding_update_causes,
    (rbac.GROUP, "RoleBinding"): rbac.binding_update_causes,
}
