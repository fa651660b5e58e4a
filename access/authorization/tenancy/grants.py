"""Cross-tenant grants: lines of the cluster admins' file (AZ6) and tenants' own policies (AZ7)."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import orjson

from access.authorization.modes.abac import PolicyFile, rules_of
from kube.authentication.identity import Principal
from kube.authorization import abac
from kube.authorization.abac import GROUP, InvalidPolicy, Policy
from kube.authorization.decisions import Decision
from kube.authorization.rbac import Attributes, Rule
from kube.authorization.tenantreferences import digest_of, holder_of, tenants_named
from kube.requests.logicalclusters import ROOT, is_tenant_space, tenant_of
from kube.requests.requestinfo import RequestInfo
from store.interface import Reader
from store.types import Event, Key, Range

logger = logging.getLogger(__name__)

STEP: Final = "cross-tenant"
RESOURCE: Final = "policies"
_SPACES_MAX: Final = 4096


class TenantPolicies:
    """The ``Policy`` objects of each tenant's space, read when somebody from elsewhere first knocks there.

    A change in a space makes its policies be read again with the next knock.
    """

    resources: Final = ((GROUP, RESOURCE),)
    """What ``on_events`` looks at."""

    def __init__(self, store: Reader) -> None:
        self._store = store
        self._known: OrderedDict[str, tuple[Policy, ...]] = OrderedDict()
        self._changes = 0

    async def of(self, cluster: str) -> tuple[Policy, ...]:
        """The policies of a tenant's space or of the system space; workspaces know RBAC alone."""
        if cluster != ROOT and not is_tenant_space(cluster):
            return ()
        known = self._known.get(cluster)
        while known is None:
            before = self._changes
            listing = await self._store.list(Range(cluster, GROUP, RESOURCE), cached=True)
            known = policies_from([stored.data for stored in listing.items], cluster)
            if self._changes != before:
                await asyncio.sleep(0)
                known = None
        self._known[cluster] = known
        if len(self._known) > _SPACES_MAX:
            self._known.popitem(last=False)
        return known

    async def in_force(self, cluster: str) -> tuple[Policy, ...]:
        """Those of them whose tenant is still the one that they mean."""
        found = [(policy, await self.uid(policy.tenant)) for policy in await self.of(cluster)]
        return tuple(policy for policy, uid in found if policy.means_tenant(uid))

    async def uid(self, tenant: str | None) -> str:
        """The uid of the tenant that bears the name now; empty for none."""
        stored = await self._store.get(Key(ROOT, "", "tenants", "", tenant), cached=True) if tenant else None
        return str(orjson.loads(stored.data)["metadata"]["uid"]) if stored else ""

    def on_events(self, events: Sequence[Event]) -> None:
        """Forget what has changed."""
        for event in events:
            if event.key.group == GROUP:
                self._changes += 1
                self._known.pop(event.key.space, None)

    def forget(self) -> None:
        """Read everything anew: the log does not continue where this process stopped."""
        self._changes += 1
        self._known.clear()


def policies_from(objects: Sequence[bytes], cluster: str) -> tuple[Policy, ...]:
    """The policies in these JSON objects of a tenant's space; one that is not understood opens nothing."""
    found, tenant = [], tenant_of(cluster)
    for data in objects:
        body = orjson.loads(data)
        try:
            policy = abac.policy_of(body, space=tenant)
        except InvalidPolicy as error:
            logger.warning("a policy of tenant %s opens nothing: %s", tenant, error)
            continue
        for named in tenants_named(body, cluster):
            policy = replace(policy, tenant_reference=(holder_of(body), digest_of(body, named)))
        found.append(policy)
    return tuple(found)


class CrossTenantGrants:
    """Both kinds of grants. The user's tenant must exist: grants end with it, whatever credentials it left behind."""

    def __init__(self, objects: TenantPolicies, file: PolicyFile | None) -> None:
        self._objects = objects
        self._file = file

    async def find_grant(self, principal: Principal, request: RequestInfo) -> Decision | None:
        """The ALLOW of a grant that says exactly this, or ``None``."""
        policies = await self._of(principal, request.cluster)
        if not policies:
            return None
        decision = abac.authorize(principal, Attributes.of(request), request.cluster, policies)
        if not decision.allowed:
            return None
        return Decision(decision.verdict, STEP, f"let in by {decision.rule}", decision.rule)

    async def rules(self, principal: Principal, cluster: str, namespace: str) -> tuple[Rule, ...]:
        """What grants give this principal of another tenant in a namespace."""
        return rules_of(await self._of(principal, cluster), principal, cluster, namespace)

    async def _of(self, principal: Principal, cluster: str) -> tuple[Policy, ...]:
        lines = self._file.policies if self._file is not None else ()
        policies = lines + await self._objects.of(cluster)
        if not any(policy.opens(cluster) and policy.means(principal) for policy in policies):
            return ()
        if principal.is_system:
            return policies
        uid = await self._objects.uid(principal.tenant)
        return tuple(policy for policy in policies if policy.means_tenant(uid)) if uid else ()
