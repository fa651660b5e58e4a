"""Notes when each registered cluster has last asked what may be written in it, so that nobody has to believe that it does (GW17).

A webhook is configured at the cluster, where Tenantry does not look: that it asks is the one proof that it is. Noted in
memory by the request, and told to the database once a minute at most for each cluster.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Final

from store.postgresql.arrays import Texts
from store.postgresql.connections import AWAY
from store.postgresql.dedicatedconnection import DedicatedConnection
from store.supervision import Supervised

logger = logging.getLogger(__name__)

TOLD_SECONDS: Final = 60.0
_RETRY_SECONDS: Final = 2.0
_TELL: Final = "UPDATE clusters SET admission_asked_at = statement_timestamp() WHERE id::text = ANY (%s)"


class AskingClusters:
    """What one process knows, from ``start`` to ``stop``."""

    def __init__(self, database_url: str) -> None:
        self._told: dict[str, float] = {}
        """Uid of a cluster → when the database was told last, in monotonic seconds."""
        self._untold: set[str] = set()
        self._wake = asyncio.Event()
        self._connection = DedicatedConnection(database_url, "tenantry-asking")
        self._task = Supervised("asking clusters", self._follow)

    def note(self, uid: str) -> None:
        """The registered cluster of this uid has asked just now; another one of its name has not."""
        if time.monotonic() - self._told.get(uid, float("-inf")) >= TOLD_SECONDS:
            self._untold.add(uid)
            self._wake.set()

    def start(self) -> None:
        """Begin to tell."""
        self._task.start()

    async def stop(self) -> None:
        """Tell nothing more."""
        await self._task.stop()
        self._connection.close()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            clusters = sorted(self._untold)
            try:
                await self._connection.ask(_TELL, [Texts(clusters)])
            except AWAY as error:
                logger.warning("which clusters ask cannot be told: %s", type(error).__name__)
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()
                continue
            finally:
                # It is asked for once a minute at most.
                self._connection.close()
            self._untold.difference_update(clusters)
            self._told.update(dict.fromkeys(clusters, time.monotonic()))
