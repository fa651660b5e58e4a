"""The public keys that verify service accounts' tokens: several, so that one can take over from another (AN6)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from access.reloading import ReloadedFile
from kube.jwt import VerifyingKey, load_verifying_keys


class KeyFiles:
    """The keys in some PEM files, read again within a second of a change (JWT-22).

    Making it reads the files, or raises ``UnusableFile``. A file that is wrong later changes nothing and is logged.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files = tuple(ReloadedFile(path, load_verifying_keys) for path in paths)

    @property
    def keys(self) -> tuple[VerifyingKey, ...]:
        """Every key, in the order of the files, each once."""
        return tuple({key.kid: key for file in self._files for key in file.value}.values())

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Read the files again when they change, until cancelled; ``on_change`` is called after each."""
        await asyncio.gather(*(file.follow(on_change) for file in self._files))
