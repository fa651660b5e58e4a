"""The registered clusters as this process knows them: where they are, and what their roles of workspaces hold (GW4, GW12).

Rows, sealed credentials and the roles are read in a thread, at the start, when somebody is told of a change, and every
``POLL_SECONDS``. Whatever cannot be opened is not there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from dataclasses import dataclass, field
from typing import Final

from gateway.upstream.client import Cluster, Upstream
from kube.authorization.leastrole import WorkspaceRoles
from kube.authorization.rbac import GROUP, role_from
from kube.requests.status import ServiceUnavailable
from store.postgresql.connections import AWAY
from store.postgresql.dedicatedconnection import DedicatedConnection
from store.supervision import Supervised
from tenants.clusters.changes import CHANNEL
from tenants.clusters.client import ClusterUnusable, Outcome, access_to, client_to, object_path
from tenants.clusters.objects import roles_on
from tenants.models import Cluster as Row

logger = logging.getLogger(__name__)

POLL_SECONDS: Final = 15.0
ROLES_SECONDS: Final = 60.0
"""How old the rules of a cluster's roles may be before they are read anew; a reading that fails keeps them."""


@dataclass(slots=True)
class _Known:
    """One cluster: the connections to it, and its roles."""

    upstream: Upstream
    tenant_role: str
    roles: WorkspaceRoles | None = None
    read_at: float = float("-inf")
    reading: asyncio.Task[None] | None = field(default=None, repr=False)


class Clusters:
    """The clusters by name."""

    def __init__(self, database_url: str) -> None:
        self._known: dict[str, _Known] = {}
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
        for known in self._known.values():
            await known.upstream.close()
        self._known.clear()

    def upstream(self, name: str) -> Upstream:
        """The way to a cluster. Raises ``ServiceUnavailable`` for one that cannot be used."""
        return self._require(name).upstream

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
                await self._connection.ready()
                await self._read()
            except AWAY as error:
                logger.warning("the clusters cannot be read: %s", type(error).__name__)
                self._connection.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._told.wait(), POLL_SECONDS)

    async def _read(self) -> None:
        found = await asyncio.to_thread(_registered)
        for name in self._known.keys() - found.keys():
            await self._known.pop(name).upstream.close()
        for name, (cluster, tenant_role) in found.items():
            known = self._known.get(name)
            if known is None or known.upstream.cluster != cluster:
                # What is under way ends by itself; a way to another server must not be found any more.
                self._known[name] = _Known(Upstream(cluster), tenant_role)
            elif known.tenant_role != tenant_role:
                known.tenant_role, known.roles, known.read_at = tenant_role, None, float("-inf")

    async def _read_roles(self, name: str, known: _Known) -> None:
        try:
            found = await asyncio.to_thread(_roles, name)
            known.roles = found if found is not None else known.roles
            if found is not None:
                known.read_at = time.monotonic()
        finally:
            known.reading = None


def _registered() -> dict[str, tuple[Cluster, str]]:
    """The external clusters whose credential can be opened, each with the role of its workspaces' admins."""
    from django.db import close_old_connections

    close_old_connections()
    found = {}
    try:
        for row in Row.objects.filter(kind=Row.Kind.EXTERNAL):
            try:
                access = access_to(row)
                cluster = Cluster(
                    uid=str(row.pk),
                    name=row.name,
                    url=access.server,
                    ca_pem=access.certificate_authority.decode("ascii"),
                    tls_server_name=access.server_name,
                )
            except ClusterUnusable as error:
                logger.warning("the cluster %s cannot be used: %s", row.name, error)
                continue
            found[row.name] = cluster, row.tenant_role
    finally:
        close_old_connections()
    return found


def _roles(name: str) -> WorkspaceRoles | None:
    """The rules of a cluster's roles, asked with the gateway's credential; ``None`` when it does not say."""
    from django.db import close_old_connections

    close_old_connections()
    try:
        row = Row.objects.get(name=name)
        client = client_to(row)
        rules = {}
        for role, cluster_role in roles_on(row).items():
            answer = client.get(object_path(GROUP, "v1", "clusterroles", name=cluster_role))
            if answer.outcome is not Outcome.DONE:
                logger.warning("the cluster %s does not show the role %s: %s", name, cluster_role, answer.message)
                return None
            rules[role] = role_from(answer.body).rules
    except (ClusterUnusable, Row.DoesNotExist) as error:
        logger.warning("the roles of the cluster %s cannot be read: %s", name, error)
        return None
    finally:
        close_old_connections()
    return WorkspaceRoles.of(rules)
