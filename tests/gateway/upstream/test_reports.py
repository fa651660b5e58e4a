"""Who is in which pod now: seen in the portal by those who may, ended by them, gone with the process (D3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from django.test import Client as Browser
from psycopg.conninfo import make_conninfo

from audit.models import AuditEntry
from gateway.process.streamreports import StreamReports
from gateway.process.streams import OpenStreams
from kube.authentication.identity import Principal
from kube.requests.requestinfo import RequestInfo
from tenants.models import PodConnection, Role, StreamCount, User
from tests import factories
from tests.gateway.upstream.door import client_of
from tests.gateway.upstream.test_streams import EXEC, V5, WEBSOCKET, opened, silent

pytestmark = [pytest.mark.django_db(transaction=True)]


def conninfo() -> str:
    parameters = connection.get_connection_params()
    return make_conninfo(**{key: parameters[key] for key in ("dbname", "user", "host", "port") if parameters.get(key)})


def people() -> dict[str, User]:
    """Of acme, whose pods these are, of another tenant, and of the platform."""
    acme, globex = factories.tenant("acme"), factories.tenant("globex")
    return {
        "admin": factories.member(acme, Role.ADMIN),
        "viewer": factories.member(acme, Role.VIEWER),
        "stranger": factories.member(globex, Role.OWNER),
        "operator": factories.operator(),
    }


def browser_of(user: User) -> Browser:
    browser = Browser()
    browser.force_login(user)
    return browser


async def nothing() -> None:
    """Is asked again, and has no objection."""


async def seen(look: Callable[[], Any]) -> Any:
    """What the database comes to say."""
    async with asyncio.timeout(300):
        while not (found := await sync_to_async(look)()):
            await asyncio.sleep(0.05)
    return found


def page(user: User) -> str:
    return browser_of(user).get("/connections/").content.decode()


def end(user: User, row: PodConnection) -> int:
    return browser_of(user).post(f"/connections/{row.pk}/end/").status_code


def ended(user: User, row: PodConnection) -> str:
    """What somebody reads who opens the button of one that has ended meanwhile: what there is now, and why."""
    answer = browser_of(user).get(f"/connections/{row.pk}/end/", follow=True)
    assert [where for where, _ in answer.redirect_chain] == ["/connections/"]
    return answer.content.decode()


async def test_an_admin_sees_who_is_in_a_pod_and_ends_it() -> None:
    """The operator too; members who are no admins, and other tenants, see and end nothing."""
    who = await sync_to_async(people)()
    dsn = await sync_to_async(conninfo)()
    async with opened(silent(V5, b"\x82\x01x")) as (door, client):
        reports = StreamReports(dsn, door.streams)
        reports.start()
        try:
            client.ask(EXEC, *WEBSOCKET)
            await client.head()
            await client.reader.readexactly(3)
            row = await seen(PodConnection.objects.first)
            assert (row.caller, row.tenant, row.namespace, row.pod, row.way) == (
                *("anna", "acme", "acme-web", "web"),
                "exec",
            )
            for name, visible in (("admin", True), ("operator", True), ("viewer", False), ("stranger", False)):
                assert ("anna" in await sync_to_async(page)(who[name])) is visible, name
            assert await sync_to_async(end)(who["viewer"], row) == 403
            # To whom it is nothing at all it is what has never been, or ended.
            assert "There is no such connection any more" in await sync_to_async(ended)(who["stranger"], row)
            assert await sync_to_async(end)(who["stranger"], row) == 302
            assert not (await sync_to_async(PodConnection.objects.get)()).ended_by
            assert await sync_to_async(end)(who["admin"], row) == 302
            assert f"{who['admin'].email} has ended this connection".encode() in await client.reader.read()
            await seen(lambda: not PodConnection.objects.exists() and not StreamCount.objects.exists())
            entry = await seen(AuditEntry.objects.filter(action="connection.end").first)
            assert (entry.chain, entry.actor, entry.detail["caller"]) == ("acme", who["admin"].email, "anna")
            assert "There is no such connection any more" in await sync_to_async(ended)(who["admin"], row)
        finally:
            await reports.stop()


async def test_the_first_page_counts_open_streams_of_living_processes() -> None:
    who = await sync_to_async(people)()
    dsn = await sync_to_async(conninfo)()

    def counted(user: User) -> int:
        stats = browser_of(user).get("/").context["stats"]
        return int(next(stat["value"] for stat in stats if stat["label"] == "Open streams"))

    async with opened(silent(V5, b"\x82\x01x")) as (door, first):
        reports = StreamReports(dsn, door.streams)
        reports.start()
        try:
            first.ask(EXEC, *WEBSOCKET)
            await first.head()
            other = await client_of(door)
            other.ask(EXEC, *WEBSOCKET)
            await other.head()
            await seen(lambda: counted(who["viewer"]) == counted(who["operator"]) == 2)
            assert await sync_to_async(counted)(who["stranger"]) == 0
            other.close()
            await seen(lambda: counted(who["viewer"]) == 1)
        finally:
            await reports.stop()
        # A process that is killed says no last word: its rows are there, and count for nothing once they are old.
        assert await sync_to_async(StreamCount.objects.count)() == 1
        await sync_to_async(StreamCount.objects.update)(seen_at="2020-01-01T00:00:00Z")
        assert await sync_to_async(counted)(who["viewer"]) == 0
        survivor = StreamReports(dsn, door.streams)
        survivor.start()
        try:
            await seen(lambda: counted(who["viewer"]) == 1 and StreamCount.objects.count() == 1)
        finally:
            await survivor.stop()


async def test_a_stream_of_a_name_that_nothing_can_have_hides_no_other() -> None:
    """What does not exist may be watched, whatever it is called: it counts as one of no namespace."""
    dsn = await sync_to_async(conninfo)()
    anna = Principal(name="anna", uid="1", groups=(), tenant="acme", authenticator="test")
    streams = OpenStreams()
    reports = StreamReports(dsn, streams)
    reports.start()
    try:
        for namespace in ("x" * 100, "acme-web"):
            info = RequestInfo(
                method="GET", path="/", cluster="root:acme", tenant="acme", verb="watch", namespace=namespace
            )
            streams.open(anna, info, nothing, cut=lambda: None)
        await seen(lambda: set(StreamCount.objects.values_list("namespace", "open")) == {("", 1), ("acme-web", 1)})
    finally:
        await reports.stop()
