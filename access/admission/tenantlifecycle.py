"""Nothing comes into the space of a tenant that is not there (TS1)."""

from __future__ import annotations

from collections.abc import Sequence

from access.admission.base import CREATE, Attributes, Quiet
from kube.identity import SYSTEM_TENANT
from kube.logicalclusters import ROOT, tenant_of
from kube.status import NotFound
from store.port import Store
from store.types import Key, Operation


class TenantLifecycle(Quiet):
    """Refuses creations where no tenant is: a later tenant of the name would find them in its new space.

    Whoever a rule lets act in any space comes this far, and users whom credentials of a tenant that is gone still name.
    """

    name = "TenantLifecycle"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``NotFound``."""
        tenant = tenant_of(attributes.cluster)
        if attributes.operation != CREATE or tenant == SYSTEM_TENANT:
            return ()
        key = Key(ROOT, "", "tenants", "", tenant)
        if await self._store.get(key, cached=True) is None and await self._store.get(key) is None:
            raise NotFound(f'tenants "{tenant}" not found', kind="tenants", name=tenant)
        return ()
