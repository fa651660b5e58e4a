"""A stream that ends says why to whoever listens; who does not is cut off (GW5)."""

from __future__ import annotations

import asyncio
import time

import pytest

from gateway.process.streams import CUT_SECONDS, STOPPING, OpenStream, OpenStreams
from kube.authentication.identity import Principal
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Unauthorized


async def nothing() -> None:
    """Whoever asks may go on."""


def opened(cut: list[OpenStream]) -> OpenStream:
    anna = Principal(name="anna", uid="1", groups=(), tenant="acme", authenticator="test")
    info = RequestInfo(method="GET", path="/", cluster="root:acme", tenant="acme", verb="watch")
    stream = OpenStreams().open(anna, info, nothing, cut=lambda: cut.append(stream))
    return stream


async def test_who_does_not_listen_is_cut_off() -> None:
    cut: list[OpenStream] = []
    stream = opened(cut)
    stream.end(STOPPING)
    async with asyncio.timeout(300):
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


async def test_a_stream_ends_with_its_callers_credential() -> None:
    """Whichever was opened first; who has no end is left alone, and in the end nobody looks at clocks any more."""
    streams = OpenStreams()
    info = RequestInfo(method="GET", path="/", cluster="root:acme", tenant="acme", verb="watch")

    now = time.time()

    def opened_until(not_after: float | None) -> OpenStream:
        who = Principal(name="anna", uid="1", groups=(), tenant="acme", authenticator="test", not_after=not_after)
        return streams.open(who, info, nothing, cut=lambda: None)

    spent, lasting, endless, soon = (opened_until(moment) for moment in (now - 1, now + 4000, None, now + 0.1))
    async with asyncio.timeout(300):
        assert isinstance(await spent.ended, Unauthorized)
        assert isinstance(await soon.ended, Unauthorized)
    assert not lasting.ended.done()
    assert not endless.ended.done()
    for stream in (spent, soon, lasting):
        streams.close(stream)
    async with asyncio.timeout(300):
        while streams._clock is not None:
            await asyncio.sleep(0.01)
    assert len(streams) == 1


@pytest.mark.parametrize("changed", ["root:supply:quiet", "root:supply", "root:globex:web"])
async def test_what_is_watched_through_an_export_is_looked_at_when_rights_change_on_either_side(changed: str) -> None:
    """CT-07, KC6: the objects are the consumer's, and who may look at them is the provider's to say."""
    streams, again = OpenStreams(), asyncio.Event()

    async def recheck() -> None:
        again.set()

    info = RequestInfo(
        method="GET",
        path="/",
        cluster="root:globex:web",
        tenant="globex",
        verb="watch",
        through="root:supply:quiet",
    )
    # Let in by a grant: nothing of its own tenant changes.
    who = Principal(name="vera", tenant="acme", authenticator="test")
    streams.open(who, info, recheck, cut=lambda: None)
    streams.reauthorize("root:else")
    await asyncio.sleep(0.05)
    assert not again.is_set()
    streams.reauthorize(changed)
    async with asyncio.timeout(300):
        await again.wait()
