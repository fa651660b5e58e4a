"""Who has gone without a word is noticed: silent streams would stay open for nobody (DOS-02)."""

from __future__ import annotations

import socket

from gateway.http.servers import bind

SECONDS = 60


def test_a_server_asks_its_silent_clients_whether_they_are_there() -> None:
    with bind("127.0.0.1", 0, remedy="") as listener:
        listener.listen()
        with socket.create_connection(listener.getsockname()):
            accepted, _ = listener.accept()
            with accepted:
                assert accepted.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
                idle, interval, times = (
                    accepted.getsockopt(socket.IPPROTO_TCP, option)
                    for option in (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
                )
                assert idle + interval * times <= SECONDS
