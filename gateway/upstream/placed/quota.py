"""Counts what goes to clusters, and what is there, against the tenant's quota (AD1 to AD3).

1. A write at the door is reserved before it is passed on, and settled by the cluster's answer. Where there is none,
   nobody knows: the reservation stays until its end.
2. One process of a database looks at every placed namespace: when something was written or deleted there, when the
   quota changed, when a reservation ends, and now and then, for clusters' own controllers come in by no door. Each cluster
   is asked by itself: one that is slow, or says what is none, keeps nobody else's from being counted.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final
from urllib.parse import quote

import orjson

from access.admission.tenancy.placedquota import (
    COUNTED,
    RESERVED_SECONDS,
    PlacedQuotas,
    usage_key,
    version_of,
)
from gateway.http.lanes import by_turns
from gateway.upstream.admission import MAKING, PlacedWrite, Settlement, name_of
from gateway.upstream.client import BadGateway
from gateway.upstream.clusters import ClusterQueues, Clusters
from gateway.upstream.placements import Placement, Placements, placement_in
from gateway.upstream.reading import Unserved, read_list_as
from gateway.upstream.served import is_everywhere, is_served, read_groups
from gateway.upstream.tokens import WorkspaceTokens
from kube.authorization.rbac import Attributes
from kube.kinds.builtins import BUILTINS
from kube.objects.publications import NAMESPACES
from kube.quota import tenantquotas
from kube.quota.placedusage import Counted
from kube.quota.quantities import InvalidQuantity
from kube.quota.reservations import Reservation
from kube.quota.tenantquotas import PLACED_RESERVATIONS, PLACED_USAGES, TENANT_QUOTAS, TenantQuota
from kube.quota.usage import QuotaExceeded, Scope, read_scopes
from kube.requests.status import BadRequest, ServiceUnavailable, StatusError
from store.engine import Engine
from store.postgresql.leadership import CheckLeadership, lead
from store.types import AllSpaces, Event, Key, Range, Stored, StoreError

logger = logging.getLogger(__name__)

LEADER_LOCK: Final = 0x7E6A_0009
LOOK_SECONDS: Final = 60.0
_CHECK_SECONDS: Final = 1.0
_SETTLE_SECONDS: Final = 0.2
"""Writes come in swarms: a namespace is counted once for those of this time."""
_APART_SECONDS: Final = 1.0
"""From one look at a namespace to the next: where much is written, looking would cost more than writing."""
_ROOMY_APART_SECONDS: Final = 5.0
"""The same where the tenant has room for as much again: nobody waits there for what is given back."""
_SPREAD_SECONDS: Final = 0.05
"""From one namespace to the next, of a few: what looking at all of them costs is not in anybody's way in one moment."""
_PROMPT_SECONDS: Final = 0.002
"""What is less than that is no time to wait: of many, some are looked at together."""
_ASK_SECONDS: Final = 2.0
"""How long a refusal waits for the amounts of a namespace."""

_COUNT_SECONDS: Final = 60.0
"""How long a cluster may take to say what is in one namespace: the next one waits for it."""

_VERSION: Final = re.compile(r"v\d{1,4}((alpha|beta)\d{1,4})?")
_VERSIONS_MAX: Final = 16

_ALL: Final = ""
"""In place of a namespace: all of a space."""

_NOTED: Final = (PLACED_USAGES, PLACED_RESERVATIONS)

_ENDING: Final = frozenset({"delete", "deletecollection"})


class PlacedQuota:
    """Reserves what a write needs."""

    name = "TenantQuota"

    def __init__(self, quotas: PlacedQuotas) -> None:
        self._quotas = quotas

    async def admit(self, write: PlacedWrite) -> Settlement | None:
        """Raise ``Forbidden`` for what exceeds the quota of the tenant, or what the cluster refuses anyway."""
        info = write.info
        place = usage_key(info.cluster, info.namespace)
        if info.verb in _ENDING and not write.dry_run:
            return partial(self._look_again, place)
        if info.subresource not in COUNTED or info.verb not in MAKING:
            return None
        quota = await self._quotas.quota(info.cluster)
        if quota is None or not quota.concerns(info.group, info.resource, info.subresource):
            return None
        key = Key(info.cluster, info.group, info.resource, info.namespace, info.name)
        try:
            # What limits and defaults make of it, only the cluster knows.
            new = await write.outcome()
        except StatusError as refused:
            raise await self._quotas.explained(refused, key) from None
        old = await write.current() if info.verb != "create" else None
        wished = tenantquotas.wished(info.group, info.resource, info.subresource, old, new)
        moment = datetime.fromtimestamp(write.now, UTC)
        try:
            reserved = await self._quotas.reserve(
                place,
                write.request,
                lambda quota: quota.change(info.group, info.resource, old, wished, now=moment),
                Reservation(
                    amounts={},
                    until=write.now + RESERVED_SECONDS,
                    what="/".join((info.group, info.resource, info.name or _named(new))),
                    version=version_of(old),
                ),
                dry_run=write.dry_run,
            )
        except QuotaExceeded as error:
            raise await self._quotas.refusal(error, key._replace(name=info.name or name_of(new)), new) from None
        except InvalidQuantity as error:
            raise BadRequest(str(error)) from None
        return partial(self._settle, place, write.request) if reserved else None

    async def _settle(self, place: Key, request: str, made: bool) -> None:
        await self._quotas.settle(place, request, made=made)

    async def _look_again(self, place: Key, made: bool) -> None:
        if made:
            await self._quotas.touch(place)


class NamespaceQuotaReader:
    """Asks clusters for the ResourceQuotas of placed namespaces, with the workspaces' own tokens."""

    def __init__(self, placements: Placements, clusters: Clusters, tokens: WorkspaceTokens) -> None:
        self._placements = placements
        self._clusters = clusters
        self._tokens = tokens

    async def quotas(self, space: str, namespace: str) -> Sequence[Mapping[str, Any]]:
        """Those of a namespace; none where the cluster does not say so soon: a refusal is refused anyway."""
        placement = await self._placements.of(space, namespace)
        if placement is None or not placement.is_active:
            return ()
        try:
            async with asyncio.timeout(_ASK_SECONDS):
                role = (await self._clusters.roles(placement.cluster)).least(
                    Attributes("list", "", "resourcequotas", "", namespace)
                )
                if role is None:
                    return ()
                path = f"/api/v1/namespaces/{namespace}/resourcequotas"
                return await read_list_as(self._clusters, self._tokens, placement, role, path)
        except (StatusError, TimeoutError):
            return ()


class PlacedUsageController:
    """The work of one process; ``run`` until it is cancelled."""

    resources: Final = (NAMESPACES, TENANT_QUOTAS, *_NOTED)
    """What ``on_events`` looks at."""

    def __init__(
        self, store: Engine, quotas: PlacedQuotas, clusters: Clusters, tokens: WorkspaceTokens, database_url: str
    ) -> None:
        self._store = store
        self._quotas = quotas
        self._clusters = clusters
        self._tokens = tokens
        self._conninfo = database_url
        self._leads = False
        self._told = asyncio.Event()
        self._soon: set[tuple[str, str]] = set()
        self._bounded: dict[str, tuple[frozenset[str], tuple[Scope, ...]]] = {}
        """What quotas count, by space."""
        self._due: dict[tuple[str, str], float] = {}
        """When something ends that is reserved in a namespace, in Unix seconds."""
        self._looked: dict[tuple[str, str], float] = {}
        """When it was begun to look at namespaces, in Unix seconds, lately."""
        self._queues = ClusterQueues("placed quota", self._look_at)
        """The namespaces that are due."""

    def on_events(self, events: Sequence[Event]) -> None:
        """Note where something was written or placed, and whose quota counts something else than before, while this leads."""
        if not self._leads:
            return
        for event in events:
            key = event.key
            if key[1:3] in _NOTED:
                self._soon.add((key.space, key.name.partition("/")[0]))
            elif key[1:3] == NAMESPACES and placement_in(event.data, key) is not None:
                self._soon.add((key.space, key.name))
            elif key[1:3] == TENANT_QUOTAS:
                bounded = _bounded(orjson.loads(event.data))
                if self._bounded.get(key.space) != bounded:
                    self._bounded[key.space] = bounded
                    self._soon.add((key.space, _ALL))
        if self._soon:
            self._told.set()

    async def run(self) -> None:
        """Wait until this process leads, then look."""
        await lead(self._conninfo, LEADER_LOCK, "tenantry-placed-quota", self._lead)

    async def _lead(self, check_leadership: CheckLeadership) -> None:
        self._leads = True
        try:
            while True:
                await self._look(None)
                await self._look_where_told(check_leadership)
        finally:
            self._leads = False
            self._soon.clear()
            self._bounded.clear()
            await self._queues.stop()

    async def _look_where_told(self, check_leadership: CheckLeadership) -> None:
        until = time.monotonic() + LOOK_SECONDS
        while time.monotonic() < until:
            await check_leadership()
            await self._queues.part(self._clusters.names)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await self._told.wait()
                await asyncio.sleep(_SETTLE_SECONDS)
            self._told.clear()
            soon, self._soon = self._soon, set()
            ended = {place for place, moment in self._due.items() if moment < time.time()}
            self._due = {place: moment for place, moment in self._due.items() if place not in ended}
            if soon := soon | ended:
                await self._look(soon)

    async def _look(self, places: Collection[tuple[str, str]] | None) -> None:
        """Have these places counted, or all that there are."""
        there = await self._there(places)
        pause = min(_SPREAD_SECONDS, _APART_SECONDS / max(len(there), 1))
        for (space, namespace), placement in there.items():
            if placement is not None:
                self._queues.add(placement.cluster, Key(space, "", "namespaces", "", namespace))
                if pause >= _PROMPT_SECONDS:
                    await asyncio.sleep(pause)
                continue
            try:
                await self._quotas.forget(usage_key(space, namespace))
            except (StatusError, StoreError, InvalidQuantity) as error:
                logger.info("what was in the namespace %s is still counted: %s", namespace, error)

    async def _look_at(self, key: Key) -> None:
        """Count one namespace, if it is still in use."""
        place = key.space, key.name
        try:
            apart = _ROOMY_APART_SECONDS if await self._quotas.has_room(key.space) else _APART_SECONDS
            now = time.time()
            since = now - self._looked.get(place, -math.inf)
            if 0 <= since < apart:
                self._due[place] = now + apart - since
                return
            self._looked = {each: when for each, when in self._looked.items() if when > now - _ROOMY_APART_SECONDS}
            self._looked[place] = now
            self._due.pop(place, None)
            stored = await self._store.get(key, cached=True)
            placement = placement_in(stored.data, key) if stored is not None else None
            if placement is None or not placement.is_active:
                return
            count = partial(self._count, placement)
            again = await self._quotas.recount(usage_key(*place), count, time.time())
            if again < math.inf:
                self._due[place] = again
        except (StatusError, StoreError, InvalidQuantity) as error:
            logger.info("what is in the namespace %s is not counted: %s", key.name, error)

    async def _there(self, places: Collection[tuple[str, str]] | None) -> dict[tuple[str, str], Placement | None]:
        """Of these places the placed namespaces, and, as ``None``, those of which only the count is left."""
        if places is None:
            namespaces = (await self._store.list(AllSpaces(*NAMESPACES), cached=True)).items
            usages = (await self._store.list(AllSpaces(*PLACED_USAGES), cached=True)).items
        else:
            # Where much is written somebody is always told: what all the others have is not to be gone through for that.
            namespaces, usages = await self._kept("", "namespaces", places), await self._kept(*PLACED_USAGES, places)
        there: dict[tuple[str, str], Placement | None] = {}
        for stored in namespaces:
            if (placement := placement_in(stored.data, stored.key)) is not None:
                there[placement.space, placement.namespace] = placement
        for stored in usages:
            there.setdefault((stored.key.space, stored.key.name), None)
        return there

    async def _kept(self, group: str, resource: str, places: Collection[tuple[str, str]]) -> list[Stored]:
        """What is kept of a resource that is called as these places are."""
        found: list[Stored] = []
        for space, namespace in places:
            if namespace == _ALL:
                found += (await self._store.list(Range(space, group, resource), cached=True)).items
            elif stored := await self._store.get(Key(space, group, resource, "", namespace), cached=True):
                found.append(stored)
        return found

    async def _count(self, placement: Placement, quota: TenantQuota) -> list[Counted]:
        try:
            async with asyncio.timeout(_COUNT_SECONDS):
                return await self._found(placement, quota)
        except TimeoutError:
            raise ServiceUnavailable(f'the cluster "{placement.cluster}" takes too long to say it') from None

    async def _found(self, placement: Placement, quota: TenantQuota) -> list[Counted]:
        roles, now = await self._clusters.roles(placement.cluster), datetime.now(UTC)
        found: list[Counted] = []
        everywhere = (each for each in _built_in(quota) if is_everywhere(each[0], each[2]))
        for group, versions, plural in [*everywhere, *await self._others(placement.cluster, quota)]:
            role = roles.least(Attributes("list", group, plural, "", placement.namespace))
            if role is None:
                continue  # Nobody in the namespace has to do with it.
            items = await self._listed(placement, role, group, versions, plural)
            async for item in by_turns(items):
                metadata = item["metadata"]
                try:
                    used = quota.counted(group, plural, item, now=now)
                except (AttributeError, KeyError, TypeError, ValueError) as error:
                    raise BadGateway(f'an object of the cluster "{placement.cluster}" is none') from error
                what = "/".join((group, plural, str(metadata.get("name"))))
                found.append(Counted(what, str(metadata.get("uid")), version_of(item), used))
        return found

    async def _listed(
        self, placement: Placement, role: str, group: str, versions: Sequence[str], plural: str
    ) -> list[dict[str, Any]]:
        """The objects of a kind, in the first version that the cluster has of it.

        One that its discovery has, whatever it answers, is not known to be without objects: raises ``StatusError``.
        """
        base = f"/apis/{group}" if group else "/api"
        for version in versions:
            path = f"{base}/{version}/namespaces/{placement.namespace}/{plural}"
            try:
                return await read_list_as(self._clusters, self._tokens, placement, role, path)
            except Unserved:
                if await is_served(self._clusters, placement.cluster, (group, version, plural)):
                    raise
        return []

    async def _others(self, cluster: str, quota: TenantQuota) -> list[tuple[str, list[str], str]]:
        """What the quota counts and not every cluster has: group, its versions, the one that it prefers first, plural."""
        wanted = quota.named | {(group, plural) for group, _, plural in _built_in(quota)}
        others = sorted((group, plural) for group, plural in wanted if group and not is_everywhere(group, plural))
        told = await read_groups(self._clusters, cluster) if others else {}
        return [
            (group, _versions(told[group], cluster, group), quote(plural, safe=""))
            for group, plural in others
            if group in told
        ]


def _versions(document: Mapping[str, Any], cluster: str, group: str) -> list[str]:
    """Of a group, the preferred one first: no kind has to be in that. Raises ``BadGateway`` for what is none."""
    try:
        named = [document["preferredVersion"], *document.get("versions", ())][:_VERSIONS_MAX]
        versions = list(dict.fromkeys(each["version"] for each in named))
        if all(_VERSION.fullmatch(version) for version in versions):
            return versions
    except (KeyError, TypeError):
        pass
    raise BadGateway(f'the cluster "{cluster}" does not say which versions the group {group} has')


def _named(body: Mapping[str, Any]) -> str:
    """The name of a new object, or with ``*`` how it begins: the cluster makes up another one each time it is asked."""
    metadata = body.get("metadata") or {}
    return f"{metadata['generateName']}*" if metadata.get("generateName") else str(metadata.get("name") or "")


def _bounded(quota: Mapping[str, Any]) -> tuple[frozenset[str], tuple[Scope, ...]]:
    """The names that a tenant's quota bounds, and of which objects."""
    spec = quota.get("spec") or {}
    return frozenset(spec.get("hard") or ()), read_scopes(spec)


def _built_in(quota: TenantQuota) -> Iterator[tuple[str, list[str], str]]:
    return (
        (each.group, [each.preferred.name], each.plural)
        for each in BUILTINS
        if each.namespaced
        and each.persistent
        and each.storage_group is None
        and quota.concerns(each.group, each.plural)
    )
