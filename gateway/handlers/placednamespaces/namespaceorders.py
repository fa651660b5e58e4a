"""Namespaces on clusters: asked for and ended by the portal's own services, whichever way a client writes them (GW18)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final
from uuid import UUID

import orjson

from access.admission.tenancy.workspaceobjectprotection import UNOWNED
from gateway.http.messages import Request
from gateway.process.runtime import Runtime
from gateway.process.tenantservices import caller_of, never_kept
from gateway.resources.kinds import Kind
from gateway.upstream.placements import cluster_of, workspace_of
from kube.requests.logicalclusters import ROOT, is_tenant_space
from kube.requests.status import forbidden_object
from store.types import Create, Key, Operation, Stored
from tenants.clusters.objects import DEFAULT_TIER

DEFAULT_CLUSTER: Final = "tenantry.io/default-cluster"
"""Annotation of Tenant objects, which operators write: where its namespaces are made that say nothing."""


async def wanted_cluster(runtime: Runtime, request: Request, kind: Kind, body: Mapping[str, Any]) -> str:
    """The cluster on which a new object is to be, when it is a Namespace for one; else empty."""
    info = request.info
    if kind.resource.storage_key != ("", "namespaces") or not is_tenant_space(info.cluster):
        return ""
    named = cluster_of(body)
    return named if named is not None else (await _defaults(runtime, info.tenant)).get(DEFAULT_CLUSTER, "")


async def order(
    runtime: Runtime, request: Request, body: Mapping[str, Any], cluster: str, held: Sequence[Operation]
) -> Stored:
    """Order the workspace behind an admitted Namespace; it is on its way when this returns, but for a dry run.

    ``held`` is what must hold, and what a stored namespace begins with: a placed one has that from its cluster.
    Raises ``Forbidden`` for one with owners, and as ``tenants.services.namespaces.namespace_order``.
    """
    if body["metadata"].get("ownerReferences"):
        raise forbidden_object("", "namespaces", body["metadata"]["name"], UNOWNED)
    tier = (await _defaults(runtime, request.info.tenant)).get(DEFAULT_TIER, "")
    name = body["metadata"]["name"]
    ordered = partial(
        runtime.tenants.order_namespace,
        caller=caller_of(request),
        tenant=request.info.tenant,
        cluster=cluster,
        tier=tier,
        body=body,
        held=[each for each in held if not (isinstance(each, Create) and each.key.namespace == name)],
    )
    # The cluster is asked whether it has the name already, and may take its time.
    stored = await runtime.order_threads.run(cluster, ordered)
    return never_kept(stored) if request.dry_run else stored


async def end(runtime: Runtime, request: Request, body: Mapping[str, Any]) -> Stored | None:
    """Delete the workspace behind a Namespace, or in a dry run see whether that may be; what is left of the object.

    ``None`` once it is gone.
    """
    return await asyncio.to_thread(
        runtime.tenants.end_namespace,
        caller=caller_of(request),
        tenant=request.info.tenant,
        workspace_id=UUID(workspace_of(body)),
    )


async def _defaults(runtime: Runtime, tenant: str) -> Mapping[str, str]:
    stored = await runtime.store.get(Key(ROOT, "", "tenants", "", tenant), cached=True)
    return orjson.loads(stored.data)["metadata"].get("annotations") or {} if stored is not None else {}
