"""The client's end of TLS: whatever the network makes of the records, both sides hear each other, and silence costs little (GW4)."""

from __future__ import annotations

import ctypes
import gc
import itertools
import re
import ssl
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import trustme
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.http.clienttls import ClientSession
from gateway.http.handshakes import Session, TlsError, Trust
from tests.gateway.test_handshakes import attempt, changes_of_keys, trust, trustful

__all__ = ["trust"]

NAME = "cluster.example.org"
VERSIONS = (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


@cache
def contexts(version: ssl.TLSVersion) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A cluster's, of no newer version, and that of who believes in it."""
    authority = trustme.CA()
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.maximum_version = version
    authority.issue_cert(NAME).configure_cert(serving)
    return serving, ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())


class Line:
    """A cluster's side and ours."""

    def __init__(self, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3, name: str = NAME) -> None:
        serving, trusting = contexts(version)
        self.asked, self.answers = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.cluster = serving.wrap_bio(self.asked, self.answers, server_side=True)
        self.client = ClientSession(trusting, name)

    def meet(self) -> None:
        """The handshake; the tickets that follow it stay in ``answers``."""
        over = self.client.shake(b"")
        while not over:
            self.asked.write(self.client.taken())
            attempt(self.cluster.do_handshake)
            over = self.client.shake(self.answers.read())
        self.asked.write(self.client.taken())
        attempt(self.cluster.do_handshake)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=50, deadline=None)
@given(
    writes=st.lists(st.integers(1, 40_000), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 300_000), max_size=12),
)
def test_all_that_has_come_is_read_at_once(version: ssl.TLSVersion, writes: list[int], cuts: list[int]) -> None:
    line = Line(version)
    line.meet()
    sent = []
    for number, length in enumerate(writes):
        sent.append(bytes([number]) * length)
        line.cluster.write(sent[-1])
    on_the_way, found = line.answers.read(), b""
    places = sorted({min(cut, len(on_the_way)) for cut in cuts} | {0, len(on_the_way)})
    for begin, end in itertools.pairwise(places):
        found += line.client.receive(on_the_way[begin:end])
    assert found == b"".join(sent)
    assert not line.client.ended


@pytest.mark.parametrize("length", [0, 1, 16_384, 65_536, 400_000])
@pytest.mark.parametrize("form", [bytes, memoryview])
def test_what_is_written_arrives(length: int, form: type) -> None:
    line = Line()
    line.meet()
    line.asked.write(line.client.send(form(b"x" * length)))
    found = b""
    while len(found) < length:
        found += line.cluster.read(length)
    assert found == b"x" * length
    line.asked.write(line.client.end())
    assert line.cluster.read(1) == b""


def test_an_end_is_read_behind_what_came_before_it() -> None:
    line = Line()
    line.meet()
    line.cluster.write(b"last words")
    with pytest.raises(ssl.SSLWantReadError):
        line.cluster.unwrap()
    assert line.client.receive(line.answers.read()) == b"last words"
    assert line.client.ended


@pytest.mark.parametrize("shaken", [False, True])
@settings(max_examples=50, deadline=None)
@given(garbage=st.binary(min_size=5, max_size=200))
def test_what_is_no_tls_is_refused(shaken: bool, garbage: bytes) -> None:
    line = Line()
    if shaken:
        line.meet()
        line.client.receive(line.answers.read())
    else:
        line.client.shake(b"")
    line.client.taken()
    # No record begins with a zero; one that has not come whole is waited for by some OpenSSL.
    with pytest.raises(TlsError):
        (line.client.receive if shaken else line.client.shake)(b"\x00" + garbage + bytes(20_000))
    if shaken:
        line.asked.write(line.client.taken())
        with pytest.raises(ssl.SSLError, match="alert"):
            line.cluster.read(1)


def test_another_name_than_was_asked_for_ends_the_handshake() -> None:
    line = Line(name="other.example.org")
    with pytest.raises(TlsError) as refused:
        line.meet()
    assert isinstance(refused.value.__cause__, ssl.SSLCertVerificationError)


@pytest.mark.parametrize("answered", [False, True])
def test_keys_change_as_often_as_something_is_said(trust: Trust, tmp_path: Path, *, answered: bool) -> None:
    """Each change is answered with what is sent next; who waits for none would fill the memory with answers."""
    context = trustful()
    context.keylog_filename = str(tmp_path / "keys")
    cluster, client = Session(trust), ClientSession(context, NAME)
    assert not client.shake(b"")
    assert not cluster.shake(client.taken())
    assert client.shake(cluster.taken())
    assert cluster.shake(client.taken())
    tickets = cluster.taken()
    assert client.receive(tickets) == b""
    (secret,) = re.findall(r"SERVER_TRAFFIC_SECRET_0 \w+ (\w+)", (tmp_path / "keys").read_text())
    changes = itertools.islice(changes_of_keys(bytes.fromhex(secret), len(list(records(tickets)))), 2000)
    if answered:
        for change in changes:
            assert client.receive(change) == b""
            assert cluster.receive(client.send(b"x")) == b"x"
    else:
        with pytest.raises(TlsError, match="too many"):
            for change in changes:
                assert client.receive(change) == b""


def records(data: bytes) -> Iterator[bytes]:
    """One by one, as they say how long they are."""
    while data:
        size = 5 + int.from_bytes(data[3:5])
        yield data[:size]
        data = data[size:]


class _Heap(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in ("arena", "a", "b", "c", "mapped", "d", "e", "used", "free", "f")]


def used() -> int:
    """Bytes of this process' heap that somebody holds."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        pytest.skip("only glibc counts them")
    library.mallinfo2.restype = _Heap
    gc.collect()
    heap = library.mallinfo2()
    return int(heap.used + heap.mapped)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("answer", [100, 1_000_000])
def test_a_silent_connection_keeps_no_buffers(version: ssl.TLSVersion, answer: int) -> None:
    """OpenSSL's are 16 KiB each way: that is more than all the rest."""
    sessions = []
    for _ in range(20):
        line = Line(version)
        line.meet()
        sessions.append(line.client)
        line.asked.write(line.client.send(b"x" * answer))
        line.cluster.write(b"x" * answer)
        assert len(line.client.receive(line.answers.read())) == answer
    del line
    before = used()
    sessions.clear()
    each = (before - used()) / 20
    assert each < (28 if answer == 100 else 72) * 1024
