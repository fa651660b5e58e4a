"""What a client is told last: between messages and events, and no longer than a frame may be (GW5)."""

from __future__ import annotations

import sys

from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.lastwords import WatchWords, WebSocketWords
from kube.requests.status import Forbidden
from tests.gateway.upstream.door import SUSPENDED

LETTERS = st.characters(codec="utf-8", exclude_characters="…")


@given(st.text(LETTERS, max_size=300), st.text(LETTERS, max_size=300))
def test_what_is_too_long_for_a_close_frame_keeps_what_and_why(what: str, why: str) -> None:
    """RFC 6455, 5.5: 125 bytes, two of them the code; and text that can be read."""
    message = f"locked{what}unpaid{why}"
    frame = WebSocketWords(b"").say(Forbidden(message))
    assert (frame[:1], frame[1], frame[2:4]) == (b"\x88", len(frame) - 2, b"\x03\xf0")
    assert len(frame) <= 127
    first, cut, last = frame[4:].decode().partition(" … ") if len(message.encode()) > 123 else (message, "", "")
    assert message.startswith(first)
    assert message.endswith(last)
    assert not cut or len(first.encode()) > 50 < len(last.encode())


async def test_a_cluster_that_sends_nothing_but_heads_of_frames_is_not_followed_for_long() -> None:
    """DOS-03: counted in calls. Nobody knows any more what would be read in the middle of something."""
    words, calls = WebSocketWords(b"v5.channel.k8s.io"), 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        words.see(b"\x82\x00" * 32_768)
        words.see(b"\x82\x00" * 32_768)
    finally:
        sys.setprofile(None)
    assert calls < 10_000
    assert words.say(SUSPENDED) == b""


FRAME = st.tuples(st.sampled_from([0x81, 0x82, 0x89, 0x8A, 0x02, 0x80, 0x00]), st.integers(0, 70_000), st.booleans())


def encoded(opcode: int, size: int, masked: bool) -> bytes:
    mask = 0x80 if masked else 0
    if size < 126:
        length = bytes([mask | size])
    elif size < 65536:
        length = bytes([mask | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([mask | 127]) + size.to_bytes(8, "big")
    return bytes([opcode]) + length + (b"mask" if masked else b"") + bytes(size)


@given(st.lists(FRAME, max_size=6), st.lists(st.integers(1, 40_000), min_size=1, max_size=8))
def test_words_are_said_between_messages_and_nowhere_else(frames, sizes) -> None:
    """Whatever the pieces that frames come in: the boundaries are found again."""
    ends = {0}
    wire, whole = b"", True
    for frame in frames:
        wire += encoded(*frame)
        if not frame[0] & 0x08:
            whole = bool(frame[0] & 0x80)
        if whole:
            ends.add(len(wire))
    words, seen, turn = WebSocketWords(b"v5.channel.k8s.io"), 0, 0
    while seen < len(wire):
        piece = wire[seen : seen + sizes[turn % len(sizes)]]
        words.see(piece)
        seen += len(piece)
        turn += 1
        assert bool(words.say(SUSPENDED)) == words.is_whole == (seen in ends)


def test_a_watch_may_simply_end_between_its_events() -> None:
    words = WatchWords()
    assert words.is_whole
    words.see(b'{"type": "ADDED", ')
    assert not words.is_whole
    assert words.say(SUSPENDED) == b""
    words.see(b'"object": {}}\n')
    assert words.is_whole
