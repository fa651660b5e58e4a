"""Requests on their way to a cluster, which may be faulty or mean harm (GW4)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st

from gateway.http.requestresponse import HIGH_WATER
from gateway.upstream.availability import Availability
from gateway.upstream.client import Answer, BadGateway, Upstream
from gateway.upstream.connection import MAX_HEAD_BYTES, MAX_HEADERS, MAX_INTERIM, MAX_SILENT_BYTES
from gateway.upstream.headers import incoming
from gateway.upstream.tunnel import Tunnel
from kube.requests.status import BadRequest, ServiceUnavailable, StatusError, Timeout
from tests.gateway.upstream.asking import HEADERS, PATIENT, ask, until, upstream_of, whole
from tests.gateway.upstream.rawcluster import Visit, answering, ok


async def test_method_target_headers_and_body_pass_unchanged() -> None:
    heard = []

    async def behave(visit: Visit) -> None:
        heard.append(await visit.request())
        await visit.say(ok(b"made", b"Content-Type: application/json", b"X-Kubernetes-PF-FlowSchema-UID: 1"))

    async with upstream_of(behave) as (_, upstream):
        answer = await ask(
            upstream,
            "POST",
            b"/api/v1/namespaces/acme-web/pods?dryRun=All&x=%2F",
            ((b"content-type", b"application/json"), (b"user-agent", b"kubectl")),
            b'{"kind":"Pod"}',
        )
        assert (answer.status, answer.length, await whole(answer)) == (200, 4, b"made")
        assert answer.headers == ((b"content-type", b"application/json"), (b"x-kubernetes-pf-flowschema-uid", b"1"))
    ((line, headers, body),) = heard
    assert line == b"POST /api/v1/namespaces/acme-web/pods?dryRun=All&x=%2F HTTP/1.1"
    assert body == b'{"kind":"Pod"}'
    assert headers.pop(b"host").startswith(b"127.0.0.1:")
    assert headers == {
        b"authorization": b"Bearer workspace",
        b"audit-id": b"a-1",
        b"content-type": b"application/json",
        b"user-agent": b"kubectl",
        b"content-length": b"14",
    }


async def test_what_says_who_somebody_is_never_passes() -> None:
    """GW4: the cluster hears of no identity but the workspace's own token."""
    heard = []

    async def behave(visit: Visit) -> None:
        heard.append((await visit.request())[1])
        await visit.say(
            ok(
                b"{}",
                b"Set-Cookie: sessionid=evil",
                b"Strict-Transport-Security: max-age=1",
                b"Access-Control-Allow-Origin: *",
                b"Audit-Id: theirs",
                b"Service-Worker-Allowed: /",
                b"X-Accel-Redirect: /internal",
                b"CDN-Cache-Control: max-age=9",
                b"Accept-CH: Sec-CH-UA",
                b"Location: https://evil/",
                b"Connection: X-Hop, keep-alive",
                b"X-Hop: 1",
                b"Warning: 299 - careful",
            )
        )

    names = (
        b"authorization",
        b"cookie",
        b"impersonate-user",
        b"impersonate-extra-a",
        b"x-remote-user",
        b"x-remote-group",
        b"x_remote_user",
        b"x-forwarded-for",
        b"x-forwarded-client-cert",
        b"forwarded",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"upgrade",
        b"transfer-encoding",
        b"keep-alive",
        b"expect",
        b"audit-id",
        b"host",
        b"content-length",
        b"x-named",
    )
    async with upstream_of(behave) as (_, upstream):
        sent = (*((name, b"evil") for name in names), (b"connection", b"close, X-Named"))
        sent += ((b"sec-websocket-protocol", b"base64url.bearer.authorization.k8s.io.ZXZpbA, v5.channel.k8s.io"),)
        answer = await ask(upstream, headers=sent)
        assert answer.headers == ((b"warning", b"299 - careful"),)
    (headers,) = heard
    assert b"evil" not in b"".join(headers.values())
    assert headers.keys() == {b"host", b"authorization", b"audit-id", b"sec-websocket-protocol"}
    assert headers[b"sec-websocket-protocol"] == b"v5.channel.k8s.io"


TOLD = (
    b"allow content-encoding content-type etag last-modified retry-after sec-websocket-accept sec-websocket-extensions "
    b"sec-websocket-protocol sec-websocket-version vary warning x-stream-protocol-version x-kubernetes-pf-flowschema-uid"
).split()
OBEYED = (
    b"accept-ch alt-svc cdn-cache-control clear-site-data location nel refresh service-worker-allowed set-cookie set-login "
    b"sourcemap speculation-rules surrogate-control use-as-dictionary x-accel-expires x-accel-redirect x-sendfile"
).split()
NAMES = st.sampled_from(TOLD + OBEYED) | st.from_regex(rb"[a-z][a-z-]{0,20}", fullmatch=True)


@given(st.lists(NAMES, max_size=8))
def test_a_cluster_tells_clients_what_api_servers_tell_and_nothing_else(names: list[bytes]) -> None:
    """What else browsers, caches and proxies obey, on behalf of a whole host, nobody can list."""
    passed = [name for name, _ in incoming((name, b"1") for name in names)]
    assert passed == [name for name in names if name in TOLD or name.startswith(b"x-kubernetes-")]


@pytest.mark.parametrize(
    ("target", "headers"), [(b"/a\r\nx: y", ()), (b"/a", ((b"x", b"a\r\nb: c"),)), (b"/a", ((b"x\x00", b""),))]
)
async def test_what_another_reader_could_split_is_refused(target: bytes, headers) -> None:
    async with upstream_of(answering(ok())) as (cluster, upstream):
        with pytest.raises(BadRequest):
            await ask(upstream, target=target, headers=headers)
        assert cluster.visits == 0


MANY = b"".join(b"X-%d: 1\r\n" % number for number in range(MAX_HEADERS + 1))
BROKEN = {
    "nonsense": b"\x16\x03\x01 not HTTP\r\n\r\n",
    "cut in the head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "a redirect": b"HTTP/1.1 302 Found\r\nLocation: https://evil/\r\nContent-Length: 0\r\n\r\n",
    "another protocol": b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "HTTP/1.0": b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}",
    "no end": b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}",
    "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}",
    "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a length of words": b"HTTP/1.1 200 OK\r\nContent-Length: two\r\n\r\n{}",
    "a negative length": b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{}",
    "a coding within chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "an unknown status": b"HTTP/1.1 999 X\r\nContent-Length: 0\r\n\r\n",
    "a long header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_HEAD_BYTES + b"\r\n\r\n",
    "a header without end": b"HTTP/1.1 200 OK\r\nX: " + b"x" * MAX_SILENT_BYTES * 2,
    "many headers": b"HTTP/1.1 200 OK\r\n" + MANY + b"\r\n",
    "headers without end": b"HTTP/1.1 200 OK\r\n" + MANY * 1000,
    "interim answers without end": b"HTTP/1.1 100 Continue\r\n\r\n" * (MAX_INTERIM + 1),
    "a header with a control character": b"HTTP/1.1 200 OK\r\nX: a\x0bb\r\nContent-Length: 0\r\n\r\n",
}


@pytest.mark.parametrize("said", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("in_pieces", [False, True])
async def test_an_answer_that_is_none_is_a_bad_gateway(said: bytes, in_pieces: bool) -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        if in_pieces and len(said) < 2000:
            for position in range(len(said)):
                await visit.say(said[position : position + 1])
                await asyncio.sleep(0)
        else:
            await visit.say(said)
        visit.writer.close()

    async with upstream_of(behave) as (cluster, upstream):
        with pytest.raises(BadGateway) as refused:
            await ask(upstream)
        assert (refused.value.code, refused.value.retry_after) == (502, None)
        assert '"prod"' in refused.value.message
        await until(lambda: upstream.connections == 0)
        assert cluster.visits == 1


async def test_interim_answers_come_before_the_one_that_counts() -> None:
    said = b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * MAX_INTERIM + ok(b"yes", b"Vary: b")
    async with upstream_of(answering(said)) as (cluster, upstream):
        for _ in range(2):
            answer = await ask(upstream)
            assert (answer.headers, await whole(answer)) == (((b"vary", b"b"),), b"yes")
        assert cluster.visits == 1


@pytest.mark.parametrize(
    "said",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nbegun",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbegun\r\nnonsense",
    ],
)
async def test_a_body_that_is_cut_is_never_taken_for_a_whole_one(said: bytes) -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(said)
        visit.writer.close()

    async with upstream_of(behave) as (_, upstream):
        answer = await ask(upstream)
        came = []
        with pytest.raises(BadGateway):
            async for data in answer.chunks:
                came.append(data)
        assert b"".join(came) == b"begun"


async def test_what_follows_an_answer_is_never_taken_for_the_next_one() -> None:
    """An answer that nobody asked for would be another tenant's."""

    async def behave(visit: Visit) -> None:
        line, _, _ = await visit.request()
        await visit.say(ok(line[:6]) + ok(b"smuggled"))
        await visit.reader.read()

    async with upstream_of(behave) as (cluster, upstream):
        for target in (b"/1", b"/2"):
            answer = await ask(upstream, target=target)
            assert await whole(answer) == b"GET " + target
        assert cluster.visits == 2


async def test_an_answer_before_the_body_is_read_is_passed_on_and_the_connection_is_not_used_again() -> None:
    async def behave(visit: Visit) -> None:
        await visit.reader.readuntil(b"\r\n\r\n")
        await visit.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        if visit.number == 0:
            await asyncio.Event().wait()

    async with upstream_of(behave) as (cluster, upstream):
        answer = await ask(upstream, "POST", body=bytes(32 * 2**20))
        assert (answer.status, await whole(answer)) == (413, b"no")
        await until(lambda: upstream.connections == 0)
        await ask(upstream)
        assert cluster.visits == 2


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nX: y", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbeg"])
async def test_a_cluster_that_stalls_is_given_up(said: bytes) -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(said)
        await visit.reader.read()

    async with upstream_of(behave, replace(PATIENT, answer_seconds=0.05)) as (_, upstream):
        with pytest.raises(Timeout, match='"prod" did not answer in time'):
            await whole(await ask(upstream))
        await until(lambda: upstream.connections == 0)


async def test_no_drip_of_bytes_prolongs_the_wait() -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
        while True:
            await visit.say(b"x")
            await asyncio.sleep(0.01)

    async with upstream_of(behave, replace(PATIENT, answer_seconds=0.1)) as (_, upstream):
        with pytest.raises(Timeout):
            await whole(await ask(upstream))


async def test_a_watch_may_be_silent_for_as_long_as_it_likes() -> None:
    said = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nevent\r\n0\r\n\r\n"
    async with upstream_of(answering(said)) as (_, upstream):
        answer = await upstream.request("GET", b"/", HEADERS, b"", token="t", audit_id="a", long_running=True)
        assert answer._exchange.patience is None
        assert await whole(answer) == b"event"


async def test_who_does_not_read_makes_the_cluster_wait() -> None:
    sent = 0

    async def behave(visit: Visit) -> None:
        nonlocal sent
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(1024):
            await visit.say(b"10000\r\n" + bytes(65536) + b"\r\n")
            sent += 65536
        await visit.say(b"0\r\n\r\n")

    async with upstream_of(behave) as (_, upstream):
        answer = await ask(upstream)
        before = -1
        while sent != before:
            before = sent
            await asyncio.sleep(0.2)
        assert sent < 1024 * 65536
        assert answer._exchange._size < 8 * HIGH_WATER
        assert len(await whole(answer)) == 1024 * 65536


async def test_a_reader_who_has_enough_ends_the_connection() -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n")
        await visit.reader.read()

    async with upstream_of(behave) as (_, upstream):
        answer = await ask(upstream)
        assert await anext(answer.chunks) == b"x"
        answer.close()
        await until(lambda: upstream.connections == 0)


async def test_who_is_away_is_said_to_be_at_once_until_a_probe_finds_it_again() -> None:
    """The first is told within the connect timeout, with when to ask again."""
    async with upstream_of(answering(ok()), replace(PATIENT, rest_seconds=30)) as (cluster, upstream):
        clock = 100.0
        upstream._availability = Availability(30, lambda: clock)
        cluster.close()
        with pytest.raises(ServiceUnavailable, match='"prod" cannot be reached') as refused:
            await ask(upstream)
        assert refused.value.retry_after == 30
        await cluster.open()
        clock = 110.0
        with pytest.raises(ServiceUnavailable, match="is away") as refused:
            await ask(upstream)
        assert (refused.value.retry_after, cluster.visits) == (20, 0)
        clock = 131.0
        assert (await ask(upstream)).status == 200


async def test_while_one_probes_nobody_else_waits_for_how_it_ends() -> None:
    async with upstream_of(answering(ok()), replace(PATIENT, connect_seconds=0.05)) as (_, upstream):
        clock = 100.0
        availability = upstream._availability = Availability(30, lambda: clock)
        availability.failed()
        clock = 131.0
        assert [availability.admit() for _ in range(3)] == [0, 30, 30]
        clock = 162.0
        assert [availability.admit() for _ in range(2)] == [0, 30]
        availability.succeeded()
        assert [availability.admit() for _ in range(2)] == [0, 0]


async def test_a_cluster_that_never_shakes_hands_is_away_after_the_connect_timeout() -> None:
    async def swallow(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with upstream_of(answering(ok())) as (cluster, _):
        server = await asyncio.start_server(swallow, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        upstream = Upstream(replace(cluster.cluster, url=url), replace(PATIENT, connect_seconds=0.05))
        with pytest.raises(ServiceUnavailable):
            await ask(upstream)
        with pytest.raises(ServiceUnavailable, match="is away"):
            await ask(upstream)
        server.close()


async def test_a_cluster_that_cannot_prove_who_it_is_hears_nothing() -> None:
    async with upstream_of(answering(ok())) as (cluster, _):
        for other in (
            replace(cluster.cluster, ca_pem=trustme.CA().cert_pem.bytes().decode()),
            replace(cluster.cluster, tls_server_name="other.example.org"),
        ):
            upstream = Upstream(other, PATIENT)
            with pytest.raises(ServiceUnavailable):
                await ask(upstream)
        assert cluster.visits == 0


async def test_a_cluster_behind_a_path_and_a_name_of_its_own() -> None:
    heard = []

    async def behave(visit: Visit) -> None:
        heard.append((await visit.request())[0])
        await visit.say(ok())

    async with upstream_of(behave) as (cluster, _):
        upstream = Upstream(
            replace(cluster.cluster, url=cluster.url + "/k8s/c-1/", tls_server_name="127.0.0.1"), PATIENT
        )
        await ask(upstream, target=b"/api/v1?x")
        await upstream.close()
    assert heard == [b"GET /k8s/c-1/api/v1?x HTTP/1.1"]


SWITCH = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %b\r\n%b\r\n"
WEBSOCKET = ((b"upgrade", b"websocket"), (b"connection", b"Upgrade"), (b"sec-websocket-protocol", b"v5.channel.k8s.io"))


async def test_a_tunnel_carries_bytes_both_ways() -> None:
    heard = []

    async def behave(visit: Visit) -> None:
        heard.append((await visit.request())[1])
        await visit.say(
            SWITCH % (b"WebSocket", b"Sec-WebSocket-Protocol: v5.channel.k8s.io\r\nSet-Cookie: a\r\n") + b"first"
        )
        while data := await visit.reader.read(65536):
            await visit.say(data.upper())

    async with upstream_of(behave) as (_, upstream):
        tunnel = await upstream.upgrade("GET", b"/exec", WEBSOCKET, token="t", audit_id="a")
        assert isinstance(tunnel, Tunnel)
        assert tunnel.headers == (
            (b"sec-websocket-protocol", b"v5.channel.k8s.io"),
            (b"connection", b"Upgrade"),
            (b"upgrade", b"websocket"),
        )
        chunks = tunnel.chunks
        assert await anext(chunks) == b"first"
        await tunnel.write(b"typed")
        assert await anext(chunks) == b"TYPED"
        tunnel.close()
        assert [data async for data in chunks] == []
        await until(lambda: upstream.connections == 0)
    assert (heard[0][b"connection"], heard[0][b"upgrade"]) == (b"Upgrade", b"websocket")


async def test_a_cluster_that_declines_an_upgrade_answers() -> None:
    async with upstream_of(answering(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno")) as (_, upstream):
        answer = await upstream.upgrade("POST", b"/exec", ((b"upgrade", b"SPDY/3.1"),), token="t", audit_id="a")
        assert isinstance(answer, Answer)
        assert (answer.status, await whole(answer)) == (400, b"no")


@pytest.mark.parametrize(
    "said",
    [
        SWITCH % (b"h2c", b""),
        SWITCH % (b"SPDY/3.1", b""),
        SWITCH % (b"websocket", b"Sec-WebSocket-Protocol: v4.channel.k8s.io\r\n"),
        SWITCH % (b"websocket", b"Upgrade: h2c\r\n"),
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
    ],
)
async def test_a_cluster_that_switches_to_something_else_is_a_bad_gateway(said: bytes) -> None:
    async with upstream_of(answering(said)) as (_, upstream):
        with pytest.raises(BadGateway):
            await upstream.upgrade("GET", b"/exec", WEBSOCKET, token="t", audit_id="a")
        await until(lambda: upstream.connections == 0)


async def test_nothing_is_upgraded_to_what_nothing_in_kubernetes_speaks() -> None:
    async with upstream_of(answering(ok())) as (cluster, upstream):
        for protocol in (b"h2c", b""):
            with pytest.raises(BadRequest):
                await upstream.upgrade("GET", b"/exec", ((b"upgrade", protocol),), token="t", audit_id="a")
        assert cluster.visits == 0


async def test_errors_say_nothing_of_tokens() -> None:
    async with upstream_of(answering(b"Authorization: Bearer workspace\r\n\r\n")) as (_, upstream):
        with pytest.raises(StatusError) as refused:
            await ask(upstream)
        assert "workspace" not in str(refused.value.as_status())
        assert "PRIVATE" not in repr(upstream.cluster)


async def test_what_is_under_way_when_the_connections_retire_ends_by_itself() -> None:
    """GW12: another credential takes over, and no answer of the old one's is cut off."""
    go = asyncio.Event()

    async def behave(visit: Visit) -> None:
        line, _, _ = await visit.request()
        if b"/slow" in line:
            await go.wait()
        await visit.say(ok(b"whole"))

    async with upstream_of(behave) as (_, upstream):
        assert await whole(await ask(upstream)) == b"whole"
        slow = asyncio.create_task(ask(upstream, target=b"/slow"))
        assert await whole(await ask(upstream)) == b"whole"
        upstream.retire()
        assert not slow.done()
        go.set()
        assert await whole(await slow) == b"whole"
        await until(lambda: upstream.connections == 0)


async def test_a_tunnel_may_be_silent_for_longer_than_an_answer_may_take() -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await asyncio.sleep(0.1)
        await visit.say(SWITCH % (b"websocket", b""))
        await visit.say(await visit.reader.readexactly(4))
        visit.writer.close()

    async with upstream_of(behave, replace(PATIENT, answer_seconds=2.0)) as (_, upstream):
        tunnel = await upstream.upgrade("GET", b"/exec", WEBSOCKET, token="t", audit_id="a-1")
        assert isinstance(tunnel, Tunnel)
        reading = asyncio.ensure_future(anext(tunnel.chunks))
        await asyncio.sleep(2.5)
        await tunnel.write(b"late")
        assert await reading == b"late"
        tunnel.close()
