"""Tells the other processes on the database what is asked of this one, and hears it of them, so that all share one rate (AD6).

1. Every ``REPORT_SECONDS`` each process says by ``NOTIFY`` that it lives and what it wants of each rate, and hears what
   all say, itself too: its part is made of what the others have heard as well.
2. Whoever stops says so; who has said nothing for ten seconds has ended. Nothing is kept, so nothing is to be cleared away.
3. While the database is away everybody keeps the part that it had.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from access.requestlimits import TenantThrottle
from kube.requests.rateshares import RateShares
from store.postgresql.arrays import Texts
from store.postgresql.connections import AWAY
from store.postgresql.dedicatedconnection import DedicatedConnection
from store.supervision import Supervised

logger = logging.getLogger(__name__)

CHANNEL: Final = "tenantry_rates"
REPORT_SECONDS: Final = 2.0
_TOGETHER: Final = 200
"""Rates in one message, of which PostgreSQL takes 8,000 bytes."""
_MOST: Final = 10_000
"""Rates in one report; of those beyond, a process has the part of one that wants nothing."""
_FAREWELL_SECONDS: Final = 1.0
TELL: Final = "SELECT pg_notify(%s, message) FROM unnest(%s) AS messages (message)"
"""What every process asks of the database, however much is asked of it."""


class RateReports:
    """The reports of one process, from ``start`` to ``stop``."""

    def __init__(self, database_url: str, throttle: TenantThrottle, shares: RateShares) -> None:
        self._throttle = throttle
        self._shares = shares
        self._connection = DedicatedConnection(database_url, "tenantry-rates", channel=CHANNEL, heard=self._hear)
        self._task = Supervised("rates", self._follow)

    def start(self) -> None:
        """Begin to report."""
        self._task.start()

    async def stop(self) -> None:
        """Say so, and stop."""
        await self._task.stop()
        try:
            if self._connection.connected:
                farewell = Texts([_message(self._shares.process, left=True)])
                await self._connection.ask_within(_FAREWELL_SECONDS, TELL, [CHANNEL, farewell])
        except AWAY:
            logger.debug("the others will find out")
        self._connection.close()

    async def _follow(self) -> None:
        said = time.monotonic()
        while True:
            now = time.monotonic()
            wanted, said = self._throttle.wanted(max(now - said, REPORT_SECONDS)), now
            told = _messages(self._shares.process, self._shares.worth_telling(wanted))
            try:
                await self._connection.ask(TELL, [CHANNEL, Texts(list(told))])
            except AWAY as error:
                logger.warning("the rates of requests cannot be shared anew: %s", type(error).__name__)
                self._connection.close()
                self._shares.excuse(time.monotonic())
            else:
                answered = time.monotonic()
                if answered - now > REPORT_SECONDS:
                    # A database that hung has told nobody of anybody.
                    self._shares.excuse(answered)
                elif self._shares.bury(answered):
                    self._throttle.share_anew(None, answered)
            await asyncio.sleep(REPORT_SECONDS)

    def _hear(self, payload: bytes) -> None:
        """Take down what a process says; of what cannot be read, as a later release may say it, nothing."""
        now = time.monotonic()
        try:
            said = orjson.loads(payload)
            process = str(uuid.UUID(said["process"]))
            wanted = {str(rate): min(max(float(part), 0.0), 1.0) for rate, part in said["wanted"].items()}
        except (ValueError, TypeError, KeyError, AttributeError):
            return
        if not said.get("left"):
            rates = self._shares.hear(process, wanted, now, further=bool(said.get("further")))
        elif self._shares.leave(process):
            rates = None
        else:
            return
        self._throttle.share_anew(rates, now)


def _messages(process: str, wanted: Mapping[str, float]) -> Iterator[str]:
    """A report, in as many messages as it takes; the first stands for all that was said before."""
    most = sorted(wanted, key=wanted.__getitem__, reverse=True)[:_MOST]
    for begin in range(0, len(most) or 1, _TOGETHER):
        rates = {rate: round(wanted[rate], 4) for rate in most[begin : begin + _TOGETHER]}
        yield _message(process, rates, further=begin > 0)


def _message(process: str, wanted: Mapping[str, float] | None = None, **notes: Any) -> str:
    return orjson.dumps({"process": process, "wanted": wanted or {}, **notes}).decode()
