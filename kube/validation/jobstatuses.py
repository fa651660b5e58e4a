"""What the status of a Job may say, and how it may go on: whoever works it, it begins once and ends once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kube.requests.fielderrors import count_causes, duplicate, immutable, invalid, required, unshown
from kube.requests.status import Cause
from kube.validation.indexes import count_indexes, overlap

_CONDITIONS: Final = "status.conditions"
_ONCE: Final = ("Failed", "Complete", "FailureTarget")


class _State:
    """A Job as its status tells it."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.spec: dict[str, Any] = body.get("spec", {})
        self.status: dict[str, Any] = body.get("status") or {}
        conditions = self.status.get("conditions") or ()
        self.true = {each.get("type") for each in conditions if each.get("status") == "True"}
        self.false = {each.get("type") for each in conditions if each.get("status") == "False"}
        self.complete, self.failed = "Complete" in self.true, "Failed" in self.true
        self.failing, self.met = "FailureTarget" in self.true, "SuccessCriteriaMet" in self.true
        self.finished = self.complete or self.failed

    def get(self, name: str) -> Any:
        return self.status.get(name)


def job_status_causes(new: dict[str, Any], old: dict[str, Any]) -> list[Cause]:
    """What is wrong with a change of a Job's status; what was so before and stays is not held against it."""
    after, before = _State(new), _State(old)
    if after.status == before.status:
        return []
    return [*_count_causes(after.status), *_state_causes(after, before), *_step_causes(after, before)]


def _count_causes(status: dict[str, Any]) -> list[Cause]:
    causes = count_causes(status, "status", "active", "succeeded", "failed", "ready", "terminating")
    seen: set[str] = set()
    uncounted = status.get("uncountedTerminatedPods") or {}
    for field in ("succeeded", "failed"):
        for index, uid in enumerate(uncounted.get(field) or ()):
            here = f"status.uncountedTerminatedPods.{field}[{index}]"
            if not uid:
                causes.append(invalid(here, uid, "must not be empty"))
            elif uid in seen:
                causes.append(duplicate(here, uid))
            seen.add(uid)
    return causes


def _state_causes(after: _State, before: _State) -> Iterator[Cause]:
    """What cannot be true at once. Each is judged where something that it speaks of is new."""

    def new(*names: str) -> bool:
        return any(after.get(name) != before.get(name) for name in names)

    status = after.status
    ended, completed = after.finished != before.finished, after.complete != before.complete
    start, end = status.get("startTime"), status.get("completionTime")
    if after.complete and after.failed and (completed or after.failed != before.failed):
        yield unshown(_CONDITIONS, "cannot set Complete=True and Failed=true conditions")
    if after.complete and after.failing and (completed or after.failing != before.failing):
        yield unshown(_CONDITIONS, "cannot set Complete=True and FailureTarget=true conditions")
    if completed or new("completionTime"):
        if end is not None and not after.complete:
            detail = "cannot set completionTime when there is no Complete=True condition"
            yield invalid("status.completionTime", end, detail)
        if end is None and after.complete:
            yield required("status.completionTime", "completionTime is required for Complete jobs")
    if start is not None and end is not None and end < start and new("startTime", "completionTime"):
        yield invalid("status.completionTime", end, "must be equal to or after `startTime`")
    if after.failed and not after.failing and (after.failed != before.failed or new("failedIndexes")):
        yield unshown(_CONDITIONS, "cannot set Failed=True condition without the FailureTarget=true condition")
    if after.complete and not after.met and (completed or after.met != before.met):
        yield unshown(_CONDITIONS, "cannot set Complete=True condition without the SuccessCriteriaMet=true condition")
    if after.finished:
        yield from _end_causes(after, {name for name in status if ended or new(name)}, ended or new("startTime"))
    yield from _index_causes(after, indexes=new("completedIndexes"), failed=new("failedIndexes"))
    if after.finished and status.get("terminating", 0) > 0 and (ended or new("terminating")):
        yield invalid("status.terminating", status["terminating"], "terminating>0 is invalid for finished job")
    if status.get("ready", 0) > status.get("active", 0) and new("ready", "active"):
        yield invalid("status.ready", status["ready"], "cannot set more ready pods than active")
    if after.met and after.failed:
        yield unshown(_CONDITIONS, "cannot set SuccessCriteriaMet=True and Failed=true conditions")
    if after.met and after.failing:
        yield unshown(_CONDITIONS, "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
    if "successPolicy" in after.spec and after.complete and not after.met:
        detail = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        yield unshown(_CONDITIONS, detail)


def _end_causes(job: _State, judged: set[str], began: bool) -> Iterator[Cause]:
    """What a Job that has ended does not have any more."""
    status = job.status
    if "active" in judged and status["active"] > 0:
        yield invalid("status.active", status["active"], "active>0 is invalid for finished job")
    idle = job.spec.get("suspend") and job.spec.get("completions") == 0
    if began and status.get("startTime") is None and not idle:
        yield required("status.startTime", "startTime is required for finished job")
    uncounted = status.get("uncountedTerminatedPods") or {}
    if "uncountedTerminatedPods" in judged and (uncounted.get("succeeded") or uncounted.get("failed")):
        shown = {"Succeeded": uncounted.get("succeeded"), "Failed": uncounted.get("failed")}
        yield invalid("status.uncountedTerminatedPods", shown, "must be empty for finished job")


def _index_causes(job: _State, *, indexes: bool, failed: bool) -> Iterator[Cause]:
    """What is wrong with the lists of indexes that succeeded, and of those that failed."""
    here, there = "status.completedIndexes", "status.failedIndexes"
    done, lost = job.status.get("completedIndexes", ""), job.status.get("failedIndexes")
    completions, limited = job.spec.get("completions"), "backoffLimitPerIndex" in job.spec
    if indexes and completions is not None and (reason := count_indexes(done, completions)[1]):
        yield invalid(here, done, f"error parsing completedIndexes: {reason}")
    if failed and completions is not None and limited and lost is not None:
        reason = count_indexes(lost, completions)[1]
        if reason:
            yield invalid(there, lost, f"error parsing failedIndexes: {reason}")
    if indexes and done and job.spec.get("completionMode") != "Indexed":
        yield invalid(here, done, "cannot set non-empty completedIndexes when non-indexed completion mode")
    if failed and not limited and lost is not None:
        yield invalid(there, lost, "cannot set non-null failedIndexes when backoffLimitPerIndex is null")
    if (indexes or failed) and completions is not None and lost is not None:
        common = overlap(done, lost, completions)
        if common is not None:
            yield invalid(there, lost, f"failedIndexes and completedIndexes overlap at index: {common}")


def _step_causes(after: _State, before: _State) -> Iterator[Cause]:
    """What cannot be taken back."""
    for name in _ONCE:
        if name in before.true and name not in after.true:
            yield unshown(_CONDITIONS, f"cannot disable the terminal {name}=True condition")
    for name in ("failed", "succeeded"):
        indexed = after.spec.get("completionMode") == "Indexed"
        shrinks = indexed and after.spec.get("completions") == after.spec.get("parallelism")
        count = after.status.get(name, 0)
        if count < before.status.get(name, 0) and not (name == "succeeded" and shrinks):
            yield invalid(f"status.{name}", count, f"cannot decrease the {name} counter")
    end, start = before.get("completionTime"), before.get("startTime")
    if end is not None and after.get("completionTime") not in (None, end):
        yield immutable("status.completionTime", after.get("completionTime"))
    resumes = "Suspended" in before.true and "Suspended" in after.false
    if start is not None and after.get("startTime") != start and not after.spec.get("suspend") and not resumes:
        detail = "field is immutable for unsuspended job once set"
        yield invalid("status.startTime", after.get("startTime"), detail)
    if before.met and not after.met:
        yield unshown(_CONDITIONS, "cannot disable the SuccessCriteriaMet=True condition")
    if before.complete and not before.met and after.met:
        yield unshown(_CONDITIONS, "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")
