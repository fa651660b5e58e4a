"""The door on the bytes of real clients and of a real cluster, played again where there is no node (GW4, GW5, GW21).

``tests.gateway.upstream.wire.recorder`` has heard them: kubectl's handshakes by WebSocket and SPDY, frames, ends of single
streams, and errors.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from cryptography.fernet import Fernet

from gateway.upstream.client import Limits, Upstream
from tests.gateway.upstream.door import SUSPENDED, client_of, door_to
from tests.gateway.upstream.rawcluster import Visit, raw_cluster
from tests.gateway.upstream.test_recordings import ended, recorded, shown_in
from tests.gateway.upstream.test_streams import opened, until
from tests.gateway.upstream.wire.conversation import CLUSTER, FOLDER, kept
from tests.gateway.upstream.wire.player import cluster_of, speak

ALL = sorted(FOLDER.glob("*.txt"))
NAMES = [path.stem for path in ALL]
SHOWN = {
    "exec-websocket": ({"out\n", "err\n"}, 3),
    "exec-spdy": ({"out\n", "err\n"}, 3),
    "exec-v4": ({"out\n", "err\n"}, 3),
    "input-websocket": ({"400\n"}, 0),
    "input-spdy": ({"400\n"}, 0),
}
"""What a session has shown, and its exit code."""


def test_every_way_has_been_heard() -> None:
    """WebSocket of both versions, SPDY, SPDY within a WebSocket, and errors before and after the handshake."""
    spoken = {(b"upgrade: websocket" in each.request.lower(), each.switched) for each in map(kept, ALL)}
    assert spoken == {(True, True), (True, False), (False, True), (False, False)}
    heard = b"\n".join(each.request + each.answer for each in map(kept, ALL))
    for protocol in (b"v4.channel.k8s.io", b"v5.channel.k8s.io", b"SPDY/3.1+portforward.k8s.io", b"portforward.k8s.io"):
        assert protocol in heard
    assert b"earer" not in heard, "credentials are not kept"


@pytest.mark.parametrize("path", ALL, ids=NAMES)
async def test_every_byte_of_both_sides_arrives(path: Path) -> None:
    conversation, failed = kept(path), []

    async def behave(visit: Visit) -> None:
        try:
            await cluster_of(conversation)(visit)
        except AssertionError as error:
            failed.append(error)

    async with opened(behave) as (door, client):
        await speak(conversation, client)
        client.close()
        await until(lambda: len(door.streams) == door.upstream.connections == 0)
    assert failed == []


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("name", SHOWN)
async def test_a_session_is_recorded_from_its_bytes(name: str, settings: Any) -> None:
    """GW21: what was shown and the exit code, and nothing of what was typed."""
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]
    conversation = kept(FOLDER / f"{name}.txt")
    shown, code = SHOWN[name]
    async with recorded(cluster_of(conversation)) as (_, client):
        await speak(conversation, client)
        found = await ended()

    def look() -> None:
        text = shown_in(found)
        assert (sorted(text), found.exit_code) == (sorted("".join(shown)), code)
        assert all(each in text for each in shown)
        assert "xxx" not in text

    await sync_to_async(look)()


@pytest.mark.parametrize("path", [path for path in ALL if kept(path).switched], ids=lambda path: path.stem)
async def test_the_end_of_the_right_is_told_between_real_frames(path: Path) -> None:
    """GW5: over a WebSocket in a close frame, behind whatever the cluster said first."""
    conversation = kept(path)
    first = next(turn for turn in conversation.after_heads() if turn.side == CLUSTER and turn.said)

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(conversation.answer + b"\r\n\r\n" + (first.said or b""))
        await visit.reader.read()

    async with raw_cluster(behave) as cluster, asyncio.timeout(300):
        upstream = Upstream(cluster.cluster, Limits(connect_seconds=60, answer_seconds=60))
        async with door_to(upstream) as door:
            client = await client_of(door)
            client.writer.write(conversation.request + b"\r\n\r\n")
            await client.head()
            assert await client.reader.readexactly(len(first.said or b"")) == first.said
            door.suspend()
            last: Any = await client.reader.read()
            client.close()
        await upstream.close()
    websocket = b"upgrade: websocket" in conversation.request.lower()
    assert last.endswith(SUSPENDED.message.encode()) if websocket else last == b""
