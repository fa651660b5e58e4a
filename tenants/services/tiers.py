"""Tiers: what a workspace may use; a changed tier reaches its workspaces (GW2)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import ProtectedError, TextChoices

from audit.actions import Action
from audit.recorder import SYSTEM_CHAIN, Actor
from kube.quota.storedbytes import read_mebibytes
from kube.requests.ratelimits import read_settings
from kube.requests.status import AlreadyExists, Cause, Conflict, Invalid, NotFound
from tenants.models import Approval, Network, PodSecurity, RecordingMode, Status, Tier, Workspace
from tenants.naming import check_label, check_manager, check_text
from tenants.policies import tier_show
from tenants.rights import require_operator
from tenants.services import desiredstate
from tenants.services.policies import checked_policies, reach_clusters

_REACHING: Final = frozenset({"quota", "limit_range", "pod_security", "network", "proxies"})
"""What a changed tier carries to its workspaces."""

_PLAIN: Final = frozenset(
    {
        "display_name",
        "description",
        "workspaces_per_user",
        "is_available",
        "position",
        "policies",
        "request_limits",
        "stored_mebibytes",
        "recording",
        "approval",
    }
)
"""What else may change of one."""

_QUANTITY: Final = re.compile(r"[0-9]{1,12}(\.[0-9]{1,6})?([munkMGTPE]|[KMGTPE]i)?")
_RESOURCE: Final = re.compile(r"[a-z0-9]([-a-z0-9./]{0,125}[a-z0-9])?")


def _limits(cpu: str, memory: str, most_cpu: str, most_memory: str, most_storage: str) -> list[dict[str, Any]]:
    return [
        {
            "type": "Container",
            "default": {"cpu": cpu, "memory": memory, "ephemeral-storage": "1Gi"},
            "defaultRequest": {"cpu": cpu, "memory": memory, "ephemeral-storage": "256Mi"},
            "max": {"cpu": most_cpu, "memory": most_memory, "ephemeral-storage": most_storage},
        }
    ]


_COUNTS: Final = {
    "pods": 60,
    "replicationcontrollers": 10,
    "serviceaccounts": 20,
    "events": 500,
    "leases.coordination.k8s.io": 50,
    "deployments.apps": 40,
    "replicasets.apps": 99,
    "statefulsets.apps": 20,
    "jobs.batch": 60,
    "cronjobs.batch": 20,
    "horizontalpodautoscalers.autoscaling": 20,
    "poddisruptionbudgets.policy": 20,
    "ingresses.networking.k8s.io": 20,
    "networkpolicies.networking.k8s.io": 20,
    "roles.rbac.authorization.k8s.io": 20,
    "rolebindings.rbac.authorization.k8s.io": 20,
}
"""How many objects of each other kind that a tenant may create a small workspace holds: etcd is everybody's."""


def _counts(times: int) -> dict[str, str]:
    return {f"count/{resource}": str(count * times) for resource, count in _COUNTS.items()}


DEFAULTS: Final[tuple[dict[str, Any], ...]] = (
    {
        "name": "basic",
        "display_name": "Basic",
        "description": "One small workspace to start with.",
        "quota": {
            "requests.cpu": "4",
            "requests.memory": "8Gi",
            "limits.cpu": "8",
            "limits.memory": "16Gi",
            "pods": "30",
            "persistentvolumeclaims": "10",
            "requests.storage": "50Gi",
            "requests.ephemeral-storage": "20Gi",
            "limits.ephemeral-storage": "40Gi",
            "services": "20",
            "services.nodeports": "0",
            "services.loadbalancers": "0",
            "count/configmaps": "200",
            "count/secrets": "200",
            **_counts(1),
        },
        "limit_range": _limits("100m", "128Mi", "4", "8Gi", "5Gi"),
        "stored_mebibytes": 256,
        "workspaces_per_user": 1,
    },
    {
        "name": "standard",
        "display_name": "Standard",
        "description": "Room for a team's everyday services.",
        "quota": {
            "requests.cpu": "16",
            "requests.memory": "32Gi",
            "limits.cpu": "32",
            "limits.memory": "64Gi",
            "pods": "120",
            "persistentvolumeclaims": "40",
            "requests.storage": "500Gi",
            "requests.ephemeral-storage": "100Gi",
            "limits.ephemeral-storage": "200Gi",
            "services": "80",
            "services.nodeports": "0",
            "services.loadbalancers": "0",
            "count/configmaps": "1000",
            "count/secrets": "1000",
            **_counts(4),
        },
        "limit_range": _limits("250m", "256Mi", "16", "32Gi", "20Gi"),
        "stored_mebibytes": 1024,
        "workspaces_per_user": 3,
    },
    {
        "name": "large",
        "display_name": "Large",
        "description": "For heavy work; given by operators.",
        "quota": {
            "requests.cpu": "64",
            "requests.memory": "128Gi",
            "limits.cpu": "128",
            "limits.memory": "256Gi",
            "pods": "500",
            "persistentvolumeclaims": "200",
            "requests.storage": "5Ti",
            "requests.ephemeral-storage": "500Gi",
            "limits.ephemeral-storage": "1Ti",
            "services": "300",
            "services.nodeports": "30",
            "services.loadbalancers": "5",
            "count/configmaps": "5000",
            "count/secrets": "5000",
            **_counts(10),
        },
        "limit_range": _limits("500m", "512Mi", "64", "128Gi", "50Gi"),
        "stored_mebibytes": 4096,
        "workspaces_per_user": 5,
        "is_available": False,
    },
)


@transaction.atomic
def tiers_create_defaults() -> None:
    """Create the tiers of a new installation; what is there stays as it is."""
    made = [
        Tier.objects.get_or_create(name=values["name"], defaults={**values, "position": position})
        for position, values in enumerate(DEFAULTS)
    ]
    for tier, is_new in made:
        if is_new:
            tier_show(tier)


@transaction.atomic
def tier_create(
    *,
    actor: Actor,
    name: str,
    display_name: str,
    quota: Mapping[str, str],
    limit_range: Sequence[Mapping[str, Any]] = (),
    workspaces_per_user: int = 1,
    description: str = "",
    is_available: bool = True,
    position: int = 0,
    pod_security: str = PodSecurity.BASELINE,
    network: str = Network.TENANT,
    policies: Mapping[str, Any] | None = None,
    request_limits: Mapping[str, Any] | None = None,
    stored_mebibytes: int | None = None,
    recording: str = RecordingMode.OFF,
    proxies: bool = False,
    approval: str = "",
    managed_by: str = "",
) -> Tier:
    """Create a tier. Operators only. ``managed_by`` names the declaration that makes it.

    Raises ``AlreadyExists``, ``Invalid`` (a cause for each bad quantity).
    """
    require_operator(actor)
    tier = Tier(
        name=check_label(name, field="name", kind="Tier"),
        display_name=check_text(display_name, field="display_name", kind="Tier", limit=64, required=True),
        description=check_text(description, field="description", kind="Tier", limit=256),
        quota=_checked_quota(quota),
        limit_range=_checked_limits(limit_range),
        workspaces_per_user=workspaces_per_user,
        is_available=is_available,
        position=position,
        pod_security=_checked_choice(pod_security, PodSecurity, "pod_security"),
        network=_checked_choice(network, Network, "network"),
        policies=checked_policies(policies or {}, kind="Tier", name=name),
        request_limits=_checked_request_limits(request_limits or {}),
        stored_mebibytes=_checked_mebibytes(stored_mebibytes),
        recording=_checked_choice(recording, RecordingMode, "recording"),
        proxies=proxies,
        approval=_checked_choice(approval, Approval, "approval") if approval else "",
        managed_by=check_manager(managed_by, kind="Tier"),
    )
    try:
        with transaction.atomic():
            tier.save(force_insert=True)
    except IntegrityError:
        raise AlreadyExists(f'tiers "{name}" already exists', kind="tiers", name=name) from None
    actor.record(Action.TIER_CREATED, chain=SYSTEM_CHAIN, target=f"tiers/{name}", detail={"quota": dict(quota)})
    tier_show(tier)
    return tier


@transaction.atomic
def tier_change(*, actor: Actor, name: str, **changes: Any) -> Tier:
    """Change fields of a tier by their names; new limits reach every active workspace of it (GW2). Operators only.

    Its policies, and its limits on requests (AD6) and stored bytes (AD8), hold from the commit on, and so does that it
    ``proxies``; its recording for sessions that begin then.
    ``changes`` are any of display_name, description, quota, limit_range, pod_security, network, policies, request_limits,
    stored_mebibytes, recording, proxies, approval, workspaces_per_user, is_available, position.
    Raises ``NotFound``, ``Invalid``.
    """
    require_operator(actor)
    tier = Tier.objects.select_for_update(no_key=True).filter(name=name).first()
    if tier is None:
        raise NotFound(f'tiers "{name}" not found', kind="tiers", name=name)
    known = _PLAIN | _REACHING
    unknown = sorted(set(changes) - known)
    if unknown:
        causes = [Cause("FieldValueInvalid", "unknown field", field) for field in unknown]
        raise Invalid(f"Tier is invalid: unknown fields {', '.join(unknown)}", kind="Tier", name=name, causes=causes)
    if "quota" in changes:
        changes["quota"] = _checked_quota(changes["quota"])
    if "limit_range" in changes:
        changes["limit_range"] = _checked_limits(changes["limit_range"])
    if "pod_security" in changes:
        changes["pod_security"] = _checked_choice(changes["pod_security"], PodSecurity, "pod_security")
    if "network" in changes:
        changes["network"] = _checked_choice(changes["network"], Network, "network")
    if "recording" in changes:
        changes["recording"] = _checked_choice(changes["recording"], RecordingMode, "recording")
    if changes.get("approval"):
        changes["approval"] = _checked_choice(changes["approval"], Approval, "approval")
    if "stored_mebibytes" in changes:
        changes["stored_mebibytes"] = _checked_mebibytes(changes["stored_mebibytes"])
    if "request_limits" in changes:
        changes["request_limits"] = _checked_request_limits(changes["request_limits"])
    reaches = any(field in changes and changes[field] != getattr(tier, field) for field in _REACHING)
    if "policies" in changes:
        changes["policies"] = checked_policies(changes["policies"], kind="Tier", name=name)
        # The clusters' own fences are told of these.
        reaches = reaches or reach_clusters(tier.policies, changes["policies"])
    before = {field: getattr(tier, field) for field in changes}
    for field, value in changes.items():
        setattr(tier, field, value)
    if reaches:
        tier.generation += 1
    tier.save()
    touched = 0
    if reaches:
        active = Workspace.objects.select_related("tenant").filter(tier=tier, status=Status.ACTIVE)
        for workspace in active.select_for_update(no_key=True, of=("self",)).order_by("id"):
            desiredstate.request_ready(workspace, actor)
            touched += 1
        transaction.on_commit(desiredstate.enqueue_sweep)
    detail = {"before": before, "after": changes, "workspaces": touched}
    actor.record(Action.TIER_CHANGED, chain=SYSTEM_CHAIN, target=f"tiers/{name}", detail=detail)
    tier_show(tier)
    return tier


@transaction.atomic
def tier_delete(*, actor: Actor, name: str) -> None:
    """Delete a tier that no workspace has or had. Operators only. Raises ``NotFound``, ``Conflict`` when in use."""
    require_operator(actor)
    tier = Tier.objects.select_for_update().filter(name=name).first()
    if tier is None:
        raise NotFound(f'tiers "{name}" not found', kind="tiers", name=name)
    try:
        tier.delete()
    except ProtectedError:
        raise Conflict(f"Workspaces have the tier {name}; withdraw it instead.", kind="tiers", name=name) from None
    actor.record(Action.TIER_DELETED, chain=SYSTEM_CHAIN, target=f"tiers/{name}")
    tier_show(Tier(name=name))


def _checked_choice(value: str, choices: type[TextChoices], field: str) -> str:
    if value not in choices.values:
        causes = [Cause("FieldValueNotSupported", f'Unsupported value: "{str(value)[:40]}"', field)]
        raise Invalid(f"Tier is invalid: {field}: {causes[0].message}", kind="Tier", causes=causes)
    return str(value)


def _checked_request_limits(values: Mapping[str, Any]) -> dict[str, int]:
    try:
        return read_settings(values)
    except ValueError as error:
        causes = [Cause("FieldValueInvalid", str(error), "request_limits")]
        raise Invalid(f"Tier is invalid: request_limits: {error}", kind="Tier", causes=causes) from None


def _checked_mebibytes(value: object) -> int | None:
    try:
        return read_mebibytes(value)
    except ValueError as error:
        causes = [Cause("FieldValueInvalid", str(error), "stored_mebibytes")]
        raise Invalid(f"Tier is invalid: stored_mebibytes: {error}", kind="Tier", causes=causes) from None


def _checked_quota(quota: Mapping[str, Any]) -> dict[str, str]:
    causes = [
        Cause("FieldValueInvalid", f'Invalid value: "{str(value)[:40]}"', f"quota[{str(resource)[:80]}]")
        for resource, value in quota.items()
        if not _RESOURCE.fullmatch(str(resource)) or not _QUANTITY.fullmatch(str(value))
    ]
    if not quota or len(quota) > 100:
        causes.append(Cause("FieldValueRequired", "between 1 and 100 limits are needed", "quota"))
    if causes:
        raise Invalid(f"Tier is invalid: {causes[0].field}: {causes[0].message}", kind="Tier", causes=causes)
    return {str(resource): str(value) for resource, value in quota.items()}


def _checked_limits(limits: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    causes = []
    for index, item in enumerate(limits):
        where = f"limit_range[{index}]"
        if not isinstance(item, Mapping) or item.get("type") not in {"Container", "Pod", "PersistentVolumeClaim"}:
            causes.append(
                Cause("FieldValueNotSupported", "type must be Container, Pod or PersistentVolumeClaim", where)
            )
            continue
        for key, quantities in item.items():
            if key == "type":
                continue
            if key not in {"default", "defaultRequest", "max", "min", "maxLimitRequestRatio"} or not isinstance(
                quantities, Mapping
            ):
                causes.append(Cause("FieldValueInvalid", "unknown field", f"{where}.{str(key)[:40]}"))
                continue
            causes += [
                Cause("FieldValueInvalid", f'Invalid value: "{str(value)[:40]}"', f"{where}.{key}[{str(name)[:80]}]")
                for name, value in quantities.items()
                if not _QUANTITY.fullmatch(str(value))
            ]
    if len(limits) > 20:
        causes.append(Cause("FieldValueTooMany", "at most 20 limits", "limit_range"))
    if causes:
        raise Invalid(f"Tier is invalid: {causes[0].field}: {causes[0].message}", kind="Tier", causes=causes)
    return [dict(item) for item in limits]
