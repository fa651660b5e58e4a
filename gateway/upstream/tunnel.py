"""What follows a 101: bytes in both directions, of whatever protocol the client and the cluster have agreed on (GW4)."""

from __future__ import annotations

from gateway.http.messages import Headers
from gateway.upstream.connection import BrokenExchange, Connection, Exchange
from gateway.upstream.headers import incoming


class Tunnel:
    """The cluster's end of an upgraded connection; ``headers`` are those of the 101 that the client is to be sent."""

    def __init__(self, headers: Headers, exchange: Exchange, connection: Connection) -> None:
        self.headers = headers
        self._exchange = exchange
        self._connection = connection

    async def read(self) -> bytes:
        """Whatever the cluster has sent since; nothing once it has hung up. It waits while nobody reads."""
        try:
            return await anext(self._exchange, b"")
        except BrokenExchange:
            return b""

    async def write(self, data: bytes) -> None:
        """Send; waits while the cluster does not keep up."""
        self._connection.write_nowait(data)
        await self._connection.drain()

    def close(self) -> None:
        """Send what is written and hang up."""
        self._connection.close()

    async def aclose(self) -> None:
        """Hang up at once."""
        self._connection.abort()


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
