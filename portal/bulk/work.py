"""A deed for many rows, from the choice to its last result; it lives in the session of whoever does it (GW28).

The preview does to each row what would be done, in a transaction that is taken back: what is refused there is refused by
the service itself, in its own words. Then each row is done in a transaction of its own, and its result noted before the
next one begins: whoever comes back after anything has died goes on where it was.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, Final

from django.contrib.sessions.backends.base import SessionBase
from django.db import DatabaseError, transaction

from audit.recorder import Actor
from kube.requests.status import StatusError
from portal.bulk.deeds import SORTS, Deed, Sort

_KEY: Final = "bulk"
_TURN_SECONDS: Final = 2.0
"""How long one answer works: what is left is for the next one."""


@dataclass(slots=True)
class Row:
    """One row: its key and name, and what would become of it, or has.

    ``state`` is ``chosen``, then ``fits`` or ``refused`` of a preview, then ``done`` or ``failed``.
    """

    key: str
    name: str
    state: str = "chosen"
    text: str = ""


@dataclass(slots=True)
class Work:
    """Rows of a list, what is to be done with them, and with which words."""

    sort: str
    deed: str
    rows: list[Row]
    words: dict[str, str] = field(default_factory=dict)
    """What was typed: checked anew by the form of the deed each time."""
    agreed: bool = False

    @property
    def of(self) -> Sort:
        """The list that the rows were chosen in."""
        return SORTS[self.sort]

    @property
    def what(self) -> Deed:
        """What is done to each of the rows."""
        return SORTS[self.sort].deeds[self.deed]

    def in_state(self, *states: str) -> list[Row]:
        """The rows in one of these states."""
        return [row for row in self.rows if row.state in states]


def work_of(session: SessionBase) -> Work | None:
    """What the person is at; ``None`` where it is nothing that there is."""
    kept = session.get(_KEY)
    if not kept or kept["deed"] not in SORTS[kept["sort"]].deeds:
        return None
    return Work(**{**kept, "rows": [Row(**row) for row in kept["rows"]]})


def work_keep(session: SessionBase, work: Work) -> None:
    """Remember it from now on, until something else is begun."""
    session[_KEY] = asdict(work)
    session.save()


def work_begin(actor: Actor, sort: str, deed: str, keys: Iterable[str]) -> Work:
    """The chosen rows, with their names; what is not there is left out."""
    rows = []
    for key in dict.fromkeys(keys):
        try:
            rows.append(Row(key, SORTS[sort].name(SORTS[sort].row(actor, key))))
        except StatusError:
            continue
    return Work(sort, deed, rows)


def work_preview(work: Work, actor: Actor, words: Mapping[str, Any], *, now: datetime) -> None:
    """Say of each row what would happen; nothing does."""
    for row in work.rows:
        with transaction.atomic():
            row.state, row.text = _tried(work, actor, row, words, now)
            transaction.set_rollback(True)
        row.state = {"done": "fits", "failed": "refused"}[row.state]


def work_go_on(work: Work, session: SessionBase, actor: Actor, words: Mapping[str, Any], *, now: datetime) -> None:
    """Do what waits, row by row, for as long as one answer takes; the result of each is kept before the next begins."""
    ends = time.monotonic() + _TURN_SECONDS
    for row in work.in_state("fits"):
        row.state, row.text = _tried(work, actor, row, words, now)
        work_keep(session, work)
        if time.monotonic() > ends:
            return


def _tried(work: Work, actor: Actor, row: Row, words: Mapping[str, Any], now: datetime) -> tuple[str, str]:
    try:
        with transaction.atomic():
            before = work.of.state(work.of.row(actor, row.key))
            work.what.perform(actor, row.key, dict(words), now)
            after = work.of.state(work.of.row(actor, row.key))
    except StatusError as error:
        return "failed", error.message
    except DatabaseError:
        return "failed", "The database has not done it; try again."
    return "done", f"{before} → {after}" if before != after else f"{after}, as before"
