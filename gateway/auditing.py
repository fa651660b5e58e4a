"""The hook by which every request is recorded, whatever became of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import NamedTuple, Protocol

from audit import requests
from audit.requests import RequestLog
from kube.identity import Principal
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision


class RequestRecord(NamedTuple):
    """What is known of one finished request: never its body, never a token (GW9, GW13).

    ``time`` is Unix seconds at arrival, ``latency`` seconds; ``principal`` and ``info`` are ``None`` for requests
    refused before they were known. ``impersonator`` is who acts as ``principal``, where that is somebody else.
    """

    audit_id: str
    time: float
    latency: float
    principal: Principal | None
    info: RequestInfo | None
    decision: Decision | None
    status: int
    bytes_sent: int
    source_ip: str
    user_agent: str
    impersonator: Principal | None = None


class AuditSink(Protocol):
    """Takes records. Must not block and must not raise."""

    def record(self, record: RequestRecord) -> None:
        """Keep one record."""
        ...


class RequestAudit:
    """Hands records to the audit floor's request log, which writes them in batches."""

    def __init__(self, log: RequestLog) -> None:
        self._log = log

    def record(self, record: RequestRecord) -> None:
        """Keep one record."""
        principal, info, decision = record.principal, record.info, record.decision
        caller = record.impersonator or principal
        actor = principal.name if principal is not None else ""
        if record.impersonator is not None:
            actor = f"{record.impersonator.name} as {actor}"
        self._log.offer(
            requests.RequestRecord(
                created_at=datetime.fromtimestamp(record.time, UTC),
                tenant=(principal.tenant or "") if principal is not None else "",
                space=info.cluster if info is not None else "",
                actor=actor,
                verb=info.verb if info is not None else "",
                path=info.path if info is not None else "",
                code=record.status,
                allowed=record.status not in (401, 403, 429) and info is not None,
                authenticator=caller.authenticator if caller is not None else "",
                credential=principal.credential_id if principal is not None else "",
                step=decision.step if decision is not None else "",
                reason=decision.reason if decision is not None else "",
                trace=decision.trace if decision is not None else (),
                latency=int(record.latency * 1_000_000),
                ip_address=record.source_ip or None,
                user_agent=record.user_agent,
                request_id=record.audit_id,
            )
        )
