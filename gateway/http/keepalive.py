"""Peers that have gone without a word, or whose last one nobody reads: a silent connection would be kept for them."""

from __future__ import annotations

import select
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


def ends_unread(connection: socket.socket) -> tuple[bool, bool]:
    """What has come of a peer's end, however much lies before it that has not been read.

    Whether it sends nothing more, and whether the connection is no more: then nothing is left to read either.
    """
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLRDHUP)
    events = sum(found for _, found in poll.poll(0))
    return bool(events & select.POLLRDHUP), bool(events & (select.POLLHUP | select.POLLERR))
