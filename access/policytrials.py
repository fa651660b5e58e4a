"""What a policy would find wrong with what is there already, before anybody is bound by it (AD5).

Stored objects are read from the store, those of placed namespaces from their clusters, as the workspace's viewer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode

import orjson
from django.db.models import Q
from django.utils import timezone

from access.credentials.workspacetokens import workspace_token_issue
from audit.recorder import Actor
from kube.policies.policy import Policy
from kube.policies.violations import KINDS, Violation, violations
from kube.requests.fielderrors import CAUSES_MAX
from kube.requests.status import NotFound, StatusError
from store.models import StoredObject
from tenants.clusters.client import ClusterUnusable, Outcome, client_for, object_path, place_of
from tenants.clusters.objects import tier_of_namespace
from tenants.models import Cluster, Phase, Status, Tenant, Tier, Workspace
from tenants.policies import policy_for
from tenants.rights import require_operator
from tenants.services.policies import checked_policies

_FOUND_MOST: Final = 200
_PAGE: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """An object that a policy would refuse, and why. ``space`` is where its namespace shows."""

    space: str
    namespace: str
    kind: str
    name: str
    violation: Violation


@dataclass(slots=True)
class Trial:
    """What was found, ``_FOUND_MOST`` at most (``is_cut``), and the namespaces that could not be looked at."""

    offenders: list[Offender] = field(default_factory=list)
    unseen: list[str] = field(default_factory=list)
    is_cut: bool = False

    def judge(self, policy: Policy, kind: tuple[str, str], space: str, namespace: str, body: Mapping[str, Any]) -> None:
        """Look at one object."""
        found = violations(policy, *kind, None, body)
        self.is_cut |= len(found) == CAUSES_MAX
        for violation in found:
            if len(self.offenders) == _FOUND_MOST:
                self.is_cut = True
                return
            name = str((body.get("metadata") or {}).get("name", ""))
            offender = Offender(space=space, namespace=namespace, kind=kind[1], name=name, violation=violation)
            self.offenders.append(offender)


def tenant_policies_try(*, actor: Actor, name: str, policies: Mapping[str, Any]) -> Trial:
    """What would break a tenant's own rules, if they were these. Operators only; nothing is kept.

    Raises ``NotFound``, ``Forbidden``, ``Invalid``.
    """
    require_operator(actor)
    tenant = Tenant.objects.filter(name=name).first()
    if tenant is None:
        raise NotFound(f'tenants "{name}" not found', kind="tenants", name=name)
    tenant.policies = checked_policies(policies, kind="Tenant", name=name)
    trial = Trial()
    _look(trial, tenant, {tier.name: tier for tier in Tier.objects.all()}, only=None)
    return trial


def tier_policies_try(*, actor: Actor, name: str, policies: Mapping[str, Any]) -> Trial:
    """What would break a tier's rules, if they were these, in all namespaces of the tier. Operators only.

    Raises ``NotFound``, ``Forbidden``, ``Invalid``.
    """
    require_operator(actor)
    tier = Tier.objects.filter(name=name).first()
    if tier is None:
        raise NotFound(f'tiers "{name}" not found', kind="tiers", name=name)
    tier.policies = checked_policies(policies, kind="Tier", name=name)
    trial = Trial()
    given = [key for key, body in _tenant_objects().items() if tier_of_namespace(None, body) == name]
    having = Workspace.objects.filter(tier=tier).exclude(phase=Phase.DELETED).values_list("tenant_id", flat=True)
    for tenant in Tenant.objects.filter(name__in={*given, *having}).order_by("name"):
        _look(trial, tenant, {name: tier}, only=name)
        if trial.is_cut:
            break
    return trial


def _look(trial: Trial, tenant: Tenant, tiers: Mapping[str, Tier], *, only: str | None) -> None:
    _look_in_store(trial, tenant, tiers, only)
    workspaces = Workspace.objects.filter(tenant=tenant, status=Status.ACTIVE, cluster__kind=Cluster.Kind.EXTERNAL)
    for workspace in workspaces.select_related("cluster", "tenant").order_by("k8s_namespace"):
        if trial.is_cut:
            return
        if only in (None, workspace.tier_id):
            policy = policy_for(tenant, tiers.get(workspace.tier_id))
            try:
                for kind, body in _placed(workspace):
                    trial.judge(policy, kind, tenant.cluster_path, workspace.k8s_namespace, body)
            except (ClusterUnusable, StatusError, _Unseen):
                trial.unseen.append(workspace.k8s_namespace)


def _look_in_store(trial: Trial, tenant: Tenant, tiers: Mapping[str, Tier], only: str | None) -> None:
    space = tenant.cluster_path
    rows = StoredObject.objects.filter(Q(space=space) | Q(space__startswith=f"{space}:"))
    owner = _tenant_objects(tenant.name).get(tenant.name)
    named: dict[tuple[str, str], str] = {}
    for at, name, data in rows.filter(group="", resource="namespaces").values_list("space", "name", "data"):
        named[at, name] = tier_of_namespace(orjson.loads(bytes(data)), owner)
    kinds = {(group, plural): (group, kind) for (group, kind), (_, plural) in KINDS.items()}
    judged = rows.filter(resource__in={plural for _, plural in kinds})
    for at, group, plural, namespace, data in judged.values_list(
        "space", "group", "resource", "namespace", "data"
    ).iterator():
        tier = named.get((at, namespace), "")
        if (group, plural) in kinds and only in (None, tier) and not trial.is_cut:
            policy = policy_for(tenant, tiers.get(tier))
            trial.judge(policy, kinds[group, plural], at, namespace, orjson.loads(bytes(data)))


def _tenant_objects(*names: str) -> dict[str, Mapping[str, Any]]:
    rows = StoredObject.objects.filter(space="root", group="", resource="tenants")
    rows = rows.filter(name__in=names) if names else rows
    return {name: orjson.loads(bytes(data)) for name, data in rows.values_list("name", "data")}


class _Unseen(Exception):
    """A cluster that does not show what it has."""


def _placed(workspace: Workspace) -> Iterator[tuple[tuple[str, str], Mapping[str, Any]]]:
    token = workspace_token_issue(
        workspace_id=workspace.id,
        space=workspace.tenant.cluster_path,
        namespace=workspace.k8s_namespace,
        cluster=workspace.cluster.name,
        place=place_of(workspace.cluster),
        role="viewer",
        now=timezone.now(),
    )
    client = client_for(workspace.cluster, workspace.tenant_id)
    for (group, kind), (version, plural) in KINDS.items():
        path, more = object_path(group, version, plural, namespace=workspace.k8s_namespace), ""
        while True:
            answer = client.get_as(token.text, f"{path}?{urlencode({'limit': _PAGE, 'continue': more})}")
            if answer.code in (403, 404):
                break  # A kind that the cluster has not, or that its tenants have no part in.
            if answer.outcome is not Outcome.DONE:
                raise _Unseen
            items: Sequence[Any] = answer.body.get("items") or ()
            yield from (((group, kind), item) for item in items if isinstance(item, dict))
            more = str((answer.body.get("metadata") or {}).get("continue") or "")
            if not more:
                break
