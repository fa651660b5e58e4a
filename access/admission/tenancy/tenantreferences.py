"""Whoever names another tenant means the tenant that bears the name now, and no later one."""

from __future__ import annotations

import uuid
from typing import Final

import orjson

from access.admission.base import CREATE, UPDATE, Attributes, NoopPlugin
from access.admission.rulesinforce import POLICIES_MAX, require_room
from kube.authorization.abac import GROUP as POLICIES
from kube.authorization.rbac import GROUP as RBAC
from kube.authorization.tenantreferences import TENANT_DIGESTS, digests_annotation, tenants_named
from kube.requests.logicalclusters import ROOT
from store.interface import Store
from store.types import Key

_NAMING: Final = frozenset({(POLICIES, "policies"), (RBAC, "rolebindings"), (RBAC, "clusterrolebindings")})


class TenantReferences(NoopPlugin):
    """Notes the UIDs, as digests, of the tenants that policies and bindings let in; what was noted stays as it was."""

    name = "TenantReferences"
    kinds = _NAMING

    def __init__(self, store: Store) -> None:
        self._store = store

    async def admit(self, attributes: Attributes) -> None:
        """Write the annotation anew, whatever came with the request."""
        body = attributes.object
        if body is None or attributes.operation not in (CREATE, UPDATE):
            return
        if attributes.cluster != ROOT:
            await require_room(self._store, attributes, POLICIES, "policies", POLICIES_MAX)
        uids = {tenant: await self._uid(tenant) for tenant in tenants_named(body, attributes.cluster)}
        digests = digests_annotation(body, attributes.old, attributes.cluster, uids)
        annotations = {k: v for k, v in (body["metadata"].get("annotations") or {}).items() if k != TENANT_DIGESTS}
        if digests:
            annotations[TENANT_DIGESTS] = digests
        if annotations:
            body["metadata"]["annotations"] = annotations
        else:
            body["metadata"].pop("annotations", None)

    async def _uid(self, tenant: str) -> str:
        key = Key(ROOT, "", "tenants", "", tenant)
        stored = await self._store.get(key, cached=True) or await self._store.get(key)
        return str(orjson.loads(stored.data)["metadata"]["uid"] if stored else uuid.uuid4())
