"""The audit log of ``--audit-log-path``: one event of ``audit.k8s.io/v1`` a line, as kube-apiserver writes it (GW13).

Beside the record of requests in the database, which no policy shortens: usage is counted by it, and refusals and writes
are promised to be in it. Several processes may write to one file, which may be moved away at any time; the next lines
begin a new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
from collections import deque
from pathlib import Path
from typing import Final

from access.reloading import FILE_MAX, UnusableFile
from audit.redaction import clean_object
from kube.auditing.events import Event
from kube.auditing.policy import Policy, PolicyError, read_policy
from store.supervision import Supervised

logger = logging.getLogger(__name__)

FLUSH_SECONDS: Final = 0.25
STOP_SECONDS: Final = 5.0
BOUND: Final = 32 * 1024 * 1024
"""Bytes that wait to be written; what comes beyond is dropped and counted."""

STANDARD_OUTPUT: Final = Path("-")


def read_policy_file(path: Path) -> Policy:
    """The policy of ``--audit-policy-file``. Raises ``UnusableFile`` in kube-apiserver's words."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_MAX)
    except OSError as error:
        said = f'failed to read file path "{path}": open {path}: {(error.strerror or "").lower()}'
        raise UnusableFile(f"loading audit policy file: {said}") from None
    try:
        return read_policy(data)
    except PolicyError as error:
        raise UnusableFile(f"loading audit policy file: {error}: from file {path}") from None


class AuditLog:
    """What one process writes to a file; ``-`` is the standard output."""

    def __init__(self, policy: Policy, path: Path) -> None:
        self.policy = policy
        self._path = path
        self._waiting: deque[Event] = deque()
        self._size = 0
        self._dropped = 0
        self._ending, self._ended = asyncio.Event(), asyncio.Event()
        self._writer = Supervised("audit-log", self._run)

    def start(self) -> None:
        """Begin to write; call it in the loop that offers."""
        self._writer.start()

    async def stop(self) -> None:
        """Write what is left, for a few seconds at most, and end."""
        # Lines that are being written are not cut off: nobody would know which of them are there.
        self._ending.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await self._ended.wait()
        await self._writer.stop()

    def put_nowait(self, event: Event) -> None:
        """Take one event; never waits, never raises."""
        if self._size > BOUND:
            self._dropped += 1
            return
        self._size += event.size
        self._waiting.append(event)

    async def _run(self) -> None:
        while not self._ending.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FLUSH_SECONDS):
                    await self._ending.wait()
            await self._flush()
        self._ended.set()
        # A task that is supervised does not end by itself.
        await asyncio.Event().wait()

    async def _flush(self) -> None:
        if self._dropped:
            logger.error("%d audit events were dropped: %s is not written fast enough", self._dropped, self._path)
            self._dropped = 0
        batch = list(self._waiting)
        if not batch:
            return
        try:
            await asyncio.to_thread(_append, self._path, batch)
        except OSError as error:
            logger.error("audit events wait: %s, %s", self._path, error.strerror)  # noqa: TRY400
            return
        for event in batch:
            self._waiting.popleft()
            self._size -= event.size


def _append(path: Path, batch: list[Event]) -> None:
    """Write whole lines at once; opened anew each time, so that a file that was moved away is done with."""
    lines = "".join(f"{json.dumps(event.as_object(clean_object), separators=(',', ':'))}\n" for event in batch).encode()
    to = os.dup(1) if path == STANDARD_OUTPUT else os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with os.fdopen(to, "wb", buffering=len(lines) + 1) as file:
        file.write(lines)
