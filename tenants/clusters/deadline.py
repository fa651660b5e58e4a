"""One deadline for a whole call over TLS, however the other side drips: no byte begins it anew."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

_LONGEST_SECONDS: Final = 60.0
"""A single wait of a call for which nobody has said a deadline."""


class _Call(threading.local):
    """The call that this thread is in."""

    ends: float = float("inf")


_call = _Call()


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """What this thread reads from, and writes to, sockets of ``HurriedSocket`` meanwhile raises ``TimeoutError`` after that.

    Inside another deadline the earlier one counts.
    """
    before = _call.ends
    _call.ends = min(before, time.monotonic() + seconds)
    try:
        yield
    finally:
        _call.ends = before


class HurriedSocket(ssl.SSLSocket):
    """For ``SSLContext.sslsocket_class``: a socket's own timeout begins anew with every byte."""

    def recv_into(self, *args: Any, **kwargs: Any) -> int:
        """As a socket's; raises ``TimeoutError`` once the call has lasted long enough."""
        self._hurry()
        return super().recv_into(*args, **kwargs)

    def send(self, *args: Any, **kwargs: Any) -> int:
        """As ``recv_into``. What is sent in pieces, by ``sendall``, asks here for each: whoever reads slowly is a drip too."""
        self._hurry()
        return super().send(*args, **kwargs)

    def _hurry(self) -> None:
        left = _call.ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the call has lasted long enough")
        self.settimeout(min(left, _LONGEST_SECONDS))
