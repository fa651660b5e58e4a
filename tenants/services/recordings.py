"""Recordings: begun before the session is, written piece by piece, ended with their hash in the audit, forgotten in time (GW21, GW13).

What fails here raises ``ServiceUnavailable``: whoever has to be recorded and cannot be has no session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import Error, transaction
from django.db.models import Count, Sum

from audit.actions import Action
from audit.models import Outcome
from audit.recorder import SYSTEM_CHAIN, WORKER, Actor
from audit.redaction import clean_text
from kube.requests.status import ServiceUnavailable
from tenants import actionlimits
from tenants.models import Recording, RecordingChunk, RecordingMode, Tenant
from tenants.recordings import Unplayable, recording_text, seal
from tenants.services.sweeping import apart

ABANDONED: Final = timedelta(seconds=90)
"""A recording that no process has spoken of for so long is ended: one that lives does every fifteen seconds."""

_ROW_BYTES: Final = 4096
"""What a recording takes of which nothing was shown."""

_TOGETHER: Final = 20
"""Recordings that are deleted in one transaction."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Where somebody wants to be: the pod, how, and by what credential."""

    tenant: str
    workspace_id: UUID
    cluster: str
    namespace: str
    pod: str
    container: str
    way: str
    command: str
    credential: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a session ended. ``why`` is empty where its command did; ``sha256`` where nothing was to be kept of it."""

    why: str = ""
    exit_code: int | None = None
    bytes: int = 0
    sha256: str = ""


def recording_begin(*, actor: Actor, recording_id: UUID, mode: RecordingMode, session: Session, now: datetime) -> None:
    """Note that the actor is about to be in a pod, and prove that what is shown there could be sealed and kept.

    Nothing goes to make room, or a flood of sessions would wipe out the trace of one. Those that are open may still fill
    themselves, each up to ``RECORDING_MAX_MIB``.
    """
    with _demanded(), transaction.atomic():
        seal(recording_id, 0, "")
        kept = Recording.objects.filter(tenant=session.tenant).aggregate(count=Count("pk"), bytes=Sum("bytes"))
        if kept["count"] * _ROW_BYTES + (kept["bytes"] or 0) >= settings.RECORDINGS_TENANT_MAX_MIB << 20:
            raise ServiceUnavailable(
                "this session has to be recorded, and the tenant's recordings take all the room that they have: those of before"
                f" go {settings.RECORDINGS_KEEP_DAYS} days after their end, or an operator raises RECORDINGS_TENANT_MAX_MIB"
            )
        texts = {"pod": 253, "container": 63, "command": 2048, "credential": 128}
        facts = asdict(session) | {name: clean_text(getattr(session, name), limit) for name, limit in texts.items()}
        found = Recording(
            id=recording_id,
            mode=mode,
            caller=clean_text(actor.name, 512),
            request_id=clean_text(actor.request_id, 64),
            begun_at=now,
            seen_at=now,
            **facts,
        )
        found.save(force_insert=True)
        _record(actor, found, Action.RECORDING_BEGUN, Outcome.INTENT, {"mode": mode})


def recording_append(*, recording_id: UUID, number: int, text: str, shown: int, now: datetime) -> None:
    """Keep the next piece of the file; an empty one says that the session goes on. ``shown`` are its bytes so far.

    A piece whose keeping nobody could be told of may be given again.
    """
    with _demanded(), transaction.atomic():
        going_on = Recording.objects.filter(pk=recording_id, ended_at=None)
        if not going_on.update(seen_at=now, bytes=shown):
            raise ServiceUnavailable("the recording of this session was ended, and so is the session")
        if text:
            RecordingChunk.objects.bulk_create(
                [RecordingChunk(recording_id=recording_id, number=number, sealed=seal(recording_id, number, text))],
                ignore_conflicts=True,
            )


def recording_end(*, actor: Actor, recording_id: UUID, ending: Ending, now: datetime) -> None:
    """End a recording; its hash stands in the audit from then on. Twice is once."""
    with _demanded(), transaction.atomic():
        found = Recording.objects.select_for_update(no_key=True).filter(pk=recording_id, ended_at=None).first()
        if found is not None:
            _end(actor, found, ending, now)


def recording_discard(*, actor: Actor, recording_id: UUID, why: str) -> None:
    """Take back a recording of a session that was not opened; the audit tells of the attempt."""
    with _demanded(), transaction.atomic():
        found = Recording.objects.select_for_update(no_key=True).filter(pk=recording_id, ended_at=None).first()
        if found is not None:
            found.delete()
            found.pk = recording_id
            _record(actor, found, Action.RECORDING_ENDED, Outcome.FAILURE, {"why": why, "opened": False})


def recording_watch(*, actor: Actor, recording: Recording, how: str) -> None:
    """Note that the actor is shown a recording (``page``) or takes it away (``file``): before it is.

    At the pace of writing, for a row stays of it; operators aside. Raises ``TooManyRequests``.
    """
    if not actor.operator:
        actionlimits.take(actionlimits.WRITES, actor.user_id or actor.name)
    _record(actor, recording, Action.RECORDING_WATCHED, Outcome.SUCCESS, {"how": how, "caller": recording.caller})


def recordings_close(*, now: datetime) -> int:
    """End what processes that have gone have left open, with the hash of what there is; how many."""
    abandoned = Recording.objects.filter(ended_at=None, seen_at__lt=now - ABANDONED)
    closed = 0
    for pk in list(abandoned.order_by("seen_at").values_list("pk", flat=True)[:100]):
        with apart(f"the end of recording {pk}"), transaction.atomic():
            found = abandoned.select_for_update(no_key=True, skip_locked=True).filter(pk=pk).first()
            if found is not None:
                _end(WORKER, found, _left_by(found), found.seen_at)
                closed += 1
    return closed


def recordings_forget(*, now: datetime) -> int:
    """Delete the recordings that ended longer ago than ``RECORDINGS_KEEP_DAYS``; how many. The audit counts them."""
    old = Recording.objects.filter(ended_at__lt=now - timedelta(days=settings.RECORDINGS_KEEP_DAYS)).order_by(
        "ended_at"
    )
    forgotten = 0
    while some := list(old.values_list("pk", flat=True)[:_TOGETHER]):
        with transaction.atomic():
            rows = Recording.objects.filter(pk__in=some)
            counts = list(rows.order_by("tenant").values_list("tenant").annotate(Count("pk")))
            RecordingChunk.objects.filter(recording__in=some).delete()
            rows.delete()
            for tenant, count in counts:
                detail = {"recordings": count, "older_than_days": settings.RECORDINGS_KEEP_DAYS}
                WORKER.record(
                    Action.RECORDINGS_FORGOTTEN, chain=_chain(tenant), target=f"tenants/{tenant}", detail=detail
                )
        forgotten += len(some)
    return forgotten


def _left_by(found: Recording) -> Ending:
    """What can be said of a session whose process has gone."""
    why, digest = "the process of the API server that recorded it has gone", ""
    if found.mode == RecordingMode.OUTPUT:
        try:
            content = hashlib.sha256()
            for text in recording_text(found):
                content.update(text.encode())
            digest = content.hexdigest()
        except Unplayable as error:
            why = f"{why}; {error}"
    return Ending(why=why, bytes=found.bytes, sha256=digest)


def _end(actor: Actor, found: Recording, ending: Ending, now: datetime) -> None:
    found.ended_at = found.seen_at = now
    found.ended_why = clean_text(ending.why, 512)
    found.exit_code, found.bytes, found.sha256 = ending.exit_code, ending.bytes, ending.sha256
    found.save(update_fields=["ended_at", "seen_at", "ended_why", "exit_code", "bytes", "sha256"])
    detail = {
        "mode": found.mode,
        "caller": found.caller,
        "credential_id": found.credential,
        "container": found.container,
        "way": found.way,
        "command": found.command,
        "milliseconds": int((now - found.begun_at).total_seconds() * 1000),
        "bytes": found.bytes,
        "exit_code": found.exit_code,
        "why": found.ended_why,
        "sha256": found.sha256,
    }
    _record(actor, found, Action.RECORDING_ENDED, Outcome.FAILURE if ending.why else Outcome.SUCCESS, detail)


def _record(actor: Actor, found: Recording, action: Action, outcome: Outcome, detail: Mapping[str, Any]) -> None:
    actor.record(
        action,
        chain=_chain(found.tenant),
        outcome=outcome,
        target=f"namespaces/{found.namespace}/pods/{found.pod}",
        workspace_id=found.workspace_id,
        detail={"recording": str(found.pk), **detail},
    )


def _chain(tenant: str) -> str:
    return tenant if Tenant.objects.filter(name=tenant).exists() else SYSTEM_CHAIN


@contextmanager
def _demanded() -> Iterator[None]:
    try:
        yield
    except Error:
        why = "the database does not take it"
    except (ImproperlyConfigured, ValueError):
        why = "there is no key that it could be sealed with: an operator sets TENANTRY_SEALING_KEYS"
    else:
        return
    raise ServiceUnavailable(f"this session has to be recorded, and its recording cannot be kept: {why}", retry_after=5)
