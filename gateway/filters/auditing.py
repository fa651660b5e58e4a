"""What is recorded of every request, whatever became of it: never its body, never a token (GW9, GW13).

Beside that record, an audit log tells of requests as far as the operator's policy says.
"""

from __future__ import annotations

import time as clock
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from audit.requestlog.records import RequestRecord
from gateway.http.messages import Request, Response
from gateway.process.auditlog import AuditLog
from kube.auditing.events import Body, Event
from kube.auditing.policy import Level, Stage
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.requests.requestinfo import RequestInfo

_REFUSED: Final = frozenset({401, 403, 429})
_NOBODY: Final = Principal(name="", tenant=None, authenticator="")
_NOTHING: Final = RequestInfo(method="", path="", cluster="", tenant="", verb="")
_UNDECIDED: Final = Decision(Verdict.NO_OPINION, "")
"""What is recorded of what was not known before the request was refused."""


def with_notes(decision: Decision | None, notes: Sequence[Decision]) -> Decision | None:
    """A decision with what admission has noted of the write that it allowed; a refusal takes its place (AZ11)."""
    if decision is None or not notes:
        return decision
    trace = (*decision.trace, _alone(decision), *notes) if decision.allowed else decision.trace
    said = notes[-1] if notes[-1].verdict is Verdict.DENY else decision
    return Decision(said.verdict, said.step, said.reason, said.rule, said.aside, trace)


def _alone(decision: Decision) -> Decision:
    return replace(decision, trace=()) if decision.trace else decision


def record_of(
    audit_id: str,
    *,
    time: float,
    latency: float,
    principal: Principal | None,
    info: RequestInfo | None,
    decision: Decision | None,
    status: int,
    source_ip: str,
    user_agent: str,
    impersonator: Principal | None = None,
) -> RequestRecord:
    """The record of one finished request.

    ``time`` is Unix seconds at arrival, ``latency`` seconds; ``principal`` and ``info`` are ``None`` for requests
    refused before they were known. ``impersonator`` is who acts as ``principal``, where that is somebody else.
    """
    who, what, said = principal or _NOBODY, info or _NOTHING, decision or _UNDECIDED
    return RequestRecord(
        created_at=datetime.fromtimestamp(time, UTC),
        path=what.path,
        code=status,
        allowed=status not in _REFUSED and info is not None,
        tenant=who.tenant or "",
        space=what.cluster,
        actor=who.name if impersonator is None else f"{impersonator.name} as {who.name}",
        verb=what.verb,
        authenticator=(impersonator or who).authenticator,
        credential=who.credential_id,
        step=said.step,
        reason=said.reason,
        user_agent=user_agent,
        trace=said.trace,
        latency=int(latency * 1_000_000),
        ip_address=source_ip or None,
        request_id=audit_id,
    )


@dataclass(frozen=True, slots=True)
class Trail:
    """The events of one request that the policy tells of."""

    log: AuditLog
    event: Event

    def tell(
        self,
        stage: Stage,
        *,
        status: int,
        decision: Decision | None,
        request: Request | None = None,
        response: Response | None = None,
    ) -> None:
        """Tell the log that the request has come to a stage, with what was sent and answered where that is known.

        ``decision`` is whether it was authorized; what admission has noted is the request's.
        """
        if stage in self.event.audited.omitted:
            return
        self.log.put_nowait(
            replace(
                self.event,
                stage=stage,
                time=clock.time(),
                status=status,
                decision=decision,
                notes=tuple(request.notes) if request is not None else (),
                sent=_sent(request),
                answered=_answered(response),
            )
        )


def begin_trail(
    log: AuditLog,
    audit_id: str,
    *,
    uri: bytes,
    received: float,
    principal: Principal | None,
    impersonator: Principal | None,
    info: RequestInfo,
    source_ip: str,
    user_agent: str,
) -> Trail | None:
    """The events of a request that has been resolved, of which the first is told; ``None`` where nothing is to be told.

    ``principal`` is ``None`` for whoever could not be authenticated. What is asked for inside of an export's content is
    told of as what it is: the policy's rules, and what a Secret is, are about what is really read or written (GW9).
    """
    info = info.inside or info
    caller = impersonator or principal
    audited = log.policy.decide(caller, info)
    if audited.level is Level.NONE:
        return None
    event = Event(
        audited=audited,
        stage=Stage.REQUEST_RECEIVED,
        audit_id=audit_id,
        uri=uri.decode("latin-1"),
        info=info,
        received=received,
        time=received,
        caller=caller,
        acting=principal if impersonator is not None else None,
        source_ip=source_ip,
        user_agent=user_agent,
    )
    if caller is not None and Stage.REQUEST_RECEIVED not in audited.omitted:
        log.put_nowait(event)
    return Trail(log, event)


def _sent(request: Request | None) -> Body | None:
    if request is None or not request.body:
        return None
    return Body(request.body, _media(request.headers.get(b"content-type", b"application/json")))


def _answered(response: Response | None) -> Body | None:
    if response is None:
        return None
    encoded = any(name == b"content-encoding" for name, _ in response.headers)
    return Body(response.body, _media(response.media), encoded=encoded)


def _media(content_type: bytes) -> str:
    return content_type.partition(b";")[0].strip().lower().decode("latin-1")
