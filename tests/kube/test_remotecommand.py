"""What connections into pods carry is read the same, whatever pieces it comes in; input is not read at all (GW21)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.remotecommand.channels import (
    ERROR,
    RESIZE,
    STDERR,
    STDIN,
    STDOUT,
    Piece,
    TerminalSizes,
    Unreadable,
    exit_code_of,
)
from kube.remotecommand.spdy import SpdyChannels
from kube.remotecommand.websockets import WebSocketChannels
from tests.gateway.upstream.spdyframes import SpdyWriter, control, data, ping, streams_as_a_kubelet_reads_them

SIZES = st.lists(st.integers(1, 5_000), min_size=1, max_size=8)
OUTPUT = st.lists(st.tuples(st.sampled_from([STDOUT, STDERR, ERROR]), st.binary(max_size=70_000)), max_size=5)
TYPED = st.lists(st.tuples(st.sampled_from([STDIN, RESIZE]), st.binary(max_size=300)), max_size=6)
FAILED = {
    "status": "Failure",
    "reason": "NonZeroExitCode",
    "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
}


def frame(channel: int, payload: bytes, *, mask: bytes = b"", opcode: int = 0x82) -> bytes:
    return plain(bytes([channel]) + payload, mask=mask, opcode=opcode)


def plain(content: bytes, *, mask: bytes = b"", opcode: int = 0x82) -> bytes:
    size, masked = len(content), 0x80 if mask else 0
    if size < 126:
        length = bytes([masked | size])
    elif size < 65536:
        length = bytes([masked | 126]) + size.to_bytes(2, "big")
    else:
        length = bytes([masked | 127]) + size.to_bytes(8, "big")
    if mask:
        content = bytes(byte ^ mask[place % 4] for place, byte in enumerate(content))
    return bytes([opcode]) + length + mask + content


def read(feed: Callable[[bytes], Iterator[Piece]], wire: bytes, sizes: list[int]) -> dict[int, bytes]:
    """What each channel holds, with the wire cut into pieces."""
    found: dict[int, bytes] = {}
    position = turn = 0
    while position < len(wire):
        size = sizes[turn % len(sizes)]
        for channel, piece in feed(wire[position : position + size]):
            if piece:
                found[channel] = found.get(channel, b"") + piece
        position += size
        turn += 1
    return found


def joined(messages: list[Piece], *channels: int) -> dict[int, bytes]:
    held = {channel: b"".join(content for at, content in messages if at == channel) for channel in channels}
    return {channel: content for channel, content in held.items() if content}


@given(OUTPUT, SIZES, st.integers(0, 3))
def test_output_over_websockets(messages: list[Piece], sizes: list[int], split: int) -> None:
    wire = b""
    for channel, content in messages:
        if split and len(content) > split:
            # A message of two frames, with a ping in between.
            first, rest = content[:split], content[split:]
            wire += frame(channel, first, opcode=0x02) + plain(b"ping", opcode=0x89) + plain(rest, opcode=0x80)
        else:
            wire += frame(channel, content)
    assert read(WebSocketChannels().received, wire, sizes) == joined(messages, STDOUT, STDERR, ERROR)


@given(TYPED, SIZES, st.binary(min_size=4, max_size=4))
def test_of_what_is_sent_over_websockets_the_size_alone_is_read(
    messages: list[Piece], sizes: list[int], mask: bytes
) -> None:
    wire = b"".join(frame(channel, content, mask=mask) for channel, content in messages)
    assert read(WebSocketChannels().sent, wire, sizes) == joined(messages, RESIZE)


def opened(channels: SpdyChannels) -> tuple[SpdyWriter, dict[int, int]]:
    """The streams of a shell, as kubectl opens them."""
    client, streams = SpdyWriter(), {}
    for number, (channel, name) in enumerate(
        ((ERROR, "error"), (STDIN, "stdin"), (STDOUT, "stdout"), (STDERR, "stderr"), (RESIZE, "resize"))
    ):
        streams[channel] = 2 * number + 1
        list(channels.sent(client.open(2 * number + 1, streamtype=name)))
    return client, streams


@given(OUTPUT, SIZES)
def test_output_over_spdy(messages: list[Piece], sizes: list[int]) -> None:
    channels = SpdyChannels()
    _, streams = opened(channels)
    kubelet = SpdyWriter()
    wire = b"".join(kubelet.reply(stream) for stream in streams.values())
    for channel, content in messages:
        wire += data(streams[channel], content) + ping(2)
    assert read(channels.received, wire, sizes) == joined(messages, STDOUT, STDERR, ERROR)


@given(TYPED, SIZES)
def test_of_what_is_sent_over_spdy_the_size_alone_is_read(messages: list[Piece], sizes: list[int]) -> None:
    channels, client = SpdyChannels(), SpdyWriter()
    streams = {STDIN: 1, RESIZE: 3}
    wire = client.open(1, streamtype="stdin") + ping(1) + client.headers(1, more="later")
    wire += client.open(3, streamtype="resize")
    wire += b"".join(data(streams[channel], content) for channel, content in messages)
    assert read(channels.sent, wire, sizes) == joined(messages, RESIZE)


def test_what_a_client_calls_its_streams_hides_no_output() -> None:
    channels, client = SpdyChannels(), SpdyWriter()
    list(channels.sent(client.open(1, streamtype="resize\0stdout") + client.open(3) + client.open(5, streamtype="x")))
    for stream in (3, 5, 7):
        assert (STDOUT, b"shown") in list(channels.received(data(stream, b"shown")))
    assert (RESIZE, b"shown") in list(channels.received(data(1, b"shown")))


def hidden_output(wire: bytes) -> list[int]:
    """The streams of output, to a kubelet, of which nothing would be taken for output here."""
    channels = SpdyChannels()
    try:
        list(channels.sent(wire))
    except Unreadable:
        return []
    return [
        stream
        for stream, name in streams_as_a_kubelet_reads_them(wire).items()
        if name in (b"stdout", b"stderr") and (ERROR, b"shown") in channels.received(data(stream, b"shown"))
    ]


@pytest.mark.parametrize("kind", range(12))
def test_no_frame_hides_another_from_one_reader_alone(kind: int) -> None:
    """A client says of a frame that it is longer or shorter than a kubelet reads it: what comes is read in two ways."""
    there, here = SpdyWriter().open(5, streamtype="stdout"), SpdyWriter().open(5, streamtype="error")
    covered = data(99, here)
    for begun in range(0, 17, 4):
        body = bytes(3) + b"\1" + bytes(begun)
        # The one is in the frame, as it says; the other in what a kubelet takes for data.
        assert not hidden_output(control(kind, body + there + covered[:8]) + here)
        # The one is behind the frame's end, as it says, in what is data here.
        lying = data(99, there + covered[:8])
        assert not hidden_output(control(kind, body + lying[:8], size=len(body)) + lying[8:] + here)
        assert not hidden_output(control(kind, lying[:8] + body, size=0) + lying[8:] + here)


HEADERS = st.dictionaries(
    st.sampled_from(["streamtype", "a", "b"]), st.sampled_from(["stdout", "error", "error\0", "x" * 9])
)


@given(st.lists(st.tuples(st.sampled_from(["open", "reply", "headers"]), st.integers(1, 9), HEADERS), max_size=8))
def test_headers_are_read_with_all_that_they_are_compressed_with(frames: list[tuple[str, int, dict[str, str]]]) -> None:
    client, channels = SpdyWriter(), SpdyChannels()
    wire = b"".join(getattr(client, frame)(stream, **headers) for frame, stream, headers in frames)
    try:
        list(channels.sent(wire))
    except Unreadable:
        opened_ = [stream for frame, stream, _ in frames if frame == "open"]
        assert len(opened_) != len(set(opened_)), "only a stream that is opened twice is a reason here"
        return
    for frame, stream, headers in frames:
        if frame == "open":
            shown = headers.get("streamtype", "").partition("\0")[0] == "error"
            assert ((ERROR if shown else STDOUT), b"x") in list(channels.received(data(stream, b"x")))


@pytest.mark.parametrize(
    "wire",
    [
        SpdyWriter().open(1, streamtype="stdout").replace(b"\x80\x03", b"\x80\x02", 1),
        b"\x80\x03\x00\x01\x00" + (20).to_bytes(3, "big") + bytes(20),
        b"\x80\x03\x00\x01\x00" + (2**24 - 1).to_bytes(3, "big") + bytes(20_000),
        SpdyWriter().open(1, bomb="0" * 100_000),
        SpdyWriter().open(1, StreamType="stdout"),
    ],
    ids=["another version", "no zlib", "an endless frame", "a bomb", "two spellings"],
)
def test_what_could_be_read_in_two_ways_is_not_read(wire: bytes) -> None:
    with pytest.raises(Unreadable):
        list(SpdyChannels().sent(wire))


def test_a_stream_is_opened_once_and_there_are_few() -> None:
    channels, client = SpdyChannels(), SpdyWriter()
    list(channels.sent(client.open(1, streamtype="stdout")))
    with pytest.raises(Unreadable):
        list(channels.sent(client.open(1, streamtype="error")))
    channels, client = SpdyChannels(), SpdyWriter()
    with pytest.raises(Unreadable):
        for number in range(1, 1000, 2):
            list(channels.sent(client.open(number, streamtype="stdout")))


def test_a_compressed_frame_is_not_read() -> None:
    with pytest.raises(Unreadable):
        list(WebSocketChannels().received(plain(b"\1x", opcode=0xC2)))


@given(st.binary(max_size=3_000), SIZES)
def test_whatever_comes_is_read_or_said_to_be_unreadable(wire: bytes, sizes: list[int]) -> None:
    for channels in (SpdyChannels(), WebSocketChannels()):
        for feed in (channels.sent, channels.received):
            try:
                read(feed, wire, sizes)
            except Unreadable:
                continue


@given(st.lists(st.tuples(st.integers(1, 9_999), st.integers(1, 9_999)), max_size=5), SIZES)
def test_sizes_of_terminals(sizes: list[tuple[int, int]], cuts: list[int]) -> None:
    text = b"".join(json.dumps({"Width": columns, "Height": rows}).encode() + b"\n" for columns, rows in sizes)
    reader, found, position, turn = TerminalSizes(), [], 0, 0
    while position < len(text):
        size = min(cuts[turn % len(cuts)], 100)
        found += reader.feed(text[position : position + size])
        position += size
        turn += 1
    assert found == sizes


@pytest.mark.parametrize("said", [b"{}", b'{"Width":-1,"Height":5}', b'{"Width":"9","Height":5}', b"{{{", b"{\xff}"])
def test_what_is_no_size_is_none(said: bytes) -> None:
    assert list(TerminalSizes().feed(said)) == []


@pytest.mark.parametrize(
    ("status", "code"),
    [
        (json.dumps(FAILED).encode(), 3),
        (b'{"status":"Success"}', 0),
        (b'{"status":"Failure","reason":"InternalError"}', None),
        (b"command terminated", None),
        (b"", None),
        (b"[]", None),
        (b"[" * 60_000, None),
        (b'{"a":' * 10_000, None),
    ],
    ids=range(8),
)
def test_how_a_command_ended(status: bytes, code: int | None) -> None:
    assert exit_code_of(status) == code
