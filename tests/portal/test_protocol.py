"""The portal's connections, spoken byte by byte to the portal's own handler: what strangers may send, and for how long."""

from __future__ import annotations

import json
import re
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.core.handlers.asgi import ASGIHandler
from django.db import connection as database
from django.test import Client
from django.urls import URLResolver, get_resolver

from gateway.http.protocol import MAX_HEADER_BYTES, MAX_HEADERS, PARSED_BYTES
from portal import protocol
from portal.protocol import MAX_BODY_BYTES, MAX_BODY_PIECES, PortalProtocol
from portal.serving import PortalServer
from tests.portalserver import served_portal

HEAD = b"Host: 127.0.0.1\r\n"
GET = b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n"
POST = b"POST /healthz HTTP/1.1\r\n" + HEAD
ENDLESS = MAX_HEADER_BYTES + PARSED_BYTES
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"


class Portal:
    """The portal on a socket, and what its protocol did."""

    def __init__(self, server: PortalServer, port: int) -> None:
        self._server = server
        self._port = port

    @property
    def connections(self) -> list[PortalProtocol]:
        return list(self._server.server_state.connections)  # type: ignore[arg-type]

    def keep_idle(self, seconds: float) -> None:
        """Keep connections that are made from now on for so long while nothing is asked on them."""
        self._server.config.timeout_keep_alive = seconds  # type: ignore[assignment]

    @contextmanager
    def connect(self) -> Iterator[socket.socket]:
        with socket.create_connection(("127.0.0.1", self._port), timeout=300) as client:
            yield client

    def said(self, data: bytes) -> bytes:
        """Everything that is answered until the server hangs up."""
        with self.connect() as client:
            return told(client, data)


def told(client: socket.socket, data: bytes = b"") -> bytes:
    answer = bytearray()
    try:
        client.sendall(data)
        while piece := client.recv(65536):
            answer += piece
    except (ConnectionResetError, BrokenPipeError):
        pass
    return bytes(answer)


def codes(answer: bytes) -> list[int]:
    return [int(code) for code in re.findall(rb"HTTP/1.1 (\d{3}) ", answer)]


@pytest.fixture
def portal(transactional_db: None) -> Iterator[Portal]:
    with served_portal() as (url, server):
        yield Portal(server, int(url.rpartition(":")[2]))


@pytest.mark.parametrize(
    "trailer",
    [b"Host: evil", b"X-Forwarded-For: 203.0.113.9", b"X-Forwarded-Proto: https", b"Cookie: session=a", b"Via: 1.1 a"],
)
def test_what_follows_a_body_is_no_header(portal: Portal, monkeypatch: pytest.MonkeyPatch, trailer: bytes) -> None:
    """HDR-02, HDR-11: a trailer names neither host, nor address, nor session."""
    seen: list[dict[str, Any]] = []
    create = ASGIHandler.create_request

    def note(handler: ASGIHandler, *args: Any) -> Any:
        request, error = create(handler, *args)
        seen.append(dict(request.META))
        return request, error

    monkeypatch.setattr(ASGIHandler, "create_request", note)
    answer = portal.said(POST + b"Connection: close\r\n" + CHUNKED[len(POST) :] + trailer + b"\r\n\r\n")
    assert codes(answer) == [403]
    (meta,) = seen
    assert meta["HTTP_HOST"] == "127.0.0.1"
    assert not {"HTTP_X_FORWARDED_FOR", "HTTP_X_FORWARDED_PROTO", "HTTP_COOKIE", "HTTP_VIA"} & set(meta)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"X-Large: " + b"a" * MAX_HEADER_BYTES + b"\r\n", id="one that is large"),
        pytest.param(b"X-Endless: " + b"a" * ENDLESS, id="one without end"),
        pytest.param(b"X" * ENDLESS, id="a name without end"),
        pytest.param(b"X: a\r\n" * (MAX_HEADERS + 1), id="many"),
        pytest.param((b"X-A: " + b"a" * 8000 + b"\r\n") * 9, id="large together"),
    ],
)
def test_heads_are_bounded_on_their_way(portal: Portal, head: bytes) -> None:
    """DOS-01: the head has no end, and is refused all the same."""
    assert codes(portal.said(b"GET /healthz HTTP/1.1\r\n" + HEAD + head)) in ([400], [])
    assert codes(portal.said(b"GET /" + b"a" * MAX_HEADER_BYTES)) in ([400], [])


def test_trailers_are_bounded_as_well(portal: Portal) -> None:
    assert codes(portal.said(CHUNKED + b"X: " + b"a" * ENDLESS)) in ([400], [])


@pytest.mark.parametrize("target", [b"http://[", b"http:///x", b"http://a:99999999/"])
@pytest.mark.parametrize("more", [b"", b"Connection: Upgrade\r\nUpgrade: websocket\r\n"])
def test_an_address_that_is_none_is_refused_in_words(
    portal: Portal, target: bytes, more: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """Whoever sends it fills no log with what went wrong inside."""
    assert codes(portal.said(b"GET %b HTTP/1.1\r\n" % target + HEAD + more + b"\r\n")) == [400]
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.parametrize("path", ["/api/schema/", "/login/", "/nowhere/", "/api/v1/tenants/"])
def test_who_takes_an_answer_slowly_keeps_no_connection_of_the_database(transactional_db: None, path: str) -> None:
    """DOS-01: a stranger's session is looked up like any other, and what came of it is sent without the database."""
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = "a" * 32
    client.get(path)
    assert database.connection is None


def addresses() -> list[str]:
    """One of each route that takes GET, but for terminals: what could be asked for with another protocol in mind."""
    given = {"uuid": str(uuid.UUID(int=1)), "slug": "a", "str": "a", "path": "a"}
    found = []
    for pattern, name in reachable(get_resolver().url_patterns):
        if name != "workspace-terminal-connect":
            found.append("/" + re.sub(r"<(\w+):\w+>", lambda part: given[part[1]], pattern))
    return found


def reachable(patterns: list[Any], before: str = "") -> Iterator[tuple[str, str]]:
    for each in patterns:
        route = before + str(each.pattern)
        if isinstance(each, URLResolver):
            if "admin" not in route:
                yield from reachable(each.url_patterns, route)
        else:
            yield route, each.name or ""


def test_a_page_asked_for_as_a_websocket_is_not_even_made(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    """DOS-01: whoever asks so for an export had it whole in the portal's memory, for as long as it had rows."""
    asked: list[str] = []
    create = ASGIHandler.create_request

    def note(handler: ASGIHandler, *args: Any) -> Any:
        asked.append(args[0]["path"])
        return create(handler, *args)

    monkeypatch.setattr(ASGIHandler, "create_request", note)
    upgrade = HEAD + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    routes = addresses()
    assert {"/audit/export/", "/api/v1/audit-logs/export", "/charges/", "/healthz"} <= set(routes)
    for path in routes:
        assert codes(portal.said(b"GET %b HTTP/1.1\r\n" % path.encode() + upgrade)) == [400], path
    assert asked == []


def test_a_body_that_says_that_it_is_too_large_is_not_waited_for(portal: Portal) -> None:
    """DOS-01: nothing of it reaches the disk."""
    assert codes(portal.said(POST + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))) == [413]


def test_a_body_that_is_too_large_is_a_problem_for_programs(portal: Portal) -> None:
    """API-28: although nothing that knows the REST API has seen it."""
    start = POST.replace(b"/healthz", b"/api/v1/workspaces/init?x=y")
    answer = portal.said(start + b"Content-Length: %d\r\n\r\n" % (MAX_BODY_BYTES + 1))
    head, _, said = answer.partition(b"\r\n\r\n")
    assert b"content-type: application/problem+json\r\n" in head
    problem = json.loads(said)
    assert [problem["status"]] == codes(answer) == [413]
    assert (problem["instance"], problem["reason"]) == ("/api/v1/workspaces/init", "RequestEntityTooLarge")


def test_a_body_of_unknown_length_is_refused_where_it_becomes_too_large(portal: Portal) -> None:
    piece = b"%x\r\n%b\r\n" % (PARSED_BYTES, b"a" * PARSED_BYTES)
    with portal.connect() as client:
        told_ = told(
            client, POST + b"Transfer-Encoding: chunked\r\n\r\n" + piece * (MAX_BODY_BYTES // PARSED_BYTES + 1)
        )
    assert codes(told_) in ([413], [])
    assert codes(portal.said(GET[:-2] + b"Connection: close\r\n\r\n")) == [200]


def test_a_body_in_more_pieces_than_a_network_makes_is_refused(portal: Portal) -> None:
    """DOS-03: each costs as much as a large one."""
    start = POST + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    assert codes(portal.said(start + b"1\r\na\r\n" * (MAX_BODY_PIECES // 2) + b"0\r\n\r\n")) == [403]
    assert codes(portal.said(start + b"1\r\na\r\n" * (MAX_BODY_PIECES + 1) + b"0\r\n\r\n")) in ([413], [])


@pytest.mark.parametrize("end", [b"", b"0\r\n"])
def test_what_stands_between_chunks_is_bounded(portal: Portal, end: bytes) -> None:
    start = POST + b"Transfer-Encoding: chunked\r\n\r\n" + end
    assert codes(portal.said(start + b"5;" + b"a" * ENDLESS)) in ([400], [])


def test_a_body_within_the_bounds_reaches_django(portal: Portal) -> None:
    body = b"a" * MAX_BODY_BYTES
    assert codes(portal.said(POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)) == [403]


def test_requests_that_wait_behind_another_are_not_parsed(portal: Portal) -> None:
    """DOS-01: of a hundred thousand requests on a connection, no more wait than one piece holds."""
    most = 0
    with portal.connect() as client:
        client.settimeout(1)
        try:
            for _ in range(40):
                client.sendall(GET * 1000)
                most = max([most, *(len(connection.pipeline) for connection in portal.connections)])
        except TimeoutError:
            pass
    assert most <= PARSED_BYTES // len(GET) + 1


def test_pipelined_requests_are_answered_in_their_order(portal: Portal) -> None:
    paths = [b"/healthz", b"/none"] * 60
    asked = b"".join(b"GET " + path + b" HTTP/1.1\r\n" + HEAD + b"\r\n" for path in paths)
    last = b"GET /healthz HTTP/1.1\r\n" + HEAD + b"Connection: close\r\n\r\n"
    assert codes(portal.said(asked + last)) == [200, 404] * 60 + [200]


@pytest.mark.parametrize(
    "begun",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\r\n", id="an empty line"),
        pytest.param(GET[:-2], id="half a head"),
        pytest.param(GET + b"\r\n", id="an empty line after a request"),
        pytest.param(GET + GET[:9], id="half a request behind another"),
        pytest.param(POST + b"Content-Length: 10\r\n\r\nabc", id="half a body"),
        pytest.param(CHUNKED, id="trailers without end"),
    ],
)
def test_no_sender_is_waited_for_for_ever(portal: Portal, monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    """DOS-01: the server hangs up, wherever in a request its sender stops."""
    monkeypatch.setattr(protocol, "HEADER_SECONDS", 0.5)
    monkeypatch.setattr(protocol, "BODY_SECONDS", 0.5)
    if begun == GET + b"\r\n":
        # No request has begun: it is kept as long as one that has not said anything more.
        portal.keep_idle(0.5)
    assert set(codes(portal.said(begun))) <= {200, 400}
    # It came back: "said" waits for the server to hang up.


def test_no_reader_is_waited_for_for_ever(portal: Portal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "WRITE_SECONDS", 0.2)
    with portal.connect() as client:
        client.sendall(GET)
        assert client.recv(15) == b"HTTP/1.1 200 OK"
        (connection,) = portal.connections
        connection.loop.call_soon_threadsafe(connection.pause_writing)
        told(client)
    assert not connection.connections & {connection}
