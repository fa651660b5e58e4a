"""Whoever speaks in small pieces, a cluster or a client, holds nobody else up, whatever the pieces are of (DOS-03, GW4).

Everything that is read at the door by every size of its pieces, over real TLS without sockets; counted in calls and in turns of
the loop.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import uvicorn
from uvicorn.server import ServerState

from gateway.http.clienttls import ClientSession, _ClientEnd
from gateway.http.handshakes import Trust
from gateway.http.lanes import BYTES, STEPS, Lane
from gateway.http.protocol import GatewayProtocol
from gateway.http.requestresponse import RequestResponseCycle
from gateway.http.tlsconnection import TlsConnection
from gateway.http.websockets import ClientFrames, Farewell
from gateway.upstream import answers
from gateway.upstream.connection import Connection
from gateway.upstream.lastwords import WebSocketWords
from gateway.upstream.recording.tunnel import RecordedTunnel
from kube.remotecommand.spdy import SpdyChannels
from tests.gateway.test_clienttls import NAME, contexts
from tests.gateway.test_handshakes import attempt, trust, trustful
from tests.gateway.upstream.spdyframes import SpdyWriter, data

__all__ = ["trust"]

SIZES = (1, 2, 7, 100, 60_000)
WIRE = 600_000
"""Bytes that somebody says, about."""

READ = 256_000
"""Bytes that one reading of a socket brings, as uvloop reads."""

MOST = 20_000
"""Calls in one turn, whatever comes: a record's worth of the smallest pieces at first, then turns of ``STEPS``."""

SIDES = 4
"""Who speak at the same time, in one lane."""


class Turns:
    """Counts the calls of this thread, and the most that were made before others had their turn."""

    def __init__(self) -> None:
        self.calls = self.most = self.turns = 0

    @contextmanager
    def counting(self) -> Iterator[None]:
        sys.setprofile(self._count)
        try:
            yield
        finally:
            sys.setprofile(None)

    async def tick(self) -> None:
        """Somebody else, who wants a turn as often as there is one."""
        last = self.calls
        while True:
            await asyncio.sleep(0)
            self.turns += 1
            self.most, last = max(self.most, self.calls - last), self.calls

    def _count(self, _frame: FrameType, event: str, _called: object) -> None:
        self.calls += event in ("call", "c_call")


class Socket:
    """What is said to it is thrown away."""

    def __init__(self) -> None:
        self.reads, self.closing = True, False
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)

    def write_eof(self) -> None:
        pass

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def close(self) -> None:
        self.closing = True

    abort = close

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


class Nobody:
    """Keeps no connection."""

    def on_made(self, connection: Connection) -> None:
        pass

    on_idle = on_lost = on_made


async def pump(end: asyncio.Protocol, socket: Socket, wire: bytes) -> None:
    """What has come is read as the event loop does, as long as anybody takes it."""
    for start in range(0, len(wire), READ):
        while not socket.reads and not socket.closing:
            await asyncio.sleep(0)
        if socket.closing:
            return
        end.data_received(wire[start : start + READ])
        await asyncio.sleep(0)
    for _ in range(WIRE):
        if socket.reads:
            return
        await asyncio.sleep(0)


async def met(lane: Lane) -> tuple[Connection, _ClientEnd, Socket, Callable[[bytes, int], bytes]]:
    """A connection to a cluster after the handshake, and what makes records of what the cluster says."""
    serving, trusting = contexts(ssl.TLSVersion.TLSv1_3)
    asked, answered = ssl.MemoryBIO(), ssl.MemoryBIO()
    cluster = serving.wrap_bio(asked, answered, server_side=True)
    loop, socket = asyncio.get_running_loop(), Socket()
    connection = Connection(Nobody())
    end = _ClientEnd(connection, ClientSession(trusting, NAME), loop, loop.create_future(), lane)
    end.connection_made(socket)  # type: ignore[arg-type]
    for _ in range(3):
        asked.write(b"".join(socket.written))
        socket.written.clear()
        attempt(cluster.do_handshake)
        if said := answered.read():
            end.data_received(said)

    def records(said: bytes, size: int) -> bytes:
        for start in range(0, len(said), size):
            cluster.write(said[start : start + size])
        return answered.read()

    return connection, end, socket, records


def chunks(size: int, extension: bytes = b"") -> bytes:
    one = b"%x%b\r\n" % (size, extension) + b" " * size + b"\r\n"
    return one * (WIRE // len(one) + 1)


OF_CLUSTERS = {
    "chunks": (b"Transfer-Encoding: chunked\r\n\r\n", chunks, 16_384),
    "chunks with extensions": (b"Transfer-Encoding: chunked\r\n\r\n", lambda size: chunks(size, b";a"), 16_384),
    "chunks behind trailers": (
        b"Transfer-Encoding: chunked\r\n\r\n",
        lambda size: chunks(size) + b"0\r\n" + b"a:b\r\n" * 9000 + b"\r\n",
        16_384,
    ),
    "records": (b"Content-Length: %d\r\n\r\n" % WIRE, lambda _: b"x" * (WIRE - 1), 0),
    "bytes of a tunnel": (b"", lambda _: b"x" * WIRE, 0),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("what", OF_CLUSTERS)
async def test_a_cluster_that_speaks_in_small_pieces_leaves_the_loop_to_others(what: str, size: int) -> None:
    headers, body, record = OF_CLUSTERS[what]
    head = (
        b"HTTP/1.1 200 OK\r\n" + headers if headers else b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: a\r\n\r\n"
    )
    lane, turns, wires, readers, pumps = Lane(), Turns(), 0, [], []
    taken = [0] * SIDES

    async def read(number: int, exchange: Any) -> None:
        async for _ in exchange:
            taken[number] += 1

    for number in range(SIDES):
        connection, end, socket, records = await met(lane)
        exchange = connection.begin(b"GET / HTTP/1.1\r\n\r\n", b"", patience=None, upgrade=not headers)
        end.data_received(records(head, len(head)))
        said = body(size)
        if not record and size < 100:
            said = said[: WIRE * size // (size + 22)]
        wire = records(said, record or min(size, 16_384))
        wires += len(wire)
        readers.append(asyncio.ensure_future(read(number, exchange)))
        pumps.append((end, socket, wire))
    await asyncio.sleep(0)
    with turns.counting():
        other = asyncio.ensure_future(turns.tick())
        await asyncio.gather(*(pump(*each) for each in pumps))
        other.cancel()
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    assert turns.most < SIDES * MOST
    assert turns.calls < 3 * wires + 200_000
    assert max(taken) <= wires / SIDES / 1024 + 20, "nobody is woken for every piece"
    small = size + 22 if not record else size + len(b"%x\r\n\r\n" % size)
    if size <= 7:
        # All together are read by little more than STEPS a turn, but for what came first.
        assert turns.turns * (STEPS * small + 4096) > wires - SIDES * 3 * 16_384


def client_records(connection: ssl.SSLObject, out: ssl.MemoryBIO, said: bytes, size: int) -> bytes:
    for start in range(0, len(said), size):
        connection.write(said[start : start + size])
    return out.read()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("what", ["chunks", "records"])
async def test_a_client_that_speaks_in_small_pieces_leaves_the_loop_to_others(
    trust: Trust, what: str, size: int
) -> None:
    lane, turns, wires, pumps = Lane(), Turns(), 0, []
    loop, state, woken = asyncio.get_running_loop(), ServerState(), 0

    class Reader:
        stopping = False

        async def serve(self, cycle: RequestResponseCycle) -> None:
            nonlocal woken
            while not (cycle.body_complete or cycle.disconnected):
                await cycle.wait_for_body()
                cycle.read_nowait()
                woken += 1

    config = uvicorn.Config(Reader(), http=GatewayProtocol, ws="none")  # type: ignore[arg-type]
    for _ in range(SIDES):
        answered, asked = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = trustful().wrap_bio(answered, asked)
        end, socket = TlsConnection(GatewayProtocol(config, state, {}), trust, loop, set(), lane), Socket()
        end.connection_made(socket)  # type: ignore[arg-type]
        attempt(client.do_handshake)
        end.data_received(asked.read())
        answered.write(b"".join(socket.written))
        attempt(client.do_handshake)
        coding = b"Transfer-Encoding: chunked" if what == "chunks" else b"Content-Length: %d" % (10 * WIRE)
        head = b"POST / HTTP/1.1\r\nHost: x\r\n" + coding + b"\r\n\r\n"
        end.data_received(client_records(client, asked, head, len(head)))
        said = chunks(size) if what == "chunks" else b"x" * (WIRE * size // (size + 22))
        wire = client_records(client, asked, said, 16_384 if what == "chunks" else min(size, 16_384))
        wires += len(wire)
        pumps.append((end, socket, wire))
    await asyncio.sleep(0)
    with turns.counting():
        other = asyncio.ensure_future(turns.tick())
        await asyncio.gather(*(pump(*each) for each in pumps))
        other.cancel()
    for end, _, _ in pumps:
        end.connection_lost(None)
    await asyncio.gather(*state.tasks, return_exceptions=True)
    assert turns.most < SIDES * 2 * MOST
    assert turns.calls < 4 * wires + 200_000
    assert woken <= wires / 1024 + 20 * SIDES
    small = size + 22 if what == "records" else size + len(b"%x\r\n\r\n" % size)
    if size <= 7:
        assert turns.turns * (STEPS * small + 4096) > wires - SIDES * 3 * 16_384


class Source:
    """A tunnel or an answer, all of which is there, and whose turns are waited for."""

    def __init__(self, said: bytes, upgrade: bytes = b"websocket") -> None:
        self.headers = ((b"upgrade", upgrade),)
        self.said = said
        self.waited = 0
        self.lane = Lane()

    @property
    def chunks(self) -> AsyncIterator[bytes]:
        return self._chunks()

    async def _chunks(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.said), 80_000):
            yield self.said[start : start + 80_000]

    async def turn(self) -> None:
        self.waited += 1
        await self.lane.turn()

    async def work(self, size: int) -> None:
        await self.lane.work(size)

    async def write(self, data: bytes) -> None:
        pass


async def shown(pieces: list[Any]) -> None:
    assert len(pieces) <= STEPS


KEEPING = SimpleNamespace(start=lambda: None, show=shown, fail=lambda error: None, resize=lambda *_: None)


def frames(size: int, masked: bool = False) -> bytes:
    mask = 0x80 if masked else 0
    head = bytes([mask | size]) if size < 126 else bytes([mask | 126]) + size.to_bytes(2, "big")
    one = b"\x82" + head + (bytes(4) if masked else b"") + b"\x01" * size
    return one * (WIRE // len(one) + 1)


def lines(size: int) -> bytes:
    one = b"x" * (size - 1) + b"\n"
    return one * (WIRE // len(one) + 1)


async def test_what_one_cluster_says_to_many_is_taken_apart_in_its_share_of_a_turn() -> None:
    """Of whatever type and length, however many listen: short lines are many, and of long ones few are looked at together."""
    sizes, listeners = (2, 200, 20_000, 60_000), 16
    lane, now, most, turns = Lane(), 0, 0, 0

    async def tick() -> None:
        nonlocal now, most, turns
        while True:
            await asyncio.sleep(0)
            most, now, turns = max(most, now), 0, turns + 1

    async def listen(size: int) -> int:
        nonlocal now
        source, taken = Source(lines(size)), 0
        source.lane = lane
        async for line in answers.lines(source, "prod"):
            now += len(line)
            taken += len(line)
        return taken

    other = asyncio.ensure_future(tick())
    taken = await asyncio.gather(*(listen(size) for size in sizes for _ in range(listeners // len(sizes))))
    other.cancel()
    assert most <= BYTES + max(sizes)
    assert turns >= sum(taken) // BYTES - 1


async def test_who_gives_up_waiting_for_a_turn_for_much_keeps_nobody_waiting_for_it() -> None:
    lane, turns = Lane(), 0
    waiting = [asyncio.ensure_future(lane.work(1000 * BYTES)) for _ in range(50)]
    await asyncio.sleep(0)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)

    async def tick() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    other = asyncio.ensure_future(tick())
    await lane.work(BYTES)
    other.cancel()
    assert turns < 100


async def read_lines(size: int) -> int:
    source = Source(lines(size))
    async for _ in answers.lines(source, "prod"):
        pass
    return len(source.said) // size


async def read_recorded(size: int) -> int:
    source = Source(frames(size))
    tunnel: Any = RecordedTunnel(source, KEEPING, lambda *_: None)  # type: ignore[arg-type]
    async for _ in tunnel.chunks:
        pass
    return len(source.said) // (size + 2)


async def read_recorded_spdy(size: int) -> int:
    one = data(3, b"x" * size)
    source = Source(one * (WIRE // len(one) + 1), b"SPDY/3.1")
    tunnel: Any = RecordedTunnel(source, KEEPING, lambda *_: None)  # type: ignore[arg-type]
    async for _ in tunnel.chunks:
        pass
    return len(source.said) // len(one)


async def write_recorded(size: int) -> int:
    tunnel: Any = RecordedTunnel(Source(b""), KEEPING, lambda *_: None)  # type: ignore[arg-type]
    said = frames(size, masked=True)
    for start in range(0, len(said), 80_000):
        await tunnel.write(said[start : start + 80_000])
    return len(said) // (size + 6)


READERS = (read_lines, read_recorded, read_recorded_spdy, write_recorded)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reader", READERS)
async def test_who_follows_what_passes_does_so_turn_by_turn(reader: Callable[[int], Any], size: int) -> None:
    turns = Turns()
    other = asyncio.ensure_future(turns.tick())
    with turns.counting():
        pieces = await reader(size)
    other.cancel()
    assert turns.most < MOST
    assert turns.turns >= pieces // STEPS - 1
    assert turns.calls < 60 * (pieces + 1000)


@pytest.mark.parametrize("follower", ["words", "client"])
def test_of_frames_that_nobody_need_read_few_are_looked_at(follower: str) -> None:
    turns = Turns()
    with turns.counting():
        if follower == "words":
            assert WebSocketWords(b"v5.channel.k8s.io").see(b"\x82\x00" * 40_000) <= 2 * STEPS + 1
        else:
            with pytest.raises(Farewell):
                ClientFrames().feed((b"\x89\xfd" + b"mask" + b"x" * 125) * 600)
    assert turns.calls < MOST


async def test_of_a_lane_one_goes_on_in_a_turn_and_who_does_not_wait_in_it_is_not_kept() -> None:
    lane, order = Lane(), []

    async def work(name: str) -> None:
        for _ in range(3):
            await lane.turn()
            order.append(name)

    async def tick() -> None:
        while True:
            await asyncio.sleep(0)
            order.append(".")

    other = asyncio.ensure_future(tick())
    await asyncio.gather(*(work(name) for name in "abc"))
    other.cancel()
    said = "".join(order)
    assert said.replace(".", "") == "abcabcabc"
    assert all(len(part) <= 1 for part in said.split("."))


def test_the_headers_of_a_frame_count_as_the_steps_that_they_take() -> None:
    """GW21: a compressed frame of some bytes can hold as many headers as may be."""
    frame = SpdyWriter().headers(1, **{f"{number:03d}": "v" for number in range(900)})
    assert len(frame) < 8000
    assert len(list(SpdyChannels().sent(frame))) > STEPS
