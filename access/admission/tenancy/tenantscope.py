"""What no tenant's space may hold (AD4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from access.admission.base import CREATE, Attributes, NoopPlugin
from kube.customresources.definitions import CRDS
from kube.requests.logicalclusters import ROOT
from kube.requests.status import Forbidden
from kube.workspaces.apiexports import SCHEMAS
from store.types import Operation

OWN_DOMAINS: Final = ("kcp.io", "tenantry.io")
"""Of API groups that no tenant defines resources in: whoever meets one takes it for the platform's."""

_DEFINING: Final = frozenset((CRDS, SCHEMAS))


class TenantScope(NoopPlugin):
    """Refuses configured resources, and definitions in the platform's own API groups, but in the system space."""

    name = "TenantScope"

    def __init__(self, refused: Collection[tuple[str, str]]) -> None:
        self._refused = frozenset(refused)
        self.kinds = self._refused | _DEFINING

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` for what only the system space may hold."""
        resource = attributes.resource
        if attributes.operation != CREATE or attributes.cluster == ROOT:
            return ()
        kind, reason = (resource.group, resource.plural), ""
        if kind in self._refused:
            reason = f"{resource.plural} cannot be created in a tenant space"
        elif _is_own(attributes.object):
            reason = "its API group is the platform's own, choose one of a domain that is yours"
        if reason:
            raise Forbidden(
                f'{resource.qualified_name} "{attributes.name}" is forbidden: {reason}',
                group=resource.group,
                kind=resource.plural,
                name=attributes.name,
            )
        return ()


def _is_own(definition: dict[str, Any] | None) -> bool:
    spec = (definition or {}).get("spec")
    group = str(spec.get("group")) if isinstance(spec, dict) else ""
    return any(group == domain or group.endswith(f".{domain}") for domain in OWN_DOMAINS)
