"""What follows a 101: bytes in both directions, of whatever protocol the client and the cluster have agreed on (GW4)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gateway.http.messages import Headers
from gateway.upstream.connection import Connection
from gateway.upstream.exchange import BrokenExchange, Exchange
from gateway.upstream.headers import incoming


class Tunnel:
    """The cluster's end of an upgraded connection; ``headers`` are those of the 101 that the client is to be sent."""

    __slots__ = ("_connection", "_exchange", "_interrupted", "_let_go", "headers")

    def __init__(self, headers: Headers, exchange: Exchange, connection: Connection) -> None:
        self.headers = headers
        # However it ends, that is the end.
        exchange.told = StopAsyncIteration
        self._exchange = exchange
        self._connection = connection
        self._interrupted = self._let_go = False

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        """Whatever the cluster sends until it hangs up. It waits while nobody reads."""
        return self._exchange

    async def turn(self) -> None:
        """Wait for another turn, for whoever reads what passes in many small parts."""
        await self._exchange.turn()

    async def write(self, data: bytes) -> None:
        """Send, unless it has been interrupted; waits while the cluster does not keep up."""
        if not self._interrupted:
            self._connection.write_nowait(data)
            if not self._let_go:
                await self._connection.drain()

    def let_go(self) -> None:
        """What is written from now on is the last, and nobody waits with it; ``close`` gives the cluster the time to take it."""
        self._let_go = True
        self._connection.let_go()

    def interrupt(self) -> None:
        """End ``chunks``, and send nothing more."""
        self._interrupted = True
        self._exchange.interrupt()

    def close(self) -> None:
        """Send what is written and hang up; at once where it has been interrupted, for a thousand may be at the same time."""
        if self._interrupted:
            self._connection.abort()
        else:
            self._connection.close()


def agreed(protocol: bytes, asked: Headers, answered: Headers) -> Headers:
    """The headers of a 101 for the client. Raises ``BrokenExchange`` unless it is to what was asked for (RFC 9110, 7.8)."""
    if [value.lower() for name, value in answered if name == b"upgrade"] != [protocol.lower()]:
        raise BrokenExchange("it speaks something else than it was asked to")
    offered = {
        option.strip() for name, value in asked if name == b"sec-websocket-protocol" for option in value.split(b",")
    }
    chosen = [value for name, value in answered if name == b"sec-websocket-protocol"]
    if len(chosen) > 1 or not offered.issuperset(chosen):
        raise BrokenExchange("it speaks something else than it was asked to")
    return (*incoming(answered), (b"connection", b"Upgrade"), (b"upgrade", protocol))
