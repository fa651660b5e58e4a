"""Workspaces and operations (P7): each wish is fulfilled once, every operation ends, and the cluster has nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.campaign.checkers import Finding
from bench.campaign.history import History, Wish


@dataclass(frozen=True, slots=True)
class Row:
    """A workspace as the portal has it in the end."""

    workspace: str
    tenant: str
    name: str
    namespace: str
    status: str
    phase: str
    settled: bool


@dataclass(frozen=True, slots=True)
class Work:
    """An operation as it is in the end."""

    workspace: str
    state: str
    steps: tuple[str, ...]
    error: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """What is there in the end."""

    rows: list[Row] = field(default_factory=list)
    work: list[Work] = field(default_factory=list)
    namespaces: list[tuple[str, str]] = field(default_factory=list)
    """Of the cluster: the tenant's space, and the name."""
    audited: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often each action on each workspace is in the audit."""
    audit_flaws: tuple[str, ...] = ()


_ENDED = frozenset({"done", "superseded"})
_ACTIONS = {"delete": "workspace.delete", "suspend": "workspace.suspend", "resume": "workspace.resume"}


def check(history: History, ending: Ending) -> list[Finding]:
    """All of it."""
    return [
        *_work(ending),
        *_wishes(history, ending),
        *_cluster(history, ending),
        *_audit(history, ending),
    ]


def _work(ending: Ending) -> Iterator[Finding]:
    for work in ending.work:
        if work.state not in _ENDED:
            yield Finding("not ended", f"an operation of {work.workspace} is {work.state}: {work.error}")
        if len(set(work.steps)) != len(work.steps):
            yield Finding("doubled", f"an operation of {work.workspace} has done {work.steps}")
    for row in ending.rows:
        if not row.settled:
            yield Finding("not ended", f"workspace {row.tenant}/{row.name} is {row.status}, and {row.phase}")


def _wishes(history: History, ending: Ending) -> Iterator[Finding]:
    by_id = {row.workspace: row for row in ending.rows}
    living = Counter((row.tenant, row.name) for row in ending.rows if row.status != "deleted")
    for key, count in living.items():
        if count > 1:
            yield Finding("doubled", f"workspace {key} is there {count} times")
    wanted: dict[str, list[Wish]] = {}
    for wish in history.wishes:
        if wish.workspace:
            wanted.setdefault(wish.workspace, []).append(wish)
    for workspace, wishes in wanted.items():
        made = next((wish for wish in wishes if wish.verb == "make"), None)
        if made is None or history.lost_by_a_restore(made.begun, made.ended):
            continue
        row = by_id.get(workspace)
        if row is None:
            yield Finding("lost", f"workspace {made.tenant}/{made.name} was acknowledged, and is not there")
        elif wrong := _wrong(row.status, wishes, history):
            yield Finding("lost", f"workspace {made.tenant}/{made.name} is {row.status}, though {wrong}")


def _wrong(status: str, wishes: list[Wish], history: History) -> str:
    """What the status ignores. Wishes that overlap, or of which nothing is known, leave it open which one was the last."""
    changes = [wish for wish in wishes if wish.outcome != "refused"]
    certain = [wish for wish in changes if not history.lost_by_a_restore(wish.begun, wish.ended)]
    if any(wish.verb == "delete" and wish.outcome == "kept" for wish in certain):
        return "" if status == "deleted" else "its deletion was acknowledged"
    possible = {"suspend": "suspended", "resume": "active", "make": "active", "delete": "deleted"}
    latest = max((wish for wish in certain if wish.outcome == "kept"), key=lambda wish: wish.begun)
    allowed = {possible[wish.verb] for wish in changes if wish.ended > latest.begun or wish.outcome == "unknown"} | {
        possible[latest.verb]
    }
    if history.restores:
        # A restore closes everything, and opens what was open; what it has undone is not told wish by wish.
        allowed |= {possible[wish.verb] for wish in changes}
    return "" if status in allowed else f"its last wish was to {latest.verb}"


def _cluster(history: History, ending: Ending) -> Iterator[Finding]:
    there = Counter(ending.namespaces)
    expected = {(f"root:{row.tenant}", row.namespace): row for row in ending.rows if row.status != "deleted"}
    made = {work.workspace for work in ending.work if "namespace" in work.steps}
    for place, row in expected.items():
        # One that was suspended before it had a namespace gets it when it is resumed.
        if place not in there and (row.status == "active" or row.workspace in made):
            yield Finding("lost", f"the cluster has no namespace {place}")
    if not history.restores:
        # What was made after a backup is nobody's once that is put back: it is listed, and never deleted.
        for place in there.keys() - expected.keys():
            yield Finding("orphaned", f"the cluster has {place}, which is nobody's")


def _audit(history: History, ending: Ending) -> Iterator[Finding]:
    for flaw in ending.audit_flaws:
        yield Finding("audit", flaw)
    for verb, action in _ACTIONS.items():
        asked = Counter(w.workspace for w in history.wishes if w.verb == verb and w.outcome != "refused")
        told = {
            w.workspace
            for w in history.wishes
            if w.verb == verb and w.outcome == "kept" and not history.lost_by_a_restore(w.begun, w.ended)
        }
        # Who resumes what is open already changes nothing, and nothing is recorded.
        for workspace in told if verb != "resume" else ():
            if not ending.audited[action, workspace]:
                yield Finding("lost", f"the {verb} of {workspace} was acknowledged, and is not in the audit")
        if not history.restores:
            for workspace, count in asked.items():
                if ending.audited[action, workspace] > count:
                    yield Finding(
                        "doubled", f"the {verb} of {workspace} is in the audit more often than it was asked for"
                    )
