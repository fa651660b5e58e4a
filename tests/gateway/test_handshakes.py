"""TLS by records: whatever the network makes of them, both sides read what the other wrote, and nothing is waited for."""

from __future__ import annotations

import asyncio
import itertools
import re
import ssl
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from hypothesis import given, settings
from hypothesis import strategies as st
from OpenSSL import SSL

from gateway.http.handshakes import Session, TlsError, Trust
from gateway.http.lanes import Lane
from gateway.http.tlsconnection import GOODBYE_SECONDS, LAST_WORDS_SECONDS, TlsConnection
from kube.authentication import pki


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    folder = tmp_path_factory.mktemp("tls")
    pair = pki.make_authority("server", now=datetime.now(UTC))
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    return Trust(folder / "tls.crt", folder / "tls.key", [])


def test_clients_are_told_whose_certificates_are_believed(tmp_path: Path) -> None:
    """Those of several choose by it, and send none that would be refused (AN1)."""
    own, first, second = (pki.make_authority(name, now=datetime.now(UTC)) for name in ("server", "clients", "others"))
    (tmp_path / "tls.crt").write_bytes(own.certificate)
    (tmp_path / "tls.key").write_bytes(own.key)
    believed = [pki.load_certificates(each.certificate)[0] for each in (first, second)]
    server = Session(Trust(tmp_path / "tls.crt", tmp_path / "tls.key", believed))
    client = SSL.Connection(SSL.Context(SSL.TLS_CLIENT_METHOD), None)
    client.set_connect_state()
    with pytest.raises(SSL.WantReadError):
        client.do_handshake()
    server.shake(client.bio_read(65_536))
    client.bio_write(server.taken())
    client.do_handshake()
    assert {name.der() for name in client.get_client_ca_list()} == {each.subject.public_bytes() for each in believed}


class Line:
    """A client's and a server's side, and what is on its way from the client."""

    def __init__(self, trust: Trust, context: ssl.SSLContext | None = None) -> None:
        self.answers, self.asked = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = (context or trustful()).wrap_bio(self.answers, self.asked)
        self.server = Session(trust)

    def meet(self) -> None:
        """The handshake; the last that the client sends stays in ``asked``."""
        attempt(self.client.do_handshake)
        assert not self.server.shake(self.asked.read())
        self.answers.write(self.server.taken())
        assert attempt(self.client.do_handshake)


def trustful() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def attempt(step: Callable[[], object]) -> bool:
    """Whether the client has what it needs."""
    try:
        step()
    except ssl.SSLWantReadError:
        return False
    return True


@settings(max_examples=200, deadline=None)
@given(
    writes=st.lists(st.integers(1, 40_000), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 300_000), max_size=12),
)
def test_all_that_has_come_is_read_at_once(trust: Trust, writes: list[int], cuts: list[int]) -> None:
    """However the bytes are cut, the end of the handshake and the first request together too."""
    line = Line(trust)
    line.meet()
    sent = []
    for number, length in enumerate(writes):
        sent.append(bytes([number]) * length)
        line.client.write(sent[-1])
    on_the_way, found, shaken = line.asked.read(), b"", False
    places = sorted({min(cut, len(on_the_way)) for cut in cuts} | {0, len(on_the_way)})
    for begin, end in itertools.pairwise(places):
        piece = on_the_way[begin:end]
        if shaken:
            found += line.server.receive(piece)
        elif line.server.shake(piece):
            shaken = True
            found += line.server.receive(b"")
    assert found == b"".join(sent)
    assert not line.server.ended


def test_an_end_is_read_behind_what_came_before_it(trust: Trust) -> None:
    line = Line(trust)
    line.meet()
    line.client.write(b"last words")
    attempt(line.client.unwrap)
    assert line.server.shake(line.asked.read())
    assert line.server.receive(b"") == b"last words"
    assert line.server.ended


@pytest.mark.parametrize("length", [0, 1, 16_384, 65_536, 400_000])
@pytest.mark.parametrize("form", [bytes, memoryview])
def test_what_is_written_arrives(trust: Trust, length: int, form: type) -> None:
    line = Line(trust)
    line.meet()
    assert line.server.shake(line.asked.read())
    line.answers.write(line.server.send(form(b"x" * length)))
    found = b""
    while len(found) < length:
        found += line.client.read(length)
    assert found == b"x" * length
    line.answers.write(line.server.end())
    assert line.client.read(1) == b""


@pytest.mark.parametrize("shaken", [False, True])
@settings(max_examples=50, deadline=None)
@given(garbage=st.binary(min_size=5, max_size=200))
def test_what_is_no_tls_is_refused_with_an_alert(trust: Trust, shaken: bool, garbage: bytes) -> None:
    line = Line(trust)
    if shaken:
        line.meet()
        assert line.server.shake(line.asked.read())
    # No record begins with a zero; one that has not come whole is waited for by some OpenSSL.
    data = b"\x00" + garbage + bytes(20_000)
    with pytest.raises(TlsError):
        line.server.receive(data) if shaken else line.server.shake(data)
    if shaken:
        with pytest.raises(ssl.SSLError, match="alert"):
            line.answers.write(line.server.taken())
            line.client.read(1)


def derived(secret: bytes, label: str, length: int) -> bytes:
    """HKDF-Expand-Label (RFC 8446, 7.1)."""
    name = b"tls13 " + label.encode()
    info = length.to_bytes(2) + bytes([len(name)]) + name + b"\x00"
    return HKDFExpand(hashes.SHA256(), length, info).derive(secret)


def changes_of_keys(secret: bytes, begun: int = 0) -> Iterator[bytes]:
    """Records in which one side says that its keys are others from now on, and asks for the same (RFC 8446, 4.6.3).

    It has sent as many with these before as have ``begun``.
    """
    while True:
        said = b"\x18\x00\x00\x01\x01\x16"
        head = b"\x17\x03\x03" + (len(said) + 16).to_bytes(2)
        nonce = int.from_bytes(derived(secret, "iv", 12)) ^ begun
        yield head + AESGCM(derived(secret, "key", 16)).encrypt(nonce.to_bytes(12), said, head)
        secret, begun = derived(secret, "traffic upd", 32), 0


@pytest.mark.parametrize("answered", [False, True])
def test_keys_change_as_often_as_something_is_said(trust: Trust, tmp_path: Path, *, answered: bool) -> None:
    """Each change is answered with what is sent next; who waits for none would fill the memory with answers."""
    context = trustful()
    context.keylog_filename = str(tmp_path / "keys")
    line = Line(trust, context)
    line.meet()
    assert line.server.shake(line.asked.read())
    (secret,) = re.findall(r"CLIENT_TRAFFIC_SECRET_0 \w+ (\w+)", (tmp_path / "keys").read_text())
    changes = itertools.islice(changes_of_keys(bytes.fromhex(secret)), 2000)
    if answered:
        for change in changes:
            assert line.server.receive(change) == b""
            line.answers.write(line.server.send(b"x"))
            assert line.client.read(1) == b"x"
    else:
        with pytest.raises(TlsError):
            for change in changes:
                assert line.server.receive(change) == b""


class Echo(asyncio.Protocol):
    """Says again what it hears, in capitals; ``close`` is an order to hang up after an answer of so many bytes."""

    def __init__(self) -> None:
        self.lost = False
        self.heard = 0
        self.closing = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        transport: TlsConnection = self.transport  # type: ignore[assignment]
        self.heard += len(data)
        if data.startswith(b"close "):
            transport.write(b"x" * int(data[6:]))
            transport.close()
            self.closing.set()
        else:
            transport.write(data.upper())

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True


@asynccontextmanager
async def served(trust: Trust) -> AsyncIterator[tuple[tuple[str, int], set[TlsConnection], list[Echo]]]:
    """A server that echoes, with those whose handshake goes on and those who have come."""
    loop, shaking, came = asyncio.get_running_loop(), set[TlsConnection](), list[Echo]()

    def protocol() -> TlsConnection:
        came.append(Echo())
        return TlsConnection(came[-1], trust, loop, shaking, Lane())

    server = await loop.create_server(protocol, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname(), shaking, came
    finally:
        server.close()


async def test_both_sides_hear_each_other_and_the_end(trust: Trust) -> None:
    async with served(trust) as (address, shaking, came), asyncio.timeout(300):
        reader, writer = await asyncio.open_connection(*address, ssl=trustful())
        for word in (b"hello", b"y" * 200_000):
            writer.write(word)
            assert await reader.readexactly(len(word)) == word.upper()
        assert not shaking
        writer.close()
        await writer.wait_closed()
        while not came[0].lost:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("size", [0, 1, 3_000_000])
async def test_who_is_hung_up_on_has_all_of_the_answer_though_it_still_speaks(trust: Trust, size: int) -> None:
    """A socket closed with bytes unread would take back what is on its way."""
    async with served(trust) as (address, _, came), asyncio.timeout(300):
        reader, writer = await asyncio.open_connection(*address, ssl=trustful())
        writer.write(b"close %d" % size)
        await writer.drain()
        await came[0].closing.wait()
        writer.write(b"one more thing" * 1000)
        assert len(await reader.read(-1)) == size
        writer.close()
        while not came[0].lost:
            await asyncio.sleep(0.01)


async def test_who_does_not_hang_up_is_hung_up_on(trust: Trust) -> None:
    """The client keeps its half open: the server's patience ends."""
    async with served(trust) as (address, _, came), asyncio.timeout(300):
        reader, writer = await asyncio.open_connection(*address, ssl=trustful())
        writer.write(b"close 5")
        assert await reader.readexactly(5) == b"xxxxx"
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        while not came[0].lost:
            await asyncio.sleep(0.01)
        writer.close()


class Steps:
    """An event loop's clock and a socket, which go on when a test says so."""

    def __init__(self) -> None:
        self.now, self.due, self.aborted = 0.0, 0.0, False
        self.call: Callable[[], None] = lambda: None

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, call: Callable[[], None]) -> Steps:
        self.due, self.call = self.now + delay, call
        return self

    def go_on(self) -> None:
        self.now = self.due
        self.call()

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.aborted = True

    def write(self, data: bytes) -> None:
        """Sent."""

    def is_closing(self) -> bool:
        return self.aborted

    write_eof = resume_reading = cancel = lambda self: None


def test_who_still_sends_is_let_finish_but_not_for_ever(trust: Trust) -> None:
    """Whoever is refused for the length of a body sends the rest of it before it reads the answer."""
    steps = Steps()
    end = TlsConnection(Echo(), trust, steps, set(), Lane())  # type: ignore[arg-type]
    end.connection_made(steps)  # type: ignore[arg-type]
    end._clock = None
    end.close()
    for _ in range(5):
        end.data_received(b"more of a body")
        steps.go_on()
        assert not steps.aborted
    while not steps.aborted:
        end.data_received(b"and more")
        steps.go_on()
    assert steps.now == LAST_WORDS_SECONDS
    silent = TlsConnection(Echo(), trust, steps, set(), Lane())  # type: ignore[arg-type]
    silent.connection_made(steps)  # type: ignore[arg-type]
    silent._clock, steps.aborted, begun = None, False, steps.now
    silent.close()
    steps.go_on()
    assert (steps.aborted, steps.now - begun) == (True, GOODBYE_SECONDS)


@pytest.mark.parametrize("last", ["its end", "no TLS", "the end of TLS"])
async def test_who_takes_nothing_is_hung_up_on_whatever_it_said_last(trust: Trust, last: str) -> None:
    """A socket that is only closed waits for ever until all that was written is taken."""
    async with served(trust) as (address, _, came), asyncio.timeout(300):
        line = Line(trust)
        reader, writer = await asyncio.open_connection(*address)
        while not attempt(line.client.do_handshake):
            writer.write(line.asked.read())
            line.answers.write(await reader.read(65536))
        writer.write(line.asked.read())
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        # More than the sockets keep on the way.
        line.client.write(b"x" * 20_000_000)
        writer.write(line.asked.read())
        await writer.drain()
        while came[0].heard != 20_000_000:
            await asyncio.sleep(0.01)
        if last == "its end":
            writer.write_eof()
        elif last == "no TLS":
            writer.write(b"\x00no record begins so")
        else:
            with pytest.raises(ssl.SSLWantReadError):
                line.client.unwrap()
            writer.write(line.asked.read())
        while not came[0].lost:
            await asyncio.sleep(0.01)
        writer.transport.abort()  # type: ignore[attr-defined]


async def test_who_speaks_without_tls_is_told(trust: Trust) -> None:
    """As kube-apiserver tells it."""
    async with served(trust) as (address, shaking, _), asyncio.timeout(300):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /version HTTP/1.1\r\nhost: x\r\n\r\n")
        answer = await reader.read(-1)
        assert answer.startswith(b"HTTP/1.0 400 Bad Request")
        assert answer.endswith(b"Client sent an HTTP request to an HTTPS server.\n")
        writer.close()
        assert not shaking
