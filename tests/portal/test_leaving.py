"""A portal that ends hangs up on nobody who has begun to ask, or has only just come."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from portal.serving import PortalServer
from tests.portalserver import served_portal
from tests.story.product import eventually

HEAD = b"Host: 127.0.0.1\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n"
POST = b"POST /healthz HTTP/1.1\r\n" + HEAD + b"Content-Length: 4\r\n\r\n"

Leaving = tuple[int, PortalServer]


@pytest.fixture
def portal(transactional_db: None) -> Iterator[Leaving]:
    """Its port, and its server."""
    with served_portal() as (url, server):
        yield int(url.rpartition(":")[2]), server


@pytest.mark.parametrize(
    ("begun", "rest"),
    [
        pytest.param(b"", GET, id="nothing yet"),
        pytest.param(GET[:20], GET[20:], id="half a head"),
        pytest.param(POST + b"ab", b"cd", id="half a body"),
        pytest.param(GET * 2 + GET[:30], GET[30:], id="half a head behind others"),
    ],
)
def test_what_has_begun_is_answered(
    portal: Leaving, begun: bytes, rest: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    port, server = portal
    if not begun:
        # Between the end of the listening and what this one says then may be more than a second.
        monkeypatch.setattr("portal.protocol.NEWCOMER_SECONDS", 300)
    with socket.create_connection(("127.0.0.1", port), timeout=300) as client:
        client.sendall(begun)
        answered = begun.count(GET)
        said = b""
        while said.count(b"HTTP/1.1 200 OK") < answered:
            said += client.recv(65536)
        assert eventually(_has_read(server, begun))
        server.should_exit = True
        assert eventually(lambda: not server.servers[0].is_serving())
        client.sendall(rest)
        while piece := client.recv(65536):
            said += piece
    assert said.count(b"HTTP/1.1 ") == answered + 1
    assert b"connection: close" in said.rpartition(b"HTTP/1.1 ")[2]


def test_whoever_has_had_an_answer_is_not_waited_for(portal: Leaving) -> None:
    port, server = portal
    with socket.create_connection(("127.0.0.1", port), timeout=300) as client:
        client.sendall(GET)
        said = b""
        while not said.endswith(b"\r\n\r\nok"):  # which may come in pieces
            piece = client.recv(65536)
            assert piece, said
            said += piece
        server.should_exit = True
        assert client.recv(65536) == b""


def _has_read(server: PortalServer, begun: bytes) -> Callable[[], bool]:
    """Whether the connection is there, and has been given what was sent."""

    def look() -> bool:
        connections = [each for each in server.server_state.connections if not each.transport.is_closing()]
        return bool(connections) and (not begun or any(getattr(each, "_has_asked", False) for each in connections))

    return look
