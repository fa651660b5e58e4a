"""The figures of a campaign, as text for people and for ``docs/reliability.md``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from bench.campaign.journal import Journal

_BROKEN = ("lost", "doubled", "orphaned", "out of order", "open", "not ended", "audit")


def lines(journal: Journal) -> Iterator[str]:
    """A table in Markdown, and each finding behind it."""
    faults, judged = journal.faults(), journal.judged()
    yield "| what | how many |"
    yield "| --- | --- |"
    yield f"| rounds | {len(journal.rounds)} |"
    yield f"| **faults** | **{faults.total()}** |"
    for kind, count in faults.most_common():
        yield f"| {kind} | {count} |"
    for kind, count in judged.items():
        yield f"| judged: {kind} | {count} |"
    broken = Counter(kind for _, kind, _ in journal.findings())
    for kind in _BROKEN:
        yield f"| found: {kind} | {broken[kind]} |"
    silence = max((each.silence for each in journal.rounds), default=0)
    settled = max((each.settled for each in journal.rounds), default=0)
    yield f"| longest time without an acknowledged write, s | {silence:.1f} |"
    yield f"| longest time from the last fault until all was done, s | {settled:.1f} |"
    if any(each.of == "product" for each in journal.rounds):
        for kind, seconds in journal.closed().items():
            yield f"| longest time closed: {kind}, s | {seconds:.1f} |"
        opened = max(each.opened for each in journal.rounds)
        yield f"| longest time open: a credential after the answer that had ended it, s | {opened:.1f} |"
    for each, kind, text in journal.findings():
        yield f"\n{each.of}, seed {each.seed}: {kind}: {text}"
