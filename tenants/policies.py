"""Policies, limits and recordings of tiers and tenants on their way to the API servers: objects of the store, beside the rows (AD5, AD6).

No API serves them. A tier's are in the system space, a tenant's own in the tenant's; where there is none, no rule is
said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, Final

import orjson
from django.conf import settings
from django.db import transaction

from kube.policies.policy import Policy, Rules, policy_of, read_rules
from kube.quota import storedbytes
from kube.quota.tenantquotas import GROUP
from kube.requests.logicalclusters import ROOT, space_of
from store import synchronous
from store.types import Create, Key, PreconditionFailed, Update
from tenants.models import Cluster, Phase, RecordingMode, Tenant, Tier, Workspace

OF_TIERS: Final = (GROUP, "tierpolicies")
OF_TENANTS: Final = (GROUP, "tenantpolicies")
TIER_LIMITS: Final = (GROUP, "tierlimits")
TIER_PROXIES: Final = (GROUP, "tierproxies")
"""Where it is kept, by tier, what its tenants may ask of an API server, and keep there."""
_RECORDING: Final = "recording"
_PROXIES: Final = "proxies"


def tier_policies_key(tier: str) -> Key:
    """Where a tier's rules are kept."""
    return Key(ROOT, *OF_TIERS, "", tier)


FRESH: Final = timedelta(days=1)
"""A cluster that has asked within it is taken for one that asks: nobody tells when it stops."""


class Enforcement(StrEnum):
    """Where a policy is enforced on a cluster; what is stored here is judged with every write."""

    WEBHOOK = "webhook"
    """At the door, and by the cluster itself, which asks whoever writes there."""
    DOOR = "door"
    """At the door alone: what controllers of the cluster make, and who goes past the door, is not asked."""


@dataclass(frozen=True, slots=True)
class Enforced:
    """Where the policies of a tenant are enforced on one of its clusters, and when that has last asked."""

    cluster: str
    enforced: Enforcement
    last_asked: datetime | None


def policies_enforced(tenant: Tenant, now: datetime) -> list[Enforced]:
    """What is so on each registered cluster that a tenant has workspaces on: not what is configured, but who has asked."""
    rows = Cluster.objects.filter(
        kind=Cluster.Kind.EXTERNAL, workspaces__in=tenant.workspaces.exclude(phase=Phase.DELETED)
    ).distinct()
    return [
        Enforced(name, Enforcement.WEBHOOK if asked and now - asked < FRESH else Enforcement.DOOR, asked)
        for name, asked in rows.order_by("name").values_list("name", "admission_asked_at")
    ]


def tenant_policies_key(tenant: str) -> Key:
    """Where a tenant's own rules are kept."""
    return Key(space_of(tenant), *OF_TENANTS, "", "own")


def kept_rules(data: bytes) -> Rules:
    """The rules in an object of the store."""
    return read_rules(orjson.loads(data)["rules"], "rules")[0]


def kept_limits(data: bytes) -> dict[str, int]:
    """What a tier says about requests and about stored bytes, in an object of the store."""
    said: dict[str, int] = orjson.loads(data)["rules"]
    return said


def tier_recording_key(tier: str) -> Key:
    """Where it is kept what is recorded of sessions in a tier's pods."""
    return Key(ROOT, GROUP, "tierrecordings", "", tier)


def kept_recording(data: bytes | None) -> RecordingMode:
    """What is recorded, by an object of the store; where there is none nothing is."""
    return RecordingMode(orjson.loads(data)["rules"].get(_RECORDING, RecordingMode.OFF) if data else RecordingMode.OFF)


def tier_proxies_key(tier: str) -> Key:
    """Where it is kept that a tier opens the proxy into its workspaces; there is none while it does not."""
    return Key(ROOT, *TIER_PROXIES, "", tier)


def kept_proxies(data: bytes | None) -> bool:
    """Whether the proxy is open, by an object of the store."""
    return bool(data) and orjson.loads(data or b"{}")["rules"].get(_PROXIES) is True


def policy_for(tenant: Tenant, tier: Tier | None) -> Policy:
    """What holds in the namespaces of a tenant that have this tier; ``None`` for those that have none."""
    layers = [read_rules(each.policies, "policies")[0] for each in (tier, tenant) if each is not None]
    return policy_of(tenant.name, settings.TENANT_POLICIES, *layers)


def policy_of_workspace(workspace: Workspace) -> Policy:
    """What holds in a workspace."""
    return policy_for(workspace.tenant, workspace.tier)


def tier_show(tier: Tier) -> None:
    """Tell the API servers a tier's policies, limits, recording and proxy, in the caller's transaction and last."""
    _show(tier_policies_key(tier.name), tier.policies)
    stored = {} if tier.stored_mebibytes is None else {storedbytes.SETTING: tier.stored_mebibytes}
    _show(Key(ROOT, *TIER_LIMITS, "", tier.name), {**tier.request_limits, **stored})
    _show(tier_recording_key(tier.name), {} if tier.recording == RecordingMode.OFF else {_RECORDING: tier.recording})
    _show(tier_proxies_key(tier.name), {_PROXIES: True} if tier.proxies else {})


def tenant_policies_show(tenant: Tenant) -> None:
    """Tell the API servers, in the caller's transaction and last."""
    _show(tenant_policies_key(tenant.name), tenant.policies)


@transaction.atomic
def policies_show() -> None:
    """Tell the API servers all policies that they do not know of: those from before there was anybody to tell."""
    for tier in Tier.objects.all():
        tier_show(tier)
    for tenant in Tenant.objects.exclude(policies={}):
        tenant_policies_show(tenant)


def _show(key: Key, rules: Mapping[str, Any]) -> None:
    while True:
        stored = synchronous.get(key)
        known = orjson.loads(stored.data)["rules"] if stored is not None else {}
        if known == rules:
            return
        body = {"metadata": {"name": key.name}, "rules": dict(rules)}
        try:
            synchronous.commit([Create(key, body) if stored is None else Update(key, stored.revision, body)])
        except PreconditionFailed:
            continue
        return
