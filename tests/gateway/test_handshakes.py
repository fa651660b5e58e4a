"""TLS by records: whatever the network makes of them, both sides read what the other wrote, and nothing is waited for."""

from __future__ import annotations

import itertools
import ssl
from collections.abc import Callable
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.http.handshakes import Connection, Trust
from kube.authentication import pki


@pytest.fixture(scope="module")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Trust:
    folder = tmp_path_factory.mktemp("tls")
    pair = pki.make_authority("server", now=datetime.now(UTC))
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    return Trust(folder / "tls.crt", folder / "tls.key", [])


class Line:
    """A client's and a server's side, and what is on its way from the client."""

    def __init__(self, trust: Trust) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        self.answers, self.asked = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.client = context.wrap_bio(self.answers, self.asked)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.server = Connection(trust, self.incoming, self.outgoing)

    def meet(self) -> None:
        """The handshake; the last that the client sends stays in ``asked``."""
        attempt(self.client.do_handshake)
        self.incoming.write(self.asked.read())
        assert not attempt(self.server.do_handshake)
        self.answers.write(self.outgoing.read())
        assert attempt(self.client.do_handshake)


def attempt(step: Callable[[], object]) -> bool:
    """Whether a side has what it needs."""
    try:
        step()
    except ssl.SSLWantReadError:
        return False
    return True


def arrived(server: Connection, size: int) -> bytes:
    """What an event loop reads when something has come: until there is nothing more."""
    parts = []
    while True:
        try:
            data = server.read(size)
        except ssl.SSLWantReadError:
            return b"".join(parts)
        assert data, "the end, which nobody sent"
        parts.append(data)


@settings(max_examples=200, deadline=None)
@given(
    writes=st.lists(st.integers(1, 40_000), min_size=1, max_size=6),
    cuts=st.lists(st.integers(0, 300_000), max_size=12),
    size=st.sampled_from([1000, 16_384, 65_536, 262_144]),
)
def test_all_that_has_come_is_read_at_once(trust: Trust, writes: list[int], cuts: list[int], size: int) -> None:
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
        line.incoming.write(on_the_way[begin:end])
        shaken = shaken or attempt(line.server.do_handshake)
        if shaken:
            found += arrived(line.server, size)
    assert found == b"".join(sent)
    assert not line.server.pending()


def test_an_end_is_read_behind_what_came_before_it(trust: Trust) -> None:
    line = Line(trust)
    line.meet()
    line.client.write(b"last words")
    attempt(line.client.unwrap)
    line.incoming.write(line.asked.read())
    line.server.do_handshake()
    assert line.server.read(1000) == b"last words"
    assert line.server.read(1000) == b""


@pytest.mark.parametrize("length", [0, 1, 16_384, 65_536, 400_000])
def test_what_is_written_arrives(trust: Trust, length: int) -> None:
    line = Line(trust)
    line.meet()
    line.incoming.write(line.asked.read())
    line.server.do_handshake()
    line.answers.write(line.outgoing.read())
    assert line.server.write(b"x" * length) == length
    line.answers.write(line.outgoing.read())
    found = b""
    while len(found) < length:
        found += line.client.read(length)
    assert found == b"x" * length
