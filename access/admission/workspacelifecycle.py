"""Nothing new comes into a workspace that is not there or that ends (KC4, KC13)."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from access.admission.base import CREATE, Attributes, Quiet
from access.workspaces import logical_cluster_key
from kube.logicalclusters import is_workspace
from kube.status import Forbidden, NotFound
from kube.workspaces import CORE, Phase
from store.port import Store
from store.types import Check, Operation


class WorkspaceLifecycle(Quiet):
    """Holds the logical cluster as it is together with every new object, so that nothing is left behind by its end."""

    name = "WorkspaceLifecycle"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``NotFound`` and ``Forbidden``."""
        if attributes.operation != CREATE or not is_workspace(attributes.cluster):
            return ()
        key = logical_cluster_key(attributes.cluster)
        stored = await self._store.get(key, cached=True) or await self._store.get(key)
        if stored is None:
            raise NotFound(
                f'workspace "{attributes.cluster}" not found', group=CORE, kind="logicalclusters", name=key.name
            )
        if (orjson.loads(stored.data).get("status") or {}).get("phase") == Phase.DELETING:
            resource = attributes.resource
            raise Forbidden(
                f'{resource.qualified_name} "{attributes.name}" is forbidden: the workspace is being deleted',
                group=resource.group,
                kind=resource.plural,
                name=attributes.name,
            )
        return (Check(key, stored.revision),)
