"""Shows tenants what an operator opens of a cluster's own objects: classes, and the APIs that only the cluster has (GW20).

An opened object is kept in the space of every tenant that has a namespace on the cluster, marked with the cluster's name,
so that lists, watches, discovery and OpenAPI have it as they have what is the space's own. What the space has by itself
under the name stays, and of two clusters the first one's. Whoever is a member may read it; nobody there may change it.

One process of a database does the work, for each cluster by itself: every ``LOOK_SECONDS``, and when a namespace is placed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson

from access.admission.tenancy.tenantscope import is_own
from gateway.resources.kinds import definitions
from gateway.resources.objects import timestamp
from gateway.upstream.clusters import Clusters, follow_each
from gateway.upstream.placements import placement_in
from gateway.upstream.reading import Unserved, read_document, read_list
from gateway.upstream.served import is_served
from kube.authorization.placedrights import MEMBERS, PREFIX
from kube.authorization.rbac import GROUP
from kube.customresources.definitions import CLEANUP, CRDS, crd_causes, crd_status, terminating
from kube.kinds.openings import (
    API_SERVICES,
    BUILT_IN,
    DEFINED,
    KINDS,
    Opening,
    Place,
    aggregated_version,
    definitions_from,
    shown_form,
)
from kube.requests.logicalclusters import full_path, tenant_of
from kube.requests.status import StatusError
from store.engine import Engine
from store.postgresql.leadership import lead
from store.types import (
    AllSpaces,
    Create,
    Delete,
    Event,
    Key,
    Operation,
    PreconditionFailed,
    Range,
    Stored,
    StoreError,
    Update,
)
from tenants.clusters.objects import CLUSTER_LABEL

logger = logging.getLogger(__name__)

LEADER_LOCK: Final = 0x7E6A_0008
LOOK_SECONDS: Final = 30.0
_CHECK_SECONDS: Final = 1.0
_MOST: Final = 200
_NAMESPACE: Final = uuid.UUID("5b0c9b0e-6f1d-4c80-9d6e-0f7f1c1f3a55")
_SERVERS: Final = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "tenant", "selfLink")

Body = dict[str, Any]


class OpenedObjects:
    """The work of one process; ``run`` until it is cancelled."""

    def __init__(self, store: Engine, clusters: Clusters, database_url: str) -> None:
        self._store = store
        self._clusters = clusters
        self._conninfo = database_url
        self._told: dict[str, asyncio.Event] = {}

    def on_events(self, events: Sequence[Event]) -> None:
        """Look at once when a namespace is placed."""
        for event in events:
            placement = placement_in(event.data, event.key) if event.key[1:3] == ("", "namespaces") else None
            if placement is not None and (told := self._told.get(placement.cluster)) is not None:
                told.set()

    async def run(self) -> None:
        """Wait until this process leads, and look at every cluster now and then."""
        await lead(
            self._conninfo,
            LEADER_LOCK,
            "tenantry-opened",
            partial(follow_each, self._clusters, "openings", self._follow),
        )

    async def _follow(self, cluster: str) -> None:
        """Look at one cluster, however long it takes: the others do not wait for it."""
        told = self._told[cluster] = asyncio.Event()
        try:
            while True:
                told.clear()
                openings: tuple[Opening, ...] = ()
                try:
                    openings = self._clusters.openings(cluster)
                    await self._settle(cluster, openings, await self._spaces(cluster))
                except (StoreError, StatusError, ValueError, TypeError, KeyError, AttributeError) as error:
                    logger.info("what the cluster %s opens is not kept: %s", cluster, error)
                await self._wait(cluster, openings, told)
        finally:
            del self._told[cluster]

    async def _wait(self, cluster: str, known: tuple[Opening, ...], told: asyncio.Event) -> None:
        until = time.monotonic() + LOOK_SECONDS
        while time.monotonic() < until and not told.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CHECK_SECONDS):
                    await told.wait()
            with contextlib.suppress(StatusError):
                if self._clusters.openings(cluster) != known:
                    return

    async def _spaces(self, cluster: str) -> frozenset[str]:
        """The spaces that have a namespace on a cluster."""
        found = set()
        for stored in (await self._store.list(AllSpaces("", "namespaces"), cached=True)).items:
            placement = placement_in(stored.data, stored.key)
            if placement is not None and placement.cluster == cluster and placement.phase != "Terminating":
                found.add(placement.space)
        return frozenset(found)

    async def _settle(self, cluster: str, openings: Iterable[Opening], spaces: frozenset[str]) -> None:
        shown: dict[Place, dict[str, Body]] = {}
        for place in KINDS:
            opened = [opening for opening in openings if opening.place == place]
            try:
                items = await self._items(cluster, place) if opened and spaces else []
            except StatusError as error:
                # What is shown of this kind stays; the others do not wait for it.
                logger.info("what the cluster %s opens of %s is not known: %s", cluster, place[1], error)
                continue
            # In a thread: a cluster's definitions may take long to be judged, a compiled pattern or rule at a time.
            shown[place] = await asyncio.to_thread(lambda *asked: dict(_shown(*asked)), cluster, place, opened, items)
        aggregated: dict[str, Body] = {}
        unknown: frozenset[str] = frozenset()
        if API_SERVICES not in shown:
            # Nobody can tell then which of the definitions are theirs.
            shown.pop(CRDS, None)
        elif CRDS in shown:
            aggregated, unknown = await self._aggregated(cluster, shown[API_SERVICES].values())
            # What a cluster defines itself says more of a kind than its discovery does, and lets nobody read it.
            aggregated = {name: body for name, body in aggregated.items() if name not in shown[CRDS]}
            shown[CRDS] = {**aggregated, **shown[CRDS]}
        # Definitions first: where the objects of a kind are kept says its definition.
        for place in sorted(shown, key=lambda place: place != CRDS):
            for space, (resource, kept) in (await self._kept(cluster, place, spaces)).items():
                shelf = Range(space, place[0], resource)
                if space in spaces:
                    await self._write(cluster, place, shelf, shown[place], kept, unknown)
                else:
                    await self._write(cluster, place, shelf, {}, kept, ())
        for space in spaces:
            await self._let_read(cluster, space, shown, aggregated.values(), unknown)

    async def _items(self, cluster: str, place: Place) -> list[Body]:
        """The objects of a kind; of one that the cluster has not there are none. Raises ``StatusError``."""
        group, plural = place
        try:
            items, _ = await read_list(self._clusters, cluster, f"/apis/{group}/v1/{plural}")
        except Unserved:
            if await is_served(self._clusters, cluster, (group, "v1", plural)):
                raise
            logger.info("the cluster %s does not serve %s, which is opened there", cluster, plural)
            return []
        return items

    async def _kept(
        self, cluster: str, place: Place, spaces: frozenset[str]
    ) -> dict[str, tuple[str, dict[str, Stored]]]:
        """What there is of a kind in the spaces that are concerned: under which resource it is kept, and by name."""
        if place not in DEFINED:
            everywhere = (await self._store.list(AllSpaces(*place), cached=True)).items
            found: dict[str, tuple[str, dict[str, Stored]]] = {space: (place[1], {}) for space in spaces}
            for stored in everywhere:
                found.setdefault(stored.key.space, (place[1], {}))[1][stored.key.name] = stored
            return found
        found = {}
        for space in spaces:
            definition = await self._store.get(Key(space, *CRDS, "", f"{place[1]}.{place[0]}"))
            body = orjson.loads(definition.data) if definition is not None else {"metadata": {}}
            if (body["metadata"].get("labels") or {}).get(CLUSTER_LABEL) != cluster:
                # Of a kind that is the tenant's own nobody else makes objects; with ours its objects go.
                continue
            resource = f"{place[1]}:{body['metadata']['uid']}"
            items = (await self._store.list(Range(space, place[0], resource))).items
            found[space] = resource, {stored.key.name: stored for stored in items}
        return found

    async def _aggregated(self, cluster: str, api_services: Iterable[Body]) -> tuple[dict[str, Body], frozenset[str]]:
        """Definitions of what other servers answer for behind the cluster, metrics.k8s.io say, as its discovery tells.

        And the groups of which nobody can tell now: what is shown of them stays. As many as of any kind, of all groups
        together.
        """
        found: dict[str, Body] = {}
        unknown = set()
        for group, version in filter(None, map(aggregated_version, api_services)):
            if len(found) >= _MOST:
                break
            try:
                document = await read_document(self._clusters, cluster, f"/apis/{group}/{version}")
                # In a thread, as what is shown otherwise.
                found |= await asyncio.to_thread(_defined, cluster, group, version, document, _MOST - len(found))
            except (StatusError, ValueError, TypeError, KeyError, AttributeError) as error:
                logger.info("what the cluster %s serves of %s is not known: %s", cluster, group, type(error).__name__)
                unknown.add(group)
        return found, frozenset(unknown)

    async def _write(
        self,
        cluster: str,
        place: Place,
        shelf: Range,
        wanted: Mapping[str, Body],
        kept: Mapping[str, Stored],
        unknown: Collection[str],
    ) -> None:
        """Make one space show what is opened, and nothing that was; of definitions of ``unknown`` groups, what was as well."""
        bodies = {name: orjson.loads(stored.data) for name, stored in kept.items()}
        for name, body in bodies.items():
            metadata = body["metadata"]
            if (metadata.get("labels") or {}).get(CLUSTER_LABEL) != cluster or "deletionTimestamp" in metadata:
                continue
            stored = kept[name]
            if name not in wanted:
                if place == CRDS and body["spec"]["group"] in unknown:
                    continue
                metadata["deletionTimestamp"] = now = _now()
                ended = terminating(body, now=now) if place == CRDS else None
                await self._commit(
                    Update(stored.key, stored.revision, ended) if ended else Delete(stored.key, stored.revision, body)
                )
            elif _said(body) != wanted[name]:
                metadata.pop("annotations", None)
                changed = {**wanted[name], "metadata": {**metadata, **wanted[name]["metadata"]}}
                await self._commit(Update(stored.key, stored.revision, _finished(place, changed, bodies, name)))
        for name in wanted.keys() - bodies.keys():
            identity = _identity(cluster, shelf.space, place, name)
            made = {**wanted[name], "metadata": {**wanted[name]["metadata"], **identity}}
            key = Key(shelf.space, shelf.group, shelf.resource, "", name)
            await self._commit(Create(key, _finished(place, made, bodies, name)))

    async def _let_read(
        self,
        cluster: str,
        space: str,
        shown: Mapping[Place, Mapping[str, Body]],
        aggregated: Iterable[Body],
        unknown: Collection[str],
    ) -> None:
        """Members may read what is opened by name, and of another server's kinds what the cluster lets their accounts read.

        Of kinds that are not known now, what they could before; of those that the space, or another cluster, has defined
        there, nothing: whose objects they are says who reads them.
        """
        foreign = {place for place in DEFINED if not await self._defines(cluster, space, f"{place[1]}.{place[0]}")}
        named = [(place, names) for place, names in sorted(shown.items()) if names and place not in foreign]
        served = [each["spec"] for each in aggregated if await self._defines(cluster, space, each["metadata"]["name"])]
        name = f"{PREFIX}opened:{cluster}"
        before = await self._store.get(Key(space, GROUP, "clusterroles", "", name), cached=True)
        kept = [
            rule
            for rule in (orjson.loads(before.data).get("rules") or () if before is not None else ())
            if (place := (rule["apiGroups"][0], rule["resources"][0])) not in shown
            and (place in KINDS or place[0] in unknown or API_SERVICES not in shown)
        ]
        rules = [
            {"apiGroups": [place[0]], "resources": [place[1]], "resourceNames": sorted(names), "verbs": ["get"]}
            for place, names in named
        ] + [{"apiGroups": [place[0]], "resources": [place[1]], "verbs": ["list", "watch"]} for place, _ in named]
        rules += [
            {"apiGroups": [spec["group"]], "resources": [spec["names"]["plural"]], "verbs": ["get", "list", "watch"]}
            for spec in served
        ]
        rules += kept
        groups = [
            {"apiGroup": GROUP, "kind": "Group", "name": group} for groups in MEMBERS.values() for group in groups
        ]
        reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
        for kind, plural, said in (
            ("ClusterRole", "clusterroles", {"rules": rules}),
            ("ClusterRoleBinding", "clusterrolebindings", {"roleRef": reference, "subjects": groups}),
        ):
            key = Key(space, GROUP, plural, "", name)
            stored = await self._store.get(key, cached=True)
            if stored is None and rules:
                metadata = {"name": name, **_identity(cluster, space, (GROUP, plural), name)}
                await self._commit(
                    Create(key, {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, **said})
                )
            elif stored is not None:
                body = orjson.loads(stored.data)
                if not rules:
                    await self._commit(Delete(key, stored.revision, body))
                elif any(body.get(part) != value for part, value in said.items()):
                    await self._commit(Update(key, stored.revision, {**body, **said}))

    async def _defines(self, cluster: str, space: str, name: str) -> bool:
        """Whether the definition of this name in a space is the one that the cluster is shown by."""
        key = Key(space, *CRDS, "", name)
        stored = await self._store.get(key, cached=True) or await self._store.get(key)
        metadata = orjson.loads(stored.data)["metadata"] if stored is not None else {}
        return bool((metadata.get("labels") or {}).get(CLUSTER_LABEL) == cluster)

    async def _commit(self, operation: Operation) -> None:
        # Somebody else wrote meanwhile: the next look sees it.
        with contextlib.suppress(PreconditionFailed):
            await self._store.commit(operation)


def _shown(
    cluster: str, place: Place, openings: Sequence[Opening], items: Iterable[Body]
) -> Iterable[tuple[str, Body]]:
    """What of the cluster's objects is opened and can be shown, by name."""
    count = 0
    for item in items:
        metadata = item["metadata"]
        name, labels = metadata["name"], metadata.get("labels") or {}
        if count >= _MOST or not any(opening.includes(name, labels) for opening in openings):
            continue
        body = shown_form(place, item, {CLUSTER_LABEL: cluster})
        if place == CRDS and not _can_be_served(body):
            continue
        count += 1
        yield name, body


def _defined(cluster: str, group: str, version: str, document: Body, most: int) -> dict[str, Body]:
    """The first definitions of what a group's discovery tells of that can be shown. Raises as ``definitions_from``."""
    told = definitions_from(group, version, document, {CLUSTER_LABEL: cluster})
    return {name: body for name, body in list(told.items())[:most] if _can_be_served(body)}


def _can_be_served(crd: Body) -> bool:
    """Whether it is of namespaces or of a kind that can be opened, and this server could have it; the cluster converts it.

    What is the platform's own (AD4) no cluster says.
    """
    spec = crd.get("spec")
    if not isinstance(spec, dict):
        return False
    plural, _, group = str(crd["metadata"]["name"]).partition(".")
    if group in BUILT_IN or is_own(group) or (spec.get("scope") != "Namespaced" and (group, plural) not in KINDS):
        return False
    spec["conversion"] = {"strategy": "None"}
    try:
        return not crd_causes(crd, definitions())
    except (KeyError, TypeError, ValueError, AttributeError, StatusError):
        return False


def _finished(place: Place, body: Body, others: Mapping[str, Body], name: str) -> Body:
    if place != CRDS:
        return body
    group = body["spec"]["group"]
    taken = [other for key, other in others.items() if key != name and other["spec"]["group"] == group]
    metadata = {"generation": 1, **body["metadata"], "finalizers": [CLEANUP]}
    return {**body, "metadata": metadata, "status": crd_status(body, taken, now=_now())}


def _identity(cluster: str, space: str, place: Place, name: str) -> Body:
    return {
        "uid": str(uuid.uuid5(_NAMESPACE, f"{cluster}/{space}/{'/'.join(place)}/{name}/{time.time_ns()}")),
        "creationTimestamp": _now(),
        "tenant": tenant_of(space),
        "selfLink": full_path(space, place[0], "v1", place[1], name=name),
    }


def _said(body: Body) -> Body:
    """A kept object as ``shown_form`` gave it."""
    metadata = {field: value for field, value in body["metadata"].items() if field not in (*_SERVERS, "finalizers")}
    return {**{field: value for field, value in body.items() if field != "status"}, "metadata": metadata}


def _now() -> str:
    return timestamp(time.time())
