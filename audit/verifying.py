"""Whether the chains in the database are as they were written: in stretches, by as many processes as are given (GW13).

A row names the hash of the one before it. So a stretch that begins after a known row and ends with a known row is checked
without those before it; a chain is whole when each of its stretches is, and its first flaw is that of the first stretch
that has one.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

from django.db import connection, transaction
from django.db.models import QuerySet
from psycopg.rows import dict_row

from audit.chain import FIELDS, GENESIS, ChainViolation, verify
from audit.models import AuditChain, AuditEntry
from audit.spawned import prepare

STRETCH: Final = 20_000
"""So many rows a stretch has, and more only where rows are missing."""

_TOGETHER: Final = 2000
_LEAST: Final = -(2**63)
_ROWS: Final = f"""
SELECT {", ".join(FIELDS)}, previous_hash, hash FROM audit_logs
WHERE chain = %s AND sequence BETWEEN %s AND %s ORDER BY sequence
"""  # noqa: S608 - our own names

_Check = Callable[[Iterable["Stretch"]], Iterator[ChainViolation | None]]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The rows behind ``after`` up to ``end``, each a sequence and the hash there."""

    chain: str
    after: tuple[int, str]
    end: tuple[int, str]


@dataclass(frozen=True, slots=True)
class Checked:
    """What was found of one chain: the first flaw, or none in so many rows, of which the last has this hash."""

    chain: str
    rows: int
    end_hash: str
    flaw: ChainViolation | None


def check(chains: Sequence[str], *, jobs: int, progress: Callable[[int], None] = lambda _: None) -> Iterator[Checked]:
    """Each chain's result as soon as it is there, in the order given, by ``jobs`` processes.

    ``progress`` is told how many rows have been looked at.
    """
    planned = [stretch for chain in chains for stretch in stretches(chain)]
    whole = sum(stretch.end[0] - stretch.after[0] for stretch in planned)
    # A process takes longer to begin than a stretch takes.
    with _checker(jobs if whole > STRETCH else 1) as run:
        rows = 0
        for chain, found in groupby(zip(planned, run(planned), strict=True), key=lambda pair: pair[0].chain):
            first, last = None, None
            for stretch, flaw in found:
                rows += stretch.end[0] - stretch.after[0]
                progress(rows)
                first, last = first or flaw, stretch
            if last is not None:
                yield Checked(chain, *last.end, first)


def chain_flaw(chain: str) -> ChainViolation | None:
    """The first flaw of a chain, or ``None``."""
    return next((flaw for flaw in map(flaw_in, stretches(chain)) if flaw), None)


def newest(chain: str) -> Stretch:
    """The last ``STRETCH`` rows of a chain, or all that it has: what a page can check."""
    end = _end(chain)
    before = _marks(chain).filter(sequence__lte=end[0] - STRETCH).order_by("-sequence").first()
    return Stretch(chain, before or (0, GENESIS), end)


def stretches(chain: str) -> Iterator[Stretch]:
    """The whole chain as it is now, in order. Rows that are written meanwhile lie behind the last one."""
    after, end = (0, GENESIS), _end(chain)
    while mark := _marks(chain).filter(sequence__gte=after[0] + STRETCH, sequence__lt=end[0]).first():
        yield Stretch(chain, after, mark)
        after = mark
    yield Stretch(chain, after, end)


def flaw_in(stretch: Stretch) -> ChainViolation | None:
    """The first flaw of a stretch, or ``None``."""
    sequence, end_hash = stretch.end
    with closing(_rows(stretch)) as rows:
        return verify(stretch.chain, rows, after=stretch.after, sequence=sequence, end_hash=end_hash)


def _rows(stretch: Stretch) -> Generator[dict[str, Any]]:
    """Past the ORM, which takes longer to read a row than the hash does."""
    # At the beginning nothing is left out: what stands before the first row is out of order.
    first = stretch.after[0] + 1 if stretch.after[0] else _LEAST
    with transaction.atomic(), connection.connection.cursor("audit_rows", row_factory=dict_row) as cursor:
        cursor.itersize = _TOGETHER
        cursor.execute(_ROWS, [stretch.chain, first, stretch.end[0]], binary=True)
        yield from cursor


def _end(chain: str) -> tuple[int, str]:
    """Where the chain ends by its anchor; without one, a hash that no row has."""
    anchor = AuditChain.objects.filter(chain=chain).values_list("sequence", "hash").first()
    last = _marks(chain).order_by("-sequence").first() if anchor is None else None
    return anchor or (last[0] if last else 0, GENESIS)


def _marks(chain: str) -> QuerySet[AuditEntry, tuple[int, str]]:
    return AuditEntry.objects.filter(chain=chain).order_by("sequence").values_list("sequence", "hash")


@contextmanager
def _checker(jobs: int) -> Iterator[_Check]:
    if jobs == 1:
        yield lambda planned: map(flaw_in, planned)
        return
    # Spawned, as a process that was forked would share this one's connection to the database.
    spawning = multiprocessing.get_context("spawn")
    database = str(connection.settings_dict["NAME"])
    with ProcessPoolExecutor(jobs, mp_context=spawning, initializer=prepare, initargs=(database,)) as pool:
        try:
            yield lambda planned: pool.map(flaw_in, planned)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
