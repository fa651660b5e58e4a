"""The rules of the tier, and the tenant's own, about what its objects may be (AD4, AD5)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import orjson

from access.admission.base import DELETE, Attributes, NoopPlugin
from kube.policies.policy import Policy, Rules, policy_of
from kube.policies.violations import Violation, judges, violations
from kube.requests.logicalclusters import ROOT, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import Forbidden, forbidden_object
from store.interface import Store
from store.types import Check, Event, Key, Operation
from tenants.clusters.objects import tier_of_namespace
from tenants.policies import OF_TENANTS, OF_TIERS, kept_rules, tenant_policies_key, tier_policies_key

_REMEMBERED: Final = 4096
_NAMESPACES: Final = ("", "namespaces")
_RESTS_ON: Final = (_NAMESPACES, ("", "tenants"), OF_TIERS, OF_TENANTS)


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """What holds in a namespace."""

    policy: Policy
    checks: Sequence[Check]
    """What a write holds that was judged by it."""
    _judged: dict[tuple[str, str], bool] = field(default_factory=dict)

    def judges(self, group: str, kind: str) -> bool:
        """See ``kube.policies.violations``; asked of every write, so that it is worked out once."""
        judged = self._judged.get((group, kind))
        if judged is None:
            judged = self._judged[group, kind] = judges(self.policy, group, kind)
        return judged


class TenantPolicies:
    """The policies of namespaces, for every door that asks ``kube.policies.violations``.

    Writes to stored namespaces, requests to clusters, and clusters themselves.
    """

    def __init__(self, store: Store, everybodys: Rules) -> None:
        """``everybodys`` are the rules of all tenants, below those of their tiers."""
        self._store = store
        self._everybodys = everybodys
        self._known: dict[tuple[str, str], PolicyInForce] = {}
        self._changes = 0
        store.subscribe(self._on_events, lost=self._forget, resources=_RESTS_ON)

    async def of(self, cluster: str, namespace: str, *, newest: bool = True) -> PolicyInForce:
        """What holds in a namespace of a tenant's space or of a workspace below it.

        Not ``newest`` is what this process has seen: good enough for who holds the checks in the write itself.
        """
        place = cluster, namespace
        known = self._known.get(place)
        if known is not None and not newest and self._store.healthy:
            return known
        before = self._changes
        found = await self._read(cluster, namespace, newest=newest)
        if before == self._changes:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[place] = found
        return found

    def _on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            space, group, resource, _, name = event.key
            if (group, resource) == _NAMESPACES:
                self._changes += 1
                self._known.pop((space, name), None)
            elif (group, resource) in _RESTS_ON:
                self._forget()

    def _forget(self) -> None:
        self._changes += 1
        self._known.clear()

    async def _read(self, cluster: str, namespace: str, *, newest: bool) -> PolicyInForce:
        tenant = tenant_of(cluster)
        home = Key(ROOT, "", "tenants", "", tenant)
        owner = await self._store.get(home, cached=not newest)
        place = Key(cluster, "", "namespaces", "", namespace)
        found = await self._store.get(place, cached=not newest) if namespace else None
        tier = tier_of_namespace(*(orjson.loads(each.data) if each is not None else None for each in (found, owner)))
        keys = ([tier_policies_key(tier)] if tier else []) + [tenant_policies_key(tenant)]
        kept = [(key, await self._store.get(key, cached=not newest)) for key in keys]
        policy = policy_of(
            tenant, self._everybodys, *(kept_rules(stored.data) for _, stored in kept if stored is not None)
        )
        return PolicyInForce(
            policy,
            [Check(key, stored.revision if stored is not None else 0) for key, stored in kept],
        )


class TenantPolicyAdmission(NoopPlugin):
    """Refuses what the policy of the namespace forbids, in every tenant's space and the workspaces below it."""

    name = "TenantPolicy"

    def __init__(self, policies: TenantPolicies) -> None:
        self._policies = policies

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` with a cause for every field; else holds the policy until the write is kept."""
        body, resource = attributes.object, attributes.resource
        if body is None or attributes.operation == DELETE or tenant_of(attributes.cluster) == SYSTEM_TENANT:
            return ()
        # A person who binds a pod chooses its node; the system's schedulers are there for it.
        if attributes.subresource == "binding" and attributes.principal.is_system:
            return ()
        judged = resource.group, resource.kind, attributes.old, body
        place = attributes.cluster, attributes.namespace
        in_force = await self._policies.of(*place, newest=attributes.dry_run)
        if not in_force.judges(resource.group, resource.kind):
            return ()
        found = violations(in_force.policy, *judged)
        if found:
            # What refuses must be the newest.
            in_force = await self._policies.of(*place)
            found = violations(in_force.policy, *judged)
        if found:
            raise refusal(resource.group, resource.plural, attributes.name, found)
        return in_force.checks if in_force.judges(resource.group, resource.kind) else ()


def refusal(group: str, plural: str, name: str, found: Sequence[Violation]) -> Forbidden:
    """The 403 that names every field, what to change there, and the rule."""
    said = "; ".join(f"{each.field}: {each.message} (rule {each.rule})" for each in found[:10])
    return forbidden_object(
        group,
        plural,
        name,
        f"by the policy of the tenant: {said}",
        causes=[violation.cause for violation in found[:100]],
        rule=f"policy {', '.join(dict.fromkeys(violation.rule for violation in found))}",
    )
