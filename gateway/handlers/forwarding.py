"""The last stage of a request for what lives in a placed namespace: its cluster instead of the store (GW4).

Everything above has been as for any request. What goes on carries the workspace's own token of the least account whose
role covers it, never the caller's credential and never the gateway's.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, urlencode

import orjson

from gateway.http.errors import as_event
from gateway.http.messages import JSON, Headers, Request, Response, Stream
from gateway.process.runtime import Runtime
from gateway.process.watches import Recheck
from gateway.upstream.admission import PLACED_ADMISSION, PlacedWrite
from gateway.upstream.client import Answer, BadGateway
from gateway.upstream.placements import Placement
from kube.authorization.leastrole import at_most
from kube.authorization.rbac import Attributes
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Forbidden, ServiceUnavailable, StatusError

_REVIEWS: Final = "authorization.k8s.io"
"""Questions about rights are answered here, for placed namespaces as for stored ones."""

_OURS: Final = frozenset({b"cache-control", b"content-type"})
_STATUSES: Final = frozenset(HTTPStatus)
_READS: Final = frozenset({"get", "list", "watch"})
_SAFE: Final = "!$&'()*+,;=:@~"

_MEMBERS: Final[Mapping[str, str]] = {
    "tenantry:owner": "admin",
    "tenantry:admin": "admin",
    "tenantry:editor": "editor",
    "tenantry:viewer": "viewer",
}


async def placement_of(runtime: Runtime, info: RequestInfo) -> Placement | None:
    """Where a request is answered, when that is a cluster."""
    if not info.namespace or info.all_tenants or info.group == _REVIEWS:
        return None
    if info.resource == "namespaces" and not info.group:
        return None
    return await runtime.placements.of(info.cluster, info.namespace)


async def forward(runtime: Runtime, request: Request, placement: Placement, recheck: Recheck) -> Response | Stream:
    """Pass an authorised request on to its cluster, and the answer back. Raises ``StatusError``."""
    info = request.info
    if placement.phase != "Active":
        raise ServiceUnavailable(f'the namespace "{info.namespace}" is not ready yet', retry_after=1)
    role, membership = await _role(runtime, request, placement)
    if info.verb not in _READS:
        write = PlacedWrite(
            principal=request.principal,
            info=info,
            placement=placement,
            role=role,
            membership=membership,
            media=request.headers.get(b"content-type", b""),
            body=request.body,
        )
        for condition in PLACED_ADMISSION:
            await condition.admit(write)
    follows = info.verb == "watch" or (info.subresource == "log" and request.query.get("follow") in ("true", "1"))
    answer = await _asked(runtime, request, placement, role, follows=follows)
    if answer.status not in _STATUSES or answer.status < 200:
        await answer.aclose()
        raise BadGateway(f'the cluster "{placement.cluster}" answered with the status {answer.status}')
    media = next((value for name, value in answer.headers if name == b"content-type"), JSON)
    headers: Headers = tuple(pair for pair in answer.headers if pair[0] not in _OURS)
    whole = answer.read_nowait()
    if whole is not None:
        return Response(answer.status, whole, media, headers)
    chunks = _followed(runtime, request, answer, media, recheck) if follows else answer.chunks
    return Stream(chunks, media, headers, answer.status)


async def _role(runtime: Runtime, request: Request, placement: Placement) -> tuple[str, str]:
    """The account whose token the request carries, and the highest that the caller's membership gives."""
    principal, info = request.principal, request.info
    roles = await runtime.clusters.roles(placement.cluster)
    role = roles.least(Attributes.of(info))
    if role is None:
        raise Forbidden(
            f'no role of workspaces on the cluster "{placement.cluster}" covers this: an operator opens kinds there by '
            "ClusterRoles with the label tenantry.io/aggregate-to-view, -edit or -admin",
            group=info.group,
            kind=info.resource,
            name=info.name,
        )
    held = [_MEMBERS[group] for group in principal.groups if group in _MEMBERS]
    membership = max(held, key=lambda found: (at_most("admin", found), at_most("editor", found)), default="")
    if membership and not at_most(role, membership):
        # More than the membership gives only where a binding gave it.
        without = replace(principal, groups=tuple(group for group in principal.groups if group not in _MEMBERS))
        if not (await runtime.authorization.authorize(without, info)).allowed:
            raise Forbidden(
                f'on the cluster "{placement.cluster}" this needs the role {role}, and yours in the tenant gives '
                f"{membership}",
                group=info.group,
                kind=info.resource,
                name=info.name,
            )
    return role, membership


async def _asked(runtime: Runtime, request: Request, placement: Placement, role: str, *, follows: bool) -> Answer:
    """The cluster's answer; a token that it does not take is replaced once."""
    upstream = runtime.clusters.upstream(placement.cluster)
    target = target_of(request)

    async def ask(token: str) -> Answer:
        return await upstream.request(
            request.info.method,
            target,
            request.raw_headers,
            request.body,
            token=token,
            audit_id=request.audit_id,
            long_running=follows,
        )

    token = await runtime.workspace_tokens.get(placement, role)
    answer = await ask(token)
    if answer.status != 401:
        return answer
    await answer.aclose()
    answer = await ask(await runtime.workspace_tokens.after_refusal(placement, role, token))
    if answer.status != 401:
        return answer
    await answer.aclose()
    # The client's own credential is good: it must not be told to show another.
    raise ServiceUnavailable(
        f'the cluster "{placement.cluster}" does not accept the workspace\'s token', retry_after=10
    )


def target_of(request: Request) -> bytes:
    """Path and query inside the cluster, rebuilt from what was resolved: two readers cannot read it in two ways."""
    info = request.info
    parts = ["api", info.version] if not info.group else ["apis", info.group, info.version]
    parts += ["namespaces", info.namespace, info.resource]
    if info.name and info.verb not in ("list", "watch", "deletecollection"):
        parts.append(info.name)
    if info.subresource:
        parts.append(info.subresource)
    path = "/" + "/".join(quote(part, safe=_SAFE) for part in parts)
    if info.rest:
        path += f"/{info.rest}"
    query = urlencode(request.parameters, doseq=True, quote_via=quote)
    return f"{path}?{query}".encode("ascii") if query else path.encode("ascii")


async def _followed(
    runtime: Runtime, request: Request, answer: Answer, media: bytes, recheck: Recheck
) -> AsyncIterator[bytes]:
    """A stream that ends with the right to it (GW5), with the reason as its last event where the client reads events."""
    stream = runtime.open_watches.open(request.principal, request.info, recheck, now=request.now)
    loop = asyncio.get_running_loop()
    stream.ended.add_done_callback(lambda _: loop.create_task(answer.aclose()))
    try:
        # What was taken away before the stream was registered has found no stream: it is asked once more.
        await recheck()
        async for chunk in answer.chunks:
            if stream.ended.done():
                break
            yield chunk
    except StatusError as error:
        if not stream.ended.done():
            stream.end(error)
    finally:
        await answer.aclose()
        runtime.open_watches.close(stream)
    if stream.ended.done() and not stream.ended.cancelled() and request.info.verb == "watch" and media == JSON:
        yield orjson.dumps(as_event(stream.ended.result())) + b"\n"
