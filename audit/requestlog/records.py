"""Records of API requests: offered without waiting, written by COPY in batches, bounded in memory (P10, DOS-08).

Every refusal is counted exactly: the first of a kind in each flush are rows of their own, the rest one row with a
count. So is what strangers are allowed, the probes: a flood of them neither fills the table nor takes tenants' places
in the buffer. Where a configuration says so, reads that tenants are allowed are sampled likewise, by person, verb,
space and namespace: who has read where, and how often, is known for all, what for some. Allowed requests of tenants are
dropped, and counted, only when the database cannot keep up; refusals never are. Whoever has filled a day (``audit.requestlog.shares``)
is counted by person, verb and code, a row of each a minute, until the day ends: nobody's flood takes the place of others' past.

1. ``put_nowait`` runs in the request's way: it appends or counts, and never waits. Everything it keeps is bounded: rows
   by ``BOUND``, kinds of what is counted by ``_KINDS`` and ``_KINDS_BEYOND``.
2. A flush moves what was counted into the rows first. From there on they are rows like the others, and survive a
   flush that fails.
3. The batch stays in the buffer while it is written, and is taken off when the database has committed it. Only the
   flush takes off, at the left, and ``put_nowait`` adds at the right; so the batch is still what stands at the left.
4. What the database takes never, as none of these may be, is logged, counted and let go: it holds up no other.
5. A connection may be lost after the commit and before the answer. The batch is then written again, and the rows'
   UUIDs, made with the requests and with the sums, show which are there already: row by row, each is written once.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import time as clock
import uuid
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, date, datetime, time
from functools import lru_cache
from itertools import islice
from operator import attrgetter
from typing import Any, Final, NamedTuple

from psycopg import AsyncConnection, DataError, Error, IntegrityError, sql
from psycopg.errors import UndefinedTable, UniqueViolation

from audit.redaction import clean_text
from audit.requestlog.shares import DayShares
from kube.authorization.decisions import Decision

logger = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 0.25
FLUSH_ROWS: Final = 1000
BOUND: Final = 50_000
"""Records kept in memory while the database is away: about 40 MB."""

TOGETHER: Final = 32
"""Rows that are prepared in one go, about a third of a millisecond."""

REFUSALS_IN_FULL: Final = 20
_KINDS: Final = 2000
_KINDS_BEYOND: Final = 20
"""Kinds of one tenant that are told apart once it is only counted."""
_LOOK_SECONDS: Final = 60
"""How often it is looked at what the day has taken, and what is only counted is written."""

READS: Final = frozenset({"get", "list", "watch"})

_COLUMNS: Final = (
    "id", "created_at", "tenant", "space", "actor", "verb", "authenticator", "credential", "step", "reason", "user_agent",
    "path", "code", "allowed", "latency", "count", "ip_address", "request_id", "trace",
)  # fmt: skip
"""In the order of ``_line``."""
_COPY: Final = f"COPY {{}} ({', '.join(_COLUMNS)}) FROM STDIN"
_NULL: Final = "\\N"
_ESCAPED: Final = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})

_WHO: Final = (63, 512, 253, 32, 32, 128, 63, 512, 256)
_WHERE: Final = (1024,)
"""How many characters are kept of texts that come again together."""

_SHORT: Final = 512
"""Characters of texts that are worth remembering; it bounds what the memory can grow to."""
_NAMESPACE: Final = re.compile(r".*?/namespaces/[^/?]+")
_DAYS: Final = 8
"""Days whose partition is known by name."""

LONGEST: Final = 2**31 - 1
"""Microseconds that a record can tell of, 35 minutes: whoever holds a stream open for longer is recorded with these."""

TRACE_MAX: Final = 16
"""Steps of a refusal that are kept; there are fewer."""


class RequestRecord(NamedTuple):
    """One request, or ``times`` equal ones.

    ``created_at`` is in UTC, ``latency`` in microseconds; ``request_id``, this server's own, is a UUID, by which it is written once.
    One is made for every request, and a tuple costs the least.
    """

    created_at: datetime
    path: str
    code: int
    allowed: bool
    tenant: str
    space: str
    actor: str
    verb: str
    authenticator: str = ""
    credential: str = ""
    step: str = ""
    reason: str = ""
    user_agent: str = ""
    trace: tuple[Decision, ...] = ()
    latency: int = 0
    times: int = 1
    ip_address: str | None = None
    request_id: str = ""
    sum_id: str = ""
    """Of several: the UUID by which their row is written once, as they have no request's."""


_times_of: Final = attrgetter("times")

_Kind = tuple[str, str, str, int, str, str]


class RequestLog:
    """The buffer of one process, and what empties it into PostgreSQL: ``run``, which whoever has the log supervises."""

    def __init__(self, conninfo: str, *, reads_in_full: int | None = None, day_bytes: int | None = None) -> None:
        """Allowed reads of a kind beyond ``reads_in_full`` in a flush are counted together; ``None`` keeps each.

        Who has taken most of ``day_bytes`` is only counted for the rest of the day; ``None`` is no bound.
        """
        self._conninfo = conninfo
        self._reads_in_full = reads_in_full
        self._shares = None if day_bytes is None else DayShares(day_bytes)
        self._beyond: frozenset[str] = frozenset()
        self._kinds_beyond: Counter[str] = Counter()
        self._sums_beyond: dict[_Kind, RequestRecord] = {}
        self._looked = float("-inf")
        self._partitions: dict[date, str] = {}
        self._rows: deque[RequestRecord] = deque()
        self._seen: dict[_Kind, int] = {}
        self._more: dict[_Kind, RequestRecord] = {}
        self._full, self._ended = asyncio.Event(), asyncio.Event()
        self._ending = False
        self.dropped = 0
        """Requests that were not recorded, ever: allowed ones that found no place, and what the database never takes."""
        self.written = 0

    async def stop(self, writer: Callable[[], Awaitable[object]]) -> None:
        """Write what is left, for a few seconds at most, and end; ``writer`` ends who runs ``run``."""
        # A batch that is under way is not cut off: nobody would know whether it has been written.
        self._ending = True
        self._full.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(2):
                await self._ended.wait()
        await writer()
        try:
            async with asyncio.timeout(5):
                await self._flush_once()
        except (Error, OSError, TimeoutError):
            logger.exception("%d records of requests were not written", len(self._rows))

    def put_nowait(self, record: RequestRecord) -> None:
        """Take one record; never waits, never raises."""
        if record.tenant in self._beyond:
            self._count(record)
            return
        if not (record.allowed and record.tenant):
            self._sample(record, REFUSALS_IN_FULL)
        elif self._reads_in_full is not None and record.verb in READS:
            self._sample(record, self._reads_in_full, record.space, _namespace_path(record.path))
        elif len(self._rows) < BOUND:
            self._rows.append(record)
        else:
            self.dropped += 1
            return
        if len(self._rows) >= FLUSH_ROWS:
            self._full.set()

    def _sample(self, record: RequestRecord, in_full: int, space: str = "", path: str = "*") -> None:
        kind = (record.tenant, record.actor, record.verb, record.code, space, path)
        if kind not in self._seen and len(self._seen) >= _KINDS:
            # Names can be invented without end: then only tenant and code are told apart.
            kind = (record.tenant, "", "", record.code, "", "*")
        seen = self._seen[kind] = self._seen.get(kind, 0) + 1
        if seen <= in_full and len(self._rows) < BOUND:
            self._rows.append(record)
            return
        _add(self._more, kind, record)

    def _count(self, record: RequestRecord) -> None:
        kind = (record.tenant, record.actor, record.verb, record.code, "", "*")
        if kind not in self._sums_beyond:
            if self._kinds_beyond[record.tenant] >= _KINDS_BEYOND:
                kind = (record.tenant, "", "", record.code, "", "*")
            else:
                self._kinds_beyond[record.tenant] += 1
        _add(self._sums_beyond, kind, record)

    async def run(self) -> None:
        """Write what is offered, until cancelled, in the loop that offers. What fails may begin anew: the batch is still there."""
        while not self._ending:
            try:
                async with await AsyncConnection.connect(
                    self._conninfo, autocommit=True, connect_timeout=3
                ) as connection:
                    while not self._ending:
                        with contextlib.suppress(TimeoutError):
                            async with asyncio.timeout(FLUSH_SECONDS):
                                await self._full.wait()
                        await self._flush(connection)
            except (Error, OSError) as error:
                logger.warning("records of requests wait for the database: %s", type(error).__name__)
                await asyncio.sleep(1)
        self._ended.set()
        # A task that is supervised does not end by itself.
        await asyncio.Event().wait()

    async def _flush_once(self) -> None:
        self._looked = float("-inf")
        if self._rows or self._more or self._sums_beyond:
            async with await AsyncConnection.connect(self._conninfo, autocommit=True, connect_timeout=3) as connection:
                while self._rows or self._more or self._sums_beyond:
                    await self._flush(connection)

    async def _flush(self, connection: AsyncConnection[Any]) -> None:
        """Write one batch; what could not be written stays."""
        self._full.clear()
        self._rows.extend(self._more.values())
        self._more.clear()
        self._seen.clear()
        if self._shares is not None and clock.monotonic() - self._looked >= _LOOK_SECONDS:
            await self._look(connection, self._shares)
        batch = list(islice(self._rows, 4 * FLUSH_ROWS))
        if not batch:
            return
        refused = 0
        try:
            await self._copy(connection, batch)
        except UndefinedTable:
            # It was past its time.
            self._partitions.clear()
            await self._copy(connection, batch)
        except (DataError, IntegrityError):
            # The database had written some of them when it was lost, or takes some of them never.
            for record in batch:
                if not await self._is_kept(connection, record):
                    refused += record.times
        for _ in batch:
            self._rows.popleft()
        self.dropped += refused
        self.written += sum(map(_times_of, batch)) - refused

    async def _look(self, connection: AsyncConnection[Any], shares: DayShares) -> None:
        """See what the day has taken, and whose requests are only counted from now on; write what was."""
        self._rows.extend(self._sums_beyond.values())
        self._sums_beyond.clear()
        self._kinds_beyond.clear()
        today = datetime.now(UTC).date()
        name = await self._partition_of(connection, today)
        cursor = await connection.execute("SELECT coalesce(pg_total_relation_size(to_regclass(%s)), 0)", [name])
        ((size,),) = await cursor.fetchall()
        shares.measured(today, size)
        if shares.beyond - self._beyond:
            logger.warning("the day's part of the request log is full: %d tenants are only counted", len(shares.beyond))
        self._beyond = shares.beyond
        self._looked = clock.monotonic()

    async def _is_kept(self, connection: AsyncConnection[Any], record: RequestRecord) -> bool:
        """Write a record by itself. Whether it is there now."""
        try:
            with contextlib.suppress(UniqueViolation):
                await self._copy(connection, [record])
        except (DataError, IntegrityError) as error:
            logger.error("the record of the request %s cannot be kept: %s", record.request_id, type(error).__name__)  # noqa: TRY400 - its text repeats the record
            return False
        return True

    async def _copy(self, connection: AsyncConnection[Any], batch: Sequence[RequestRecord]) -> None:
        """Write all or none, straight into the partitions: COPY knows no row-level security."""
        days: defaultdict[date, list[RequestRecord]] = defaultdict(list)
        for record in batch:
            days[record.created_at.date()].append(record)
        names = {day: await self._partition_of(connection, day) for day in days}
        async with connection.transaction():
            for day, records in days.items():
                await self._copy_into(connection, day, names[day], records)

    async def _partition_of(self, connection: AsyncConnection[Any], day: date) -> str:
        """The partition that takes a day, made where there is none."""
        name = self._partitions.get(day)
        if name is None:
            moment = datetime.combine(day, time(), UTC)
            cursor = await connection.execute("SELECT api_requests_partition(%s)", [moment])
            ((name,),) = await cursor.fetchall()
            while len(self._partitions) >= _DAYS:
                del self._partitions[next(iter(self._partitions))]
            self._partitions[day] = name
        return name

    async def _copy_into(
        self, connection: AsyncConnection[Any], day: date, partition: str, batch: Sequence[RequestRecord]
    ) -> None:
        statement = sql.SQL(_COPY).format(sql.Identifier(partition))
        async with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for start in range(0, len(batch), TOGETHER):
                # Requests are answered in between.
                await asyncio.sleep(0)
                portion = batch[start : start + TOGETHER]
                lines = [_line(row) for row in portion]
                if self._shares is not None:
                    sizes = Counter[str]()
                    for row, line in zip(portion, lines, strict=True):
                        sizes[row.tenant] += len(line)
                    for tenant, size in sizes.items():
                        self._shares.note(day, tenant, size)
                await copy.write("".join(lines).encode())


def _add(sums: dict[_Kind, RequestRecord], kind: _Kind, record: RequestRecord) -> None:
    """One more of this kind: the first tells of all, but for what each had of its own."""
    known = sums.get(kind)
    if known is not None:
        sums[kind] = known._replace(times=known.times + 1)
        return
    sums[kind] = record._replace(
        actor=kind[1],
        verb=kind[2] or "*",
        path=kind[5],
        request_id="",
        sum_id=str(uuid.uuid4()),
        latency=0,
        trace=(),
    )


def _line(row: RequestRecord) -> str:
    """The row in COPY's text format: psycopg, a value at a time, takes more than half as long again."""
    # Whose it was, and why it was decided so, comes again and again together.
    told = (
        row.tenant,
        row.space,
        row.actor,
        row.verb,
        row.authenticator,
        row.credential,
        row.step,
        row.reason,
        row.user_agent,
    )
    return (
        f"{row.sum_id or row.request_id or uuid.uuid4()}\t{row.created_at.isoformat()}\t"
        f"{_texts(_WHO, told)}\t{_texts(_WHERE, (row.path,))}\t{row.code}\t{'t' if row.allowed else 'f'}\t"
        f"{min(LONGEST, row.latency)}\t{row.times}\t"
        f"{_NULL if row.ip_address is None else row.ip_address}\t{row.request_id}\t"
        f"{_steps(row.trace) if row.trace else _NULL}\n"
    )


def _texts(limits: tuple[int, ...], texts: tuple[str, ...]) -> str:
    """What somebody else has written, as it may stand in columns of a line, of so many characters each at most."""
    return _remembered(limits, texts) if len("".join(texts)) <= _SHORT else _escaped(limits, texts)


def _escaped(limits: tuple[int, ...], texts: tuple[str, ...]) -> str:
    return "\t".join([clean_text(text, limit).translate(_ESCAPED) for text, limit in zip(texts, limits, strict=True)])


def _steps(trace: tuple[Decision, ...]) -> str:
    """The steps of a decision, as they may stand in the column of a line."""
    said = tuple([(each.step[:63], each.verdict.value, each.reason, each.rule) for each in trace[:TRACE_MAX]])
    short = sum([len(reason) + len(rule) for _, _, reason, rule in said]) <= _SHORT
    return _remembered_steps(said) if short else _written(said)


def _written(said: tuple[tuple[str, str, str, str], ...]) -> str:
    return json.dumps(
        [
            {
                "step": step,
                "decision": decision,
                "reason": clean_text(reason, 512),
                "rule": clean_text(rule, 512),
            }
            for step, decision, reason, rule in said
        ]
    ).translate(_ESCAPED)


def _namespace_path(path: str) -> str:
    """Where a read was, without what it read: ``…/namespaces/team/*``, or ``*`` where it was in no namespace."""
    found = _NAMESPACE.match(path)
    return f"{found[0]}/*" if found else "*"


# The same names and agents come again and again, and so do the reasons for what is done in the same place.
_remembered = lru_cache(maxsize=4096)(_escaped)
_remembered_steps = lru_cache(maxsize=4096)(_written)
