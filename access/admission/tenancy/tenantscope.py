"""What no tenant's space may hold (AD4)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from access.admission.base import CREATE, Attributes, NoopPlugin
from kube.requests.logicalclusters import ROOT
from kube.requests.status import Forbidden
from store.types import Operation


class TenantScope(NoopPlugin):
    """Refuses the creation of configured resources anywhere but in the system space."""

    name = "TenantScope"

    def __init__(self, refused: Collection[tuple[str, str]]) -> None:
        self._refused = frozenset(refused)

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` for what only the system space may hold."""
        resource = attributes.resource
        if (
            attributes.operation == CREATE
            and attributes.cluster != ROOT
            and (resource.group, resource.plural) in self._refused
        ):
            raise Forbidden(
                f'{resource.qualified_name} "{attributes.name}" is forbidden: {resource.plural} cannot be created '
                "in a tenant space",
                group=resource.group,
                kind=resource.plural,
                name=attributes.name,
            )
        return ()
