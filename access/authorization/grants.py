"""Doors in the wall between tenants: lines of the cluster admins' file (AZ6) and tenants' own policies (AZ7)."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

import orjson

from access.authorization.abac import PolicyFile, rules_of
from kube import abac
from kube.abac import GROUP, InvalidPolicy, Policy
from kube.identity import SYSTEM_TENANT, Principal
from kube.logicalclusters import ROOT, is_tenant_space, tenant_of
from kube.rbac import Attributes, Rule
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision
from store.port import Reader
from store.types import Event, Key, Range

logger = logging.getLogger(__name__)

STEP: Final = "cross-tenant"
RESOURCE: Final = "policies"
_SPACES_MAX: Final = 4096


class TenantPolicies:
    """The ``Policy`` objects of each tenant's space, read when somebody from elsewhere first knocks there.

    A change in a space makes its policies be read again with the next knock.
    """

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
            known = policies_from([stored.data for stored in listing.items], tenant_of(cluster))
            if self._changes != before:
                await asyncio.sleep(0)
                known = None
        self._known[cluster] = known
        if len(self._known) > _SPACES_MAX:
            self._known.popitem(last=False)
        return known

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


def policies_from(objects: Sequence[bytes], tenant: str) -> tuple[Policy, ...]:
    """The policies in these JSON objects of a tenant's space; one that is not understood opens nothing."""
    found = []
    for data in objects:
        try:
            found.append(abac.policy_of(orjson.loads(data), space=tenant))
        except InvalidPolicy as error:
            logger.warning("a policy of tenant %s opens nothing: %s", tenant, error)
    return tuple(found)


class CrossTenantGrants:
    """Both kinds of grants. The user's tenant must exist: grants end with it, whatever credentials it left behind."""

    def __init__(self, store: Reader, objects: TenantPolicies, file: PolicyFile | None) -> None:
        self._store = store
        self._objects = objects
        self._file = file

    async def opening(self, principal: Principal, request: RequestInfo) -> Decision | None:
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
        return policies if await self._exists(principal.tenant) else ()

    async def _exists(self, tenant: str | None) -> bool:
        if tenant is None or tenant == SYSTEM_TENANT:
            return tenant is not None
        return await self._store.get(Key(ROOT, "", "tenants", "", tenant), cached=True) is not None
