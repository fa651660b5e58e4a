"""Nothing comes into the space of a tenant that is not there or that ends (TS1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from access.admission.base import CREATE, Attributes, NoopPlugin
from kube.requests.logicalclusters import ROOT, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import Forbidden, NotFound
from store.interface import Store
from store.types import Check, Key, Operation, Stored

_ENDING: Final = b'"deletionTimestamp"'
_HELD_MAX: Final = 4096


class TenantLifecycle(NoopPlugin):
    """Refuses creations where no tenant is, or is no longer: what comes in while its space is emptied is lost.

    Whoever a rule lets act in any space comes this far, and users whom credentials of a tenant that is gone still name.
    The tenant's revision is held in the same transaction, so that a creation and its deletion cannot pass each other.
    """

    name = "TenantLifecycle"
    operations = frozenset({CREATE})

    def __init__(self, store: Store) -> None:
        self._store = store
        self._held: dict[Key, Check] = {}
        """Tenants that do not end, as that was last seen: each creation asks."""

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Hold the tenant as it is; raises ``NotFound`` and ``Forbidden``."""
        tenant = tenant_of(attributes.cluster)
        if tenant == SYSTEM_TENANT:
            return ()
        key = Key(ROOT, "", "tenants", "", tenant)
        stored = self._store.peek(key) or await self._store.get(key, cached=True) or await self._store.get(key)
        if stored is None:
            raise NotFound(f'tenants "{tenant}" not found', kind="tenants", name=tenant)
        held = self._held.get(key)
        if held is None or held.expected != stored.revision:
            _refuse_terminating(stored, tenant, attributes)
            if len(self._held) >= _HELD_MAX:
                self._held.clear()
            held = self._held[key] = Check(key, stored.revision)
        return (held,)


def _refuse_terminating(stored: Stored, tenant: str, attributes: Attributes) -> None:
    if _ENDING not in stored.data or "deletionTimestamp" not in orjson.loads(stored.data)["metadata"]:
        return
    resource = attributes.resource
    raise Forbidden(
        f'{resource.qualified_name} "{attributes.name}" is forbidden: unable to create new content in the space '
        f"of tenant {tenant} because it is being terminated",
        group=resource.group,
        kind=resource.plural,
        name=attributes.name,
    )
