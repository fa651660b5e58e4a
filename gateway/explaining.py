"""The API server's decisions outside of it: the same authorizers on the database's state of this moment (AZ11).

For the portal's process, which has no API server in it and asks seldom. Everything is read first, in the caller's own
connection and transaction; then the authorizers run on what was read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from django.conf import settings

from access.authorization.abac import PolicyFile
from access.authorization.build import build_authorization
from access.authorization.grants import RESOURCE, policies_from
from access.authorization.lock import closed_by, tenants_behind
from access.authorization.node import GRAPHED, NodeGraphs, nodes_that_may
from access.authorization.rbac import PolicyCache
from gateway.kinds import Catalogs
from kube import abac
from kube.abac import Policy
from kube.identity import SYSTEM_TENANT, Principal
from kube.logicalclusters import ROOT, is_tenant_space, is_valid, tenant_of
from kube.nodegraph import node_of
from kube.paths import parse, resolve
from kube.rbac import GROUP, Attributes
from kube.requestinfo import RequestInfo
from kube.spacepolicy import Policies
from kube.status import BadRequest
from kube.verdicts import Decision
from kube.whocan import Holder
from store import synchronous
from store.types import Everywhere, Key, Listing, Range, Stored

_RBAC = ("roles", "clusterroles", "rolebindings", "clusterrolebindings")


def explain(principal: Principal, method: str, path: str, cluster: str) -> tuple[RequestInfo, Decision]:
    """What a request means and how it would be decided, with every step; nothing is executed.

    ``path`` as kubectl sends it; with ``cluster`` it is meant inside that logical cluster unless it names one itself.
    Raises ``StatusError`` for what is no request.
    """
    target, _, query = path.partition("?")
    if cluster and not target.startswith("/clusters/"):
        target = f"/clusters/{cluster}{target}"
    info = resolve(parse(method, target.encode("ascii"), query.encode("ascii")), principal.tenant, None)
    return info, decide(principal, info)


def decide(principal: Principal, info: RequestInfo) -> Decision:
    """The decision about a resolved request, with every step."""
    graphed = GRAPHED if node_of(principal.name, principal.groups) else ()
    ranges = [*_ranges(info.cluster), *(Range(info.cluster, "", resource) for resource in graphed)]
    store = Snapshot(ranges, {tenant_of(info.cluster), principal.tenant or SYSTEM_TENANT})
    return asyncio.run(_explained(store, principal, info))


async def _explained(store: Snapshot, principal: Principal, info: RequestInfo) -> Decision:
    authorization = build_authorization(
        settings.AUTHORIZATION, store, locks=store, system_only=Catalogs().is_system_only
    )
    async with authorization.running():
        return await authorization.chain.explain(principal, info)


@dataclass(frozen=True, slots=True)
class State:
    """What decides in one logical cluster: the compiled RBAC around it, and whom policies and lines let in."""

    policies: Policies
    objects: tuple[Policy, ...]
    lines: tuple[Policy, ...]


def state_of(cluster: str) -> State:
    """The policies of a logical cluster at this moment. Raises ``BadRequest`` for what is none."""
    if not is_valid(cluster):
        raise BadRequest("There is no such logical cluster.")
    tenant = tenant_of(cluster)
    store = Snapshot(_ranges(cluster), {tenant})
    policies = asyncio.run(PolicyCache(store).around(cluster))
    file = settings.AUTHORIZATION.policy_file
    objects = policies_from([stored.data for stored in store.of(Range(cluster, abac.GROUP, RESOURCE))], tenant)
    return State(policies, objects, PolicyFile(file).policies if file is not None else ())


def nodes(cluster: str, attributes: Attributes) -> tuple[Holder, ...]:
    """The nodes that may do this in a logical cluster, where the Node authorizer is asked; in workspaces it never is."""
    if "Node" not in settings.AUTHORIZATION.mode or not (cluster == ROOT or is_tenant_space(cluster)):
        return ()
    store = NodeGraphs(Snapshot([Range(cluster, "", resource) for resource in GRAPHED], ()))
    info = RequestInfo(
        method="",
        path=attributes.path,
        cluster=cluster,
        tenant=tenant_of(cluster),
        verb=attributes.verb,
        is_resource=attributes.is_resource,
        group=attributes.group,
        resource=attributes.resource.partition("/")[0],
        subresource=attributes.subresource,
        namespace=attributes.namespace,
        name=attributes.name,
    )
    return nodes_that_may(info, lambda: asyncio.run(store.of(cluster)))


def _ranges(cluster: str) -> list[Range]:
    found = [Range(space, GROUP, resource) for space in dict.fromkeys((cluster, ROOT)) for resource in _RBAC]
    if cluster == ROOT or is_tenant_space(cluster):
        found.append(Range(cluster, abac.GROUP, RESOURCE))
    return found


class Snapshot:
    """Some ranges, some Tenant objects and all locks, as the caller's transaction sees them: a store to decide by."""

    def __init__(self, ranges: Iterable[Range], tenants: Iterable[str]) -> None:
        from tenants.models import Lock

        self._ranges: Mapping[Range, Listing] = {selection: synchronous.listing(selection) for selection in ranges}
        keys = [Key(ROOT, "", "tenants", "", tenant) for tenant in tenants]
        self._objects = {key: synchronous.get(key) for key in keys}
        self._locks = {
            (space, namespace): reason
            for space, namespace, reason in Lock.objects.values_list("space", "namespace", "reason")
        }
        self.tenants = tenants_behind(self._locks)

    def of(self, selection: Range) -> Iterable[Stored]:
        """The objects of a range that was read."""
        return self._ranges[selection].items

    def reason(self, cluster: str, namespace: str) -> str | None:
        """Why a door is locked, or ``None``."""
        return closed_by(self._locks, cluster, namespace)

    async def get(self, key: Key, *, cached: bool = False) -> Stored | None:  # noqa: ARG002
        """One of the Tenant objects."""
        return self._objects[key]

    async def list(
        self,
        selection: Range | Everywhere,
        *,
        at_least: int | None = None,  # noqa: ARG002
        exact: int | None = None,  # noqa: ARG002
        after: tuple[str, str, str] | None = None,  # noqa: ARG002
        limit: int = 0,  # noqa: ARG002
        cached: bool = False,  # noqa: ARG002
    ) -> Listing:
        """One of the ranges, whole."""
        assert isinstance(selection, Range)  # noqa: S101 - decisions look into single spaces
        return self._ranges[selection]
