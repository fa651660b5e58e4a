"""HTTP/1.1 on a connection, spoken byte by byte: what is sent, what is refused, and who has to wait."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway.http.bodies import read_body
from gateway.http.handshakes import Trust
from gateway.http.lanes import Lane
from gateway.http.protocol import MAX_HEADER_BYTES, PARSED_BYTES, REQUEST_SECONDS, GatewayProtocol
from gateway.http.requestresponse import RequestResponseCycle
from gateway.http.tlsconnection import TlsConnection
from kube.authentication import pki
from tests.gateway.test_handshakes import trustful

GOOD = b"GET /a?b=c HTTP/1.1\r\nhost: x\r\n\r\n"
Serve = Callable[[RequestResponseCycle], Awaitable[None]]


class Served:
    """An application of one function, as the protocol meets it, and the connection to it."""

    def __init__(self, serve: Serve, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.serve = serve
        self.reader = reader
        self.writer = writer
        self.state = ServerState()

    @property
    def connection(self) -> GatewayProtocol:
        (found,) = self.state.connections
        assert isinstance(found, GatewayProtocol)
        return found

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def read(self) -> bytes:
        """Everything until the server hangs up."""
        async with asyncio.timeout(300):
            return await self.reader.read()

    async def answer(self) -> bytes:
        """One answer with a length, or as far as it goes."""
        async with asyncio.timeout(300):
            head = await self.reader.readuntil(b"\r\n\r\n")
            length = next(line for line in head.split(b"\r\n") if line.startswith(b"content-length: "))
            return head + await self.reader.readexactly(int(length[16:]))


@asynccontextmanager
async def served(serve: Serve, trust: Trust | None = None) -> AsyncIterator[Served]:
    """A server on a socket, with TLS where there is a certificate, and a client."""
    state = ServerState()

    class Application:
        stopping = False

        async def serve(self, cycle: RequestResponseCycle) -> None:
            await serve(cycle)

    config = uvicorn.Config(Application(), http=GatewayProtocol, ws="none")  # type: ignore[arg-type]
    loop = asyncio.get_running_loop()

    def connected() -> asyncio.Protocol:
        connection = GatewayProtocol(config, state, {})
        return connection if trust is None else TlsConnection(connection, trust, loop, set(), Lane())

    server = await loop.create_server(connected, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(
        *server.sockets[0].getsockname(), ssl=trustful() if trust is not None else None
    )
    found = Served(serve, reader, writer)
    found.state = state
    try:
        yield found
    finally:
        writer.close()
        server.close()


async def until(condition: Callable[[], object]) -> None:
    """Wait for what the server comes to."""
    async with asyncio.timeout(300):
        while not condition():
            await asyncio.sleep(0.01)


async def echo(cycle: RequestResponseCycle) -> None:
    body = await read_body(cycle, dict(cycle.headers))
    said = b" ".join((cycle.method.encode(), cycle.raw_path, cycle.query, body))
    await cycle.send_response(200, ((b"content-type", b"text/plain"),), said)


async def test_an_answer_has_its_length_and_the_connection_stays() -> None:
    async with served(echo) as client:
        for _ in range(2):
            client.send(GOOD)
            assert await client.answer() == (
                b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: 11\r\n\r\nGET /a b=c "
            )


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\n\r\nabc", b"POST /  abc"),
        (
            b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n1\r\nd\r\n0\r\n\r\n",
            b"POST /  abcd",
        ),
        (b"GET http://x/a?b=c HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /a b=c "),
        (b"GET /%2e?b#c HTTP/1.1\r\nhost: x\r\n\r\n", b"GET /%2e b "),
    ],
)
async def test_requests_of_every_form_are_read_whatever_their_pieces(request_: bytes, said: bytes) -> None:
    """TS4: the path comes as it was sent."""
    async with served(echo) as client:
        client.send(request_)
        assert (await client.answer()).endswith(b"\r\n\r\n" + said)
        for position in range(len(request_)):
            client.send(request_[position : position + 1])
            await asyncio.sleep(0)
        assert (await client.answer()).endswith(b"\r\n\r\n" + said)


async def test_requests_sent_at_once_are_answered_in_order() -> None:
    async def slowly(cycle: RequestResponseCycle) -> None:
        await asyncio.sleep(0.02 if cycle.raw_path == b"/first" else 0)
        await echo(cycle)

    async with served(slowly) as client:
        client.send(b"".join(b"GET /%b HTTP/1.1\r\nhost: x\r\n\r\n" % name for name in (b"first", b"second", b"third")))
        found = [(await client.answer()).rpartition(b"\r\n\r\n")[2] for _ in range(3)]
        assert found == [b"GET /first  ", b"GET /second  ", b"GET /third  "]


@pytest.mark.parametrize("size", [1, 18, 4096, 65_536])
async def test_requests_behind_one_that_takes_its_time_do_not_pile_up(size: int) -> None:
    """DOS-01: nobody needs credentials to send; a watch reads on to notice the end of its client."""
    go_on = asyncio.Event()
    seen: list[RequestResponseCycle] = []

    async def watch(cycle: RequestResponseCycle) -> None:
        seen.append(cycle)
        if cycle.raw_path == b"/watch":
            cycle.listen(lambda: None, cycle.read_nowait)
            await go_on.wait()
        await echo(cycle)

    async with served(watch) as client:
        client.send(b"GET /watch HTTP/1.1\r\nhost: x\r\n\r\n")
        await until(lambda: seen)
        connection, request = client.connection, b"GET / HTTP/1.1\r\n\r\n"
        sent = request * (size // len(request) + 1)
        for start in range(0, len(sent), size):
            connection.data_received(sent[start : start + size])
        for _ in range(20):
            # As often as it likes to look, the call in front brings no more behind it.
            connection.resume_reading()
        waiting = connection._waiting
        assert len(waiting) <= PARSED_BYTES // len(request) + 1
        client.send(request * 500)
        await asyncio.sleep(0.05)
        assert len(waiting) <= PARSED_BYTES // len(request) + 1
        go_on.set()
        for _ in range(len(sent) // len(request) + 501):
            await client.answer()
    assert len(seen) == len(sent) // len(request) + 501


@pytest.mark.parametrize("name", [b"Impersonate-User", b"Authorization", b"Expect", b"X"])
async def test_what_follows_a_chunked_body_is_no_header(name: bytes) -> None:
    """HDR-02: a proxy in front strips headers, and looks at no trailers."""
    found = asyncio.get_running_loop().create_future()

    async def note(cycle: RequestResponseCycle) -> None:
        if cycle.method == "POST":
            await read_body(cycle, dict(cycle.headers))
            found.set_result([header for header, _ in cycle.headers])
        await cycle.send_response(200, (), b"")

    async with served(note) as client:
        body = b"3\r\nabc\r\n0\r\n" + name + b": a\r\n\r\n"
        client.send(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n" + body + GOOD)
        await client.answer()
        assert await found == [b"host", b"transfer-encoding"]
        await client.answer()


async def test_who_waits_for_leave_to_send_a_body_gets_it() -> None:
    async with served(echo) as client:
        client.send(b"PUT / HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert await client.reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.send(b"ok")
        assert (await client.answer()).endswith(b"PUT /  ok")


@pytest.mark.parametrize(
    "start",
    [
        pytest.param(b"GET / HTTP/1.1\r\nhost: x\r\nx: ", id="a header"),
        pytest.param(b"GET / HTTP/1.1\r\nhost: x\r\nx", id="a header's name"),
        pytest.param(b"GET /", id="a target"),
        pytest.param(b"G", id="a method"),
        pytest.param(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ", id="a trailer"),
        pytest.param(b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n5;", id="a chunk's extension"),
        pytest.param(
            b'POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n5;x="',
            id="a quoted one later on",
        ),
    ],
)
async def test_what_does_not_end_is_refused_before_it_does(start: bytes) -> None:
    """DOS-01, DOS-03: the parser keeps what has no end to itself and copies it with each piece that comes."""
    async with served(echo) as client:
        client.send(start + b"a" * (MAX_HEADER_BYTES + PARSED_BYTES))
        assert (await client.read()).startswith(b"HTTP/1.1 400 Bad Request\r\n")


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01 nonsense\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n bad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\nx: " + b"a" * MAX_HEADER_BYTES + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: x\r\n" + b"x: y\r\n" * 200 + b"\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\nnonsense\r\n",
        b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc",
        *(
            f"POST / HTTP/{version}\r\nhost: x\r\n{head}\r\n\r\n3\r\nabc\r\n0\r\n\r\n".encode()
            for version, head in (
                ("1.0", "transfer-encoding: chunked"),
                ("1.1", "transfer-encoding: gzip, chunked"),
                ("1.1", "transfer-encoding: identity, chunked"),
                ("1.1", "transfer-encoding: chunked, chunked"),
                ("1.1", "transfer-encoding: identity\r\ntransfer-encoding: chunked"),
                ("1.1", "transfer-encoding: chunked\r\nTransfer-Encoding: chunked"),
                ("1.1", "transfer-encoding: chunked\r\ntransfer-encoding:"),
                ("1.1", "transfer-encoding: chunked;x=1"),
            )
        ),
    ],
)
async def test_what_is_no_request_is_refused_and_the_connection_closed(garbage: bytes) -> None:
    """HDR-03, DOS-01."""
    async with served(echo) as client:
        client.send(garbage)
        said = await client.read()
        assert said.startswith(b"HTTP/1.1 400 Bad Request\r\n")
        assert said.count(b"HTTP/1.1") == 1


async def test_a_good_request_is_answered_whatever_follows_it() -> None:
    async with served(echo) as client:
        client.send(GOOD + b"nonsense\r\n\r\n")
        said = await client.read()
        assert said.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"connection: close\r\n" in said
        assert said.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("wish", [b"connection: close", b"connection: upgrade\r\nupgrade: websocket"])
async def test_a_connection_that_should_not_go_on_is_closed_after_its_answer(wish: bytes) -> None:
    async with served(echo) as client:
        client.send(b"GET /a HTTP/1.1\r\nhost: x\r\n" + wish + b"\r\n\r\n" + GOOD)
        said = await client.read()
        assert b"connection: close\r\n" in said
        assert said.endswith(b"GET /a  ")


async def test_head_has_the_length_and_no_body() -> None:
    async with served(echo) as client:
        client.send(b"HEAD /a HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
        assert (await client.read()).endswith(b"content-length: 9\r\nconnection: close\r\n\r\n")


async def test_a_large_answer_comes_whole() -> None:
    body = bytes(range(256)) * 1000

    async def large(cycle: RequestResponseCycle) -> None:
        await cycle.send_response(200, (), body)

    async with served(large) as client:
        client.send(GOOD)
        assert (await client.answer()).endswith(b"\r\n\r\n" + body)


async def test_an_answer_that_goes_on_comes_in_chunks() -> None:
    async def stream(cycle: RequestResponseCycle) -> None:
        assert not cycle.write_nowait(b"too early")
        await cycle.start_response(200, ())
        await cycle.write(b"one")
        await cycle.write(b"")
        assert cycle.write_nowait(b"two")
        cycle.end_response()
        assert not cycle.write_nowait(b"too late")

    async with served(stream) as client:
        client.send(GOOD)
        async with asyncio.timeout(300):
            said = await client.reader.readuntil(b"0\r\n\r\n")
        assert said == b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


async def test_who_does_not_read_is_not_written_to() -> None:
    """DOS-05: what a slow client has not taken does not pile up."""
    clogged = asyncio.get_running_loop().create_future()

    async def pour(cycle: RequestResponseCycle) -> None:
        await cycle.start_response(200, ())
        written = 0
        while cycle.write_nowait(b"x" * 65536):
            written += 65536
        clogged.set_result(written)
        await cycle.write(b"last")
        cycle.end_response()

    async with served(pour) as client:
        client.send(GOOD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        async with asyncio.timeout(300):
            assert await clogged < 64 * 1024 * 1024
        assert (await client.read()).endswith(b"4\r\nlast\r\n0\r\n\r\n")


async def test_the_end_of_a_client_is_noticed() -> None:
    noticed = asyncio.get_running_loop().create_future()

    async def wait(cycle: RequestResponseCycle) -> None:
        await cycle.start_response(200, ())
        cycle.listen(lambda: noticed.set_result(cycle.disconnected))
        await noticed

    async with served(wait) as client:
        client.send(GOOD)
        await client.reader.readuntil(b"\r\n\r\n")
        client.writer.close()
        async with asyncio.timeout(300):
            assert await noticed


@pytest.mark.parametrize("begun", [b"", b"GET / HT", GOOD])
async def test_who_takes_too_long_is_hung_up_on(begun: bytes) -> None:
    """DOS-02: before, within and after a head."""
    async with served(echo) as client:
        client.send(begun)
        await until(lambda: client.state.connections)
        await asyncio.sleep(0.05)
        now = asyncio.get_running_loop().time()
        client.connection.expire(now + 1)
        assert client.state.connections
        client.connection.expire(now + 100)
        await client.read()
        await until(lambda: not client.state.connections)


async def test_who_asks_on_without_reading_is_hung_up_on() -> None:
    """DOS-02: an answer that nobody takes keeps the next request, the connection and what it holds no longer than a minute."""
    asked = 0

    async def pour(cycle: RequestResponseCycle) -> None:
        nonlocal asked
        asked += 1
        await cycle.send_response(200, (), b"x" * 16_000_000)

    async with served(pour) as client, asyncio.timeout(300):
        client.send(GOOD * 2)
        while asked < 2 or not client.connection.is_writing_paused:
            await asyncio.sleep(0.01)
        client.connection.expire(asyncio.get_running_loop().time() + REQUEST_SECONDS + 1)
        while client.state.connections:
            await asyncio.sleep(0.01)
        assert not client.state.tasks


async def test_nobody_is_hung_up_on_while_an_answer_is_made() -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly(cycle: RequestResponseCycle) -> None:
        begun.set()
        await go_on.wait()
        await echo(cycle)

    async with served(slowly) as client:
        client.send(GOOD)
        await begun.wait()
        client.connection.expire(asyncio.get_running_loop().time() + REQUEST_SECONDS - 1)
        client.connection.shutdown()
        go_on.set()
        assert b"connection: close\r\n" in await client.read()


@pytest.mark.parametrize("begun", [False, True])
async def test_a_request_without_an_answer_in_a_minute_is_given_up(begun: bool) -> None:
    """What has begun and runs long, a watch or a log, goes on."""
    running, ended = asyncio.Event(), asyncio.Event()

    async def never(cycle: RequestResponseCycle) -> None:
        if begun:
            await cycle.start_response(200, (), long_running=True)
        running.set()
        try:
            await ended.wait()
        finally:
            ended.set()
        cycle.end_response()

    async with served(never) as client:
        client.send(GOOD)
        await running.wait()
        client.connection.expire(asyncio.get_running_loop().time() + REQUEST_SECONDS + 1)
        if begun:
            await asyncio.sleep(0.05)
            assert not ended.is_set()
        else:
            await until(ended.is_set)
        ended.set()
        said = await client.reader.readuntil(b"\r\n")
        assert said == (b"HTTP/1.1 200 OK\r\n" if begun else b"HTTP/1.1 504 Gateway Timeout\r\n")


async def test_what_breaks_is_an_error_for_the_client_and_not_a_silence() -> None:
    async def broken(_cycle: RequestResponseCycle) -> None:
        raise ValueError("secret")

    async with served(broken) as client:
        client.send(GOOD)
        said = await client.read()
        assert said.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
        assert b"secret" not in said


@pytest.mark.parametrize("value", [b"x\r\nset-cookie: a=b", b"x\r\n", b"x\n", b"x\r", b"\0", b"\x7f"])
async def test_no_header_is_read_as_two(value: bytes) -> None:
    """P9: whatever a warning quotes, it does not become a header of its own."""

    async def warn(cycle: RequestResponseCycle) -> None:
        await cycle.send_response(200, ((b"warning", value),), b"")

    async with served(warn) as client:
        client.send(GOOD)
        said = await client.read()
        assert said.startswith(b"HTTP/1.1 500 ")
        assert b"set-cookie" not in said


@pytest.mark.parametrize("asked", [5.0, 1000.0, 0.0, -5.0])
async def test_a_request_is_given_up_when_its_client_does(asked: float) -> None:
    """TS15: never later than any other."""
    given, begun = asked if asked == 5.0 else REQUEST_SECONDS, asyncio.Event()

    async def never(cycle: RequestResponseCycle) -> None:
        cycle.answer_within(asked)
        begun.set()
        await asyncio.Event().wait()

    loop = asyncio.get_running_loop()
    async with served(never) as client:
        before = loop.time()
        client.send(GOOD)
        await begun.wait()
        client.connection.expire(before + given - 1)
        await asyncio.sleep(0.05)
        assert client.state.tasks
        client.connection.expire(loop.time() + given + 1)
        assert (await client.read()).startswith(b"HTTP/1.1 504 Gateway Timeout\r\n")


@pytest.mark.parametrize("secure", [False, True])
async def test_a_connection_that_has_ended_waits_for_no_collector_of_cycles(secure: bool, tmp_path: Path) -> None:
    """It would hold the TLS session, the last request and its answer until then."""
    pair = pki.make_authority("server", now=datetime.now(UTC))
    for name, text in (("tls.crt", pair.certificate), ("tls.key", pair.key)):
        (tmp_path / name).write_bytes(text)
    trust = Trust(tmp_path / "tls.crt", tmp_path / "tls.key", []) if secure else None

    def left() -> int:
        return sum(type(each) in (GatewayProtocol, RequestResponseCycle, TlsConnection) for each in gc.get_objects())

    gc.collect()
    before = left()
    gc.disable()
    try:
        async with served(echo, trust) as client:
            client.send(GOOD)
            await client.answer()
            assert left() > before
        await until(lambda: left() <= before)
    finally:
        gc.enable()
