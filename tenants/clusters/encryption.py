"""Seals credentials at rest (GW12): MultiFernet, the first key encrypts, all decrypt."""

from __future__ import annotations

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
    return opened_by(_box(), sealed)


def opened_by(box: MultiFernet, sealed: bytes | memoryview) -> str:
    """The same, with the keys of ``box``."""
    try:
        return box.decrypt(bytes(sealed)).decode()
    except InvalidToken:
        raise DecryptionError("The credential cannot be opened with the configured sealing keys.") from None


def rotate(sealed: bytes | memoryview) -> bytes:
    """The same secret under the first key, for rotation. Raises ``DecryptionError``."""
    try:
        return _box().rotate(bytes(sealed))
    except InvalidToken:
        raise DecryptionError("The credential cannot be opened with the configured sealing keys.") from None


def _box() -> MultiFernet:
    if not settings.SEALING_KEYS:
        raise ImproperlyConfigured("Set TENANTRY_SEALING_KEYS: without it no cluster credential can be kept.")
    return MultiFernet([Fernet(key) for key in settings.SEALING_KEYS])
