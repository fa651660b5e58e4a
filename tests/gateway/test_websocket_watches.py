"""Watches over WebSockets: the same watch, each event a message of its own, and an end that says why (GW4, GW5)."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from uuid import uuid4

import pytest
import websocket

from tests.gateway.callers import Caller, config_map, eventually, names
from tests.gateway.conftest import Server
from tests.gateway.sockets import OWN, Raw, masked, opened, taken, until_closed

PING, PONG, CLOSE, TEXT = 0x89, 0x8A, 0x88, 0x81


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


@pytest.fixture
def raw(alice: Caller, maps: str) -> Iterator[Raw]:
    """A watch that has nothing to say, by bytes."""
    version = alice.get(maps).body["metadata"]["resourceVersion"]
    connection = Raw(alice, f"{maps}?watch=true&resourceVersion={version}", *OWN)
    assert connection.status == 101, connection.head
    yield connection
    connection.socket.close()


def test_each_event_is_a_message(alice: Caller, maps: str) -> None:
    version = alice.get(maps).body["metadata"]["resourceVersion"]
    connection = opened(alice, maps, watch="true", resourceVersion=version)
    alice.post(maps, config_map("a"))
    alice.post(maps, config_map("large", {"a": "x" * 300_000}))
    alice.patch(f"{maps}/a", {"data": {"a": "2"}})
    alice.delete(f"{maps}/a")
    events = taken(connection, 4)
    assert names(events) == [("ADDED", "a"), ("ADDED", "large"), ("MODIFIED", "a"), ("DELETED", "a")]
    versions = [int(event["object"]["metadata"]["resourceVersion"]) for event in events]
    assert versions == sorted(set(versions))
    connection.close()


@pytest.mark.parametrize("accept", ["", "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"])
def test_what_is_there_comes_as_messages_too(alice: Caller, maps: str, accept: str) -> None:
    for number in range(3):
        alice.post(maps, config_map(f"m{number}"))
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true&timeoutSeconds=1"
    raw = Raw(alice, f"{maps}?{query}", *OWN, *((f"Accept: {accept}",) if accept else ()))
    kinds = []
    while (found := raw.frame())[0] == TEXT:
        event = json.loads(found[1])
        kinds.append((event["type"], event["object"]["kind"]))
    assert kinds == [("ADDED", "Table" if accept else "ConfigMap")] * 4 + [
        ("BOOKMARK", "Table" if accept else "ConfigMap")
    ]
    # A watch that has come to its end is no failure.
    assert found == (CLOSE, (1000).to_bytes(2, "big"))
    assert raw.rest() == b""


def test_all_namespaces_and_one_object_are_watched_so_as_well(alice: Caller, maps: str) -> None:
    version = alice.get(maps).body["metadata"]["resourceVersion"]
    every = opened(alice, "/api/v1/configmaps", watch="true", resourceVersion=version, labelSelector="over=websocket")
    one = opened(alice, maps, watch="true", resourceVersion=version, fieldSelector="metadata.name=one")
    old = opened(alice, maps.replace("/v1/", "/v1/watch/"), resourceVersion=version)
    alice.post(maps, config_map("one", labels={"over": "websocket"}))
    for connection in (every, one, old):
        assert names(taken(connection, 1)) == [("ADDED", "one")]
        connection.close()


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        ((), None),
        (("binary.k8s.io",), "binary.k8s.io"),
        (("base64.binary.k8s.io",), "base64.binary.k8s.io"),
        (("base64url.bearer.authorization.k8s.io.c2VjcmV0", "base64.binary.k8s.io"), "base64.binary.k8s.io"),
    ],
)
def test_a_subprotocol_is_taken_and_a_token_is_not_told_again(
    alice: Caller, maps: str, offered: tuple[str, ...], chosen: str | None
) -> None:
    connection = opened(alice, maps, watch="true", subprotocols=offered)
    assert connection.getsubprotocol() == chosen
    assert names(taken(connection, 1)) == [("ADDED", "kube-root-ca.crt")]
    connection.close()


def test_a_refusal_is_a_status_before_the_handshake(alice: Caller, gina: Caller, server: Server, maps: str) -> None:
    for caller, status in ((server.nobody, 401), (gina, 403), (server.user("acme", f"u{uuid4().hex}"), 403)):
        target = f"/clusters/root:acme{maps}" if caller is gina else maps
        with pytest.raises(websocket.WebSocketBadStatusException) as refused:
            opened(caller, target, watch="true")
        assert refused.value.status_code == status
        assert json.loads(refused.value.resp_body)["kind"] == "Status"
    with pytest.raises(websocket.WebSocketBadStatusException) as invalid:
        opened(alice, maps, watch="true", resourceVersion="abc")
    assert invalid.value.status_code == 400


@pytest.mark.parametrize(
    "headers",
    [
        OWN[:2],
        OWN[:3],
        (*OWN[:2], "Sec-WebSocket-Version: 8", OWN[3]),
        (*OWN[:3], "Sec-WebSocket-Key: short"),
        (*OWN[:3], "Sec-WebSocket-Key: c2hvcnQ="),
    ],
)
def test_what_is_no_handshake_is_refused(alice: Caller, maps: str, headers: tuple[str, ...]) -> None:
    raw = Raw(alice, f"{maps}?watch=true", *headers)
    assert raw.status == 400
    assert json.loads(raw.rest())["message"].startswith("a WebSocket is opened with the header Sec-WebSocket-")


def test_who_reads_no_watch_gets_no_websocket(alice: Caller, maps: str) -> None:
    raw = Raw(alice, maps, *OWN)
    assert raw.status == 200
    assert json.loads(raw.rest())["kind"] == "ConfigMapList"


def test_a_page_of_another_host_cannot_use_the_certificate_of_who_looks_at_it(
    alice: Caller, server: Server, maps: str
) -> None:
    """A browser shows it to whatever a page opens, and a WebSocket alone can be read by the page."""
    for origin in ("https://evil.test", "null", "http://[", f"https://evil.test/{alice.host}"):
        raw = Raw(alice, f"{maps}?watch=true", *OWN, f"Origin: {origin}")
        assert raw.status == 403
        raw = Raw(alice, f"{maps.removesuffix('configmaps')}pods/p/exec", *OWN, f"Origin: {origin}")
        assert raw.status == 403
        assert "a page of another host" in json.loads(raw.rest())["message"]
    opened(alice, maps, origin=f"https://{alice.host}", watch="true").close()
    account = {"metadata": {"name": "robot"}}
    space = maps.removesuffix("configmaps")
    assert alice.post(f"{space}serviceaccounts", account).status == 201
    binding = {
        "metadata": {"name": "robot"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": space.split("/")[-2]}],
    }
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{space.split('/')[-2]}/rolebindings"
    assert alice.post(bindings, binding).status == 201
    token = alice.post(f"{space}serviceaccounts/robot/token", {"spec": {}}).body["status"]["token"]
    robot = server.bearer(token)
    at = f"/clusters/root:acme{maps}"
    assert eventually(lambda: robot.get(at).status == 200)
    # Who shows a token has not done so unasked.
    opened(robot, at, origin="https://dashboard.test", watch="true").close()


def test_a_right_that_ends_closes_it_with_the_reason(server: Server, gina: Caller) -> None:
    """GW5: an event of type ERROR, as in any watch, then a close frame."""
    path = "/api/v1/namespaces/default/configmaps"
    connection = opened(gina, path, watch="true", resourceVersion=gina.get(path).body["metadata"]["resourceVersion"])
    with server.locked("root:globex"):
        (error,), code, reason = until_closed(connection)
    assert (error["type"], error["object"]["code"]) == ("ERROR", 403)
    assert code == 1008
    assert reason
    assert error["object"]["message"].startswith(reason.partition(" … ")[0])
    assert eventually(lambda: gina.get("/api/v1/namespaces").status == 200)


def test_a_ping_is_answered_and_messages_are_not_heeded(raw: Raw) -> None:
    raw.socket.sendall(masked(0x81, b"hello") + masked(PING, b"there") + masked(PONG, b"alone") + masked(PING))
    assert raw.frame() == (PONG, b"there")
    assert raw.frame() == (PONG, b"")


def test_a_frame_may_come_byte_by_byte(raw: Raw) -> None:
    for byte in masked(PING, b"slow"):
        raw.socket.sendall(bytes([byte]))
        time.sleep(0.01)
    assert raw.frame() == (PONG, b"slow")


@pytest.mark.parametrize("code", [b"", (1001).to_bytes(2, "big") + b"the tab is closed"])
def test_a_client_that_says_goodbye_is_answered_and_its_watch_is_over(raw: Raw, code: bytes) -> None:
    raw.socket.sendall(masked(CLOSE, code))
    assert raw.frame() == (CLOSE, code[:2])
    assert raw.rest() == b""


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (b"\x81\x02hi", 1002),
        (masked(0xC1, b"hi"), 1002),
        (masked(0x83, b"hi"), 1002),
        (masked(0x09, b"hi"), 1002),
        (b"\x89\xfe\x01\x00abcd", 1002),
        (masked(CLOSE, b"a"), 1002),
        (masked(PONG) * 513, 1008),
    ],
    ids=[
        "unmasked",
        "an extension",
        "an unknown opcode",
        "a ping in pieces",
        "a long ping",
        "half a code",
        "many frames",
    ],
)
def test_what_no_client_may_say_ends_it(raw: Raw, said: bytes, code: int) -> None:
    raw.socket.sendall(said)
    first, closed = raw.frame()
    assert (first, int.from_bytes(closed[:2], "big")) == (CLOSE, code)
    assert raw.rest() == b""


def test_streams_of_either_framing_count_alike(server: Server, alice: Caller, maps: str) -> None:
    """The bound, the list of what is open, and the metrics know no difference."""

    def open_streams() -> int:
        text = server.admin.get("/metrics").raw.decode()
        return int(text.split("\napiserver_longrunning_requests ")[1].split()[0])

    # Those of earlier tests may still be on their way out.
    connections = [opened(alice, maps, watch="true") for _ in range(3)]
    assert eventually(lambda: open_streams() >= 3)
    during = open_streams()
    for connection in connections:
        connection.close()
    assert eventually(lambda: open_streams() <= during - 3)
