"""Writes security events, inside the transaction of what they tell of (GW13): both happen or neither."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.db import connection, transaction

from audit import chain as chains
from audit.actions import Action
from audit.addresses import address_of
from audit.models import AuditEntry, Outcome
from audit.redaction import clean, clean_text

SYSTEM_CHAIN = "system"
"""The chain of everything that belongs to no tenant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Actor:
    """Who does something, and from where: the ``actor`` of every service.

    ``operator`` is set for operators and for the product itself (workers, quickstart, an API server that has already
    authorised the request); services let operators act on every tenant, others only as their memberships allow.
    ``auditor`` is set for whoever sees what operators see, and changes nothing.
    """

    name: str
    user_id: UUID | None = None
    operator: bool = False
    auditor: bool = False
    ip: str | None = None
    user_agent: str = ""
    request_id: str = ""

    @property
    def sees_all(self) -> bool:
        """Whether reads are of the whole platform."""
        return self.operator or self.auditor

    def record(
        self,
        action: Action,
        *,
        chain: str,
        outcome: Outcome = Outcome.SUCCESS,
        target: str = "",
        workspace_id: UUID | None = None,
        detail: Mapping[str, Any] | None = None,
    ) -> AuditEntry:
        """``record`` with this actor's facts filled in."""
        return record(
            action,
            chain=chain,
            actor=self.name,
            outcome=outcome,
            target=target,
            user_id=self.user_id,
            workspace_id=workspace_id,
            ip=self.ip,
            user_agent=self.user_agent,
            request_id=self.request_id,
            detail=detail,
        )


WORKER = Actor(name="system:worker", operator=True)
"""The product itself, in the background."""


def record(
    action: Action,
    *,
    chain: str = SYSTEM_CHAIN,
    actor: str,
    outcome: Outcome,
    target: str = "",
    user_id: UUID | None = None,
    workspace_id: UUID | None = None,
    ip: str | None = None,
    user_agent: str = "",
    request_id: str = "",
    detail: Mapping[str, Any] | None = None,
) -> AuditEntry:
    """Append one event to ``chain`` (a tenant's name, or ``system``) and return it.

    Runs in the caller's transaction (or one of its own) and holds the chain's row until that ends: record last.
    Texts are redacted and cut to their columns; a malformed ``ip`` is recorded as none.
    """
    with transaction.atomic(), connection.cursor() as cursor:
        # Waiting on the chain's own row is the lock: whoever holds it knows the last sequence and hash for sure. The
        # row moves with the insertion (a trigger): nobody but the tables' owner can move it otherwise.
        cursor.execute("SELECT * FROM audit_chain_head(%s)", [clean_text(chain, 63)])
        sequence, previous, now = cursor.fetchone()
        entry = AuditEntry(
            id=uuid.uuid4(),
            chain=clean_text(chain, 63),
            sequence=sequence + 1,
            created_at=now,
            action=str(action),
            outcome=str(outcome),
            actor=clean_text(actor, 253),
            user_id=user_id,
            workspace_id=workspace_id,
            target=clean_text(target, 512),
            ip_address=address_of(ip),
            user_agent=clean_text(user_agent, 256),
            request_id=clean_text(request_id, 64),
            detail=clean(detail or {}),
            previous_hash=previous,
        )
        entry.hash = chains.hash_of({field: getattr(entry, field) for field in chains.FIELDS}, previous)
        entry.save(force_insert=True)
    return entry
