"""The last stage of a request for what lives in a placed namespace: its cluster instead of the store (GW4).

Everything above has been as for any request. What goes on carries the workspace's own token of the least account whose
role covers it, never the caller's credential and never the gateway's.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, TypeVar
from urllib.parse import quote, urlencode

from access.authorization.tenancy.placednamespaces import opens_proxies
from gateway.filters.permission import authorize, require
from gateway.filters.standing import require_standing
from gateway.handlers.placednamespaces import proxying, recording
from gateway.handlers.placednamespaces.dryruns import Overtaken, Patience, Rehearsal
from gateway.handlers.placednamespaces.relaying import relay
from gateway.http import websockets
from gateway.http.messages import Headers, Request, Response, Stream
from gateway.http.negotiation import content_type
from gateway.process.runtime import Runtime
from gateway.process.streams import Recheck
from gateway.upstream.admission import PlacedWrite, Settlement
from gateway.upstream.answers import Room, Share
from gateway.upstream.client import Answer, BadGateway, Permit, Upstream
from gateway.upstream.placements import Placement
from gateway.upstream.recording.tunnel import RecordedTunnel
from gateway.upstream.tunnel import Tunnel
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.placedrights import needed, without_membership
from kube.kinds.builtins import BUILTINS
from kube.kinds.reststrategies import ALLOW_CREATE_ON_UPDATE
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Forbidden, ServiceUnavailable, StatusError, Timeout
from store.types import StoreError

Given = TypeVar("Given", bound="Answer | Tunnel")

_READS: Final = frozenset({"get", "list", "watch"})
_APPLY: Final = "application/apply-patch"
_SAFE: Final = "!$&'()*+,;=:@~"
_PLAIN: Final = re.compile(r"[A-Za-z0-9_.~/-]+")
"""What quoting leaves as it is, as nearly every path is: to ask once is cheaper than to quote each part."""


def is_read_as_messages(request: Request) -> bool:
    """Whether it is for a watch or a log over a WebSocket, which the cluster itself serves so."""
    info = request.info
    return info.verb in _READS and info.is_long_running and not info.connects and websockets.is_wanted(request)


async def forward(runtime: Runtime, request: Request, placement: Placement, recheck: Recheck) -> Response | Stream:
    """Pass an authorised request on to its cluster, and the answer back. Raises ``StatusError``, and what ``recheck`` does."""
    since, info = asyncio.get_running_loop().time(), request.info
    if not placement.is_active:
        raise ServiceUnavailable(f'the namespace "{info.namespace}" is not ready yet', retry_after=1)
    role = await role_of(runtime, request.principal, info, placement)
    answer: Answer | Tunnel | RecordedTunnel
    permit = partial(require_standing, runtime, request.principal, recheck)
    if info.is_proxied:
        answer = await _proxied(runtime, request, placement, role, permit)
    elif is_read_as_messages(request):
        answer = await _connect(runtime, request, placement, role, as_of_a_page(request))
    elif info.verb in _READS and not info.connects:
        answer = await ask(runtime, request, placement, role, follows=info.is_long_running)
    else:
        answer = await _write(runtime, request, placement, role, permit)
    return await relay(runtime, request, placement.cluster, answer, recheck, since=since)


async def _proxied(
    runtime: Runtime, request: Request, placement: Placement, role: str, permit: Permit
) -> Answer | Tunnel:
    """What a pod answers, whatever the method: a request to it can change something."""
    request.raw_headers = proxying.asked(request.raw_headers)
    if websockets.is_wanted(request):
        return await _connect(runtime, request, placement, role, request.raw_headers, permit=permit)
    answer = await ask(runtime, request, placement, role, follows=True, permit=permit)
    root = target_of(replace(request, info=replace(request.info, rest=""), parameters={}))
    cluster = runtime.clusters.upstream(placement.cluster).cluster
    led = proxying.redirection(request.info, answer.status, answer.location, cluster, root)
    return replace(answer, headers=(*answer.headers, *led))


async def _write(
    runtime: Runtime, request: Request, placement: Placement, role: str, permit: Permit
) -> Answer | Tunnel | RecordedTunnel:
    """The answer to a write as it was judged; judged anew when somebody else has written in between."""

    def asked(question: Request) -> Awaitable[Answer]:
        return ask(runtime, question, placement, role, follows=False)

    patience = Patience()
    while True:
        rehearsal = Rehearsal(asked, request, placement.cluster, patience, runtime.held_answers, holder(request))
        write = PlacedWrite(
            principal=request.principal,
            info=request.info,
            placement=placement,
            role=role,
            media=content_type(request),
            body=request.body,
            current=rehearsal.current,
            outcome=rehearsal.outcome,
            request=request.audit_id,
            now=request.now,
            dry_run=_is_dry_run(request),
            in_thread=request.in_thread,
        )
        with contextlib.suppress(Overtaken):
            return await _judged(runtime, request, rehearsal, write, permit)
        await patience.wait(request.info)


async def _judged(
    runtime: Runtime, request: Request, rehearsal: Rehearsal, write: PlacedWrite, permit: Permit
) -> Answer | Tunnel | RecordedTunnel:
    """Raises ``Overtaken`` where the cluster has another state of the object than was judged."""
    placement, role = write.placement, write.role
    await _require_creation(runtime, request, rehearsal)
    settlements = await _admit(runtime, request, write, rehearsal)
    if request.info.connects:
        return await recording.connect(
            runtime,
            request,
            placement,
            lambda headers: _connect(runtime, request, placement, role, headers, permit=permit),
        )
    try:
        judged: Request | None = await rehearsal.judged()
        while judged is not None:
            try:
                # Whoever it was that had to be waited for: what changes something is sent on a decision of now.
                answer = await ask(
                    runtime, judged, placement, role, follows=request.info.is_long_running, permit=permit
                )
            except (BadGateway, Timeout):
                # It was sent, and nobody knows what came of it.
                settlements.clear()
                raise
            judged = await rehearsal.again(answer)
    except (StatusError, Overtaken):
        # Nothing was sent, or it was refused.
        await _settle(settlements, made=False)
        raise
    try:
        if answer.status < 500:
            await _settle(settlements, made=answer.status < 300)
    except BaseException:
        answer.close()
        raise
    return await rehearsal.corrected(answer)


async def _require_creation(runtime: Runtime, request: Request, rehearsal: Rehearsal) -> None:
    """Raise ``Forbidden`` where an apply or an update would create what its caller may not: the cluster asks its account."""
    if not _may_create(request) or (await authorize(runtime, request, "create")).allowed:
        return
    if await rehearsal.current() is None:
        await require(runtime, request, "create")


def _may_create(request: Request) -> bool:
    """Whether the cluster makes what is not there by another verb than ``create``."""
    info = request.info
    if info.subresource:
        return False
    if info.verb == "patch":
        return content_type(request).startswith(_APPLY)
    kind = info.group, info.resource
    return info.verb == "update" and (kind in ALLOW_CREATE_ON_UPDATE or BUILTINS.by_group_resource(*kind) is None)


def _is_dry_run(request: Request) -> bool:
    """Whether the cluster will change nothing: of a deletion with a body it does not read the query."""
    return request.dry_run and not (request.info.method == "DELETE" and request.body)


async def _admit(runtime: Runtime, request: Request, write: PlacedWrite, rehearsal: Rehearsal) -> list[Settlement]:
    """Ask all conditions in order; who refuses is noted, with the reason (AZ11). Who is to be told what becomes of it."""
    settlements = []
    for condition in runtime.placed_admission:
        try:
            with rehearsal.believed():
                settlement = await condition.admit(write)
        except StatusError as refusal:
            ours = Decision(Verdict.DENY, f"admission/{condition.name}", rule=refusal.rule)
            request.notes.append(replace(rehearsal.refusal or ours, reason=refusal.message))
            raise
        if settlement is not None:
            settlements.append(settlement)
    return settlements


async def _settle(settlements: Sequence[Settlement], *, made: bool) -> None:
    for settle in settlements:
        # What is not settled now is found out later, whatever keeps it: the cluster has answered, and the client is told so.
        with contextlib.suppress(StatusError, StoreError):
            await settle(made)


async def role_of(runtime: Runtime, principal: Principal, info: RequestInfo, placement: Placement) -> str:
    """The account whose token a request carries, by what its cluster says of its roles now.

    What the chain has judged it judges alike, by what is kept of them (``access.authorization.tenancy.placednamespaces``);
    parts of requests across namespaces are judged here alone. Raises ``Forbidden`` and ``ServiceUnavailable``.
    """
    proxies = info.is_proxied and await opens_proxies(runtime.store, placement.tier)
    roles = await runtime.clusters.roles(placement.cluster)
    wanted = needed(roles, placement.cluster, principal, info, proxies=proxies)
    refusal = wanted.refusal
    if wanted.beyond and not (await runtime.authorization.authorize(without_membership(principal), info)).allowed:
        refusal = wanted.beyond
    if refusal:
        raise Forbidden(refusal, group=info.group, kind=info.resource, name=info.name)
    return wanted.account


async def ask(
    runtime: Runtime,
    request: Request,
    placement: Placement,
    role: str,
    *,
    follows: bool,
    permit: Permit | None = None,
) -> Answer:
    """The cluster's answer; ``permit`` has the last word before the request is sent."""
    upstream, target = runtime.clusters.upstream(placement.cluster), target_of(request)

    async def attempt(token: str) -> Answer:
        return await upstream.request(
            request.info.method,
            target,
            request.raw_headers,
            request.body,
            token=token,
            audit_id=request.audit_id,
            long_running=follows,
            redirects=request.info.is_proxied,
            permit=permit,
            tenant=holder(request),
        )

    return await _with_token(runtime, placement, upstream, role, attempt, proxied=request.info.is_proxied)


async def _connect(
    runtime: Runtime,
    request: Request,
    placement: Placement,
    role: str,
    headers: Headers,
    *,
    permit: Permit | None = None,
) -> Answer | Tunnel:
    """The connection into a pod, or that of a watch, or the cluster's answer in its place."""
    upstream, target = runtime.clusters.upstream(placement.cluster), target_of(request)

    async def attempt(token: str) -> Answer | Tunnel:
        return await upstream.upgrade(
            request.info.method,
            target,
            headers,
            token=token,
            audit_id=request.audit_id,
            long_running=not request.info.connects,
            permit=permit,
            tenant=holder(request),
        )

    return await _with_token(runtime, placement, upstream, role, attempt, proxied=request.info.is_proxied)


def as_of_a_page(request: Request) -> Headers:
    """With the origin that kube-apiserver asks for where it serves watches, whoever it is: whose page it is was looked at here.

    For a watch it agrees to one subprotocol, whichever it is, and answers without an end to several in one header.
    """
    headers = tuple(pair for pair in request.raw_headers if pair[0] != b"origin")
    if request.info.verb == "watch":
        chosen = websockets.subprotocol(headers)
        headers = tuple(pair for pair in headers if pair[0] != websockets.PROTOCOLS)
        headers += ((websockets.PROTOCOLS, chosen),) if chosen else ()
    return (*headers, (b"origin", b"https://tenantry"))


def room_for(runtime: Runtime, request: Request) -> Room:
    """For what clusters answer to a request that is read whole: as much as its tenant may hold of it."""
    return Room(runtime.held_answers, holder(request))


def share_for(runtime: Runtime, request: Request) -> Share:
    """For what is held of an answer that is read bit by bit."""
    return Share(runtime.held_answers, holder(request))


def holder(request: Request) -> str:
    """The tenant that connections and answers count against; none for operators."""
    return "" if request.principal.is_system else request.principal.tenant or ""


async def _with_token(
    runtime: Runtime,
    placement: Placement,
    upstream: Upstream,
    role: str,
    attempt: Callable[[str], Awaitable[Given]],
    *,
    proxied: bool,
) -> Given:
    """What comes of an attempt at the cluster; a token that it does not take is replaced once.

    Where it is ``proxied`` a 401 may be a pod's, of something that has been done.
    """
    # Nobody asks a cluster that is away for what to show it there.
    upstream.require_there()
    cluster = upstream.cluster
    token = await runtime.workspace_tokens.get(placement, cluster, role)
    answer = await attempt(token)
    if isinstance(answer, Tunnel) or answer.status != 401 or proxied:
        return answer
    answer.close()
    answer = await attempt(await runtime.workspace_tokens.after_refusal(placement, cluster, role, token))
    if isinstance(answer, Tunnel) or answer.status != 401:
        return answer
    answer.close()
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
    path = "/" + "/".join(parts)
    if _PLAIN.fullmatch(path) is None or path.count("/") > len(parts):
        path = "/" + "/".join([quote(part, safe=_SAFE) for part in parts])
    if info.subresource == "proxy":
        # Without the slash a cluster answers with a redirection to what has it.
        path += f"/{info.rest}"
    query = urlencode(request.parameters, doseq=True, quote_via=quote)
    return f"{path}?{query}".encode("ascii") if query else path.encode("ascii")
