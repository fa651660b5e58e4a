"""The provider's view of what others made of its export: reading, across consumers or in one of them (KC6).

``/services/apiexport/<path>/<export>/clusters/<consumer or *>/api…`` is a request for ``apiexports/content`` of the
export, authorised in the provider's logical cluster. Objects of the export's own resources are the provider's, beyond
any policy; of others it sees what its export claims and the consumer's binding accepts, within the policy of whoever
exports them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import orjson

from gateway.exchange import Request, Response, Stream
from gateway.handlers import discovery, reading, watching
from gateway.kinds import Kind, definitions
from gateway.runtime import Runtime
from gateway.streams import Recheck
from kube.apiexports import BINDINGS, EXPORT, EXPORTS, SCHEMAS, bound_definition, split_export
from kube.crds import CRDS, resource_of
from kube.logicalclusters import full_path, is_valid, tenant_of
from kube.paths import ALL_TENANTS, ParsedRequest, not_found, parse
from kube.requestinfo import RequestInfo
from kube.resources import Catalog, Resource
from kube.status import Forbidden, MethodNotAllowed
from kube.verdicts import Verdict
from kube.workspaces import reference
from store.types import Key, Range

Body = dict[str, Any]


async def serve(runtime: Runtime, request: Request, recheck: Recheck) -> Response | Stream:
    """Answer an authorised request for an export's content. Raises ``NotFound``, ``Forbidden``, and 405 for writes."""
    info = request.info
    if info.verb not in ("get", "list", "watch"):
        raise MethodNotAllowed("the view of an export is for reading")
    prefix, _, rest = info.rest.partition("/")
    selected, _, inside = rest.partition("/")
    if prefix != "clusters" or not inside or not (selected == ALL_TENANTS or is_valid(selected)):
        raise not_found()
    inner = parse("GET", f"/{inside}".encode())
    export = await _read(runtime, Key(info.cluster, *EXPORTS, "", info.name))
    if export is None or inner.cluster is not None or inner.tenant is not None or inner.subresource:
        raise not_found()
    resources = await _resources(runtime, info.cluster, export)
    if not inner.is_resource:
        if not discovery.is_discovery(inner.path):
            raise not_found()
        return discovery.answer(request, Catalog(resources), inner.path.rstrip("/"))
    wanted = _info(info, inner, selected)
    kind = await _kind(runtime, request, wanted, export, resources)
    viewed = replace(request, info=wanted)
    if info.verb == "get":
        return await reading.get(runtime, viewed, kind)
    if info.verb == "list":
        return await reading.list_(runtime, viewed, kind)

    async def again() -> None:
        await recheck()
        current = await _read(runtime, Key(info.cluster, *EXPORTS, "", info.name))
        if current is None:
            raise not_found()
        await _kind(runtime, request, wanted, current, await _resources(runtime, info.cluster, current))

    return await watching.watch(runtime, viewed, kind, again)


def _info(info: RequestInfo, inner: ParsedRequest, selected: str) -> RequestInfo:
    """The request as it would be in the consumer; for all consumers, across tenants."""
    across = selected == ALL_TENANTS
    if across and (inner.namespace or (inner.name and info.verb == "get")):
        raise not_found()
    cluster = info.cluster if across else selected
    return RequestInfo(
        method="GET",
        path=full_path(cluster, inner.group, inner.version, inner.resource, namespace=inner.namespace, name=inner.name),
        cluster=cluster,
        tenant=tenant_of(cluster),
        verb=info.verb,
        is_resource=True,
        group=inner.group,
        version=inner.version,
        resource=inner.resource,
        namespace=inner.namespace,
        name=inner.name,
        all_tenants=across,
    )


async def _kind(
    runtime: Runtime, request: Request, wanted: RequestInfo, export: Body, resources: Iterable[Resource]
) -> Kind:
    """The kind that may be read there. Raises ``NotFound`` for what is neither exported nor claimed and accepted."""
    if not wanted.all_tenants:
        reason = runtime.locks.reason(wanted.cluster, wanted.namespace)
        if reason is not None:
            raise Forbidden(f"locked: {reason}" if reason else "locked")
    for resource in resources:
        version = resource.version(wanted.version)
        if (resource.group, resource.plural) == (wanted.group, wanted.resource) and version is not None:
            if wanted.all_tenants or await _is_bound(runtime, request.info, wanted):
                return Kind(resource, version)
            raise not_found()
    if wanted.all_tenants or not await _is_accepted(runtime, request.info, wanted, export):
        raise not_found()
    decision = await runtime.maximal_permission.authorize(request.principal, wanted)
    if decision.verdict is Verdict.DENY:
        raise Forbidden(f"{wanted.resource} is forbidden: {decision.reason}", group=wanted.group, kind=wanted.resource)
    await runtime.custom.ensure(wanted.cluster)
    return runtime.catalogs.require(wanted)


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
                identity=export["status"]["identityHash"],
                others=(),
                now="",
            )
            found.append(resource_of(crd, definitions(), space=path))
    return found


async def _is_bound(runtime: Runtime, content: RequestInfo, wanted: RequestInfo) -> bool:
    """Whether the consumer has bound the resource from this export."""
    crd = await _read(runtime, Key(wanted.cluster, *CRDS, "", f"{wanted.resource}.{wanted.group}"))
    annotations = ((crd or {}).get("metadata") or {}).get("annotations") or {}
    return annotations.get(EXPORT) == f"{content.cluster}:{content.name}"


async def _is_accepted(runtime: Runtime, content: RequestInfo, wanted: RequestInfo, export: Body) -> bool:
    """Whether the export claims all objects of the resource, and a binding of the consumer accepts that."""
    identity = await _identity(runtime, wanted)
    if not any(_claims(claim, wanted, identity) for claim in (export.get("spec") or {}).get("permissionClaims") or ()):
        return False
    for item in (await runtime.store.list(Range(wanted.cluster, *BINDINGS), cached=True)).items:
        body = orjson.loads(item.data)
        if "deletionTimestamp" in body["metadata"] or (body.get("status") or {}).get("phase") != "Bound":
            continue
        if reference(body["spec"]["reference"]["export"]) != (content.cluster, content.name):
            continue
        for claim in body["spec"].get("permissionClaims") or ():
            if claim.get("state") == "Accepted" and _claims(claim, wanted, identity):
                return True
    return False


async def _identity(runtime: Runtime, wanted: RequestInfo) -> str:
    """The identity of the export that the consumer has the resource from; empty for its own resources."""
    crd = await _read(runtime, Key(wanted.cluster, *CRDS, "", f"{wanted.resource}.{wanted.group}"))
    export = (((crd or {}).get("metadata") or {}).get("annotations") or {}).get(EXPORT)
    if export is None:
        return ""
    path, name = split_export(export)
    found = await _read(runtime, Key(path, *EXPORTS, "", name))
    return str(((found or {}).get("status") or {}).get("identityHash") or "")


def _claims(claim: Mapping[str, Any], wanted: RequestInfo, identity: str) -> bool:
    """Whether a claim covers the verb on all objects of the resource; one that selects some covers none here."""
    if (claim.get("identityHash") or identity) != identity:
        return False
    selector = claim.get("selector") or {}
    everything = claim.get("all") is True or selector.get("matchAll") is True
    verbs = claim.get("verbs") or ("*",)
    named = (claim.get("group") or "", claim.get("resource")) == (wanted.group, wanted.resource)
    return named and everything and ("*" in verbs or wanted.verb in verbs)


async def _read(runtime: Runtime, key: Key) -> Body | None:
    stored = await runtime.store.get(key)
    return orjson.loads(stored.data) if stored is not None else None
