"""The hook by which every request is recorded, whatever became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from kube.identity import Principal
from kube.requestinfo import RequestInfo
from kube.verdicts import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
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


class NoAudit:
    """Keeps nothing."""

    def record(self, record: RequestRecord) -> None:
        """Forget the record."""
