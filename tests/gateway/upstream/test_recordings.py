"""Sessions in pods are recorded as their tier says: what was shown and not what was typed, or there is no session (GW21)."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from cryptography.fernet import Fernet
from django.db import connection, transaction

from audit.models import AuditEntry
from gateway.upstream.placements import Placement
from gateway.upstream.recording import keeping
from gateway.upstream.recording.registry import Recordings
from portal.database.rights import as_owner
from store.engine import Engine
from tenants import services
from tenants.models import Recording, RecordingChunk, Role
from tenants.placednamespaces import placed_namespace_show
from tenants.recordings import recording_file
from tests import factories
from tests.gateway.upstream.door import SUSPENDED, Client, Door
from tests.gateway.upstream.rawcluster import Behave, Visit, answering
from tests.gateway.upstream.spdyframes import SpdyWriter, data
from tests.gateway.upstream.test_reports import conninfo, seen
from tests.gateway.upstream.test_streams import EXEC, PODS, SPDY, SWITCH, V5, WEBSOCKET, opened, until
from tests.kube.test_remotecommand import FAILED, frame
from tests.tenants.conftest import OPERATOR

pytestmark = [pytest.mark.django_db(transaction=True)]

TYPED = b"a password that is typed"
SHOWN = "$ gr\u00fc\u00dfe\r\n".encode()
MASK = b"mask"


@pytest.fixture(autouse=True)
def _sealing_keys(settings: Any) -> None:
    settings.SEALING_KEYS = [Fernet.generate_key().decode()]


def placed(mode: str) -> tuple[str, Placement]:
    """A workspace on a cluster, of a tier that has this recorded."""
    acme = factories.tenant("acme")
    made = factories.workspace(acme, factories.member(acme, Role.OWNER))
    services.tier_change(actor=OPERATOR, name=made.tier_id, recording=mode)
    placed_namespace_show(made)
    names = (made.cluster.name, acme.cluster_path, made.k8s_namespace)
    place = Placement(str(made.pk), *names, "Active", made.tier_id)
    return conninfo(), place


@asynccontextmanager
async def recorded(behave: Behave, mode: str = "output") -> AsyncIterator[tuple[Door, Client]]:
    """A door to a cluster, for sessions of this tier; at its end every recording is ended."""
    database, placement = await sync_to_async(placed)(mode)
    async with Engine(database) as store:
        recordings = Recordings(store)
        async with opened(behave) as (door, client):
            door.recorded = recordings, placement
            yield door, client
        await recordings.stop()


def events_of(found: Recording) -> tuple[dict[str, Any], list[list[Any]]]:
    """The head and the events of a recording's file."""
    head, *events = [json.loads(line) for line in recording_file(found).splitlines()]
    return head, events


def shown_in(found: Recording) -> str:
    return "".join(text for _, kind, text in events_of(found)[1] if kind == "o")


async def ended() -> Recording:
    """The only recording, once it has ended."""
    found: Recording = await seen(Recording.objects.exclude(ended_at=None).first)
    return found


async def over_websocket(visit: Visit) -> None:
    """A shell: it waits for what is typed and for the terminal's size, answers in two channels, and exits with 3."""
    await visit.request()
    await visit.say(V5 + frame(1, b""))
    await visit.reader.readexactly(len(typed_over_websocket()))
    await visit.say(
        frame(1, SHOWN[:5]) + frame(1, SHOWN[5:]) + frame(2, b"oh\n") + frame(3, json.dumps(FAILED).encode())
    )


async def over_spdy(visit: Visit) -> None:
    """The same over SPDY."""
    await visit.request()
    await visit.say(SWITCH % (b"SPDY/3.1", b""))
    await visit.reader.readexactly(len(typed_over_spdy()))
    kubelet = SpdyWriter()
    replies = b"".join(kubelet.reply(stream) for stream in (1, 3, 5, 7, 9))
    shown = data(5, SHOWN[:5]) + data(5, SHOWN[5:]) + data(7, b"oh\n") + data(1, json.dumps(FAILED).encode(), last=True)
    await visit.say(replies + shown)


def typed_over_websocket() -> bytes:
    size = json.dumps({"Width": 132, "Height": 43}).encode()
    return frame(4, size, mask=MASK) + frame(0, TYPED, mask=MASK)


def typed_over_spdy() -> bytes:
    client = SpdyWriter()
    names = ((1, "error"), (3, "stdin"), (5, "stdout"), (7, "stderr"), (9, "resize"))
    opening = b"".join(client.open(stream, streamtype=name) for stream, name in names)
    return opening + data(9, b'{"Width":132,"Height":43}') + data(3, TYPED)


WAYS = pytest.mark.parametrize(
    ("behave", "headers", "method", "typed"),
    [(over_websocket, WEBSOCKET, "GET", typed_over_websocket), (over_spdy, SPDY, "POST", typed_over_spdy)],
    ids=["websocket", "spdy"],
)


@WAYS
async def test_what_was_shown_is_kept_sealed_and_named_by_the_audit(
    behave: Behave, headers: tuple[str, ...], method: str, typed: Callable[[], bytes]
) -> None:
    async with recorded(behave) as (_, client):
        client.ask(EXEC, *headers, method=method)
        assert (await client.head())[0] == b"HTTP/1.1 101 Switching Protocols"
        client.writer.write(typed())
        assert SHOWN[:5] in await client.reader.read()
        found = await ended()

    def look() -> None:
        head, events = events_of(found)
        assert (head["version"], head["width"], head["height"], head["command"]) == (2, 132, 43, "sh")
        assert shown_in(found) == SHOWN.decode() + "oh\n"
        assert [kind for _, kind, _ in events][-1] == "m"
        assert {kind for _, kind, _ in events} == {"o", "m"}, "there is no input"
        assert (found.caller, found.pod, found.command, found.exit_code) == ("anna", "web", "sh", 3)
        assert (found.bytes, found.ended_why) == (len(SHOWN) + 3, "")
        sealed = b"".join(bytes(row) for row in RecordingChunk.objects.values_list("sealed", flat=True))
        assert sealed
        assert b'"' not in sealed, "nothing of its JSON"
        begun, done = AuditEntry.objects.filter(action__startswith="recording.").order_by("sequence")
        assert (begun.chain, begun.action, begun.outcome, begun.actor) == ("acme", "recording.begin", "intent", "anna")
        assert (done.action, done.outcome, done.detail["exit_code"]) == ("recording.end", "success", 3)
        assert done.detail["sha256"] == found.sha256 == hashlib.sha256(recording_file(found)).hexdigest()
        assert TYPED not in recording_file(found)
        assert TYPED.decode() not in json.dumps(list(AuditEntry.objects.values_list("detail", flat=True)))

    await sync_to_async(look)()


async def test_of_metadata_nothing_that_was_shown_is_kept() -> None:
    async with recorded(over_websocket, "metadata") as (_, client):
        client.ask(EXEC + "&container=app", *WEBSOCKET)
        client.writer.write(typed_over_websocket())
        await client.reader.read()
        found = await ended()
    assert (found.mode, found.container, found.exit_code, found.bytes) == ("metadata", "app", 3, len(SHOWN) + 3)
    assert not await sync_to_async(RecordingChunk.objects.exists)()


async def test_where_nothing_is_demanded_nothing_is_kept() -> None:
    async with recorded(over_websocket, "off") as (_, client):
        client.ask(EXEC, *WEBSOCKET)
        client.writer.write(typed_over_websocket())
        assert SHOWN[:5] in await client.reader.read()
    assert not await sync_to_async(Recording.objects.exists)()


async def test_forwarded_ports_are_no_sessions() -> None:
    async with recorded(over_spdy) as (_, client):
        client.ask(f"{PODS}/web/portforward", *SPDY, method="POST")
        assert (await client.head())[0].startswith(b"HTTP/1.1 101")
    assert not await sync_to_async(Recording.objects.exists)()


def without(table: str) -> None:
    with as_owner(), connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO {table}_away")


def again(table: str) -> None:
    with as_owner(), connection.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table}_away RENAME TO {table}")


async def refused(client: Client, *headers: str) -> dict[str, Any]:
    """The Status in the place of a session."""
    client.ask(EXEC, *headers)
    status: dict[str, Any] = json.loads((await client.reader.read()).partition(b"\r\n\r\n")[2])
    return status


async def test_without_a_table_there_is_no_session() -> None:
    """Nothing reaches the cluster."""
    visits = 0

    async def behave(visit: Visit) -> None:
        nonlocal visits
        visits += 1
        await over_websocket(visit)

    async with recorded(behave) as (_, client):
        await sync_to_async(without)("recordings")
        try:
            status = await refused(client, *WEBSOCKET)
        finally:
            await sync_to_async(again)("recordings")
        assert (status["code"], visits) == (503, 0)
        assert "has to be recorded" in status["message"]
        assert "the database does not take it" in status["message"]


@pytest.mark.parametrize("keys", [[], ["no key of Fernet's"]])
async def test_without_a_key_there_is_no_session(settings: Any, keys: list[str]) -> None:
    async with recorded(over_websocket) as (_, client):
        settings.SEALING_KEYS = keys
        status = await refused(client, *WEBSOCKET)
        assert status["code"] == 503
        assert "TENANTRY_SEALING_KEYS" in status["message"]
    assert not await sync_to_async(Recording.objects.exists)()


async def test_what_nobody_could_follow_is_refused() -> None:
    offers = ("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Protocol: base64.channel.k8s.io")
    async with recorded(over_websocket) as (_, client):
        status = await refused(client, *offers)
        assert status["code"] == 400
        assert "v5.channel.k8s.io" in status["message"]


async def test_the_cluster_hears_only_of_what_can_be_followed() -> None:
    heard = {}

    async def behave(visit: Visit) -> None:
        _, headers, _ = await visit.request()
        heard.update(headers)
        await visit.say(V5)

    offers = (
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Protocol: base64.channel.k8s.io, v5.channel.k8s.io",
        "Sec-WebSocket-Extensions: permessage-deflate",
    )
    async with recorded(behave) as (_, client):
        client.ask(EXEC, *offers)
        await client.reader.read()
    assert heard[b"sec-websocket-protocol"] == b"v5.channel.k8s.io"
    assert b"sec-websocket-extensions" not in heard


async def test_a_session_that_the_cluster_does_not_open_leaves_its_attempt_in_the_audit() -> None:
    declining = answering(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno")
    async with recorded(declining) as (_, client):
        client.ask(EXEC, *WEBSOCKET)
        assert (await client.reader.read()).startswith(b"HTTP/1.1 404")
        entry = await seen(AuditEntry.objects.filter(action="recording.end").first)
        assert (entry.outcome, entry.detail["opened"]) == ("failure", False)
        assert not await sync_to_async(Recording.objects.exists)()


def flooding(sent: list[int], shown: bytes = b"0123456789abcde\n" * 4096) -> Behave:
    """``cat`` of something endless."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(V5)
        while True:
            await visit.say(frame(1, shown))
            sent.append(len(shown))

    return behave


@pytest.mark.parametrize("letter", ["a", "é", "𝄞"])
async def test_a_full_recording_ends_with_the_session_and_says_so(settings: Any, letter: str) -> None:
    """Whatever is written in it: its bytes are counted."""
    settings.RECORDING_MAX_MIB = 1
    async with recorded(flooding([], letter.encode() * 16384)) as (_, client):
        client.ask(EXEC, *WEBSOCKET)
        # Whether the client is told depends on where in a frame it was reached.
        await client.reader.read()
        found = await ended()

    def look() -> None:
        assert len(recording_file(found)) < (1 << 20) + 4096
        assert "full" in events_of(found)[1][-1][2]
        assert "full" in found.ended_why

    await sync_to_async(look)()


async def test_a_database_that_does_not_keep_up_makes_the_cluster_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded memory: counted in what a cluster gets rid of while nothing can be written."""
    monkeypatch.setattr(keeping, "PATIENCE", 120)
    sent: list[int] = []
    locked, go = asyncio.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def hold() -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("LOCK TABLE recording_chunks IN ACCESS EXCLUSIVE MODE")
            loop.call_soon_threadsafe(locked.set)
            asyncio.run_coroutine_threadsafe(go.wait(), loop).result()

    async with recorded(flooding(sent)) as (_, client):
        holding = asyncio.ensure_future(sync_to_async(hold, thread_sensitive=False)())
        await locked.wait()
        client.ask(EXEC, *WEBSOCKET)
        await client.head()

        async def read_on() -> None:
            while await client.reader.read(65536):
                pass

        reading = asyncio.ensure_future(read_on())
        before = -1
        while len(sent) != before or not sent:
            before = len(sent)
            await asyncio.sleep(0.5)
        assert sum(sent) < 16 << 20
        go.set()
        await holding
        await until(lambda: len(sent) > before)
        reading.cancel()


async def test_sizes_that_nothing_is_shown_in_take_no_room() -> None:
    """What a client says of its terminal counts for nothing in the room of a tenant: it may say it for ever."""
    sizes = b"".join(frame(4, b'{"Width":%d,"Height":1}' % (number % 9 + 1), mask=MASK) for number in range(5000))

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(V5 + frame(1, b"$ "))
        await visit.reader.readexactly(len(sizes))
        await visit.say(frame(1, b"x") + frame(3, json.dumps(FAILED).encode()))

    async with recorded(behave) as (_, client):
        client.ask(EXEC, *WEBSOCKET)
        await client.head()
        await client.reader.readuntil(b"$ ")
        client.writer.write(sizes)
        await client.reader.read()
        found = await ended()
    _, events = await sync_to_async(events_of)(found)
    assert [event[1:] for event in events[:-1]] == [["o", "$ "], ["r", "5x1"], ["o", "x"]]


async def silent_shell(visit: Visit) -> None:
    """Shows a prompt, and then nothing."""
    await visit.request()
    await visit.say(V5 + frame(1, b"$ "))
    await visit.reader.read()


async def test_a_session_ends_when_its_recording_stops_working(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "HEARTBEAT", 0.2)
    async with recorded(silent_shell) as (door, client):
        client.ask(EXEC, *WEBSOCKET)
        await client.head()
        await seen(RecordingChunk.objects.exists)
        monkeypatch.setattr(keeping, "PATIENCE", 1)
        await sync_to_async(without)("recordings")
        try:
            said = await client.reader.read()
        finally:
            await sync_to_async(again)("recordings")
        assert b"its recording cannot be kept" in said
        await until(lambda: len(door.streams) == door.upstream.connections == 0)


async def test_a_recording_that_is_taken_away_ends_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keeping, "HEARTBEAT", 0.2)
    async with recorded(silent_shell) as (_, client):
        client.ask(EXEC, *WEBSOCKET)
        await client.head()
        await seen(RecordingChunk.objects.exists)
        # Until here nobody was to lose patience, which would be told in other words.
        monkeypatch.setattr(keeping, "PATIENCE", 2)
        await sync_to_async(Recording.objects.all().delete)()
        assert b"the recording of this session was ended" in await client.reader.read()


async def test_a_session_ends_with_the_threads_that_would_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it is that fails."""
    monkeypatch.setattr(keeping, "HEARTBEAT", 0.2)
    async with recorded(silent_shell) as (door, client):
        client.ask(EXEC, *WEBSOCKET)
        await client.head()
        await seen(RecordingChunk.objects.exists)
        assert door.recorded is not None
        await door.recorded[0].stop()
        assert b"its recording cannot be kept" in await client.reader.read()


async def test_frames_that_cannot_be_read_end_the_session() -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(V5 + b"\xc2\x02\x01x")
        await visit.reader.read()

    async with recorded(behave) as (_, client):
        client.ask(EXEC, *WEBSOCKET)
        await client.head()
        said = await client.reader.read()
        assert b"\x01x" not in said
        assert b"cannot be followed" in said


async def test_a_suspension_is_how_a_recording_ended() -> None:
    async with recorded(silent_shell) as (door, client):
        client.ask(EXEC, *WEBSOCKET)
        await client.head()
        await client.reader.readexactly(4)
        door.suspend()
        await client.reader.read()
        found = await ended()
    assert (found.ended_why, found.exit_code) == (SUSPENDED.message, None)
    assert await sync_to_async(shown_in)(found) == "$ "


async def test_a_client_that_goes_leaves_a_whole_recording() -> None:
    async with recorded(silent_shell) as (_, client):
        client.ask(EXEC, *WEBSOCKET)
        await client.head()
        await client.reader.readexactly(4)
        client.close()
        found = await ended()
    assert found.ended_why == "the connection was closed"
    assert await sync_to_async(shown_in)(found) == "$ "
