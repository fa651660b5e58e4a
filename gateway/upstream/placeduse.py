"""Settles what is claimed of tenants' quotas by what their namespaces on clusters hold (AD1, AD2, GW17).

One process of a database does the work, for the clusters that ask the webhooks. A namespace is looked at soon after something
was claimed there or asked to end, and every ``LOOK_SECONDS`` in any case: a claim whose object never came, and an object that
came while nobody was asked, are found then. What is read is read with the workspace's own token, as anybody's request.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final

import orjson

from access.admission.tenancy.placedquota import PlacedQuotaAdmission
from gateway.upstream.clusternamespaces import ClusterNamespaces
from gateway.upstream.clusters import Clusters
from gateway.upstream.gatewayreading import read_list
from gateway.upstream.placements import Placement
from gateway.upstream.tokens import WorkspaceTokens
from kube.authorization.rbac import Attributes
from kube.kinds.resources import Resource
from kube.quota.claims import QUOTA_CLAIMS, claim_from
from kube.quota.quantities import InvalidQuantity
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import StatusError
from store.engine import Engine
from store.postgresql.connections import AWAY
from store.postgresql.leadership import RETRY_SECONDS, leader_election
from store.types import AllSpaces, Event, EventType, PreconditionFailed, StoreError

logger = logging.getLogger(__name__)

LEADER_LOCK: Final = 0x7E6A_000A
LOOK_SECONDS: Final = 60.0
SOON_SECONDS: Final = 0.5
"""Claims come in swarms: a namespace is looked at once they have passed."""

_PATIENCE_SECONDS: Final = 30.0

Place = tuple[str, str]
"""A space and a namespace."""

Seen = dict[tuple[str, str], Sequence[dict[str, Any]]]


class PlacedObjects:
    """Reads what a namespace holds. ``kinds`` gives the kinds of a space."""

    def __init__(
        self, clusters: Clusters, tokens: WorkspaceTokens, kinds: Callable[[str], Awaitable[Sequence[Resource]]]
    ) -> None:
        self._clusters = clusters
        self._tokens = tokens
        self._kinds = kinds

    async def read(self, placement: Placement, counted: Callable[[str, Resource], Awaitable[bool]]) -> Seen:
        """The objects of the counted kinds, by group and plural. Raises ``StatusError``.

        A kind that no role of workspaces lists is not there, for nobody of the tenant can have made any of it.
        """
        seen: Seen = {}
        roles = await self._clusters.roles(placement.cluster)
        for resource in await self._kinds(placement.space):
            if not await counted(placement.space, resource):
                continue
            group, version = resource.group, resource.preferred.name
            info = RequestInfo(
                method="GET",
                path="",
                cluster=placement.space,
                tenant="",
                verb="list",
                is_resource=True,
                group=group,
                version=version,
                resource=resource.plural,
                namespace=placement.namespace,
            )
            role = roles.least(Attributes.of(info))
            if role is None:
                continue
            token = await self._tokens.get(placement, role)
            path = f"/apis/{group}/{version}" if group else f"/api/{version}"
            path += f"/namespaces/{placement.namespace}/{resource.plural}"
            items, _ = await read_list(self._clusters, placement.cluster, path, token=token)
            seen[resource.storage_key] = items
        return seen


class PlacedUse:
    """The work of one process; ``run`` until it is cancelled. ``asking`` names the clusters that ask the webhooks."""

    def __init__(
        self,
        store: Engine,
        database_url: str,
        quotas: PlacedQuotaAdmission,
        objects: PlacedObjects,
        *,
        namespaces: ClusterNamespaces,
        asking: Callable[[], Awaitable[Collection[str]]],
    ) -> None:
        self._store = store
        self._conninfo = database_url
        self._quotas = quotas
        self._objects = objects
        self._namespaces = namespaces
        self._asking = asking
        self._due: dict[Place, float] = {}
        self._told = asyncio.Event()

    def on_events(self, events: Sequence[Event]) -> None:
        """Note the namespaces where something was claimed, or asked to end."""
        for event in events:
            if event.key[1:3] == QUOTA_CLAIMS and event.type is not EventType.DELETED:
                claim = claim_from(orjson.loads(event.data))
                if claim.until or claim.ending:
                    self._due.setdefault((event.key.space, claim.namespace), time.monotonic() + SOON_SECONDS)
                    self._told.set()

    async def run(self) -> None:
        """Wait until this process leads, and look."""
        while True:
            try:
                async with leader_election(self._conninfo, LEADER_LOCK, "tenantry-placeduse") as check_leadership:
                    again = 0.0
                    while True:
                        if time.monotonic() >= again:
                            await self._note_all()
                            again = time.monotonic() + LOOK_SECONDS
                        await self._look_at_due()
                        await check_leadership()
                        self._told.clear()
                        with contextlib.suppress(TimeoutError):
                            await asyncio.wait_for(self._told.wait(), SOON_SECONDS)
            except (*AWAY, StoreError):
                await asyncio.sleep(RETRY_SECONDS)

    async def _note_all(self) -> None:
        """Every namespace on the clusters that ask, and wherever something is claimed."""
        places = set(await self._placements())
        for stored in (await self._store.list(AllSpaces(*QUOTA_CLAIMS), cached=True)).items:
            places.add((stored.key.space, claim_from(orjson.loads(stored.data)).namespace))
        for place in places:
            self._due.setdefault(place, 0.0)

    async def _look_at_due(self) -> None:
        """One namespace of a cluster after the other; no cluster waits for another."""
        now = time.monotonic()
        due = [place for place, moment in self._due.items() if moment <= now]
        by_cluster: defaultdict[str, list[tuple[Place, Placement | None]]] = defaultdict(list)
        placements = await self._placements() if due else {}
        for place in due:
            del self._due[place]
            placement = placements.get(place)
            by_cluster[placement.cluster if placement is not None else ""].append((place, placement))
        await asyncio.gather(*(self._look_at(places) for places in by_cluster.values()))

    async def _placements(self) -> dict[Place, Placement]:
        return {
            (placement.space, placement.namespace): placement
            for cluster in await self._asking()
            for placement in (await self._namespaces.on(cluster)).values()
        }

    async def _look_at(self, places: Sequence[tuple[Place, Placement | None]]) -> None:
        for place, placement in places:
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await self._look(place, placement)
            except PreconditionFailed:
                self._due.setdefault(place, time.monotonic() + SOON_SECONDS)
            except (StatusError, StoreError, InvalidQuantity, TimeoutError) as error:
                logger.info("what the namespace %s holds is not known: %s", place[1], error)

    async def _look(self, place: Place, placement: Placement | None) -> None:
        space, namespace = place
        # What is claimed from here on may not have been seen yet.
        asked_at = time.time()
        if placement is None:
            # Nothing is left of a workspace whose namespace is no longer shown; nor is it asked about.
            await self._quotas.settle(space, namespace, {}, asked_at=asked_at)
        elif placement.is_active:
            seen = await self._objects.read(placement, self._quotas.concerns)
            await self._quotas.settle(space, namespace, seen, asked_at=asked_at)
