"""Malformed requests over raw sockets: each is refused in one way, and never becomes another request (URL-*, HDR-*)."""

from __future__ import annotations

import json
import socket
import ssl

import pytest

from tests.gateway.callers import Caller
from tests.gateway.conftest import Server


def raw(caller: Caller, data: bytes, *, wait: float = 30) -> tuple[int, bytes]:
    """Send bytes as they are; the status of the first answer and everything that came. 0: closed without an answer."""
    host, port = caller.host.split(":")
    with (
        socket.create_connection((host, int(port)), timeout=wait) as plain,
        caller.context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        received = b""
        try:
            connection.sendall(data)
            while chunk := connection.recv(65536):
                received += chunk
                head, found, body = received.partition(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if found and length and len(body) >= int(length[0].split(b":")[1]):
                    break
        except (TimeoutError, ConnectionError, ssl.SSLError):
            pass
    return (int(received.split(b" ", 2)[1]) if received.startswith(b"HTTP/1.1 ") else 0), received


def get(caller: Caller, target: str | bytes, *headers: str) -> tuple[int, bytes]:
    target = target.encode() if isinstance(target, str) else target
    lines = [b"GET " + target + b" HTTP/1.1", b"Host: localhost", b"Connection: close", *(h.encode() for h in headers)]
    return raw(caller, b"\r\n".join(lines) + b"\r\n\r\n")


@pytest.mark.parametrize(
    ("target", "statuses"),
    [
        ("/api/v1/namespaces/a/../default/secrets", {400}),
        ("/api/v1/tenants/acme/../globex/namespaces/default/secrets", {400}),
        ("/api/v1/namespaces/a/%2e%2e/default/secrets", {400}),
        ("/api/v1/namespaces/a/%2E./default/secrets", {400}),
        ("/api/v1/namespaces/a/%252e%252e/default/secrets", {400, 404}),
        ("/api/v1/namespaces/default%2Fsecrets", {400}),
        ("//evil.example/api/v1/namespaces/default/secrets", {400}),
        ("http://evil.example/api/v1/namespaces", {200, 400}),
        ("/api/v1/namespaces//secrets", {400, 404}),
        ("/api/v1//namespaces/default/secrets", {400, 404}),
        ("/api//v1/namespaces/default/pods", {400, 404}),
        ("/API/v1/namespaces", {403, 404}),
        ("/api/v1/Namespaces/default/pods", {403, 404}),
        ("/api/v1/tenants/ACME/pods", {403, 404}),
        ("/api/v1/tenants/acme%EF%BC%91/pods", {403, 404}),
        ("/api/v1/tenants/acme%E2%80%8B/pods", {403, 404}),
        ("/api/v1/namespaces/default%00/pods", {400}),
        ("/api/v1/namespaces/default%0a/pods", {400}),
        ("/api/v1/tenants/acme%0a/namespaces/default/pods", {400}),
        ("/api/v1/namespaces/%ff%fe/pods", {400}),
        ("/api/v1/namespaces/%c0%ae%c0%ae/pods", {400}),
        ("/api/v1/namespaces/%zz/pods", {400}),
        ("/api/v1/tenants/acme/status/namespaces/default/pods", {404}),
        ("/api/v1/namespaces/default/tenants/globex/pods", {404}),
        ("/api/v1/watch/tenants/globex/pods", {403}),
        ("/api/v1/proxy/namespaces/default/pods/x", {404}),
        ("/api/v1/redirect/nodes/x", {403, 404}),
        ("/api/v1/namespaces/default/pods?" + "a=1&" * 5000, {400, 414}),
        ("/" + "a" * 20_000, {400, 414}),
        ("/api/v1/" + "a/" * 3000, {400, 404, 414}),
        ("/clusters/root:globex:x/api/v1/pods", {403}),
        ("/clusters/../api/v1/pods", {400}),
        ("/clusters/root:globex/clusters/root:acme/api/v1/pods", {403, 404}),
        ("/api/v1/tenants/system/pods", {403, 404}),
        ("*", {400}),
    ],
)
def test_malformed_target_is_refused(alice: Caller, target: str, statuses: set[int]) -> None:
    status, answer = get(alice, target)
    assert status in statuses, answer[:500]
    assert b"Traceback" not in answer


@pytest.mark.parametrize(
    ("query", "is_watch"),
    [
        ("watch=nope", True),
        ("watch", True),
        ("watch=TRUE", True),
        ("watch=0", False),
        ("watch=false&watch=true", False),
    ],
)
def test_what_counts_as_a_watch_is_one_decision(server: Server, acme: str, query: str, is_watch: bool) -> None:
    """URL-20."""
    refused = server.user(acme, "walter").get(f"/api/v1/namespaces/default/pods?{query}")
    assert refused.status == 403
    assert ("cannot watch" in refused.body["message"]) is is_watch


@pytest.mark.parametrize(
    "headers",
    [
        ("Connection: close, Impersonate-User",),
        ("Connection: close, Authorization",),
        ("Host: evil.example",),
        ("Authorization: Bearer a", "Authorization: Bearer b"),
        ("Content-Length: 5", "Transfer-Encoding: chunked"),
        ("Content-Length: 5", "Content-Length: 6"),
        ("Content-Length: +5",),
        ("Transfer-Encoding: \x0bchunked",),
        ("Transfer-Encoding: chunked, identity",),
        ("Bad Header: x",),
        ("X: " + "a" * 70_000,),
        tuple(f"X-{i}: 1" for i in range(300)),
    ],
)
def test_ambiguous_or_oversized_headers_are_refused(alice: Caller, headers: tuple[str, ...]) -> None:
    """HDR-02, HDR-13, HDR-14."""
    status, answer = get(alice, "/api/v1/namespaces", *headers)
    assert status in (0, 400), answer[:300]


def test_missing_host_is_refused(alice: Caller) -> None:
    assert raw(alice, b"GET /api/v1/namespaces HTTP/1.1\r\nConnection: close\r\n\r\n")[0] == 400


@pytest.mark.parametrize(
    "header",
    [
        "X-Forwarded-Prefix: /api/v1/tenants/globex",
        "X-Original-URL: /api/v1/tenants/globex/pods",
        "X-Rewrite-URL: /api/v1/tenants/globex/pods",
        "X-HTTP-Method-Override: DELETE",
        "X-Remote-User: admin",
        "X-SSL-Client-S-DN: O=tenant:system,CN=root",
        "Impersonate_User: admin",
    ],
)
def test_headers_that_others_believe_mean_nothing(alice: Caller, header: str) -> None:
    """URL-22, URL-28, HDR-08, X509-10."""
    status, answer = get(alice, "/api/v1/namespaces", header)
    assert status == 200
    items = json.loads(answer.partition(b"\r\n\r\n")[2])["items"]
    assert {item["metadata"]["tenant"] for item in items} == {"acme"}


@pytest.mark.parametrize("method", ["delete", "TRACE", "CONNECT", "PROPFIND", "OPTIONS", "HEAD", "FOO"])
def test_other_methods_are_refused_before_anything_is_decided(alice: Caller, method: str) -> None:
    """URL-23."""
    target = "localhost:1" if method == "CONNECT" else "/api/v1/namespaces"
    request = f"{method} {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    assert raw(alice, request.encode())[0] in (0, 400, 405)


def test_bodies_are_bounded(alice: Caller) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    assert alice.post(path, b"x" * (3 * 1024 * 1024 + 1)).status == 413
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    chunks = b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b" " * 65536 + b"\r\n") * 50 + b"0\r\n\r\n"
    assert raw(alice, head.encode() + chunks)[0] in (0, 413)
    assert raw(alice, head.encode() + b"Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n")[0] in (0, 400)
    assert alice.post(path, b"{}", headers={"Content-Encoding": "gzip"}).status == 415
    assert alice.post(path, b"[" * 100_000).status == 400
    assert alice.post(path, b'{"a":' * 300 + b"1" + b"}" * 300).status == 400
    assert alice.post(path, b"\xff\xfe").status == 400
    assert alice.post(path, b"").status == 400


def test_chunked_delete_with_preconditions_is_read(alice: Caller) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    alice.post(path, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "chunked"}})
    body = b'{"preconditions":{"uid":"wrong"}}'
    request = (
        f"DELETE {path}/chunked HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    ).encode() + b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body)
    assert raw(alice, request)[0] == 409
    assert alice.delete(f"{path}/chunked").status == 200


def test_expect_continue_is_answered(alice: Caller) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"generateName":"expected-"}}'
    head = (
        "POST /api/v1/namespaces/default/configmaps HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nExpect: 100-continue\r\nConnection: close\r\n\r\n"
    )
    status, answer = raw(alice, head.encode() + body)
    assert status == 100 or b"201 Created" in answer


def test_two_pipelined_requests_are_two_requests(alice: Caller) -> None:
    """HDR-19."""
    one = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
    two = b"GET /api/v1/namespaces HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    host, port = alice.host.split(":")
    with (
        socket.create_connection((host, int(port)), timeout=300) as plain,
        alice.context.wrap_socket(plain, server_hostname=host) as connection,
    ):
        connection.sendall(one + two)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
    assert received.count(b"HTTP/1.1 200 OK") == 2


def test_every_answer_carries_an_audit_id(alice: Caller) -> None:
    ids = {alice.get(path).headers["audit-id"] for path in ("/version", "/api/v1/nodes", "/none")}
    assert len(ids) == 3
