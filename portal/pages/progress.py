"""An operation on its way, as people follow it: steps with names, times and errors in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.utils.dateparse import parse_datetime

from portal.pages import labels
from tenants.models import Operation, OperationState, Workspace


@dataclass(frozen=True, slots=True)
class Step:
    """One step: done, being done, or not verified."""

    name: str
    verdict: str
    note: str
    took: str
    now: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """What ``components/history/progress.html`` draws. ``moving`` makes it ask again."""

    show: bool
    moving: bool
    title: str
    state: labels.State
    steps: tuple[Step, ...]
    attempts: int
    error: str
    error_title: str
    error_verdict: str
    url: str
    retry: str = ""
    """Where to ask for another attempt now; empty where nothing waits for one."""


TITLES: Final = {
    "ready": "Making it ready",
    "suspended": "Suspending",
    "deleted": "Deleting",
}


def progress_of(workspace: Workspace, operation: Operation | None, *, url: str, retry: str = "") -> Progress:
    """The progress of the workspace's present wish; shown while it is on its way or has failed."""
    moving = labels.workspace_is_moving(workspace)
    if operation is None:
        return Progress(
            show=moving,
            moving=moving,
            title="Waiting",
            state=labels.workspace_state(workspace),
            steps=(),
            attempts=0,
            error="",
            error_title="",
            error_verdict="wait",
            url=url,
        )
    failed = operation.state == OperationState.FAILED
    steps = [*steps_of(operation.steps_done, since=operation.created_at)]
    if operation.state == OperationState.RUNNING and operation.step:
        steps.append(Step(operation.step, labels.WAIT, "being done", "", now=True))
    return Progress(
        show=moving or failed,
        moving=moving or operation.state in {OperationState.PENDING, OperationState.RUNNING},
        title=TITLES.get(operation.desired, "In progress"),
        state=labels.operation_state(operation.state),
        steps=tuple(steps),
        attempts=operation.attempts,
        error=operation.error,
        error_title="It did not work; it is tried again from time to time"
        if failed
        else "The last attempt did not work; trying again",
        error_verdict=labels.DENY if failed else labels.WAIT,
        url=url,
        retry=retry if operation.error and operation.finished_at is None else "",
    )


def receipt_text(workspace: Workspace) -> str:
    """The receipt of a suspension or deletion as plain text, for an incident's record; empty without one."""
    if not workspace.receipt:
        return ""
    began = parse_datetime(str(workspace.receipt[0].get("at") or ""))
    at = f"{began:%Y-%m-%d %H:%M:%S} UTC" if began else "an unknown time"
    if workspace.suspended_reason:
        by = f" by {workspace.suspended_by or 'unknown'}"
        lines = [f"{workspace} ({workspace.pk}) suspended at {at}{by}", f"Reason: {workspace.suspended_reason}"]
    else:
        lines = [f"{workspace} ({workspace.pk}) closed at {at}"]
    steps = steps_of(workspace.receipt)
    lines += [f"{step.took or '-':>9}  {labels.step_name(step.name)}: {step.note}" for step in steps]
    return "\n".join(lines)


def steps_of(rows: Iterable[Mapping[str, Any]], *, since: datetime | None = None) -> tuple[Step, ...]:
    """Finished steps, or the layers of a receipt: how long each took, and whether it was read back.

    A step without a duration of its own took the time since the one before it, the first the time since ``since``.
    """
    steps, before = [], since
    for row in rows:
        verified = bool(row.get("verified", True))
        at = parse_datetime(str(row.get("at") or ""))
        took = row.get("milliseconds")
        if took is None and at is not None and before is not None:
            took = max(0, round((at - before).total_seconds() * 1000))
        before = at or before
        steps.append(
            Step(
                name=str(row.get("step") or row.get("layer") or ""),
                verdict=labels.ALLOW if verified else labels.WAIT,
                note=str(row.get("note") or ("done and read back" if verified else "not confirmed yet")),
                took="" if took is None else f"{took} ms",
            )
        )
    return tuple(steps)
