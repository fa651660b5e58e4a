"""The provider's view of what others made of its export: across consumers, or in one of them (KC6).

``/services/apiexport/<path>/<export>/clusters/<consumer or *>/api…`` is a request for ``apiexports/content`` of the
export, authorised in the provider's logical cluster with the verb of what is asked inside. Objects of the export's own
resources are the provider's, to read and to write, beyond any policy; of others it reaches what its export claims and
the consumer's binding accepts, with the verbs and the selection of both, within the policy of whoever exports them.
Across all consumers it only reads; what belongs to locked tenants is not there. What that costs is what its own consumers
hold: nothing is read of others' bindings, nor of objects where nobody has accepted a claim to them (DOS-03).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakValueDictionary

from access.authorization.tenancy.suspension import is_write, reaches_inside
from access.authorization.workspaces.state import logical_cluster_key
from gateway.handlers import discovery, verbs
from gateway.http.messages import Request, Response, Stream
from gateway.process.runtime import Runtime
from gateway.process.streams import Recheck
from gateway.process.suspensions import SuspensionCache
from gateway.resources.consumers import Accepted, Look, Wanted
from gateway.resources.kinds import Kind, definitions
from gateway.resources.selection import decoded
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.rbac import Attributes
from kube.customresources.definitions import CRDS, resource_of
from kube.kinds.builtins import TENANT_BUILTINS
from kube.kinds.resources import Catalog, Resource
from kube.requests.requestinfo import RequestInfo, not_found
from kube.requests.status import Expired, Forbidden, MethodNotAllowed
from kube.workspaces.apiexports import (
    EXPORTS,
    SCHEMAS,
    bound_definition,
    identity_of,
    source_of,
)
from kube.workspaces.types import Phase
from store.types import Key, Stored

Body = dict[str, Any]
_READING: Final = ("get", "list", "watch")

_LOOKED_THROUGH: Final = WeakValueDictionary[tuple[str, ...], Resource]()
"""What exports offer, of those who look at the time; what a schema says never changes."""


@dataclass(frozen=True, slots=True)
class BindingScope:
    """What is reached in which logical cluster; ``None`` means all of those that hold anything."""

    suspensions: SuspensionCache
    accepted: Accepted | None = None

    def places(self, key: Key) -> bool:
        """Whether the object can be reached, by its key alone."""
        if self.suspensions.reason(key.space, key.namespace) is not None:
            return False
        return self.accepted is None or self.accepted.places(key)

    def includes(self, key: Key, labels: Mapping[str, str]) -> bool:
        """Whether it is reached."""
        return self.places(key) and (self.accepted is None or self.accepted.includes(key, labels))

    @property
    def by_key(self) -> bool:
        """Whether the key alone decides."""
        return self.accepted is None or self.accepted.by_key

    @property
    def spaces(self) -> Sequence[str] | None:
        """The logical clusters in which anything is reached; ``None`` for all that hold the resource."""
        return None if self.accepted is None else self.accepted.spaces


async def serve(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
    """Answer an authorised request for an export's content. Raises ``StatusError``."""
    info = request.info
    wanted = info.inside
    if wanted is None:
        raise not_found()
    if wanted.all_tenants and info.verb not in _READING:
        raise MethodNotAllowed("objects of all consumers are there to be read")
    kept = await runtime.store.get(at := Key(info.cluster, *EXPORTS, "", info.name))
    if kept is None or wanted.subresource not in ("", "status"):
        raise not_found()
    look = Look(request.charge_bytes)
    look.charge(len(kept.data))
    export = decoded(kept.data)
    if not wanted.is_resource:
        if not discovery.is_discovery(wanted.path):
            raise not_found()
        resources = await _resources(runtime, info.cluster, export, look)
        return discovery.answer(request, Catalog(resources), wanted.path.rstrip("/"))
    if wanted.all_tenants and (wanted.namespace or (wanted.name and info.verb == "get")):
        raise not_found()
    kind, seen = await _export_scope(runtime, request, wanted, export, look)
    # What the store keeps of placed namespaces is nobody's to meet here.
    among = seen.spaces if wanted.all_tenants else [wanted.cluster]
    shown = await runtime.placements.shown((wanted.group, wanted.resource), seen, spaces=among)
    viewed = replace(request, info=wanted, scope_filter=shown)
    if not kind.resource.persistent:
        raise not_found()
    verbs.require(viewed, kind)
    locked = runtime.suspensions.changes

    async def again() -> None:
        nonlocal seen
        await recheck()
        current = await _read(runtime, at)
        if current is None or identity_of(current) != identity_of(export):
            raise not_found()
        # What a stream costs has been charged as it was opened.
        _, now = await _export_scope(runtime, request, wanted, current, Look(lambda _: None, seen.accepted))
        if now != seen or (wanted.all_tenants and runtime.suspensions.changes != locked):
            raise Expired("what can be seen of the consumers has changed, please list again")
        seen = now

    return await verbs.perform(runtime, viewed, kind, again)


async def _export_scope(
    runtime: Runtime, request: Request, wanted: RequestInfo, export: Body, look: Look
) -> tuple[Kind, BindingScope]:
    """The kind, and what of it is reached. Raises ``NotFound`` for what is neither exported nor claimed and accepted."""
    provider = request.info
    if is_write(wanted) and (
        bool(runtime.suspensions.frozen_tenants)
        if wanted.all_tenants
        else runtime.suspensions.freeze(wanted.cluster, wanted.namespace, inside=reaches_inside(wanted)) is not None
    ):
        raise Forbidden("frozen")
    if not wanted.all_tenants:
        reason = runtime.suspensions.reason(wanted.cluster, wanted.namespace)
        if reason is not None:
            raise Forbidden(f"locked: {reason}" if reason else "locked")
        consumer = await _read(runtime, logical_cluster_key(wanted.cluster))
        if ((consumer or {}).get("status") or {}).get("phase") == Phase.INACTIVE:
            raise Forbidden("the logical cluster is marked inactive")
        if await runtime.placements.of(wanted.cluster, wanted.namespace) is not None:
            # What it holds is on its cluster. What was kept of it here nobody would see, and roles would be believed.
            raise Forbidden("the namespace is on a cluster, where providers reach nothing")
    for resource in await _resources(runtime, provider.cluster, export, look, of=wanted):
        version = resource.version(wanted.version)
        if (resource.group, resource.plural) == (wanted.group, wanted.resource) and version is not None:
            if wanted.all_tenants:
                return Kind(resource, version), BindingScope(runtime.suspensions)
            if await _bound_from(runtime, wanted.cluster, wanted) != identity_of(export):
                raise not_found()
            await runtime.custom.ensure(wanted.cluster)
            return runtime.catalogs.require(wanted), BindingScope(runtime.suspensions)
    if wanted.all_tenants:
        return await _export_scope_everywhere(runtime, request, wanted, export, look)
    identity = await _bound_from(runtime, wanted.cluster, wanted)
    found = await _accepted(runtime, provider, wanted, export, identity, look)
    _require_within(await runtime.maximal_permission.authorize(request.principal, wanted), wanted)
    await runtime.custom.ensure(wanted.cluster)
    return runtime.catalogs.require(wanted), BindingScope(runtime.suspensions, found)


async def _export_scope_everywhere(
    runtime: Runtime, request: Request, wanted: RequestInfo, export: Body, look: Look
) -> tuple[Kind, BindingScope]:
    """A claimed resource of all consumers: their own, or what they have from the export that the claim identifies.

    What a definition of their own calls the same is kept under another name (``Resource.place``).
    """
    source, identity = "", ""
    resource = TENANT_BUILTINS.find(wanted.group, wanted.version, wanted.resource)
    if resource is None:
        source, identity, resource = await _source(runtime, wanted, export, look)
    found = await _accepted(runtime, request.info, wanted, export, identity, look)
    version = resource.version(wanted.version)
    if version is None:
        raise not_found()
    if source:
        limit = runtime.maximal_permission.authorize_export(request.principal, Attributes.of(wanted), source, identity)
        _require_within(await limit, wanted)
    return Kind(resource, version), BindingScope(runtime.suspensions, found)


async def _source(runtime: Runtime, wanted: RequestInfo, export: Body, look: Look) -> tuple[str, str, Resource]:
    """The export whose identity a claim names, and the resource that it offers; without it objects could be anybody's."""
    claims = (export.get("spec") or {}).get("permissionClaims") or ()
    identities = {claim.get("identityHash") for claim in claims if claim.get("resource") == wanted.resource} - {
        None,
        "",
    }
    for identity in sorted(identities):
        for item in await runtime.consumers.exports_of(identity):
            for resource in await _resources(runtime, item.key.space, decoded(item.data), look, of=wanted):
                if (resource.group, resource.plural) == (wanted.group, wanted.resource):
                    return f"{item.key.space}:{item.key.name}", identity, resource
    raise not_found()


def _require_within(limit: Decision, wanted: RequestInfo) -> None:
    """Raises ``Forbidden`` beyond the policy of whoever exports the resource."""
    if limit.verdict is Verdict.DENY:
        raise Forbidden(f"{wanted.resource} is forbidden: {limit.reason}", group=wanted.group, kind=wanted.resource)


async def _resources(
    runtime: Runtime, path: str, export: Body, look: Look, *, of: RequestInfo | None = None
) -> Sequence[Resource]:
    """The resources that an export offers, as its consumers keep them; where one is asked for, those that may be it."""
    # The name of a schema ends with that of its resource (``schema_causes``).
    end = f".{of.resource}.{of.group}" if of is not None else ""
    found, schemas = [], list[Stored]()
    for name in (export.get("spec") or {}).get("latestResourceSchemas") or ():
        schema = await runtime.store.get(Key(path, *SCHEMAS, "", name)) if name.endswith(end) else None
        if schema is not None:
            schemas.append(schema)
    look.charge(sum(len(schema.data) for schema in schemas))
    for number, schema in enumerate(schemas):
        if number:
            await asyncio.sleep(0)
        found.append(_resource(path, export, decoded(schema.data)))
    return found


def _resource(path: str, export: Body, schema: Body) -> Resource:
    """The resource; one for all who look through it at the time, so that what is worked out of it is so once."""
    place = (path, export["metadata"]["name"], identity_of(export), schema["metadata"]["uid"])
    resource = _LOOKED_THROUGH.get(place)
    if resource is None:
        resource = _LOOKED_THROUGH[place] = _made(path, export, schema)
    return resource


def _made(path: str, export: Body, schema: Body) -> Resource:
    crd = bound_definition(
        schema,
        path=path,
        binding="",
        export=f"{path}:{export['metadata']['name']}",
        identity=identity_of(export),
        others=(),
        now="",
    )
    # Nothing tells whether the export has moved on to this schema from another: consumers may keep objects of that one.
    return replace(resource_of(crd, definitions(), space=path), changed=True)


async def _bound_from(runtime: Runtime, cluster: str, wanted: RequestInfo) -> str:
    """The identity of the export that a logical cluster has the resource from; empty for its own."""
    crd = await _read(runtime, Key(cluster, *CRDS, "", f"{wanted.resource}.{wanted.group}"))
    return (source_of(crd) or ("", ""))[1]


async def _accepted(
    runtime: Runtime, provider: RequestInfo, wanted: RequestInfo, export: Body, identity: str, look: Look
) -> Accepted:
    """What is accepted of the export's claims to the resource, which is from the export of this identity."""
    asked = Wanted(wanted.group, wanted.resource, wanted.verb, identity)
    at, cluster = Key(provider.cluster, *EXPORTS, "", provider.name), "" if wanted.all_tenants else wanted.cluster
    found = await runtime.consumers.accepted(at, export, asked, look, cluster=cluster)
    if not found:
        raise not_found()
    return found


async def _read(runtime: Runtime, key: Key) -> Body | None:
    stored = await runtime.store.get(key)
    return decoded(stored.data) if stored is not None else None
