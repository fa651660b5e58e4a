"""Credentials (P3 to P5, P12): none of before a suspension, a deletion or a restore opens anything after it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from bench.campaign.checkers import Finding
from bench.campaign.history import History, Issue

AT_ONCE = 1.0
"""Seconds after which a suspension is in force everywhere (P4)."""

LONGEST = 7200
"""Seconds that a credential may live (P3)."""


@dataclass(frozen=True, slots=True)
class _End:
    """Everything that was issued before ``begun`` is dead from ``ended`` on."""

    begun: float
    ended: float
    why: str


def check(history: History) -> list[Finding]:
    """All of it."""
    return [*_used(history), *_lifetimes(history), *_issued(history)]


def _ends(history: History, issue: Issue) -> list[_End]:
    closed = [
        _End(wish.begun, wish.ended, wish.verb)
        for wish in history.wishes
        if wish.workspace == issue.workspace
        and wish.verb in ("suspend", "delete")
        and wish.outcome == "kept"
        # What a restore has undone ends nothing by itself; the restore does.
        and not history.lost_by_a_restore(wish.begun, wish.ended)
    ]
    return closed + [_End(each.ended, each.ended, "restore") for each in history.restores]


def longest_open(history: History) -> float:
    """For how many seconds after the answer that had ended it a credential still opened something, at most."""
    return max((late for _, _, late in _opened_late(history)), default=0.0)


def _opened_late(history: History) -> Iterator[tuple[Issue, _End, float]]:
    """What opened something though it was dead: by what, and how long after that."""
    for use in history.uses:
        if not 200 <= use.status < 300:
            continue
        issue = history.issues[use.issue]
        ended = [
            end
            for end in _ends(history, issue)
            if issue.begun < end.begun and use.begun > end.ended and issue.ended < end.ended
        ]
        if ended:
            first = min(ended, key=lambda end: end.ended)
            yield issue, first, use.begun - first.ended


def _used(history: History) -> Iterator[Finding]:
    for issue, end, late in _opened_late(history):
        if late > AT_ONCE:
            yield Finding("open", f"a credential of {issue.namespace} opened {late:.1f} s after the {end.why}")


def _lifetimes(history: History) -> Iterator[Finding]:
    for issue in history.issues:
        if issue.lifetime > LONGEST:
            yield Finding("open", f"a credential of {issue.namespace} lives for {issue.lifetime:.0f} s")


def _issued(history: History) -> Iterator[Finding]:
    """Nobody is given one while the workspace is closed."""
    for issue in history.issues:
        if issue.outcome != "kept":
            continue
        for wish in history.wishes:
            if wish.workspace != issue.workspace or wish.outcome != "kept" or wish.verb not in ("suspend", "delete"):
                continue
            if history.lost_by_a_restore(wish.begun, wish.ended) or issue.begun <= wish.ended:
                continue
            opened = any(
                other.verb == "resume"
                and other.workspace == issue.workspace
                and other.outcome != "refused"
                and wish.begun < other.ended
                and other.begun < issue.ended
                for other in history.wishes
            ) or any(wish.begun < each.ended for each in history.restores)
            if not opened:
                yield Finding("open", f"a credential of {issue.namespace} was issued after the {wish.verb}")
