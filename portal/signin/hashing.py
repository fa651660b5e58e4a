"""Argon2 takes 100 MiB for every password that is hashed: a few at a time, or strangers choose how much memory there is (API-34)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from django.contrib.auth.hashers import Argon2PasswordHasher

from portal.database.connections import give_back

AT_ONCE: Final = 4
"""Of one process. How often somebody may try is counted by address, and addresses cost nothing."""

_ROOM: Final = threading.BoundedSemaphore(AT_ONCE)


class InTurnArgon2(Argon2PasswordHasher):
    """Django's, in its format and at its cost; whoever finds no room waits, and holds nothing meanwhile."""

    def encode(self, password: str, salt: str) -> str:
        """The hash of a password."""
        with _room():
            return super().encode(password, salt)

    def verify(self, password: str, encoded: str) -> bool:
        """Whether the hash is this password's."""
        with _room():
            return super().verify(password, encoded)


@contextmanager
def _room() -> Iterator[None]:
    if not _ROOM.acquire(blocking=False):
        give_back()
        _ROOM.acquire()
    try:
        yield
    finally:
        _ROOM.release()
