"""Tells the database which streams this process has open, and ends those that it is asked to end.

1. What has changed is reported when a stream is opened or closed, what comes together at once; all of it is, every
   ``REPORT_SECONDS``, while any is open.
2. Rows of a process that has gone count for nothing after ten seconds, and any other process takes them away.
3. Whoever wants a connection ended writes so into its row, and ``NOTIFY`` wakes its process; the report that follows
   anyway stands behind that.
4. A report decides nothing: what ends a stream with the right to it is in ``gateway.process.streams``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
import uuid
from collections.abc import Sequence
from typing import Final

from audit.redaction import clean_text
from gateway.process.streams import OpenStream, OpenStreams
from kube.requests.status import Forbidden
from store.postgresql.arrays import Bigints, Texts
from store.postgresql.connections import AWAY
from store.postgresql.dedicatedconnection import DedicatedConnection
from store.supervision import Supervised

logger = logging.getLogger(__name__)

CHANNEL: Final = "tenantry_connections"
REPORT_SECONDS: Final = 2.0
_TOGETHER_SECONDS: Final = 0.1
_REPORT: Final = """
WITH counted AS (
  INSERT INTO stream_counts (process, tenant, namespace, open, seen_at)
  SELECT %s::uuid, tenant, namespace, open, statement_timestamp()
  FROM unnest(%s, %s, %s) AS counts (tenant, namespace, open)
  ON CONFLICT (process, tenant, namespace) DO UPDATE SET open = excluded.open, seen_at = excluded.seen_at
), uncounted AS (
  DELETE FROM stream_counts USING unnest(%s, %s) AS gone (tenant, namespace)
  WHERE process = %s::uuid AND stream_counts.tenant = gone.tenant AND stream_counts.namespace = gone.namespace
), connected AS (
  INSERT INTO pod_connections
    (id, process, tenant, namespace, pod, way, caller, credential, opened_at, seen_at, ended_by)
  SELECT id::uuid, %s::uuid, tenant, namespace, pod, way, caller, credential,
    statement_timestamp(), statement_timestamp(), ''
  FROM unnest(%s, %s, %s, %s, %s, %s, %s) AS found (id, tenant, namespace, pod, way, caller, credential)
  ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at
), disconnected AS (
  DELETE FROM pod_connections WHERE process = %s::uuid AND id::text <> ALL (%s)
), others_counts AS (
  DELETE FROM stream_counts WHERE process <> %s::uuid AND seen_at < statement_timestamp() - interval '1 minute'
), others_connections AS (
  DELETE FROM pod_connections WHERE process <> %s::uuid AND seen_at < statement_timestamp() - interval '1 minute'
)
SELECT id::text, ended_by FROM pod_connections WHERE process = %s::uuid AND ended_by <> ''
"""


class StreamReports:
    """The reports of one process, from ``start`` to ``stop``."""

    def __init__(self, database_url: str, streams: OpenStreams) -> None:
        self._streams = streams
        self._process = str(uuid.uuid4())
        self._ids: dict[OpenStream, str] = {}
        self._reported: dict[tuple[str, str], int] = {}
        self._told = asyncio.Event()
        self._connection = DedicatedConnection(
            database_url, "tenantry-streams", channel=CHANNEL, heard=lambda _: self._told.set(), lost=self._told.set
        )
        self._task = Supervised("streams", self._follow)
        streams.on_change = self._told.set

    def start(self) -> None:
        """Begin to report."""
        self._task.start()

    async def stop(self) -> None:
        """Stop; what was reported goes by itself."""
        await self._task.stop()
        self._connection.close()

    async def _follow(self) -> None:
        due = 0.0
        while True:
            # Cleared before the report: what changes while it is made brings another one.
            self._told.clear()
            whole = time.monotonic() >= due
            try:
                await self._report(whole)
            except AWAY as error:
                logger.warning("open streams cannot be reported: %s", type(error).__name__)
                self._connection.close()
                due = 0.0
                await asyncio.sleep(REPORT_SECONDS)
                continue
            if whole:
                due = time.monotonic() + REPORT_SECONDS
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_SECONDS if self._reported else None):
                    await self._told.wait()
            await asyncio.sleep(_TOGETHER_SECONDS)

    async def _report(self, whole: bool) -> None:
        """Say what has changed, or, ``whole``, all of it, and end what is to be ended."""
        counts = dict(self._streams.places)
        changed = [place for place, count in counts.items() if whole or self._reported.get(place) != count]
        gone = [place for place in self._reported if place not in counts]
        known, self._ids = self._ids, {}
        for stream in self._streams.into_pods:
            self._ids[stream] = known.get(stream) or str(uuid.uuid4())
        rows = [(ident, *_said_of(stream)) for stream, ident in self._ids.items() if whole or stream not in known]
        # What fails may have reached the database: until an answer says so, nothing counts as taken away.
        self._reported |= counts
        result = await self._connection.ask(
            _REPORT,
            [
                self._process,
                *_columns(changed, 2),
                Bigints([counts[place] for place in changed]),
                *_columns(gone, 2),
                self._process,
                self._process,
                *_columns(rows, 7),
                self._process,
                Texts(list(self._ids.values())),
                *[self._process] * 3,
            ],
        )
        self._reported = counts
        ends = {result.get_value(row, 0): result.get_value(row, 1) or b"" for row in range(result.ntuples)}
        for stream, ident in self._ids.items():
            if (who := ends.get(ident.encode())) is not None:
                stream.end(Forbidden(f"{who.decode()} has ended this connection"))


def _said_of(stream: OpenStream) -> tuple[str, ...]:
    info, who = stream.info, stream.principal
    texts = ((info.tenant, 63), (info.namespace, 63), (info.name, 253), (info.subresource, 11))
    return tuple(clean_text(*text) for text in (*texts, (who.name, 512), (who.credential_id, 128)))


def _columns(rows: Sequence[Sequence[str]], width: int) -> list[Texts]:
    return [Texts([row[number] for row in rows]) for number in range(width)]
