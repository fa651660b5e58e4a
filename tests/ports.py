"""Ports for servers that do not tell which one the kernel gave them."""

from __future__ import annotations

import contextlib
import secrets
import socket

_BELOW_THE_KERNELS_OWN = range(10_000, 32_000)
"""What Linux gives to clients by itself begins at 32768: until the server listens, no connection takes its port."""


def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on, chosen at random, so that several runs hardly ever meet."""
    while True:
        port = secrets.choice(_BELOW_THE_KERNELS_OWN)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
