"""Files that an operator changes while the server runs: what they say is always the last good reading."""

from __future__ import annotations

import asyncio
import logging
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Generic, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")

CHECK_SECONDS: Final = 1.0
"""A changed file counts after at most this long."""

FILE_MAX: Final = 16 * 1024 * 1024
"""Bytes that are read at most."""


class UnusableFile(Exception):
    """A file that a server cannot start with; the message names the file, and the line where there is one."""


def report_exposed(path: Path, mode: int) -> None:
    """Name a file with secrets in the log when everybody on this host may read or change it."""
    if mode & (stat.S_IROTH | stat.S_IWOTH):
        logger.warning("%s holds secrets and is open to everybody on this host: chmod o= it", path)


class ReloadedFile(Generic[T]):
    """One file, read by ``parse``, which raises ``ValueError`` for what it cannot read.

    Made, it reads the file or raises ``UnusableFile``. From then on a file that is gone or wrong is logged, and what
    was read last stays in force. One that holds secrets, and is open to everybody, is named in the log.
    """

    def __init__(self, path: Path, parse: Callable[[bytes], T], *, secret: bool = False) -> None:
        self._path = path
        self._secret = secret
        self._parse = parse
        self._checked = float("-inf")
        self._reading = False
        try:
            self._stamp: object = self._look()
            self._value = self._read()
        except (OSError, ValueError) as error:
            raise UnusableFile(self._words(error)) from None

    @property
    def value(self) -> T:
        """What the file said when it was read last."""
        return self._value

    async def current(self, now: float) -> T:
        """What the file says, looked at again at most once a second; ``now`` in seconds."""
        if not self._reading and abs(now - self._checked) >= CHECK_SECONDS:
            self._checked = now
            stamp = self._stamp_now()
            if stamp != self._stamp:
                self._stamp = stamp
                self._reading = True
                try:
                    self._value = await asyncio.to_thread(self._read)
                    logger.info("read %s again", self._path)
                except (OSError, ValueError) as error:
                    logger.error("%s; what was read before stays in force", self._words(error))  # noqa: TRY400
                finally:
                    self._reading = False
        return self._value

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Look for changes until cancelled; ``on_change`` is called after each."""
        seen = self._value
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            await self.current(time.time())
            if self._value is not seen:
                seen = self._value
                on_change()

    def _stamp_now(self) -> object:
        try:
            return self._look()
        except OSError:
            return None

    def _look(self) -> object:
        status = self._path.stat()
        return status.st_mtime_ns, status.st_ino, status.st_size

    def _read(self) -> T:
        with self._path.open("rb") as file:
            if self._secret:
                report_exposed(self._path, os.fstat(file.fileno()).st_mode)
            data = file.read(FILE_MAX + 1)
        if len(data) > FILE_MAX:
            raise ValueError(f"larger than {FILE_MAX} bytes")
        return self._parse(data)

    def _words(self, error: OSError | ValueError) -> str:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return f"{self._path}, {reason}"
