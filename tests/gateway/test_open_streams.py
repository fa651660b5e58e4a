"""A stream that ends says why to whoever listens; who does not is cut off (GW5)."""

from __future__ import annotations

import asyncio
import time

from gateway.process.streams import CUT_SECONDS, STOPPING, OpenStream, OpenStreams
from kube.authentication.identity import Principal
from kube.requests.requestinfo import RequestInfo


async def nothing() -> None:
    """Whoever asks may go on."""


def opened(cut: list[OpenStream]) -> OpenStream:
    anna = Principal(name="anna", uid="1", groups=(), tenant="acme", authenticator="test")
    info = RequestInfo(method="GET", path="/", cluster="root:acme", tenant="acme", verb="watch")
    stream = OpenStreams().open(anna, info, nothing, now=0.0, cut=lambda: cut.append(stream))
    return stream


async def test_who_does_not_listen_is_cut_off() -> None:
    cut: list[OpenStream] = []
    stream = opened(cut)
    stream.end(STOPPING)
    async with asyncio.timeout(60):
        while not cut:
            await asyncio.sleep(0.01)
    assert cut == [stream]


async def test_nobody_is_cut_off_because_this_process_was_slow() -> None:
    """A thousand streams that end at once take it longer than a client may: each still has its turns to say why."""
    cut: list[OpenStream] = []
    opened(cut).end(STOPPING)
    time.sleep(2 * CUT_SECONDS)  # noqa: ASYNC251 - it is held up
    for _ in range(20):
        await asyncio.sleep(0)
    assert cut == []
