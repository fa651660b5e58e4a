"""HTTP/1.1 at the portal: uvicorn's own, with the bounds that the API server's connections have (DOS-01, HDR-02).

uvicorn takes heads of any size, lets bodies of any size through to Django, which keeps them in a file, waits for a
sender for ever, lets what follows a chunked body be a header, and hangs up, when it ends, on who is about to ask.
WebSockets are for terminals alone, and no library of uvicorn's takes them.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final, cast
from urllib.parse import unquote

import httptools
from django.urls import Resolver404, resolve
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from gateway.http.protocol import (
    HEADER_SECONDS,
    MAX_HEADER_BYTES,
    MAX_HEADERS,
    NEWCOMER_SECONDS,
    PARSED_BYTES,
    TooLarge,
)
from portal.contents.relay import Application, Doors, Relay
from portal.http import errors

MAX_BODY_BYTES: Final = 2 * 1024 * 1024
"""What reaches Django, which itself refuses more than one mebibyte, and says so better."""

MAX_BODY_PIECES: Final = 8192
"""Into how many pieces a body may be cut: reading one costs as much however short it is. Networks make a quarter of it."""

BODY_SECONDS: Final = 60.0
"""How long a client may take from the end of the headers to the end of the body."""

WRITE_SECONDS: Final = 60.0
"""How long a client may let an answer wait, 64 KiB of it."""

LEAVING: Final = "leaving"
"""Of the state that the server shares with every request: whether it is about to end."""

_TOO_LARGE: Final = "The body is too large."


class BodyTooLarge(httptools.HttpParserError):
    """The body exceeds the bound."""


class PortalProtocol(HttpToolsProtocol):
    """A client's connection to the portal: uvicorn's protocol with bounds on what it reads."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._unparsed = b""
        self._body_bytes = self._body_pieces = 0
        self._silent_bytes = 0
        self._pieces: list[bytes] = []
        self._has_asked = self._in_head = False
        self._body_refused = False
        self._patience: asyncio.TimerHandle | None = None
        self._writing: asyncio.TimerHandle | None = None

    # What the transport tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request, not for ever."""
        super().connection_made(cast("asyncio.Transport", transport))
        self._wait(HEADER_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody is there any more."""
        self._unparsed = b""
        self._wait(None)
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Parse, as far as no request has to wait behind another."""
        self._unparsed = self._unparsed + data if self._unparsed else data
        if self._patience is None and self._is_idle:
            self._wait(HEADER_SECONDS)
        self._parse()

    def pause_writing(self) -> None:
        """The client does not keep up."""
        super().pause_writing()
        if self._writing is None:
            self._writing = self.loop.call_later(WRITE_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """It does again, or has gone."""
        super().resume_writing()
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    # What the parser tells.

    def on_message_begin(self) -> None:
        """A request begins."""
        self._body_bytes = self._body_pieces = 0
        self._has_asked = self._in_head = True
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header. What follows a chunked body is none, whatever its name: no proxy has looked at it."""
        if not self._in_head:
            return
        if len(self.headers) >= MAX_HEADERS:
            raise TooLarge("too many headers")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """The head is complete; a body that says that it is too large is not waited for."""
        self._in_head = False
        self._silent_bytes = 0
        # The parser lets one length through at most, in digits.
        self._count_body(sum(int(value) for name, value in self.headers if name == b"content-length"))
        self._body_bytes = 0
        self._wait(BODY_SECONDS)
        super().on_headers_complete()
        if self.app_state.get(LEAVING):
            self.part()

    def on_body(self, body: bytes) -> None:
        """A piece of the body: all that come together are handed on as one, for each copies what is there of it."""
        self._silent_bytes = 0
        self._body_pieces += 1
        self._count_body(len(body))
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        """The request is complete, and its sender owes nothing."""
        self._hand_on()
        self._silent_bytes = 0
        self._wait(None)
        super().on_message_complete()

    # What the server asks for.

    def part(self) -> None:
        """The server will stop: the next answer is the last here, and sends its client to whoever serves on."""
        if self.cycle is not None and not self.cycle.response_started:
            self.cycle.keep_alive = False

    def shutdown(self) -> None:
        """The server stops: what has begun is finished, and a client that has its answer is not waited for.

        One that has only just come may not have had the time to ask.
        """
        if self._has_asked:
            self._leave()
        else:
            self.loop.call_later(NEWCOMER_SECONDS, self._leave)

    def _leave(self) -> None:
        # A head that has begun is waited for, and then its answer, as whoever comes now is told to part.
        if not self._in_head and not self.transport.is_closing():
            super().shutdown()

    # What requests tell.

    def on_response_complete(self) -> None:
        """The next request has its turn; one that has begun is not waited for as long as one that may come."""
        super().on_response_complete()
        self._parse()
        if self._in_head and self._is_idle and self._patience is None:
            self._wait(HEADER_SECONDS)

    def send_400_response(self, msg: str) -> None:
        """What came is refused."""
        self._wait(None)
        if self._body_refused:
            self.transport.write(self._refusal_of_the_body())
            self.transport.close()
        else:
            super().send_400_response(msg)

    # What asks for another protocol.

    def _should_upgrade(self) -> bool:
        return self._get_upgrade() == b"websocket" and self.scope["method"] == "GET"

    def handle_websocket_upgrade(self) -> None:
        """From here on the connection is a terminal's, or refused."""
        self._unparsed = b""
        try:
            asked = httptools.parse_url(self.url)
        except httptools.HttpParserInvalidURLError:
            self.send_400_response("Invalid HTTP request received.")
            return
        path = unquote(asked.path.decode("ascii"))
        # The relay keeps what a page answers: an export would be in memory whole, and read on for nobody.
        if not _is_terminal(path):
            self.send_400_response("Only terminals take WebSockets.")
            return
        self._wait(None)
        self.connections.discard(self)
        target = {
            "path": self.root_path + path,
            "raw_path": self.root_path.encode("ascii") + asked.path,
            "query_string": asked.query or b"",
        }
        doors = self.app_state.setdefault("doors", Doors())
        relay = Relay(
            cast("Application", self.app), {**self.scope, **target}, doors, cast("set[Any]", self.connections)
        )
        task = relay.begin(self.transport)
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _parse(self) -> None:
        while self._unparsed and not self.pipeline and not self.transport.is_closing():
            piece, self._unparsed = self._unparsed[:PARSED_BYTES], self._unparsed[PARSED_BYTES:]
            self._silent_bytes += len(piece)
            if self._silent_bytes > MAX_HEADER_BYTES:
                self.send_400_response("Invalid HTTP request received.")
            else:
                super().data_received(piece)
                self._hand_on()
        if self._unparsed and not self.transport.is_closing():
            self.flow.pause_reading()

    def _wait(self, seconds: float | None) -> None:
        """Expect the next step of the sender within so many seconds; or nothing."""
        if self._patience is not None:
            self._patience.cancel()
        self._patience = None if seconds is None else self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        self._patience = None
        if self.pipeline:
            # The sender waits for us.
            self._wait(BODY_SECONDS)
        elif not self.transport.is_closing():
            self.transport.close()

    def _hand_on(self) -> None:
        if self._pieces:
            body, self._pieces = b"".join(self._pieces), []
            super().on_body(body)

    def _refusal_of_the_body(self) -> bytes:
        # The head may be refused before anybody has looked at its address.
        path = unquote(self.url.partition(b"?")[0].decode("latin-1"))
        kind, said = "text/plain; charset=utf-8", _TOO_LARGE
        if errors.is_of_api(path):
            kind = errors.PROBLEM
            said = json.dumps(errors.problem_body(path, 413, _TOO_LARGE, reason="RequestEntityTooLarge"))
        head = f"HTTP/1.1 413 Content Too Large\r\ncontent-type: {kind}\r\ncontent-length: {len(said)}\r\n"
        return f"{head}connection: close\r\n\r\n{said}".encode("ascii")

    def _count_body(self, size: int) -> None:
        self._body_bytes += size
        if self._body_bytes > MAX_BODY_BYTES or self._body_pieces > MAX_BODY_PIECES:
            self._body_refused = True
            raise BodyTooLarge("the body is too large")


def _is_terminal(path: str) -> bool:
    try:
        return resolve(path).view_name == "workspace-terminal-connect"
    except Resolver404:
        return False
