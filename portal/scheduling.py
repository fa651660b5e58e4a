"""Beat by lease: several may run, one wakes the workers; and how a Pod is known to be alive that serves nothing.

The lease is the leadership of ``store.postgresql.leadership``, for a loop that is Celery's own and knows no asyncio.
"""

from __future__ import annotations

import logging
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import psycopg
from celery.beat import Scheduler
from celery.signals import heartbeat_sent
from django.conf import settings

from store.postgresql.leadership import RETRY_SECONDS, TRY_LOCK

logger = logging.getLogger(__name__)

_PATIENCE_SECONDS: Final = 5.0

LEASE: Final = 7_232_912
"""The number of the advisory lock."""
_WAITING_MOST: Final = 500
"""So many messages may wait: where nobody works, what is woken is the same work again and again."""
_CONNECT: Final = "connect_timeout=5 keepalives_idle=5 keepalives_interval=2 keepalives_count=3 tcp_user_timeout=10000"


class Lease:
    """The right to be the only one, for as long as a connection of its own to PostgreSQL lasts."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: psycopg.Connection[Any] | None = None

    def hold(self) -> bool:
        """Whether it is ours now; asked again where it is not. A database that does not answer grants nothing."""
        try:
            if self._connection is not None:
                self._connection.execute("SELECT 1")
                return True
            options: dict[str, Any] = dict(pair.split("=") for pair in _CONNECT.split())
            connection = psycopg.connect(self._url, autocommit=True, application_name="tenantry beat", **options)
            row = connection.execute(TRY_LOCK, [LEASE]).fetchone()
            if row and row[0]:
                self._connection = connection
                logger.info("this beat holds the lease")
                return True
            connection.close()
        except psycopg.Error as error:
            if self._connection is not None:
                logger.warning("the lease is lost: %s", type(error).__name__)
            self.release()
        return False

    def release(self) -> None:
        """Let go, for the next one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class LeasedScheduler(Scheduler):
    """Celery's scheduler, which sends nothing while another one holds the lease (GW15).

    What is due is told by this process' monotonic clock alone: one of the host's that is put back would end all wake-ups, and the
    lease would be held for nothing. So no message ends by a clock either, which workers read on theirs: it is sent while few wait.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._lease = Lease(settings.DATABASE_URL)
        self._asking = ThreadPoolExecutor(1)
        self._asked: Future[bool] | None = None
        super().__init__(*arguments, **options)
        self._due = dict.fromkeys(self.schedule, 0.0)

    def setup_schedule(self) -> None:
        """What is ours; Celery's own would clean up results, of which there are none."""
        self.merge_inplace(self.app.conf.beat_schedule)

    def tick(self, *_arguments: Any, **_options: Any) -> float:
        """Send the one that is due for longest, and say when to come again."""
        alive()
        if not self._holds():
            return RETRY_SECONDS
        name, due = min(self._due.items(), key=lambda each: each[1])
        now = time.monotonic()
        if due > now:
            return min(due - now, RETRY_SECONDS)
        try:
            if self._waiting() >= _WAITING_MOST:
                return RETRY_SECONDS
        except self.connection.connection_errors + self.connection.channel_errors as error:
            logger.warning("the broker is away: %s", type(error).__name__)
            return RETRY_SECONDS
        entry = self.schedule[name]
        self._due[name] = now + self.app.conf.beat_schedule[name]["schedule"]
        self.apply_entry(entry, producer=self.producer)
        return 0.0

    def close(self) -> None:
        """Let go of the lease at once; one that the database says nothing of ends with the process."""
        super().close()
        if self._asked is None:
            self._lease.release()
        self._asking.shutdown(wait=False)

    def _waiting(self) -> int:
        """How many messages wait for workers."""
        queue: Any = self.app.amqp.queues[self.app.conf.task_default_queue]
        return int(queue(self.producer.channel).queue_declare().message_count)

    def _holds(self) -> bool:
        """Whether the lease is ours, as far as the database says so in time: one that hangs does not hold us up."""
        self._asked = self._asked or self._asking.submit(self._lease.hold)
        try:
            held = self._asked.result(_PATIENCE_SECONDS)
        except TimeoutError:
            return False
        self._asked = None
        return held


def alive(**_signal: Any) -> None:
    """Touch the file that a probe looks at (``ALIVE_FILE``). The thread that has the loop says so, and no other for it."""
    if settings.ALIVE_FILE is not None and threading.current_thread() is threading.main_thread():
        Path(settings.ALIVE_FILE).touch()


heartbeat_sent.connect(alive, weak=False)
