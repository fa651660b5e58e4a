"""Sessions in pods whose tier has them recorded: begun before they are opened, or not opened (GW21)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final
from uuid import UUID

from audit.recorder import Actor
from gateway.http.messages import Headers, Request
from gateway.process.runtime import Runtime
from gateway.upstream.client import Answer
from gateway.upstream.placements import Placement
from gateway.upstream.recording.tunnel import RecordedTunnel, followed
from gateway.upstream.tunnel import Tunnel
from kube.requests.logicalclusters import tenant_of
from kube.requests.status import StatusError
from tenants.models import RecordingMode
from tenants.services.recordings import Session

RECORDED: Final = frozenset({"exec", "attach"})

Connect = Callable[[Headers], Awaitable["Answer | Tunnel"]]


async def connect(
    runtime: Runtime, request: Request, placement: Placement, connect: Connect
) -> Answer | Tunnel | RecordedTunnel:
    """What ``connect`` brings for the request's headers, recorded where it has to be.

    Raises ``ServiceUnavailable`` where it has to be and cannot, ``BadRequest`` for a protocol that nobody could follow.
    """
    mode = RecordingMode.OFF
    if request.info.subresource in RECORDED:
        mode = await runtime.recordings.mode_of(placement)
    if mode == RecordingMode.OFF:
        return await connect(request.raw_headers)
    headers = followed(request.raw_headers)
    keeping = await runtime.recordings.begin(mode, _session(request, placement), _actor(request))
    try:
        answer = await connect(headers)
    except BaseException as error:
        why = error.message if isinstance(error, StatusError) else "the client did not wait"
        runtime.recordings.discard(keeping, why)
        raise
    if isinstance(answer, Tunnel):
        return runtime.recordings.recorded(answer, keeping)
    runtime.recordings.discard(keeping, f"the cluster did not open it: {answer.status}")
    return answer


def _session(request: Request, placement: Placement) -> Session:
    return Session(
        tenant=tenant_of(placement.space),
        workspace_id=UUID(placement.workspace),
        cluster=placement.cluster,
        namespace=placement.namespace,
        pod=request.info.name,
        container=request.query.get("container", ""),
        way=request.info.subresource,
        command=" ".join(request.parameters.get("command", ())),
        credential=request.principal.credential_id,
    )


def _actor(request: Request) -> Actor:
    principal = request.principal
    return Actor(
        name=principal.name,
        operator=principal.is_system,
        user_agent=request.user_agent,
        request_id=request.audit_id,
    )
