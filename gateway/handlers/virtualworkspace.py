"""The provider's view of what others made of its export: across consumers, or in one of them (KC6).

``/services/apiexport/<path>/<export>/clusters/<consumer or *>/api…`` is a request for ``apiexports/content`` of the
export, authorised in the provider's logical cluster with the verb of what is asked inside. Objects of the export's own
resources are the provider's, to read and to write, beyond any policy; of others it reaches what its export claims and
the consumer's binding accepts, with the verbs and the selection of both, within the policy of whoever exports them.
Across all consumers it only reads; what belongs to locked tenants is not there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from access.authorization.tenancy.suspension import is_write, reaches_inside
from access.authorization.workspaces.state import logical_cluster_key
from gateway.handlers import discovery, verbs
from gateway.http.messages import Request, Response, ScopeFilter, Stream
from gateway.process.runtime import Runtime
from gateway.process.streams import Recheck
from gateway.process.suspensions import SuspensionCache
from gateway.resources.kinds import Kind, definitions
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.rbac import Attributes
from kube.customresources.definitions import CRDS, resource_of
from kube.kinds.builtins import TENANT_BUILTINS
from kube.kinds.resources import Catalog, Resource
from kube.requests.logicalclusters import full_path, is_valid, tenant_of
from kube.requests.requestinfo import ALL_TENANTS, ParsedRequest, RequestInfo, not_found, parse
from kube.requests.status import Expired, Forbidden, MethodNotAllowed
from kube.workspaces.apiexports import (
    BINDINGS,
    EXPORTS,
    SCHEMAS,
    Selected,
    accepted,
    bound_definition,
    consents_to,
    identity_of,
    source_of,
)
from kube.workspaces.types import Phase, reference
from store.types import AllSpaces, Key, Range

Body = dict[str, Any]
_READING: Final = ("get", "list", "watch")
_EVERYTHING: Final = (Selected(),)


@dataclass(frozen=True, slots=True)
class BindingScope:
    """What is reached in which logical cluster; ``None`` means all of those that hold anything."""

    suspensions: SuspensionCache
    selected: Mapping[str, tuple[Selected, ...]] | None

    def places(self, key: Key) -> bool:
        """Whether the object can be reached, by its key alone."""
        if self.suspensions.reason(key.space, key.namespace) is not None:
            return False
        return any(one.places(key.namespace, key.name) for one in self._of(key))

    def includes(self, key: Key, labels: Mapping[str, str]) -> bool:
        """Whether it is reached."""
        return self.places(key) and any(one.includes(key.namespace, key.name, labels) for one in self._of(key))

    @property
    def by_key(self) -> bool:
        """Whether the key alone decides."""
        return self.selected is None or not any(one.labels for some in self.selected.values() for one in some)

    def _of(self, key: Key) -> tuple[Selected, ...]:
        return _EVERYTHING if self.selected is None else self.selected.get(key.space, ())


async def serve(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
    """Answer an authorised request for an export's content. Raises ``StatusError``."""
    info = request.info
    prefix, _, rest = info.rest.partition("/")
    selected, _, inside = rest.partition("/")
    if prefix != "clusters" or not inside or not (selected == ALL_TENANTS or is_valid(selected)):
        raise not_found()
    if selected == ALL_TENANTS and info.verb not in _READING:
        raise MethodNotAllowed("objects of all consumers are there to be read")
    inner = parse(info.method, f"/{inside}".encode())
    export = await _read(runtime, Key(info.cluster, *EXPORTS, "", info.name))
    if (
        export is None
        or inner.cluster is not None
        or inner.tenant is not None
        or inner.subresource not in ("", "status")
    ):
        raise not_found()
    if not inner.is_resource:
        if not discovery.is_discovery(inner.path):
            raise not_found()
        resources = await _resources(runtime, info.cluster, export)
        return discovery.answer(request, Catalog(resources), inner.path.rstrip("/"))
    wanted = _info(info, inner, selected)
    kind, scope_filter = await _export_scope(runtime, request, wanted, export)
    viewed = replace(request, info=wanted, scope_filter=scope_filter)
    if not kind.resource.persistent:
        raise not_found()
    verbs.require(viewed, kind)
    locked = runtime.suspensions.changes

    async def again() -> None:
        await recheck()
        current = await _read(runtime, Key(info.cluster, *EXPORTS, "", info.name))
        if current is None or identity_of(current) != identity_of(export):
            raise not_found()
        _, now = await _export_scope(runtime, request, wanted, current)
        if now != scope_filter or (wanted.all_tenants and runtime.suspensions.changes != locked):
            raise Expired("what can be seen of the consumers has changed, please list again")

    return await verbs.perform(runtime, viewed, kind, again)


def _info(info: RequestInfo, inner: ParsedRequest, selected: str) -> RequestInfo:
    """The request as it would be in the consumer; for all consumers, across tenants."""
    across = selected == ALL_TENANTS
    if across and (inner.namespace or (inner.name and info.verb == "get")):
        raise not_found()
    cluster = info.cluster if across else selected
    return RequestInfo(
        method=info.method,
        path=full_path(
            cluster,
            inner.group,
            inner.version,
            inner.resource,
            namespace=inner.namespace,
            name=inner.name,
            subresource=inner.subresource,
        ),
        cluster=cluster,
        tenant=tenant_of(cluster),
        verb=info.verb,
        is_resource=True,
        group=inner.group,
        version=inner.version,
        resource=inner.resource,
        subresource=inner.subresource,
        namespace=inner.namespace,
        name=inner.name,
        all_tenants=across,
        through=info.cluster,
    )


async def _export_scope(
    runtime: Runtime, request: Request, wanted: RequestInfo, export: Body
) -> tuple[Kind, ScopeFilter | None]:
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
    for resource in await _resources(runtime, provider.cluster, export):
        version = resource.version(wanted.version)
        if (resource.group, resource.plural) == (wanted.group, wanted.resource) and version is not None:
            if wanted.all_tenants:
                return Kind(resource, version), await _reached(runtime, wanted, None)
            if await _bound_from(runtime, wanted.cluster, wanted) != identity_of(export):
                raise not_found()
            await runtime.custom.ensure(wanted.cluster)
            return runtime.catalogs.require(wanted), await _reached(runtime, wanted, None)
    if wanted.all_tenants:
        return await _export_scope_everywhere(runtime, request, wanted, export)
    found = await _accepted(runtime, provider, wanted, export)
    if not found:
        raise not_found()
    _require_within(await runtime.maximal_permission.authorize(request.principal, wanted), wanted)
    await runtime.custom.ensure(wanted.cluster)
    return runtime.catalogs.require(wanted), await _reached(runtime, wanted, found)


async def _reached(
    runtime: Runtime, wanted: RequestInfo, selected: Mapping[str, tuple[Selected, ...]] | None
) -> ScopeFilter | None:
    """What is selected, but for what the store keeps of placed namespaces: that is nobody's to meet here."""
    space = "" if wanted.all_tenants else wanted.cluster
    among = BindingScope(runtime.suspensions, selected)
    return await runtime.placements.shown((wanted.group, wanted.resource), among, space=space)


async def _export_scope_everywhere(
    runtime: Runtime, request: Request, wanted: RequestInfo, export: Body
) -> tuple[Kind, ScopeFilter | None]:
    """A claimed resource of all consumers: their own, or what they have from the export that the claim identifies."""
    source, identity = "", ""
    resource = TENANT_BUILTINS.find(wanted.group, wanted.version, wanted.resource)
    if resource is None:
        source, identity, resource = await _source(runtime, wanted, export)
    found = await _accepted_anywhere(runtime, request.info, wanted, export, identity)
    version = resource.version(wanted.version)
    if version is None or not found:
        raise not_found()
    if source:
        limit = runtime.maximal_permission.authorize_export(request.principal, Attributes.of(wanted), source, identity)
        _require_within(await limit, wanted)
    return Kind(resource, version), await _reached(runtime, wanted, found)


async def _source(runtime: Runtime, wanted: RequestInfo, export: Body) -> tuple[str, str, Resource]:
    """The export whose identity a claim names, and the resource that it offers; without it objects could be anybody's."""
    claims = (export.get("spec") or {}).get("permissionClaims") or ()
    identities = {claim.get("identityHash") for claim in claims if claim.get("resource") == wanted.resource} - {
        None,
        "",
    }
    for item in (await runtime.store.list(AllSpaces(*EXPORTS), cached=True)).items:
        body = orjson.loads(item.data)
        identity = identity_of(body)
        for resource in await _resources(runtime, item.key.space, body) if identity in identities else ():
            if (resource.group, resource.plural) == (wanted.group, wanted.resource):
                return f"{item.key.space}:{item.key.name}", identity, resource
    raise not_found()


def _require_within(limit: Decision, wanted: RequestInfo) -> None:
    """Raises ``Forbidden`` beyond the policy of whoever exports the resource."""
    if limit.verdict is Verdict.DENY:
        raise Forbidden(f"{wanted.resource} is forbidden: {limit.reason}", group=wanted.group, kind=wanted.resource)


async def _resources(runtime: Runtime, path: str, export: Body) -> Sequence[Resource]:
    """The resources that an export offers, as its consumers keep them."""
    found = []
    for name in (export.get("spec") or {}).get("latestResourceSchemas") or ():
        schema = await _read(runtime, Key(path, *SCHEMAS, "", name))
        if schema is not None:
            crd = bound_definition(
                schema,
                path=path,
                binding="",
                export=f"{path}:{export['metadata']['name']}",
                identity=identity_of(export),
                others=(),
                now="",
            )
            found.append(resource_of(crd, definitions(), space=path))
    return found


async def _bound_from(runtime: Runtime, cluster: str, wanted: RequestInfo) -> str:
    """The identity of the export that a logical cluster has the resource from; empty for its own."""
    crd = await _read(runtime, Key(cluster, *CRDS, "", f"{wanted.resource}.{wanted.group}"))
    return (source_of(crd) or ("", ""))[1]


async def _accepted(
    runtime: Runtime, provider: RequestInfo, wanted: RequestInfo, export: Body
) -> dict[str, tuple[Selected, ...]]:
    """What bindings of the consumer accept of the export's claims to the resource."""
    identity = await _bound_from(runtime, wanted.cluster, wanted)
    bindings = (await runtime.store.list(Range(wanted.cluster, *BINDINGS), cached=True)).items
    found = [_answer(orjson.loads(item.data), provider, wanted, export, identity) for item in bindings]
    selected = tuple(one for some in found for one in some)
    return {wanted.cluster: selected} if selected else {}


async def _accepted_anywhere(
    runtime: Runtime, provider: RequestInfo, wanted: RequestInfo, export: Body, identity: str
) -> dict[str, tuple[Selected, ...]]:
    """The same of all consumers that have the resource from the export of this identity; built-in ones are their own."""
    found: dict[str, tuple[Selected, ...]] = {}
    for item in (await runtime.store.list(AllSpaces(*BINDINGS), cached=True)).items:
        selected = _answer(orjson.loads(item.data), provider, wanted, export, identity)
        if selected and (not identity or await _bound_from(runtime, item.key.space, wanted) == identity):
            found[item.key.space] = (*found.get(item.key.space, ()), *selected)
    return found


def _answer(
    binding: Body, provider: RequestInfo, wanted: RequestInfo, export: Body, identity: str
) -> tuple[Selected, ...]:
    """What one binding accepts, when it was made for this very export and is in force."""
    if "deletionTimestamp" in binding["metadata"] or (binding.get("status") or {}).get("phase") != "Bound":
        return ()
    if reference(binding["spec"]["reference"]["export"]) != (provider.cluster, provider.name):
        return ()
    if not consents_to(binding, export):
        return ()
    return accepted(export, binding, group=wanted.group, resource=wanted.resource, verb=wanted.verb, identity=identity)


async def _read(runtime: Runtime, key: Key) -> Body | None:
    stored = await runtime.store.get(key)
    return orjson.loads(stored.data) if stored is not None else None
