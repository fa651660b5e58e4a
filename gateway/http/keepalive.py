"""Peers that have gone without a word: a silent connection would be kept for them for as long as it is silent."""

from __future__ import annotations

import socket
from typing import Final

_OPTIONS: Final = (
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
)


def keep_alive(connection: socket.socket) -> None:
    """Have it end within a minute once nobody is there any more; of a listening socket, each that is accepted there."""
    for option in _OPTIONS:
        connection.setsockopt(*option)
