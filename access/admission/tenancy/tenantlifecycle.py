"""Nothing comes into the space of a tenant that is not there or that ends (TS1)."""

from __future__ import annotations

from collections.abc import Sequence

from access.admission.base import CREATE, Attributes, NoopPlugin
from access.admission.notending import NotEnding
from kube.requests.logicalclusters import ROOT, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import Forbidden, NotFound
from store.interface import Store
from store.types import Key, Operation


class TenantLifecycle(NoopPlugin):
    """Refuses creations where no tenant is, or is no longer: what comes in while its space is emptied is lost.

    Whoever a rule lets act in any space comes this far, and users whom credentials of a tenant that is gone still name.
    The tenant's revision is held in the same transaction, so that a creation and its deletion cannot pass each other.
    """

    name = "TenantLifecycle"
    operations = frozenset({CREATE})

    def __init__(self, store: Store) -> None:
        self._store = store
        self._not_ending = NotEnding()

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Hold the tenant as it is; raises ``NotFound`` and ``Forbidden``."""
        tenant = tenant_of(attributes.cluster)
        if tenant == SYSTEM_TENANT:
            return ()
        key = Key(ROOT, "", "tenants", "", tenant)
        stored = self._store.peek(key) or await self._store.get(key, cached=True) or await self._store.get(key)
        if stored is None:
            raise NotFound(f'tenants "{tenant}" not found', kind="tenants", name=tenant)
        check = self._not_ending.check(stored)
        if check is None:
            raise _terminating(tenant, attributes)
        return (check,)


def _terminating(tenant: str, attributes: Attributes) -> Forbidden:
    resource = attributes.resource
    return Forbidden(
        f'{resource.qualified_name} "{attributes.name}" is forbidden: unable to create new content in the space '
        f"of tenant {tenant} because it is being terminated",
        group=resource.group,
        kind=resource.plural,
        name=attributes.name,
    )
