"""Random identities, of objects and of requests."""

from __future__ import annotations

from os import urandom


def random_uid() -> str:
    """A random UUID (version 4) as text; one is made for every request, and ``uuid`` takes three times as long."""
    text = urandom(16).hex()
    return f"{text[:8]}-{text[8:12]}-4{text[13:16]}-a{text[17:20]}-{text[20:]}"
