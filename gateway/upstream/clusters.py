"""The registered clusters as this process knows them: where they are, and what their roles of workspaces hold (GW4, GW12).

The rows are read at the start, when somebody is told of a change, and every ``POLL_SECONDS``; credentials are opened, and
clusters asked for their roles, in threads. Whatever cannot be opened is not there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from psycopg.pq.abc import PGresult

from audit import tracing
from gateway.upstream.client import Cluster, Upstream
from gateway.upstream.tracing import TracedUpstream
from kube.authentication.kubeconfig import RegisteredCluster
from kube.authorization.leastrole import WorkspaceRoles
from kube.authorization.placedrights import BYTES_MOST
from kube.authorization.rbac import GROUP, role_from
from kube.kinds.openings import Opening, openings_from
from kube.requests.status import ServiceUnavailable
from store.fairqueue import FairQueue
from store.placethreads import PlaceThreads
from store.postgresql.connections import AWAY
from store.postgresql.dedicatedconnection import DedicatedConnection
from store.postgresql.leadership import CheckLeadership
from store.supervision import Supervised
from store.types import Key
from tenants.clusters.changes import CHANNEL
from tenants.clusters.client import ClusterUnusable, Outcome, access_to, client_to, object_path, tls_context
from tenants.clusters.objects import roles_on
from tenants.models import Cluster as Row

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 15.0
ROLES_SECONDS: Final = 60.0
"""How old the rules of a cluster's roles may be before they are read anew; a reading that fails keeps them."""

_AGAIN_SECONDS: Final = 2.0
_EACH_SECONDS: Final = 1.0
_READ_SECONDS: Final = 5.0
_COLUMNS: Final = ("id", "name", "server", "tenant_role", "opened", "sealed_credential")
_ROWS: Final = "SELECT id, name, server, tenant_role, opened, encode(sealed_credential, 'hex') FROM clusters WHERE kind = 'external'"


@dataclass(slots=True)
class _Known:
    """One cluster: the connections to it for tenants' requests and for our own, our credential, and its roles."""

    upstream: Upstream
    gateway: Upstream
    access: RegisteredCluster = field(repr=False)
    row: Row = field(repr=False)
    openings: tuple[Opening, ...]
    roles: WorkspaceRoles | None = None
    read_at: float = float("-inf")
    reading: asyncio.Task[None] | None = field(default=None, repr=False)


class Clusters:
    """The clusters by name."""

    def __init__(self, database_url: str) -> None:
        self._known: dict[str, _Known] = {}
        self._threads = PlaceThreads("roles")
        self._told = asyncio.Event()
        self._connection = DedicatedConnection(
            database_url, "tenantry-clusters", channel=CHANNEL, heard=lambda _: self._told.set(), lost=self._told.set
        )
        self._task = Supervised("clusters", self._follow)

    async def start(self) -> None:
        """Read the table once, then follow it. Raises what the database does."""
        await self._read()
        self._task.start()

    async def stop(self) -> None:
        """Stop following, and hang up everywhere."""
        await self._task.stop()
        self._connection.close()
        for name in list(self._known):
            await self._forget(name)

    def upstream(self, name: str) -> Upstream:
        """The way to a cluster. Raises ``ServiceUnavailable`` for one that cannot be used."""
        return self._require(name).upstream

    @property
    def names(self) -> frozenset[str]:
        """The clusters that can be used."""
        return frozenset(self._known)

    @property
    def all(self) -> frozenset[Cluster]:
        """The same, each as where it is now."""
        return frozenset(known.upstream.cluster for known in self._known.values())

    def openings(self, name: str) -> tuple[Opening, ...]:
        """What of a cluster's own objects its tenants see. Raises ``ServiceUnavailable``."""
        return self._require(name).openings

    def as_gateway(self, name: str) -> tuple[Upstream, str]:
        """The way to a cluster for what the product itself asks, and the token for it, empty where a certificate is shown.

        Never for a request of anybody. Raises ``ServiceUnavailable``.
        """
        known = self._require(name)
        return known.gateway, known.access.token

    async def roles(self, name: str) -> WorkspaceRoles:
        """What a workspace's accounts may do on a cluster. Raises ``ServiceUnavailable`` while nobody can tell."""
        known = self._require(name)
        if time.monotonic() - known.read_at > ROLES_SECONDS and known.reading is None:
            known.reading = asyncio.create_task(self._read_roles(name, known))
        if known.roles is None and known.reading is not None:
            await asyncio.shield(known.reading)
        if known.roles is None:
            raise ServiceUnavailable(
                f'the cluster "{name}" does not say what the roles of workspaces hold: its gateway-role.yaml may be an '
                "older one, or it is away",
                retry_after=5,
            )
        return known.roles

    def _require(self, name: str) -> _Known:
        known = self._known.get(name)
        if known is None:
            raise ServiceUnavailable(f'the cluster "{name}" cannot be used at present', retry_after=5)
        return known

    async def _follow(self) -> None:
        while True:
            # Cleared before the reading: what is told while it runs brings another one.
            self._told.clear()
            try:
                await self._read()
            except AWAY as error:
                logger.warning("the clusters cannot be read: %s", type(error).__name__)
                self._connection.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._told.wait()

    async def _read(self) -> None:
        async with asyncio.timeout(_READ_SECONDS):
            result = await self._connection.ask(_ROWS)
        found = await asyncio.to_thread(_registered, [_row(result, number) for number in range(result.ntuples)])
        for name in self._known.keys() - found.keys():
            await self._forget(name)
        for name, now in found.items():
            known = self._known.get(name)
            if known is None or known.upstream.cluster != now.cluster:
                # What is under way ends by itself; a way to another server must not be found any more.
                gateway = _as_gateway(now.cluster, now.access)
                self._known[name] = _Known(_upstream()(now.cluster), gateway, now.access, now.row, now.openings)
                continue
            if known.access != now.access:
                # Tenants' requests carry tokens of their own: another credential of ours is no gap for them.
                known.gateway.retire()
                known.access, known.gateway = now.access, _as_gateway(now.cluster, now.access)
            if known.row.tenant_role != now.row.tenant_role:
                known.roles, known.read_at = None, float("-inf")
            known.row, known.openings = now.row, now.openings

    async def _forget(self, name: str) -> None:
        known = self._known.pop(name)
        await known.upstream.close()
        await known.gateway.close()

    async def _read_roles(self, name: str, known: _Known) -> None:
        try:
            # Threads of their own: those that all else is done in are few, and clusters that do not answer may be many.
            found = await self._threads.run(name, partial(_roles, known.row))
        except Exception:
            # Who has older rules does not wait for this.
            logger.exception("the roles of the cluster %s cannot be read", name)
            found = None
        known.reading = None
        # One that does not say is not asked with every request.
        known.read_at = time.monotonic() - (0.0 if found is not None else ROLES_SECONDS - _AGAIN_SECONDS)
        known.roles = found if found is not None else known.roles


def _row(result: PGresult, number: int) -> Row:
    texts = [(result.get_value(number, column) or b"").decode() for column in range(len(_COLUMNS))]
    values: dict[str, Any] = dict(zip(_COLUMNS, texts, strict=True))
    values |= {"id": UUID(values["id"]), "sealed_credential": bytes.fromhex(values["sealed_credential"])}
    return Row(kind=Row.Kind.EXTERNAL, **values)


def _upstream() -> type[Upstream]:
    return TracedUpstream if tracing.running() is not None else Upstream


def _as_gateway(cluster: Cluster, access: RegisteredCluster) -> Upstream:
    return _upstream()(cluster, tls=tls_context(access, with_certificate=True))


class _Registered(NamedTuple):
    """A row whose credential can be opened, with it, and what is opened to tenants."""

    row: Row
    cluster: Cluster
    access: RegisteredCluster
    openings: tuple[Opening, ...]


def _registered(rows: Sequence[Row]) -> dict[str, _Registered]:
    """Those of the clusters that can be used."""
    found = {}
    for row in rows:
        try:
            access = access_to(row)
        except ClusterUnusable as error:
            logger.warning("the cluster %s cannot be used: %s", row.name, error)
            continue
        cluster = Cluster(
            uid=str(row.pk),
            name=row.name,
            url=access.server,
            ca_pem=access.certificate_authority.decode("ascii"),
            tls_server_name=access.server_name,
        )
        found[row.name] = _Registered(row, cluster, access, openings_from(row.opened))
    return found


def _roles(row: Row) -> WorkspaceRoles | None:
    """The rules of a cluster's roles, asked with the gateway's credential; ``None`` when it does not say, or says too much.

    They are kept for each of its namespaces, in the spaces of its tenants.
    """
    try:
        client = client_to(row)
    except ClusterUnusable as error:
        logger.warning("the roles of the cluster %s cannot be read: %s", row.name, error)
        return None
    rules = {}
    for role, cluster_role in roles_on(row).items():
        answer = client.get(object_path(GROUP, "v1", "clusterroles", name=cluster_role))
        if answer.outcome is not Outcome.DONE:
            logger.warning("the cluster %s does not show the role %s: %s", row.name, cluster_role, answer.message)
            return None
        rules[role] = role_from(answer.body).rules
    if len(orjson.dumps([rule.as_dict() for each in rules.values() for rule in each])) > BYTES_MOST:
        logger.warning("the cluster %s says more of the roles of workspaces than is kept of them", row.name)
        return None
    return WorkspaceRoles.of(rules, {name: role for role, name in roles_on(row).items()})


async def follow_each(
    clusters: Clusters, what: str, follow: Callable[[str], Awaitable[object]], check_leadership: CheckLeadership
) -> None:
    """``follow`` each cluster in a task of its own, from when it can be used until it cannot; ends by what the check raises.

    ``what`` is followed, in the tasks' names. One that is elsewhere than before is another one, whatever its name.
    """
    tasks: dict[Cluster, Supervised] = {}
    try:
        while True:
            there = clusters.all
            for gone in tasks.keys() - there:
                await tasks[gone].stop()
                del tasks[gone]
            for come in there - tasks.keys():
                tasks[come] = Supervised(f"{what} of {come.name}", partial(follow, come.name))
                tasks[come].start()
            await check_leadership()
            await asyncio.sleep(_EACH_SECONDS)
    finally:
        await asyncio.gather(*(task.stop() for task in tasks.values()))


class ClusterQueues:
    """What is due on clusters: each has a queue and a task of its own, so that none waits for another.

    ``reconcile`` looks at one object, for the work that is called ``work``.
    """

    def __init__(self, work: str, reconcile: Callable[[Key], Awaitable[None]]) -> None:
        self._work = work
        self._reconcile = reconcile
        self._queues: dict[str, FairQueue] = {}
        self._tasks: dict[str, Supervised] = {}

    def add(self, cluster: str, key: Key) -> None:
        """Look at an object there soon."""
        self._queue_of(cluster).add(key)

    def add_later(self, cluster: str, key: Key, seconds: float) -> None:
        """Look at an object there after some time; once, however often that is said meanwhile."""
        self._queue_of(cluster).add_later(key, seconds)

    def _queue_of(self, cluster: str) -> FairQueue:
        if cluster not in self._queues:
            queue = self._queues[cluster] = FairQueue(self._reconcile)
            self._tasks[cluster] = Supervised(f"{self._work} on {cluster}", queue.run)
            self._tasks[cluster].start()
        return self._queues[cluster]

    async def part(self, clusters: Collection[str]) -> None:
        """End what is for none of these, once it has nothing to do any more."""
        for name in self._queues.keys() - set(clusters):
            # Asked each time anew: something may have come for it while another one ended.
            if self._queues[name].is_idle:
                del self._queues[name]
                await self._tasks.pop(name).stop()

    async def stop(self) -> None:
        """End all, and forget what is due."""
        tasks, self._tasks, self._queues = self._tasks, {}, {}
        await asyncio.gather(*(task.stop() for task in tasks.values()))
