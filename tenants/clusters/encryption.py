"""Seals credentials at rest (GW12): MultiFernet, the first key encrypts, all decrypt."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured


class DecryptionError(Exception):
    """The sealed bytes were made with a key that is no longer configured, or they are damaged."""


def encrypt(secret: str) -> bytes:
    """``secret`` encrypted with the first key."""
    return _box().encrypt(secret.encode())


def decrypt(sealed: bytes | memoryview) -> str:
    """What was sealed. Raises ``DecryptionError``; its text says nothing of the secret."""
    try:
        return _box().decrypt(bytes(sealed)).decode()
    except InvalidToken:
        raise DecryptionError("The credential cannot be opened with the configured sealing keys.") from None


def is_behind(sealed: bytes | memoryview) -> bool:
    """Whether one of the keys opens it, and not the first."""
    first, *older = [Fernet(key) for key in keys()]
    return not _opens(first, sealed) and any(_opens(key, sealed) for key in older)


def _opens(key: Fernet, sealed: bytes | memoryview) -> bool:
    try:
        key.decrypt(bytes(sealed))
    except InvalidToken:
        return False
    return True


def rotate(sealed: bytes | memoryview) -> bytes:
    """The same secret under the first key, for rotation. Raises ``DecryptionError``."""
    try:
        return _box().rotate(bytes(sealed))
    except InvalidToken:
        raise DecryptionError("The credential cannot be opened with the configured sealing keys.") from None


def _box() -> MultiFernet:
    found = keys()
    if not found:
        raise ImproperlyConfigured("Set TENANTRY_SEALING_KEYS: without it no cluster credential can be kept.")
    return MultiFernet([Fernet(key) for key in found])


def keys() -> Sequence[str]:
    """The settings' keys, or those of their file since it has changed: another key is known to every process at once."""
    global _read  # noqa: PLW0603 # one reading for all threads; a tuple is exchanged whole
    file = settings.SEALING_KEYS_FILE
    try:
        state = file.stat() if file is not None else None
    except OSError:
        state = None
    if file is None or state is None:
        return settings.SEALING_KEYS
    stamp = (str(file), state.st_mtime_ns, state.st_ino, state.st_size)
    if _read is None or _read[0] != stamp:
        _read = (stamp, tuple(key for key in re.split(r"[\s,]+", file.read_text()) if key))
    return _read[1]


_read: tuple[object, tuple[str, ...]] | None = None
