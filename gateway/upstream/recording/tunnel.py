"""A tunnel whose output is kept before it is shown, and whose input is not looked at (GW21)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Final

from gateway.http.lanes import STEPS
from gateway.http.messages import Headers
from gateway.upstream.recording.keeping import Keeping
from gateway.upstream.tunnel import Tunnel
from kube.remotecommand.channels import (
    ERROR,
    RESIZE,
    STATUS_MAX,
    Channels,
    Piece,
    TerminalSizes,
    Unreadable,
    exit_code_of,
)
from kube.remotecommand.spdy import SpdyChannels
from kube.remotecommand.websockets import SUBPROTOCOLS, WebSocketChannels
from kube.requests.status import BadRequest, Forbidden, StatusError

_PROTOCOLS: Final = b"sec-websocket-protocol"
_EXTENSIONS: Final = b"sec-websocket-extensions"
_FOLLOWED: Final = frozenset(name.encode() for name in SUBPROTOCOLS)


class RecordedTunnel:
    """See ``gateway.upstream.tunnel.Tunnel``; ``finish`` is told at the end why it came, empty for the command's own."""

    def __init__(self, tunnel: Tunnel, keeping: Keeping, finish: Callable[[Keeping, str], None]) -> None:
        self.headers = tunnel.headers
        self._tunnel = tunnel
        self._keeping = keeping
        self._finish = finish
        over_websocket = dict(tunnel.headers).get(b"upgrade", b"").lower() == b"websocket"
        self._channels: Channels = WebSocketChannels() if over_websocket else SpdyChannels()
        self._sizes = TerminalSizes()
        self._status = b""

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        """See ``Tunnel``. Ends when nothing more can be kept."""
        return self._read()

    async def _read(self) -> AsyncIterator[bytes]:
        self._keeping.start()
        async for data in self._tunnel.chunks:
            try:
                await self._keep(data)
            except StatusError:
                return
            yield data

    async def turn(self) -> None:
        """See ``Tunnel``."""
        await self._tunnel.turn()

    async def write(self, data: bytes) -> None:
        """See ``Tunnel``."""
        try:
            for number, (channel, piece) in enumerate(self._channels.sent(data), 1):
                if channel == RESIZE and piece:
                    for columns, rows in self._sizes.feed(piece):
                        self._keeping.resize(columns, rows)
                if number % STEPS == 0:
                    await self._tunnel.turn()
        except Unreadable as error:
            self._keeping.fail(_lost(error))
            return
        await self._tunnel.write(data)

    def let_go(self) -> None:
        """See ``Tunnel``."""
        self._tunnel.let_go()

    def end_with(self, end: Callable[[StatusError], None]) -> None:
        """Whom to tell that the session has to end, and why."""
        self._keeping.on_failure = end

    def interrupt(self) -> None:
        """See ``Tunnel``."""
        self._tunnel.interrupt()

    def close(self, why: str = "") -> None:
        """Hang up; what was kept is ended behind it."""
        self._tunnel.close()
        self._keeping.exit_code = exit_code_of(self._status)
        unknown = "" if self._keeping.exit_code is not None else "the connection was closed"
        self._finish(self._keeping, why or unknown)

    async def _keep(self, data: bytes) -> None:
        """Keep the output in what the cluster has sent, as much of it as one turn has steps. Raises ``StatusError``."""
        shown: list[Piece] = []
        try:
            for number, (channel, piece) in enumerate(self._channels.received(data), 1):
                if channel == ERROR and len(self._status) + len(piece) <= STATUS_MAX:
                    self._status += piece
                elif piece:
                    shown.append((channel, piece))
                if number % STEPS == 0:
                    await self._keeping.show(shown)
                    shown = []
                    await self._tunnel.turn()
        except Unreadable as error:
            self._keeping.fail(_lost(error))
        await self._keeping.show(shown)


def followed(headers: Headers) -> Headers:
    """The headers of a request for a session that can be recorded: without what nobody could follow it through.

    Raises ``BadRequest`` where nothing is left.
    """
    kept = []
    for name, value in headers:
        if name == _PROTOCOLS:
            offered = [protocol.strip() for protocol in value.split(b",")]
            known = b", ".join(protocol for protocol in offered if protocol in _FOLLOWED)
            if not known:
                raise BadRequest(
                    f"this session is recorded, and so it takes one of {', '.join(SUBPROTOCOLS)}, or SPDY/3.1"
                )
            kept.append((name, known))
        elif name != _EXTENSIONS:
            kept.append((name, value))
    return tuple(kept)


def _lost(error: Unreadable) -> Forbidden:
    return Forbidden(f"this session has to be recorded, and cannot be followed: {error}")
