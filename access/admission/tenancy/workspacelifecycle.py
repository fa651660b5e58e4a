"""Nothing is written in a workspace that is not there or that ends (KC4, KC13)."""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from access.admission.base import CREATE, Attributes, NoopPlugin
from access.authorization.workspaces.state import logical_cluster_key
from kube.authentication.identity import is_masters
from kube.requests.logicalclusters import is_workspace
from kube.requests.status import Forbidden, NotFound
from kube.workspaces.types import CORE, LOGICAL_CLUSTERS, Phase, parent_cluster
from store.interface import Store
from store.types import Check, Operation


class WorkspaceLifecycle(NoopPlugin):
    """Holds the logical cluster, and those above it, as they are together with every write.

    So nothing is left behind by a workspace's end, and no write passes it that was allowed just before. What is there
    already the operators' masters may still change and remove, to let an end come.
    """

    name = "WorkspaceLifecycle"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``NotFound`` and ``Forbidden``."""
        cluster, held = attributes.cluster, list[Operation]()
        while is_workspace(cluster):
            held.append(await self._held(cluster, attributes))
            cluster, _ = parent_cluster(cluster)
        if held and attributes.resource.storage_key == LOGICAL_CLUSTERS and attributes.operation != CREATE:
            # Its own revision is held by what writes it.
            del held[0]
        return held

    async def _held(self, cluster: str, attributes: Attributes) -> Operation:
        key = logical_cluster_key(cluster)
        stored = await self._store.get(key, cached=True) or await self._store.get(key)
        if stored is None:
            raise NotFound(f'workspace "{cluster}" not found', group=CORE, kind="logicalclusters", name=key.name)
        # Most are open, and do not have the word in them.
        ends = b"Deleting" in stored.data and orjson.loads(stored.data)["status"].get("phase") == Phase.DELETING
        if ends and (attributes.operation == CREATE or not is_masters(attributes.principal)):
            resource = attributes.resource
            raise Forbidden(
                f'{resource.qualified_name} "{attributes.name}" is forbidden: the workspace is being deleted',
                group=resource.group,
                kind=resource.plural,
                name=attributes.name,
            )
        return Check(key, stored.revision)
