"""Everything that a running product holds, measured again and again: processes, tables, logs, connections."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg

from bench.measuring.processes import anonymous, called, children, descriptors, resident
from bench.measuring.steadiness import Series
from portal.database.bounds import BOUNDS, By

_MIB: Final = 1 << 20
_RECORDS: Final = {By.RATE, By.AGE}
_GROWING: Final = {"api_requests"}
"""Bounded by bytes as well, of which no soak reaches the end."""

_TABLES: Final = """
SELECT coalesce(whole.relname, c.relname), sum(pg_total_relation_size(c.oid))
FROM pg_class AS c
LEFT JOIN pg_inherits AS i ON i.inhrelid = c.oid
LEFT JOIN pg_class AS whole ON whole.oid = i.inhparent
WHERE c.relkind IN ('r', 'p') AND c.relnamespace = 'public'::regnamespace
GROUP BY 1
"""
_CONNECTIONS: Final = """
SELECT count(*) FROM pg_stat_activity
WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()
"""
"""To the product's database alone: the server may have others."""


@dataclass(slots=True)
class Accounts:
    """What is measured. ``parent`` is the process whose children the parts are; ``logs`` the folder of their logs."""

    parent: int
    database: str
    logs: Path
    series: dict[tuple[str, str], Series] = field(default_factory=dict)

    def look(self, now: float) -> None:
        """Measure everything once. Raises ``psycopg.OperationalError`` when PostgreSQL does not answer."""
        for name, pids in self._processes():
            with contextlib.suppress(OSError, StopIteration):  # it has ended meanwhile
                # Of PostgreSQL's many, which share most of it, what each has for itself.
                memory = sum(map(anonymous, pids)) if len(pids) > 1 else resident(pids[0])
                opened = sum(map(descriptors, pids))
                self._note("memory", name, "MiB", now, memory, floor=16)
                self._note("descriptors", name, "", now, opened, floor=24)
        with psycopg.connect(self.database, autocommit=True) as connection:
            for name, size in connection.execute(_TABLES):
                bound = BOUNDS.get(name)
                judged = name not in _GROWING and (bound is None or bound.by not in _RECORDS)
                self._note("table", name, "MiB", now, float(size) / _MIB, floor=4, judged=judged)
            ((count,),) = connection.execute(_CONNECTIONS).fetchall()
            self._note("connections", "postgresql", "", now, count, floor=8)
        for path in sorted(self.logs.glob("*.log")):
            self._note("log", path.stem, "MiB", now, path.stat().st_size / _MIB, floor=0.25)

    def parts(self) -> set[int]:
        """The processes that the product's own process has started."""
        return set(children(self.parent))

    def _processes(self) -> Iterator[tuple[str, Sequence[int]]]:
        yield f"quickstart {self.parent}", [self.parent]
        for pid in sorted(self.parts()):
            with contextlib.suppress(OSError):
                name = called(pid)
                below = children(pid)
                if name == "postgres":
                    yield name, [pid, *below]
                    continue
                yield f"{name} {pid}", [pid]
                yield from ((f"{called(each)} {each}, of {pid}", [each]) for each in below)

    def _note(
        self, kind: str, name: str, unit: str, now: float, value: float, *, floor: float, judged: bool = True
    ) -> None:
        series = self.series.setdefault((kind, name), Series(name, unit, floor, judged))
        series.points.append((now, value))
