"""What the protocol sends: an answer in one piece, and no header that could be read as two."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from uvicorn.protocols.http.flow_control import FlowControl

from gateway.protocol import Cycle


class Wire(asyncio.Transport):
    """What is written, and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def is_closing(self) -> bool:
        return False


def cycle_on(wire: Wire) -> Cycle:
    logger = logging.getLogger(__name__)
    return Cycle(
        scope={"method": "GET"},  # type: ignore[arg-type,typeddict-item]
        transport=wire,
        flow=FlowControl(wire),
        logger=logger,
        access_logger=logger,
        access_log=False,
        default_headers=[],
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=True,
        on_response=lambda: None,
    )


async def answer(wire: Wire, body: bytes, *headers: tuple[bytes, bytes]) -> None:
    cycle = cycle_on(wire)
    await cycle.send({"type": "http.response.start", "status": 200, "headers": list(headers)})
    await cycle.send({"type": "http.response.body", "body": body})


async def test_a_small_answer_is_one_piece() -> None:
    wire = Wire()
    await answer(wire, b"ok", (b"content-length", b"2"))
    assert wire.written == [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"]


async def test_a_large_answer_comes_whole() -> None:
    wire, body = Wire(), bytes(range(256)) * 1000
    await answer(wire, body, (b"content-length", b"256000"))
    assert b"".join(wire.written).endswith(b"\r\n\r\n" + body)


@pytest.mark.parametrize("value", [b"x\r\nset-cookie: a=b", b"x\r\n", b"x\n", b"x\r", b"\0", b"\x7f"])
async def test_no_header_is_read_as_two(value: bytes) -> None:
    """P9: whatever a warning quotes, it does not become a header of its own."""
    wire = Wire()
    with pytest.raises(RuntimeError):
        await answer(wire, b"", (b"content-length", b"0"), (b"warning", value))
    assert wire.written == []
