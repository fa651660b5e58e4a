"""The checkers of the fault campaign see each kind of broken promise, and nothing where all is well."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bench.campaign.__main__ import campaign
from bench.campaign.checkers import credentials, objects, workspaces
from bench.campaign.history import Era, Event, History, Hurt, Issue, Read, Restore, Segment, Use, Wish, Write
from bench.campaign.journal import Journal, Round
from bench.campaign.plan import RESTORED_EVERY, VICTIMS, plan
from bench.campaign.report import lines

SPACE, NAME = "root:acme", "campaign-0"


def event(revision: int, type_: str, identity: str, base: str = "") -> Event:
    body = {"metadata": {"resourceVersion": str(revision)}, "data": {"identity": identity, "base": base}}
    return Event(revision, type_, SPACE, NAME, json.dumps(body).encode(), None)


def write(begun: float, verb: str, identity: str, base: str, revision: int) -> Write:
    return Write(begun, begun + 0.5, SPACE, NAME, verb, identity, base, "kept", revision)  # type: ignore[arg-type]


def whole() -> tuple[History, objects.State]:
    """An object that is made, changed, read and watched, and all as it must be."""
    log = [event(5, "ADDED", "a"), event(7, "MODIFIED", "b", "a")]
    segment = Segment(SPACE, 4, 0.5, [(5, "ADDED", NAME, "a"), (7, "MODIFIED", NAME, "b")])
    history = History(
        writes=[write(1, "create", "a", "", 5), write(3, "update", "b", "a", 7)],
        reads=[Read(0, 0.5, SPACE, NAME, "", 0), Read(2, 2.5, SPACE, NAME, "a", 5), Read(4, 4.5, SPACE, NAME, "b", 7)],
        segments=[segment],
        eras=[Era(log, 10)],
    )
    return history, {(SPACE, NAME): "b"}


def test_nothing_is_found_where_all_is_well() -> None:
    assert objects.check(*whole()) == []


def _lose(history: History, rows: objects.State) -> None:
    history.eras[0].log.pop()
    history.segments.clear()
    history.reads.clear()
    rows[SPACE, NAME] = "a"


def _double(history: History, rows: objects.State) -> None:
    history.eras[0].log.append(event(9, "MODIFIED", "b", "b"))


def _overwrite(history: History, rows: objects.State) -> None:
    history.eras[0].log[1] = event(7, "MODIFIED", "b", "something older")


def _keep_what_was_refused(history: History, rows: objects.State) -> None:
    history.writes[1].outcome = "refused"


def _leave_an_event_out(history: History, rows: objects.State) -> None:
    history.segments[0].events.pop(0)


def _tell_twice(history: History, rows: objects.State) -> None:
    history.segments[0].events.append(history.segments[0].events[-1])


def _tell_what_nobody_wrote(history: History, rows: objects.State) -> None:
    history.segments[0].events.insert(1, (6, "MODIFIED", NAME, "of nobody"))


def _read_what_is_past(history: History, rows: objects.State) -> None:
    history.reads.append(Read(5, 5.5, SPACE, NAME, "a", 5))


def _forget_an_object(history: History, rows: objects.State) -> None:
    rows.clear()


@pytest.mark.parametrize(
    ("break_it", "kind"),
    [
        (_lose, "lost"),
        (_double, "doubled"),
        (_overwrite, "lost"),
        (_keep_what_was_refused, "orphaned"),
        (_leave_an_event_out, "lost"),
        (_tell_twice, "out of order"),
        (_tell_what_nobody_wrote, "doubled"),
        (_read_what_is_past, "out of order"),
        (_forget_an_object, "lost"),
    ],
)
def test_what_is_wrong_with_objects_is_found(break_it: Callable[[History, objects.State], None], kind: str) -> None:
    """TS4."""
    history, rows = whole()
    break_it(history, rows)
    assert kind in {finding.kind for finding in objects.check(history, rows)}


def test_a_restore_undoes_what_was_written_after_its_backup_and_nothing_else() -> None:
    """P12: the backup was taken at revision 5, so that the second write may be gone, and the first may not."""
    history, rows = whole()
    history.restores = [Restore(taken=2.8, revision=5, begun=6, ended=7)]
    history.eras = [Era(history.eras[0].log, 5.8), Era([event(20, "MODIFIED", "c", "a")], 20)]
    history.writes.append(write(8, "update", "c", "a", 20))
    assert objects.check(history, {(SPACE, NAME): "c"}) == []
    history.restores = [replace(history.restores[0], revision=4)]
    assert "lost" in {finding.kind for finding in objects.check(history, {(SPACE, NAME): "c"})}


def suspended() -> History:
    """A credential that was good until its workspace was suspended."""
    return History(
        wishes=[Wish(5, 6, "suspend", "acme", "w", "kept", "id")],
        issues=[Issue(1, 2, "id", "acme", "tenant-1", "kept", "token", 7200)],
        uses=[Use(3, 3.1, 0, 200), Use(5.5, 5.6, 0, 200), Use(9, 9.1, 0, 401)],
    )


def test_a_credential_that_opens_after_a_suspension_is_found_and_one_before_it_is_not() -> None:
    """P4, P5: even a resume revives no old one."""
    history = suspended()
    assert credentials.check(history) == []
    history.wishes.append(Wish(10, 11, "resume", "acme", "w", "kept", "id"))
    history.uses.append(Use(15, 15.1, 0, 200))
    assert [finding.kind for finding in credentials.check(history)] == ["open"]


def test_a_credential_that_opens_after_a_restore_is_found() -> None:
    """P12."""
    history = History(issues=suspended().issues, restores=[Restore(3, 7, 4, 5)])
    history.uses = [Use(4.5, 4.6, 0, 200), Use(8, 8.1, 0, 403)]
    assert credentials.check(history) == []
    history.uses.append(Use(8, 8.1, 0, 200))
    assert [finding.kind for finding in credentials.check(history)] == ["open"]


def test_credentials_that_live_too_long_or_are_issued_to_the_closed_are_found() -> None:
    """P3, P4."""
    history = suspended()
    history.issues.append(Issue(7, 8, "id", "acme", "tenant-1", "kept", "another", 7201))
    assert Counter(finding.kind for finding in credentials.check(history)) == {"open": 2}


def row(**changes: object) -> workspaces.Row:
    made = workspaces.Row("id", "acme", "w", "tenant-1", "active", "ready", settled=True)
    return replace(made, **changes)


def ending(*rows: workspaces.Row, **changes: object) -> workspaces.Ending:
    there = [(f"root:{each.tenant}", each.namespace) for each in rows if each.status != "deleted"]
    return replace(workspaces.Ending(list(rows), [], there), **changes)


MADE = Wish(1, 2, "make", "acme", "w", "kept", "id")
SUSPENDED = Wish(3, 4, "suspend", "acme", "w", "kept", "id")


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        (ending(), "lost"),
        (ending(row(), row(workspace="another", namespace="tenant-2")), "doubled"),
        (ending(row(), namespaces=[]), "lost"),
        (ending(row(), namespaces=[("root:acme", "tenant-1"), ("root:acme", "tenant-9")]), "orphaned"),
        (ending(row(settled=False)), "not ended"),
        (ending(row(), work=[workspaces.Work("id", "failed", ())]), "not ended"),
        (ending(row(), work=[workspaces.Work("id", "done", ("quota", "quota"))]), "doubled"),
        (ending(row(), audit_flaws=("a row was changed",)), "audit"),
    ],
)
def test_what_is_wrong_with_workspaces_is_found(found: workspaces.Ending, kind: str) -> None:
    """P7, P10."""
    history = History(wishes=[MADE])
    assert workspaces.check(history, ending(row())) == []
    assert kind in {finding.kind for finding in workspaces.check(history, found)}


def test_an_acknowledged_suspension_that_is_forgotten_is_found() -> None:
    """P4, P7: where it is, and where it is written down."""
    history = History(wishes=[MADE, SUSPENDED])
    audited = Counter({("workspace.suspend", "id"): 1})
    closed = row(status="suspended", phase="suspended")
    assert workspaces.check(history, ending(closed, audited=audited)) == []
    assert [each.kind for each in workspaces.check(history, ending(row(), audited=audited))] == ["lost"]
    assert [each.kind for each in workspaces.check(history, ending(closed))] == ["lost"]
    twice = Counter({("workspace.suspend", "id"): 2})
    assert [each.kind for each in workspaces.check(history, ending(closed, audited=twice))] == ["doubled"]


@given(st.integers(0, 10_000), st.integers(1, 200))
def test_a_plan_is_its_seeds_alone(seed: int, faults: int) -> None:
    steps = plan(seed, faults)
    assert steps == plan(seed, faults)
    kinds = [step.kind for step in steps]
    restored = seed % RESTORED_EVERY == 0
    assert kinds.count("restore") == kinds.count("backup") == restored
    assert len(steps) == faults + 2 * restored
    if restored:
        assert kinds.index("backup") < kinds.index("restore")
    assert all(step.victim in VICTIMS for step in steps if step.kind in ("kill", "freeze", "end", "jump"))


def test_a_campaign_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    played: list[int] = []

    async def play(seed: int, steps: int) -> Round:
        played.append(seed)
        found = [("lost", "a write")] if seed == 4 else []
        return Round("product", seed, {"kill": steps}, {"acknowledged writes": 7}, found)

    def go(faults: int) -> Journal:
        journal = Journal(tmp_path / "journal")
        bounds = {"seed": 3, "steps": 10, "ends": float("inf")}
        asyncio.run(campaign(play, "product", journal, faults=faults, **bounds))
        return journal

    go(20)
    assert played == [3, 4]
    journal = go(40)
    assert played == [3, 4, 5, 6]
    told = "\n".join(lines(journal))
    assert "| **faults** | **40** |" in told
    assert "| judged: acknowledged writes | 28 |" in told
    assert "| found: lost | 1 |" in told
    assert "product, seed 4: lost: a write" in told


def test_how_long_each_kind_of_fault_and_a_restore_closed_the_doors_is_told() -> None:
    """P12: a restore from its beginning until it was opened, though operators write meanwhile."""
    times = (1, 2, 5, 6, 20, 21)
    history = History(
        writes=[write(time - 0.5, "create", str(time), "", time) for time in times],
        hurts=[Hurt("freeze", 2.5, 4), Hurt("kill", 2.5, 3), Hurt("cut", 5.5, 5.6), Hurt("kill", 12, 13)],
        restores=[Restore(taken=0, revision=1, begun=7, ended=10, opened=19)],
        eras=[Era([], 30)],
    )
    assert history.closed_by() == {"freeze": 3, "kill": 3, "cut": 1, "restore": 12}
    assert history.silence() == 3
    # What nobody opened is closed until the end.
    never = replace(history, writes=history.writes[:4], restores=[replace(history.restores[0], opened=0.0)])
    assert never.closed_by()["restore"] == 23


@pytest.mark.parametrize(("used", "longest", "found"), [(9.5, 0, []), (10.5, 0.5, []), (13, 3, ["open"])])
def test_how_long_a_credential_opened_something_after_its_end_is_told(
    used: float, longest: float, found: list[str]
) -> None:
    """P4, P12: also where it is short enough to be kept to the promise."""
    history = History(
        issues=[Issue(1, 2, "id", "acme", "tenant-1", "kept")],
        uses=[Use(used, used + 0.1, 0, 200)],
        restores=[Restore(taken=0, revision=1, begun=7, ended=10)],
    )
    assert credentials.longest_open(history) == longest
    assert [each.kind for each in credentials.check(history)] == found


def test_the_report_says_how_long_it_was_closed_and_open_at_most(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.add(Round("product", 1, {"freeze": 1}, {}, closed={"freeze": 2.5, "restore": 31.0}, opened=0.2))
    journal.add(Round("product", 2, {"kill": 1}, {}, closed={"freeze": 4.5}, opened=0.1))
    told = list(lines(Journal(tmp_path / "journal")))
    assert [line for line in told if "longest time closed" in line] == [
        "| longest time closed: restore, s | 31.0 |",
        "| longest time closed: freeze, s | 4.5 |",
    ]
    assert "| longest time open: a credential after the answer that had ended it, s | 0.2 |" in told


def test_a_workspace_that_was_suspended_before_it_was_made_has_no_namespace_and_one_after_it_has() -> None:
    """P7: the namespace of a suspended one is not taken away, and is first made when it is resumed."""
    history, audited = History(wishes=[MADE, SUSPENDED]), Counter({("workspace.suspend", "id"): 1})
    empty = ending(row(status="suspended", phase="suspended"), audited=audited, namespaces=[])
    assert workspaces.check(history, empty) == []
    had = replace(empty, work=[workspaces.Work("id", "done", ("shown", "namespace"))])
    assert [each.kind for each in workspaces.check(history, had)] == ["lost"]
