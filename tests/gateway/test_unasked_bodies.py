"""Bodies of requests that have none by their nature: read within bounds, passed on to nobody, and no watch lasts with them (DOS-01)."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from gateway.http.bodies import OPTIONS_BYTES
from tests.gateway.callers import Caller, config_map

MAPS = "/api/v1/namespaces/{}/configmaps"
PIECE = b"x" * 16384
MOST = 64 * 1024 * 1024
"""What nobody takes who takes within bounds: kernels' buffers hold some of it."""

CHUNKED = "Transfer-Encoding: chunked"


@contextmanager
def connected(caller: Caller) -> Iterator[ssl.SSLSocket]:
    host, port = caller.host.split(":")
    with (
        socket.create_connection((host, int(port)), timeout=300) as plain,
        caller.context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        yield connection


def head(path: str, *headers: str) -> bytes:
    return "\r\n".join((f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", "")).encode()


def heard(connection: ssl.SSLSocket) -> bytes:
    """What has come, without waiting."""
    connection.settimeout(0)
    try:
        return connection.recv(65536)
    except (ssl.SSLWantReadError, BlockingIOError):
        return b""
    finally:
        connection.settimeout(300)


def rest(connection: ssl.SSLSocket) -> bytes:
    """Everything until the server hangs up."""
    said = b""
    with contextlib.suppress(ConnectionError, ssl.SSLError):
        while data := connection.recv(65536):
            said += data
    return said


def answer_to_endless(connection: ssl.SSLSocket, start: bytes) -> bytes:
    """The answer to a request whose body does not end; the server hangs up behind it."""
    connection.sendall(start)
    chunked = CHUNKED.encode() in start
    sent, said = 0, b""
    while not said:
        assert sent < MOST, "it takes whatever comes"
        connection.sendall(b"%x\r\n%b\r\n" % (len(PIECE), PIECE) if chunked else PIECE)
        sent += len(PIECE)
        said = heard(connection)
    return said + rest(connection)


@pytest.mark.parametrize("framing", [CHUNKED, f"Content-Length: {2**40}"])
@pytest.mark.parametrize("query", ["?watch=1", "", "/none"])
def test_a_body_that_does_not_end_is_refused_and_keeps_nothing_open(
    alice: Caller, namespace: str, query: str, framing: str
) -> None:
    with connected(alice) as connection:
        said = answer_to_endless(connection, head(MAPS.format(namespace) + query, framing))
    assert said.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("framing", [CHUNKED, f"Content-Length: {2**40}"])
def test_who_may_not_is_told_so_and_is_not_read_any_further(gina: Caller, namespace: str, framing: str) -> None:
    """Nothing of it is read before it is known who may."""
    with connected(gina) as connection:
        path = f"/clusters/root:acme{MAPS.format(namespace)}?watch=1"
        said = answer_to_endless(connection, head(path, framing))
    assert said.startswith(b"HTTP/1.1 403 ")
    assert b"connection: close" in said


@pytest.mark.parametrize("size", [2, OPTIONS_BYTES])
def test_a_body_that_ends_is_taken_for_nothing(alice: Caller, namespace: str, size: int) -> None:
    """As kube-apiserver does; what comes behind it is the next request."""
    path = MAPS.format(namespace)
    assert alice.post(path, config_map("one")).status == 201
    length = f"Content-Length: {size}"
    with connected(alice) as connection:
        connection.sendall(head(path, length) + b"x" * size + head(f"{path}?watch=1&timeoutSeconds=1", length))
        connection.sendall(b"x" * size)
        said = b""
        while b"\r\n0\r\n\r\n" not in said:
            data = connection.recv(65536)
            assert data, said
            said += data
    assert said.count(b"HTTP/1.1 200 OK") == 2
    assert b'{"type":"ADDED"' in said
