"""The rules of the tier, and the tenant's own, about what its objects may be (AD4, AD5)."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from access.admission.base import DELETE, Attributes, NoopPlugin
from kube.policies.policy import Policy, Rules, policy_of
from kube.policies.violations import Violation, judges, violations
from kube.requests.logicalclusters import ROOT, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import Forbidden
from store.interface import Store
from store.types import Check, Key, Operation
from tenants.clusters.objects import tier_of_namespace
from tenants.policies import kept_rules, tenant_policies_key, tier_policies_key


class TenantPolicies:
    """The policies of namespaces, for every door that asks ``kube.policies.violations``.

    Writes to stored namespaces, requests to clusters, and clusters themselves.
    """

    def __init__(self, store: Store, everybodys: Rules) -> None:
        """``everybodys`` are the rules of all tenants, below those of their tiers."""
        self._store = store
        self._everybodys = everybodys

    async def of(self, cluster: str, namespace: str, *, newest: bool = True) -> tuple[Policy, Sequence[Check]]:
        """What holds in a namespace of a tenant's space or of a workspace below it, and what that rests on.

        Not ``newest`` is what this process has seen: good enough for who holds the checks in the write itself.
        """
        tenant = tenant_of(cluster)
        owner = await self._store.get(Key(ROOT, "", "tenants", "", tenant), cached=not newest)
        place = Key(cluster, "", "namespaces", "", namespace)
        found = await self._store.get(place, cached=not newest) if namespace else None
        tier = tier_of_namespace(*(orjson.loads(each.data) if each is not None else None for each in (found, owner)))
        keys = ([tier_policies_key(tier)] if tier else []) + [tenant_policies_key(tenant)]
        kept = [(key, await self._store.get(key, cached=not newest)) for key in keys]
        policy = policy_of(
            tenant, self._everybodys, *(kept_rules(stored.data) for _, stored in kept if stored is not None)
        )
        return policy, [Check(key, stored.revision if stored is not None else 0) for key, stored in kept]


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
        policy, checks = await self._policies.of(*place, newest=attributes.dry_run)
        found = violations(policy, *judged)
        if found:
            # What refuses must be the newest.
            policy, checks = await self._policies.of(*place)
            found = violations(policy, *judged)
        if found:
            raise refusal(resource.group, resource.plural, attributes.name, found)
        return checks if judges(policy, resource.group, resource.kind) else ()


def refusal(group: str, plural: str, name: str, found: Sequence[Violation]) -> Forbidden:
    """The 403 that names every field, what to change there, and the rule."""
    said = "; ".join(f"{each.field}: {each.message} (rule {each.rule})" for each in found[:10])
    qualified = f"{plural}.{group}" if group else plural
    return Forbidden(
        f'{qualified} "{name}" is forbidden: by the policy of the tenant: {said}',
        group=group,
        kind=plural,
        name=name,
        causes=[violation.cause for violation in found[:100]],
        rule=f"policy {', '.join(dict.fromkeys(violation.rule for violation in found))}",
    )
