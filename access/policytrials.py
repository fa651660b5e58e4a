"""What a policy would find wrong with what is there already, before anybody is bound by it (AD5).

Stored objects are read from the store, those of placed namespaces from their clusters, as the workspace's admin: who asks
is an operator, and counts as an owner there; nobody else's account sees all that the workspace's people make. Of the kinds
that every policy looks at, and of those that this one refuses, custom ones too. What could not be looked at is told, with
the reason, so that an empty answer says that there is nothing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from itertools import islice
from typing import Any, Final
from urllib.parse import quote, urlencode

import orjson
from django.db.models import Q
from django.utils import timezone

from access.credentials.workspacetokens import workspace_token_issue
from audit.recorder import Actor
from kube.kinds.builtins import BUILTINS
from kube.policies.bodies import mapping, members, text
from kube.policies.policy import Policy
from kube.policies.violations import KINDS, Violation, violations
from kube.requests.fielderrors import CAUSES_MAX
from kube.requests.status import NotFound, StatusError
from store.models import ROWS_AT_ONCE, StoredObject
from tenants.clusters.client import (
    ClusterClient,
    ClusterUnusable,
    Outcome,
    client_for,
    client_to,
    object_path,
    place_of,
)
from tenants.clusters.objects import tier_of_namespace
from tenants.models import Cluster, Phase, Status, Tenant, Tier, Workspace
from tenants.policies import policy_for
from tenants.rights import require_operator
from tenants.services.policies import checked_policies

_FOUND_MOST: Final = 200
_ENOUGH: Final = f"{_FOUND_MOST} were found before, and nothing was looked at from there on"
_PAGE: Final = 500
_VERSIONS_MAX: Final = 8
_VERSION: Final = re.compile(r"v[0-9a-z]{1,30}")
_NAME: Final = re.compile(r"[a-z0-9.-]{1,253}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Offender:
    """An object that a policy would refuse, and why. ``space`` is where its namespace shows."""

    space: str
    namespace: str
    kind: str
    name: str
    violation: Violation


@dataclass(frozen=True, slots=True)
class Unseen:
    """What was not looked at, and why; as a text both."""

    what: str
    reason: str

    def __str__(self) -> str:
        return f"{self.what}: {self.reason}"


@dataclass(slots=True)
class Trial:
    """What was found, ``_FOUND_MOST`` at most, and what was not looked at, as many.

    ``is_cut`` says that there is more of either, or of one object than is told.
    """

    offenders: list[Offender] = field(default_factory=list)
    unseen: list[Unseen] = field(default_factory=list)
    is_cut: bool = False
    is_full: bool = False
    """Whether nothing more is looked at."""
    served: dict[str, dict[tuple[str, str], tuple[str, str] | None]] = field(default_factory=dict)
    """What clusters have told of kinds, for all of their workspaces: version and plural, ``None`` of what they have not."""
    silent: set[str] = field(default_factory=set)
    """Clusters that have not answered: for each of their workspaces it would be waited anew."""

    def miss(self, what: str, reason: str) -> None:
        """Note what was not looked at."""
        if len(self.unseen) < _FOUND_MOST:
            self.unseen.append(Unseen(what, reason))
        else:
            self.is_cut = True

    def judge(self, policy: Policy, kind: tuple[str, str], space: str, namespace: str, body: Mapping[str, Any]) -> None:
        """Look at one object."""
        found = violations(policy, *kind, None, body)
        self.is_cut |= len(found) == CAUSES_MAX
        for violation in found:
            if len(self.offenders) == _FOUND_MOST:
                self.is_cut = self.is_full = True
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
    return _told(trial)


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
    given = [key for key, body in _tenant_objects() if tier_of_namespace(None, body) == name]
    having = Workspace.objects.filter(tier=tier).exclude(phase=Phase.DELETED).values_list("tenant_id", flat=True)
    for tenant in Tenant.objects.filter(name__in={*given, *having}).order_by("name"):
        if trial.is_full:
            trial.miss(f"the tenant {tenant.name}", _ENOUGH)
        else:
            _look(trial, tenant, {name: tier}, only=name)
    return _told(trial)


def _told(trial: Trial) -> Trial:
    if trial.is_full:
        trial.unseen.insert(0, Unseen("whatever else there is", _ENOUGH))
    return trial


def _look(trial: Trial, tenant: Tenant, tiers: Mapping[str, Tier], *, only: str | None) -> None:
    _look_in_store(trial, tenant, tiers, only)
    workspaces = Workspace.objects.filter(tenant=tenant, cluster__kind=Cluster.Kind.EXTERNAL)
    workspaces = workspaces.exclude(status=Status.DELETED).select_related("cluster", "tenant")
    for workspace in workspaces.order_by("k8s_namespace", "created_at"):
        if only not in (None, workspace.tier_id):
            continue
        name = workspace.k8s_namespace or str(workspace)
        if trial.is_full:
            trial.miss(name, _ENOUGH)
        elif workspace.status != Status.ACTIVE:
            trial.miss(name, "it is suspended, and its cluster is not asked")
        elif workspace.cluster.name in trial.silent:
            trial.miss(name, f"the cluster {workspace.cluster.name} has not answered before, and was not asked again")
        else:
            _look_at_cluster(trial, workspace, policy_for(tenant, tiers.get(workspace.tier_id)))


def _look_in_store(trial: Trial, tenant: Tenant, tiers: Mapping[str, Tier], only: str | None) -> None:
    space = tenant.cluster_path
    rows = StoredObject.objects.filter(Q(space=space) | Q(space__startswith=f"{space}:"))
    owner = dict(_tenant_objects(tenant.name)).get(tenant.name)
    others = tier_of_namespace(None, owner)
    named: dict[tuple[str, str], str] = {}
    namespaces = rows.filter(group="", resource="namespaces").values_list("space", "name", "data")
    for at, name, data in namespaces.iterator(ROWS_AT_ONCE):
        named[at, name] = tier_of_namespace(orjson.loads(bytes(data)), owner)
    policies = {tier: policy_for(tenant, tiers.get(tier)) for tier in {others, *named.values()}}
    kinds = {kind for policy in policies.values() for kind in _kinds_of(policy)}
    built_in = {(each.group, each.plural): each.kind for each in BUILTINS if (each.group, each.kind) in kinds}
    # Objects of custom kinds are kept under their definition's identity, and say themselves what they are.
    judged = rows.filter(
        Q(resource__in={plural for _, plural in built_in})
        | Q(group__in={group for group, _ in kinds}, resource__contains=":")
    )
    for at, group, plural, namespace, data in judged.values_list(
        "space", "group", "resource", "namespace", "data"
    ).iterator(ROWS_AT_ONCE):
        tier = named.get((at, namespace), others)
        if trial.is_full or only not in (None, tier):
            continue
        body = orjson.loads(bytes(data))
        kind = body.get("kind", "") if ":" in plural else built_in.get((group, plural))
        if (group, kind) in kinds:
            trial.judge(policies[tier], (group, str(kind)), at, namespace, body)


def _kinds_of(policy: Policy) -> set[tuple[str, str]]:
    """The kinds of which a policy could say anything, by group and kind."""
    return {*KINDS, *((each.partition(".")[2], each.partition(".")[0]) for each in policy.refused_kinds)}


def _tenant_objects(*names: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    rows = StoredObject.objects.filter(space="root", group="", resource="tenants")
    rows = rows.filter(name__in=names) if names else rows
    for name, data in rows.values_list("name", "data").iterator(ROWS_AT_ONCE):
        yield name, orjson.loads(bytes(data))


class _NotShown(Exception):
    """A cluster that does not show what it has; the text is for people."""


def _look_at_cluster(trial: Trial, workspace: Workspace, policy: Policy) -> None:
    """Look at what a workspace has on its cluster, as its admin; nothing but lists is asked for."""
    namespace, cluster = workspace.k8s_namespace, workspace.cluster.name
    kinds = _kinds_of(policy)
    try:
        token = workspace_token_issue(
            workspace_id=workspace.id,
            space=workspace.tenant.cluster_path,
            namespace=namespace,
            cluster=cluster,
            place=place_of(workspace.cluster),
            role="admin",
            now=timezone.now(),
        )
        client = client_for(workspace.cluster, workspace.tenant_id)
        reading = _Reading(client, token.text, kinds, trial.served.setdefault(cluster, {}))
        for group, kind in sorted(kinds):
            try:
                for body in reading.objects(group, kind, namespace):
                    trial.judge(policy, (group, kind), workspace.tenant.cluster_path, namespace, body)
                    if trial.is_full:
                        return
            except _Closed:
                named = f"{kind}.{group}".removesuffix(".")
                trial.miss(
                    f"{named} in {namespace}",
                    f"the cluster {cluster} does not let the workspace's admin list them; a ClusterRole there with the "
                    f"label tenantry.io/aggregate-to-view opens them",
                )
    except StatusError as error:
        trial.miss(namespace, error.message)
    except (ClusterUnusable, _NotShown) as error:
        trial.miss(namespace, f"the cluster {cluster} does not show it: {error}")
    else:
        return
    # What is wrong with one workspace, which its tenant may be the cause of, hides no other.
    if not _answers(workspace.cluster):
        trial.silent.add(cluster)


def _answers(cluster: Cluster) -> bool:
    try:
        return client_to(cluster).version().reached
    except ClusterUnusable:
        return False


class _Closed(Exception):
    """A kind that the admin of a workspace may not list."""


class _Reading:
    """Reads lists of a cluster with somebody's token. ``served`` keeps what the cluster's discovery tells of ``kinds``."""

    def __init__(
        self,
        client: ClusterClient,
        token: str,
        kinds: Collection[tuple[str, str]],
        served: dict[tuple[str, str], tuple[str, str] | None],
    ) -> None:
        self._client = client
        self._token = token
        self._kinds = kinds
        self._served = served

    def objects(self, group: str, kind: str, namespace: str) -> Iterator[Mapping[str, Any]]:
        """All of a kind in a namespace; none of a kind that the cluster has not. Raises ``_Closed``, ``_NotShown``."""
        if (group, kind) not in self._served:
            self._served |= self._discovered(group)
        served = self._served[group, kind]
        if served is None:
            return
        path, more = object_path(group, *served, namespace=namespace), ""
        while True:
            answer = self._ask(f"{path}?{urlencode({'limit': _PAGE, 'continue': more})}")
            if answer is None:
                return
            yield from (item for item in members(answer.get("items")) if isinstance(item, dict))
            more = text(mapping(answer.get("metadata")).get("continue"))
            if not more:
                return

    def _discovered(self, group: str) -> dict[tuple[str, str], tuple[str, str] | None]:
        """Of the kinds of a group: a cluster refuses lists of what it has not as it refuses those of what it has."""
        found: dict[tuple[str, str], tuple[str, str] | None] = {each: None for each in self._kinds if each[0] == group}
        root, versions = "/api", ["v1"]
        if group:
            root = f"/apis/{quote(group, safe='')}"
            document = mapping(self._ask(root))
            told = [document.get("preferredVersion"), *members(document.get("versions"))]
            versions = list(filter(_VERSION.fullmatch, (text(mapping(each).get("version")) for each in told)))
        for version in islice(dict.fromkeys(versions), _VERSIONS_MAX):
            for resource in map(mapping, members(mapping(self._ask(f"{root}/{version}")).get("resources"))):
                kind, plural = (group, text(resource.get("kind"))), text(resource.get("name"))
                is_kept = resource.get("namespaced") is True and "list" in members(resource.get("verbs"))
                if kind in found and found[kind] is None and is_kept and _NAME.fullmatch(plural):
                    found[kind] = version, plural
            if all(found.values()):
                break
        return found

    def _ask(self, path: str) -> dict[str, Any] | None:
        answer = self._client.get_as(self._token, path)
        if answer.code == HTTPStatus.NOT_FOUND:
            return None
        if answer.code == HTTPStatus.FORBIDDEN:
            raise _Closed
        if answer.outcome is not Outcome.DONE:
            raise _NotShown(answer.message or f"it answers {answer.code}")
        return answer.body
