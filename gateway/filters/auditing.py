"""What is recorded of every request, whatever became of it: never its body, never a token (GW9, GW13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from os import urandom

from audit.requests import RequestRecord
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.requests.requestinfo import RequestInfo


def new_audit_id() -> str:
    """A random UUID (version 4) as text; one is made for every request, and ``uuid`` takes three times as long."""
    text = urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"


def with_notes(decision: Decision | None, notes: Sequence[Decision]) -> Decision | None:
    """A decision with what admission has noted of the write that it allowed; a refusal takes its place (AZ11)."""
    if decision is None or not notes:
        return decision
    trace = (*decision.trace, replace(decision, trace=()), *notes) if decision.allowed else decision.trace
    return replace(notes[-1] if notes[-1].verdict is Verdict.DENY else decision, trace=trace)


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
    caller = impersonator or principal
    actor = principal.name if principal is not None else ""
    return RequestRecord(
        created_at=datetime.fromtimestamp(time, UTC),
        tenant=(principal.tenant or "") if principal is not None else "",
        space=info.cluster if info is not None else "",
        actor=actor if impersonator is None else f"{impersonator.name} as {actor}",
        verb=info.verb if info is not None else "",
        path=info.path if info is not None else "",
        code=status,
        allowed=status not in (401, 403, 429) and info is not None,
        authenticator=caller.authenticator if caller is not None else "",
        credential=principal.credential_id if principal is not None else "",
        step=decision.step if decision is not None else "",
        reason=decision.reason if decision is not None else "",
        trace=decision.trace if decision is not None else (),
        latency=int(latency * 1_000_000),
        ip_address=source_ip or None,
        user_agent=user_agent,
        request_id=audit_id,
    )
