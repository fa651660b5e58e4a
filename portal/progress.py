"""An operation on its way, as people follow it: steps with names, times and errors in words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from portal import wording
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
    """What ``components/progress.html`` draws. ``moving`` makes it ask again."""

    show: bool
    moving: bool
    title: str
    state: wording.State
    steps: tuple[Step, ...]
    attempts: int
    error: str
    error_title: str
    error_verdict: str
    url: str


_TITLES: Final = {
    "ready": "Making it ready",
    "suspended": "Suspending",
    "deleted": "Deleting",
}


def progress_of(workspace: Workspace, operation: Operation | None, *, url: str) -> Progress:
    """The progress of the workspace's present wish; shown while it is on its way or has failed."""
    moving = wording.workspace_is_moving(workspace)
    if operation is None:
        return Progress(
            show=moving, moving=moving, title="Waiting", state=wording.workspace_state(workspace), steps=(), attempts=0,
            error="", error_title="", error_verdict="wait", url=url,
        )  # fmt: skip
    failed = operation.state == OperationState.FAILED
    steps = [*steps_of(operation.steps_done)]
    if operation.state == OperationState.RUNNING and operation.step:
        steps.append(Step(operation.step, wording.WAIT, "being done", "", now=True))
    return Progress(
        show=moving or failed,
        moving=moving or operation.state in {OperationState.PENDING, OperationState.RUNNING},
        title=_TITLES.get(operation.desired, "In progress"),
        state=wording.operation_state(operation.state),
        steps=tuple(steps),
        attempts=operation.attempts,
        error=operation.error,
        error_title="It did not work; it is tried again from time to time" if failed else "The last attempt did not work; trying again",
        error_verdict=wording.DENY if failed else wording.WAIT,
        url=url,
    )


def steps_of(rows: Iterable[Mapping[str, Any]]) -> tuple[Step, ...]:
    """Finished steps, or the layers of a suspension's receipt, each with its time and whether it was read back."""
    steps = []
    for row in rows:
        verified = bool(row.get("verified", True))
        took = row.get("milliseconds")
        note = str(row.get("note") or ("read back" if verified else "not confirmed yet"))
        steps.append(
            Step(
                name=str(row.get("step") or row.get("layer") or ""),
                verdict=wording.ALLOW if verified else wording.WAIT,
                note=note,
                took="" if took is None else f"{took} ms",
            )
        )
    return tuple(steps)
