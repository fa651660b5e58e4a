"""The proxy into pods and services: open by the tier alone, and what passes it in either direction (GW4, GW5)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import orjson
import pytest

from access.requestlimits import TenantThrottle
from gateway.filters.requestinfo import resolve
from gateway.handlers.placednamespaces.forwarding import forward
from gateway.handlers.placednamespaces.proxying import redirection
from gateway.http.messages import Headers, Request, Response, Stream
from gateway.process.runtime import Runtime
from gateway.process.streams import OpenStreams
from gateway.upstream.client import BadGateway, Cluster, Upstream
from gateway.upstream.placements import ACTIVE, Placement
from kube.authentication.identity import Principal
from kube.authorization.leastrole import WorkspaceRoles
from kube.requests.ratelimits import UNLIMITED
from kube.requests.requestinfo import query_parameters
from kube.requests.status import Forbidden, StatusError
from store.types import Key, Stored
from tenants.policies import tier_proxies_key
from tests.gateway.upstream.asking import ask, until, upstream_of
from tests.gateway.upstream.rawcluster import Behave, RawCluster, Visit, answering, ok
from tests.gateway.upstream.test_streams import CHUNKED, SWITCH, chunk

POD = "/api/v1/namespaces/acme-web/pods/web/proxy/"
REASON = "the workspace is suspended: unpaid"
WEBSOCKET = ((b"connection", b"Upgrade"), (b"upgrade", b"websocket"), (b"sec-websocket-protocol", b"v5.channel.k8s.io"))


class Door:
    """A door whose only workspace has a tier that opens the proxy, or does not."""

    def __init__(self, upstream: Upstream) -> None:
        self.upstream = upstream
        self.streams = OpenStreams()
        self.open = True
        self.closed = False
        self.renewed = 0
        self.group = "tenantry:editor"

        async def roles(_cluster: str) -> WorkspaceRoles:
            return WorkspaceRoles.of({}, {})

        async def token(*asked: Any) -> str:
            assert asked[2] == "editor"
            return "workspace"

        async def after_refusal(*_: Any) -> str:
            self.renewed += 1
            return "another"

        self.runtime = SimpleNamespace(
            trustworthy=True,
            store=SimpleNamespace(get=self._get),
            clusters=SimpleNamespace(upstream=lambda _: upstream, roles=roles),
            workspace_tokens=SimpleNamespace(get=token, after_refusal=after_refusal),
            authorization=SimpleNamespace(authorize=self._authorize),
            throttle=TenantThrottle(UNLIMITED, self.streams.of),
            open_streams=self.streams,
            require_trustworthy=self.recheck,
        )

    async def _get(self, key: Key, *, cached: bool) -> Stored | None:
        assert cached
        if key != tier_proxies_key("open") or not self.open:
            return None
        return cast("Stored", SimpleNamespace(data=orjson.dumps({"rules": {"proxies": True}})))

    async def _authorize(self, *_: Any) -> Any:
        return SimpleNamespace(allowed=False)

    async def recheck(self) -> None:
        if self.closed:
            raise Forbidden(REASON)

    async def ask(
        self, path: str = POD, *, method: str = "GET", headers: Headers = (), body: bytes = b""
    ) -> Response | Stream:
        target, _, query = path.partition("?")
        parameters = query_parameters(query.encode())
        info = resolve(method, target.encode(), query.encode(), "acme")
        request = Request(
            principal=Principal(name="anna", tenant="acme", groups=(self.group,), authenticator="test"),
            info=info,
            query={name: values[0] for name, values in parameters.items()},
            parameters=parameters,
            headers=dict(headers),
            raw_headers=headers,
            body=body,
            now=time.time(),
            audit_id="a-1",
        )
        placement = Placement("w1", "prod", info.cluster, "acme-web", ACTIVE, "open")
        return await forward(cast("Runtime", self.runtime), request, placement, self.recheck)


@asynccontextmanager
async def door_of(behave: Behave) -> AsyncIterator[tuple[Door, RawCluster]]:
    async with upstream_of(behave) as (cluster, upstream):
        yield Door(upstream), cluster


async def test_it_is_closed_unless_the_tier_opens_it() -> None:
    async with door_of(answering(ok(b"{}"))) as (door, cluster):
        door.open = False
        for path in (POD, POD.replace("pods", "services")):
            for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
                with pytest.raises(Forbidden, match="closed in placed namespaces unless an operator opens it"):
                    await door.ask(path, method=method)
        assert cluster.visits == 0


async def test_who_may_only_look_proxies_nothing() -> None:
    async with door_of(answering(ok(b"{}"))) as (door, cluster):
        door.group = "tenantry:viewer"
        with pytest.raises(Forbidden, match="needs the role editor"):
            await door.ask()
        assert cluster.visits == 0


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_method_path_query_and_body_are_the_pods(method: str) -> None:
    heard: list[tuple[bytes, dict[bytes, bytes], bytes]] = []

    async def behave(visit: Visit) -> None:
        heard.append(await visit.request())
        await visit.say(ok(b"done", b"Content-Type: text/plain").replace(b"200 OK", b"207 Multi-Status"))

    async with door_of(behave) as (door, _):
        path = POD.replace("/web/", "/https:web:8443/") + "a%20b/c/?watch=true&q=%C3%A4&q=2&empty="
        body = b"" if method in ("GET", "OPTIONS") else b"\0raw"
        answer = await door.ask(path, method=method, body=body, headers=((b"content-type", b"application/x-own"),))
    assert isinstance(answer, Response)
    assert (answer.status, answer.body, answer.media) == (207, b"done", b"text/plain")
    ((line, headers, sent),) = heard
    target = b"/api/v1/namespaces/acme-web/pods/https:web:8443/proxy/a%20b/c/?watch=true&q=%C3%A4&q=2&empty="
    assert line == method.encode() + b" " + target + b" HTTP/1.1"
    assert (sent, headers[b"content-type"]) == (body, b"application/x-own")


@pytest.mark.parametrize(
    ("said", "length"),
    [
        (b"Content-Length: 7000\r\n", b"7000"),
        (b"Content-Length: 0\r\n", b"0"),
        (b"Transfer-Encoding: chunked\r\n", None),
        (b"", None),
    ],
)
async def test_a_head_is_answered_by_the_pods_head_alone(said: bytes, length: bytes | None) -> None:
    heard: list[bytes] = []

    async def behave(visit: Visit) -> None:
        while True:
            heard.append((await visit.request())[0])
            await visit.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nETag: x\r\n%b\r\n" % said)

    async with door_of(behave) as (door, cluster):
        for _ in range(2):
            answer = await door.ask(method="HEAD")
            assert isinstance(answer, Stream)
            assert (answer.status, answer.media) == (200, b"text/html")
            assert dict(answer.headers).get(b"content-length") == length
            assert dict(answer.headers)[b"etag"] == b"x"
            assert await rest_of(aiter(answer.chunks)) == b""
        # Whatever were to come behind a head, nobody takes it for an answer.
        assert cluster.visits == 2
        assert not door.streams
    assert heard == [b"HEAD " + POD.encode() + b" HTTP/1.1"] * 2


async def test_what_comes_behind_a_head_is_nobodys_answer() -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(ok(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"))
        await visit.reader.read()

    async with door_of(behave) as (door, _):
        answer = await door.ask(method="HEAD")
        assert isinstance(answer, Stream)
        assert await rest_of(aiter(answer.chunks)) == b""
        await until(lambda: door.upstream.connections == 0)


async def test_the_root_is_asked_for_with_its_slash() -> None:
    """Without it a cluster answers with a redirection to what has it."""
    heard: list[bytes] = []

    async def behave(visit: Visit) -> None:
        heard.append((await visit.request())[0])
        await visit.say(ok(b"{}"))

    async with door_of(behave) as (door, _):
        await door.ask(POD.rstrip("/"))
    assert heard == [b"GET " + POD.encode() + b" HTTP/1.1"]


async def test_a_pod_hears_of_no_credential_and_nobodys_identity() -> None:
    heard: dict[bytes, bytes] = {}

    async def behave(visit: Visit) -> None:
        heard.update((await visit.request())[1])
        await visit.say(ok(b"{}"))

    theirs = (
        b"authorization",
        b"cookie",
        b"impersonate-user",
        b"impersonate-extra-a",
        b"x-remote-user",
        b"x_remote_user",
        b"x-forwarded-for",
        b"proxy-authorization",
        b"te",
        b"keep-alive",
        b"upgrade",
        b"range",
        b"if-range",
    )
    async with door_of(behave) as (door, _):
        await door.ask(headers=(*((name, b"theirs") for name in theirs), (b"x-own", b"kept")))
    assert heard.pop(b"authorization") == b"Bearer workspace"
    assert heard.pop(b"x-own") == b"kept"
    assert not heard.keys() & {*theirs}
    assert b"theirs" not in heard.values()


async def test_a_pods_page_is_none_of_this_host() -> None:
    said = (
        b"Content-Type: text/html\r\nSet-Cookie: sessionid=x; Path=/\r\nClear-Site-Data: *\r\nRefresh: 0;url=/\r\n"
        b"Access-Control-Allow-Origin: *\r\nService-Worker-Allowed: /\r\nWWW-Authenticate: Basic\r\n"
        b"Content-Security-Policy: default-src *\r\nLink: </x>; rel=preload"
    )
    async with door_of(answering(ok(b"<script>", said))) as (door, _):
        answer = await door.ask()
    assert isinstance(answer, Response)
    assert answer.media == b"text/html"
    assert sorted(answer.headers) == [
        (b"content-security-policy", b"default-src 'none'; sandbox"),
        (b"x-content-type-options", b"nosniff"),
    ]


async def test_what_says_nothing_of_its_kind_is_bytes() -> None:
    async with door_of(answering(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")) as (door, _):
        answer = await door.ask()
    assert isinstance(answer, Response)
    assert answer.media == b"application/octet-stream"


ROOT = b"/api/v1/namespaces/acme-web/pods/web/proxy/"


@pytest.mark.parametrize(
    ("location", "led"),
    [
        (ROOT + b"login?next=/a", b"login?next=/a"),
        (b"https://10.0.0.1:6443" + ROOT + b"a/", b"a/"),
        (b"https://evil.test" + ROOT + b"a", b"a"),
        (ROOT, b""),
        (b"https://evil.test/", None),
        (b"//evil.test/", None),
        (b"/api/v1/namespaces/other/pods/web/proxy/", None),
        (b"/login", None),
        (b"login", None),
        (ROOT + b"../../secrets", None),
        (ROOT + b"./a", None),
        (ROOT + b"%2e%2e/%2E%2E/secrets", None),
        (ROOT + b"..%5csecrets", None),
        (ROOT + b"..\\secrets", None),
        (ROOT + b"a b", None),
        (ROOT + b"\xff", None),
        (b"javascript:alert(1)", None),
        (b"http://[", None),
        (b"", None),
    ],
)
def test_a_pod_leads_its_clients_to_itself_and_nowhere_else(location: bytes, led: bytes | None) -> None:
    cluster = Cluster(uid="c", name="prod", url="https://10.0.0.1:6443", ca_pem="")
    info = resolve("GET", f"/clusters/root:acme{POD}deep/er".encode(), b"", "acme")
    for status in (301, 302, 303, 307, 308):
        found = redirection(info, status, location, cluster, ROOT)
        wanted = () if led is None else ((b"location", b"/api/v1/tenants/acme" + ROOT[7:] + led),)
        assert found == wanted
    assert redirection(info, 200, location, cluster, ROOT) == redirection(info, 201, location, cluster, ROOT) == ()


async def test_a_redirection_passes_with_its_answer() -> None:
    said = ok(b"", b"Location: " + ROOT + b"login").replace(b"200 OK", b"302 Found")
    async with door_of(answering(said)) as (door, _):
        answer = await door.ask()
    assert isinstance(answer, Response)
    assert answer.status == 302
    assert dict(answer.headers)[b"location"] == b"/api/v1/tenants/acme" + ROOT[7:] + b"login"


async def test_an_api_server_leads_nobody_anywhere() -> None:
    said = ok(b"{}", b"Location: " + ROOT).replace(b"200 OK", b"307 Temporary Redirect")
    async with door_of(answering(said)) as (door, _):
        with pytest.raises(BadGateway, match="it answers with a redirect"):
            await ask(door.upstream)


async def test_a_pods_own_401_is_passed_on_once() -> None:
    """It may have done something: nothing is sent twice, and no token renewed for it."""
    for body in (b'{"kind":"Status","code":401}', b"sign in"):
        said = ok(body).replace(b"200 OK", b"401 Unauthorized")
        async with door_of(answering(said)) as (door, cluster):
            answer = await door.ask(method="POST", body=b"x")
            assert isinstance(answer, Response)
            assert (answer.status, door.renewed, cluster.visits) == (401, 0, 1)


async def test_what_goes_on_counts_as_a_stream_and_ends_with_the_right() -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(CHUNKED % b"text/event-stream" + chunk(b"data: 1\n\n"))
        await visit.reader.read()

    async with door_of(behave) as (door, _):
        answer = await door.ask()
        assert isinstance(answer, Stream)
        assert answer.long_running
        chunks = aiter(answer.chunks)
        assert await anext(chunks) == b"data: 1\n\n"
        assert len(door.streams) == 1
        door.closed = True
        door.streams.reauthorize(None)
        with pytest.raises(StatusError):
            # Nothing is added to what a pod has said.
            await anext(chunks)
        await until(lambda: len(door.streams) == 0)


async def test_a_websocket_passes_and_is_closed_with_the_reason() -> None:
    async def behave(visit: Visit) -> None:
        line, headers, _ = await visit.request()
        assert line == b"GET " + POD.encode() + b" HTTP/1.1"
        assert headers[b"upgrade"] == b"websocket"
        await visit.say(SWITCH % (b"websocket", b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n") + b"\x81\x02hi")
        await visit.say(b"\x81\x03" + await visit.reader.readexactly(3))
        await visit.reader.read()

    async with door_of(behave) as (door, _):
        answer = await door.ask(headers=WEBSOCKET)
        assert isinstance(answer, Stream)
        assert answer.status == 101
        chunks = aiter(answer.chunks)
        assert await anext(chunks) == b"\x81\x02hi"
        assert answer.send is not None
        await answer.send(b"abc")
        assert await anext(chunks) == b"\x81\x03abc"
        assert not door.streams.into_pods
        door.closed = True
        door.streams.reauthorize(None)
        # A name of a subprotocol makes it none of ours: there is no channel for a Status.
        assert await rest_of(chunks) == b"\x88" + bytes([2 + len(REASON)]) + b"\x03\xf0" + REASON.encode()


async def rest_of(chunks: AsyncIterator[bytes]) -> bytes:
    said = b""
    with suppress(StatusError):
        async for data in chunks:
            said += data
    return said
