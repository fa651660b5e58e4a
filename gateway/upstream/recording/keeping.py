"""Keeps one recording while its session goes on, in bounded memory; where it cannot, the session ends (GW21).

1. What is shown is encoded at once and waits for ``FLUSH_SECONDS``, or until there are ``CHUNK`` bytes of it.
2. One piece is written at a time, in a thread of the recordings' own. What comes meanwhile is kept, ``CHUNK`` of it;
   then, and as soon as a writing has failed once, whoever shows more waits: the cluster does.
3. A writing that has not come through within ``PATIENCE`` ends the session, as a recording does that is full.
4. A session in which nothing is shown says every ``HEARTBEAT`` that it goes on, and finds out so that it can be kept.
5. The end is written behind the session's, after the last piece, until it is or ``PATIENCE`` is over: then the sweep
   of the workers ends the recording with what there is.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Final
from uuid import UUID

from django.utils import timezone

from audit.recorder import Actor
from gateway.upstream.recording.asciicast import Asciicast
from kube.remotecommand.channels import Piece
from kube.requests.status import Forbidden, ServiceUnavailable, StatusError
from tenants.services import recordings as services
from tenants.services.recordings import Ending

logger = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 1.0
HEARTBEAT: Final = 15.0
PATIENCE: Final = 10.0
_PAUSE: Final = 0.25
CHUNK: Final = 64 * 1024
"""Bytes of a piece in UTF-8, about; sealed it is a third larger."""

SLICE: Final = 32 * 1024
"""Bytes of output that are encoded before it is looked whether there are enough for a piece."""

InThread = Callable[[Callable[[], None]], Awaitable[None]]


class Keeping:
    """One recording; ``cast`` is ``None`` where only its facts are to be kept.

    ``on_failure`` is told, once, why the session has to end. ``limit`` are the bytes that it may hold, in UTF-8.
    """

    def __init__(
        self, *, recording_id: UUID, actor: Actor, cast: Asciicast | None, limit: int, in_thread: InThread
    ) -> None:
        self.recording_id = recording_id
        self.shown = 0
        self.exit_code: int | None = None
        self.on_failure: Callable[[StatusError], None] = lambda _: None
        self._actor = actor
        self._cast = cast
        self._limit = limit
        self._in_thread = in_thread
        self._began = time.monotonic()
        self._text: list[str] = []
        self._size = 0
        self._total = 0
        self._number = 0
        self._hash = hashlib.sha256()
        self._piece = ""
        self._terminal: tuple[int, int] | None = None
        """The size in which nothing has been shown yet."""
        self._some = asyncio.Event()
        self._due = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._failure: StatusError | None = None
        self._over = False
        self._writer: asyncio.Task[None] | None = None

    def start(self) -> None:
        """The session is open."""
        self._writer = asyncio.get_running_loop().create_task(self._write())

    async def show(self, pieces: list[Piece]) -> None:
        """Keep what is about to be shown; waits while there is no room. Raises ``StatusError`` once nothing can be."""
        size = sum(len(data) for _, data in pieces)
        self.shown += size
        if self._cast is not None:
            for some in _sliced(pieces):
                self._add(self._resized(self._cast) + self._cast.output(some, self._now()))
                await self._room.wait()
                self._require()
        self._require()

    def resize(self, columns: int, rows: int) -> None:
        """Keep a terminal's new size, before what is shown in it: a client may send as many as it likes."""
        self._terminal = columns, rows

    def fail(self, error: StatusError) -> None:
        """Nothing more can be kept: the session ends."""
        if self._failure is None:
            self._failure = error
            self._room.set()
            self.on_failure(error)

    async def end(self, why: str) -> None:
        """Write what is left and the end, with the hash of all."""
        self._over = True
        self._some.set()
        self._due.set()
        try:
            if self._writer is not None:
                await self._writer
            if self._cast is not None:
                code = "" if self.exit_code is None else f" with {self.exit_code}"
                said = f"ended: {why}" if why else f"ended{code}"
                last = self._resized(self._cast) + self._cast.end(said, self._now())
                # What may have been kept unheard comes first, as it was.
                await self._flush()
                self._text.append(last)
                await self._flush()
            digest = self._hash.hexdigest() if self._cast is not None else ""
            ending = Ending(why=why, exit_code=self.exit_code, bytes=self.shown, sha256=digest)
            keep = partial(services.recording_end, actor=self._actor, recording_id=self.recording_id, ending=ending)
            await self._persist(lambda: keep(now=timezone.now()))
        except StatusError as error:
            logger.warning("the recording %s has no end: %s", self.recording_id, error.message)

    async def discard(self, why: str) -> None:
        """The session was not opened: there is nothing to keep."""
        keep = partial(services.recording_discard, actor=self._actor, recording_id=self.recording_id, why=why)
        try:
            await self._persist(keep)
        except StatusError as error:
            logger.warning("the recording %s cannot be taken back: %s", self.recording_id, error.message)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _require(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _resized(self, cast: Asciicast) -> str:
        size, self._terminal = self._terminal, None
        return cast.resize(*size, self._now()) if size is not None else ""

    def _add(self, line: str) -> None:
        size = len(line.encode())
        if self._total + self._size + size > self._limit:
            self.fail(Forbidden("the recording of this session is full, and so the session ends"))
            return
        self._text.append(line)
        self._size += size
        self._some.set()
        if self._size >= CHUNK:
            self._due.set()
            self._room.clear()

    async def _write(self) -> None:
        """Write in pieces for as long as the session goes on."""
        try:
            while not self._over:
                await _at_most(HEARTBEAT, self._some)
                if self._text:
                    await _at_most(FLUSH_SECONDS, self._due)
                await self._flush()
        except StatusError as error:
            self.fail(error)
        except Exception:  # whatever happens, nobody goes on unrecorded
            logger.exception("the recording %s cannot be kept", self.recording_id)
            text = "this session has to be recorded, and its recording cannot be kept: the server has failed"
            self.fail(ServiceUnavailable(text))

    async def _flush(self) -> None:
        """Write what waits; an empty piece where nothing does. One that fails is the next one again."""
        if not self._piece:
            self._piece, self._text, self._size = "".join(self._text), [], 0
            self._total += len(self._piece.encode())
            self._some.clear()
            self._due.clear()
            self._room.set()
        keep = partial(
            services.recording_append,
            recording_id=self.recording_id,
            number=self._number,
            text=self._piece,
            shown=self.shown,
        )
        await self._persist(lambda: keep(now=timezone.now()))
        self._hash.update(self._piece.encode())
        self._number += 1 if self._piece else 0
        self._piece = ""

    async def _persist(self, keep: Callable[[], None]) -> None:
        """Have it done; tried again for ``PATIENCE`` seconds. Raises ``ServiceUnavailable``."""
        failure = ServiceUnavailable("this session has to be recorded, and its recording cannot be kept: no answer")
        try:
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        await self._in_thread(keep)
                    except ServiceUnavailable as error:
                        failure = error
                        self._room.clear()
                        await asyncio.sleep(_PAUSE)
                    else:
                        if self._size < CHUNK:
                            self._room.set()
                        return
        except TimeoutError:
            raise failure from None


async def _at_most(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _sliced(pieces: Iterable[Piece]) -> Iterator[list[Piece]]:
    some: list[Piece] = []
    size = 0
    for channel, data in pieces:
        for start in range(0, len(data), SLICE):
            part = data[start : start + SLICE]
            some.append((channel, part))
            size += len(part)
            if size >= SLICE:
                yield some
                some, size = [], 0
    if some:
        yield some
