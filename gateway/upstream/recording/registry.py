"""The recordings of one process: what is to be recorded, and the threads that keep it (GW21)."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from django.conf import settings
from django.db import close_old_connections

from audit.recorder import Actor
from gateway.upstream.placements import Placement
from gateway.upstream.recording.asciicast import Asciicast
from gateway.upstream.recording.keeping import PATIENCE, Keeping
from gateway.upstream.recording.tunnel import RecordedTunnel
from gateway.upstream.tunnel import Tunnel
from kube.requests.status import ServiceUnavailable
from store.interface import Store
from tenants.models import RecordingMode
from tenants.policies import kept_recording, tier_recording_key
from tenants.services import recordings as services
from tenants.services.recordings import Session

logger = logging.getLogger(__name__)

_THREADS: Final = 2
"""However many are recorded, other requests keep their threads and the database its connections."""


class Recordings:
    """Use it in one event loop, and ``stop`` it at the end."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._threads = ThreadPoolExecutor(_THREADS, "recordings")
        self._endings: set[asyncio.Task[None]] = set()

    async def mode_of(self, placement: Placement) -> RecordingMode:
        """What the tier of a placed namespace has recorded, as this process has seen it last."""
        key = tier_recording_key(placement.tier)
        kept = await self._store.get(key, cached=True) if placement.tier else None
        return kept_recording(kept.data if kept is not None else None)

    async def begin(self, mode: RecordingMode, session: Session, actor: Actor) -> Keeping:
        """A recording that can be kept, before anything is opened. Raises ``ServiceUnavailable``."""
        recording_id = uuid.uuid4()
        title = f"{actor.name} in {session.namespace}/{session.pod}"
        cast = Asciicast(began=time.time(), title=title, command=session.command)
        begin = partial(services.recording_begin, actor=actor, recording_id=recording_id, mode=mode, session=session)
        try:
            async with asyncio.timeout(PATIENCE):
                await self._in_thread(lambda: begin(now=datetime.now(UTC)))
        except TimeoutError:
            text = "this session has to be recorded, and its recording cannot be kept: the database does not answer"
            raise ServiceUnavailable(text, retry_after=5) from None
        return Keeping(
            recording_id=recording_id,
            actor=actor,
            cast=cast if mode == RecordingMode.OUTPUT else None,
            limit=settings.RECORDING_MAX_MIB << 20,
            in_thread=self._in_thread,
        )

    def recorded(self, tunnel: Tunnel, keeping: Keeping) -> RecordedTunnel:
        """The tunnel of a session that is recorded."""
        return RecordedTunnel(tunnel, keeping, lambda kept, why: self._behind(kept.end(why)))

    def discard(self, keeping: Keeping, why: str) -> None:
        """The session was not opened."""
        self._behind(keeping.discard(why))

    async def stop(self) -> None:
        """Wait for the ends that are being written."""
        if self._endings:
            await asyncio.wait(self._endings, timeout=PATIENCE)
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _behind(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._endings.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._endings.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the end of a recording cannot be written: %s", type(error).__name__)

    def _in_thread(self, work: Callable[[], None]) -> Awaitable[None]:
        return asyncio.get_running_loop().run_in_executor(self._threads, _with_connections, work)


def _with_connections(work: Callable[[], None]) -> None:
    close_old_connections()
    try:
        work()
    finally:
        close_old_connections()
