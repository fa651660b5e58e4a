"""What no tenant's space may hold (AD4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from access.admission.base import CREATE, Attributes, NoopPlugin
from kube.customresources.definitions import CRDS
from kube.requests.logicalclusters import ROOT
from kube.requests.status import Forbidden, forbidden_object
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
        if (resource.group, resource.plural) in self._refused:
            raise refused_to_tenants(resource.group, resource.plural, attributes.name)
        if _is_the_platforms(attributes.object):
            raise attributes.forbidden("its API group is the platform's own, choose one of a domain that is yours")
        return ()


def refused_to_tenants(group: str, plural: str, name: str) -> Forbidden:
    """The 403 for an object that no tenant may create."""
    return forbidden_object(group, plural, name, f"{plural} cannot be created in a tenant space")


def is_own(group: str) -> bool:
    """Whether an API group is the platform's own."""
    return any(group == domain or group.endswith(f".{domain}") for domain in OWN_DOMAINS)


def _is_the_platforms(definition: dict[str, Any] | None) -> bool:
    spec = (definition or {}).get("spec")
    return isinstance(spec, dict) and is_own(str(spec.get("group")))
