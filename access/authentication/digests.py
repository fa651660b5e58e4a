"""Secrets looked up without comparing them: by a keyed digest, in the same time whether they are known or not."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from typing import Final, TypeVar

T = TypeVar("T")

CREDENTIAL_MAX: Final = 32 * 1024
"""Bytes of a token or a password; longer ones are nobody's."""


class Digests:
    """HMAC-SHA256 under a key that lives and dies with the process, so that a dump of its keys tells nothing."""

    def __init__(self, key: bytes | None = None) -> None:
        self._key = key or secrets.token_bytes(32)

    def of(self, *parts: bytes) -> bytes:
        """The digest of all parts; where one ends and the next begins counts."""
        digest = hmac.new(self._key, digestmod=hashlib.sha256)
        for part in parts:
            digest.update(len(part).to_bytes(8, "big"))
            digest.update(part)
        return digest.digest()

    def find(self, known: Mapping[bytes, T], *parts: bytes) -> T | None:
        """What is known under the digest of ``parts``, or ``None``."""
        # Whoever does not know the key cannot steer the digest, so how long the look-up takes says nothing of a secret.
        return known.get(self.of(*parts))


def header_bytes(value: str) -> bytes | None:
    """The bytes that a header's text stands for; ``None`` for what no header can hold, or is too long."""
    try:
        data = value.encode("latin-1")
    except UnicodeEncodeError:
        return None
    return data if 0 < len(data) <= CREDENTIAL_MAX else None
