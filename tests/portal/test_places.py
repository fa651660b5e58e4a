"""However much is asked at once, few of it are at work: of a person, a tenant, a stranger, and of all (DOS-03).

The database holds what is asked for as long as a test likes; what waits in it is what is at work.
"""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, transaction
from django.test import Client

from audit.models import AuditEntry
from portal.http import handler
from portal.http.handler import AT_WORK, WAITING
from portal.http.places import LARGE, Places
from portal.signin import refusals
from tenants.models import Recording, UsageHour, User
from tests import factories
from tests.portal.conftest import House, house, signed_in
from tests.portal.test_api import bearer
from tests.portalserver import served_portal

RECORDINGS = "/recordings/"
LARGE_BYTES = 12 << 20
"""More than the two ends of a connection keep."""


def eventually(condition: Callable[[], bool]) -> None:
    given_up = time.monotonic() + 300
    while not condition():
        assert time.monotonic() < given_up
        time.sleep(0.02)


class Portal:
    """The portal's own server, asked over sockets of one request each."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._asking = ThreadPoolExecutor(300)

    def begin(self, client: Client, path: str, body: str = "", *, keeps: int = 0) -> socket.socket:
        """Ask, or send; ``keeps`` is what this end takes of an answer that nobody reads."""
        asked = socket.socket()
        asked.settimeout(300)
        if keeps:
            asked.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, keeps)
        asked.connect(("127.0.0.1", self._port))
        cookies = "; ".join(f"{name}={each.value}" for name, each in client.cookies.items())
        headers = [
            f"{'POST' if body else 'GET'} {path} HTTP/1.1",
            "Host: 127.0.0.1",
            "Connection: close",
            "X-Requested-With: script",
        ]
        headers += [f"Cookie: {cookies}"] if cookies else []
        headers += [f"Authorization: {said}" for said in [client.defaults.get("HTTP_AUTHORIZATION")] if said]
        headers += ["Content-Type: application/json", f"Content-Length: {len(body)}"] if body else []
        asked.sendall(("\r\n".join(headers) + "\r\n\r\n" + body).encode())
        return asked

    def ask(self, client: Client, path: str, body: str = "") -> tuple[int, bytes]:
        """The status of the answer, and all that was said."""
        with self.begin(client, path, body) as asked:
            return answer_of(asked)

    def ask_many(self, client: Client, path: str, times: int) -> Asked:
        """All at once, in the background."""
        return Asked([self._asking.submit(self.ask, client, path) for _ in range(times)])

    def close(self) -> None:
        self._asking.shutdown()


class Asked:
    """Requests that are under way."""

    def __init__(self, futures: list[Any]) -> None:
        self._futures = futures

    @property
    def answered(self) -> int:
        return sum(each.done() for each in self._futures)

    def codes(self) -> Counter[int]:
        return Counter(each.result(300)[0] for each in self._futures)

    def so_far(self) -> list[tuple[int, bytes]]:
        return [each.result() for each in self._futures if each.done()]


def number_of(said: bytes) -> str:
    """By which the audit knows the answer."""
    found = re.search(rb"\r\nx-request-id: (\w{32})\r\n", said)
    return found[1].decode() if found else ""


def answer_of(asked: socket.socket) -> tuple[int, bytes]:
    said = bytearray()
    while piece := asked.recv(65536):
        said += piece
    found = re.match(rb"HTTP/1.1 (\d{3}) ", said)
    assert found, said
    return int(found[1]), bytes(said)


class Held:
    """A table that nobody reads meanwhile; that nobody writes, by another mode."""

    def __init__(self, table: str, mode: str = "ACCESS EXCLUSIVE") -> None:
        self._table = table
        self._statement = f"LOCK TABLE {table} IN {mode} MODE"
        self._held, self._go = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(self._statement)
            self._held.set()
            self._go.wait(600)
        connection.close()

    def __enter__(self) -> Held:
        self._thread.start()
        assert self._held.wait(300)
        return self

    def let_go(self) -> None:
        self._go.set()
        self._thread.join()

    def __exit__(self, *_: object) -> None:
        self.let_go()

    @property
    def waiting(self) -> int:
        """Connections of the database that wait for it."""
        with connection.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid)"
                " WHERE relation = %s::regclass AND NOT granted AND datname = current_database()",
                [self._table],
            )
            return int(cursor.fetchone()[0])

    def waits(self, many: int) -> None:
        """See that so many come to wait for it."""
        given_up = time.monotonic() + 300
        while (waiting := self.waiting) != many:
            assert time.monotonic() < given_up, f"{waiting} wait for {self._table}, not {many}: {_at_work()}"
            time.sleep(0.02)


def _at_work() -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pid, backend_type, state, wait_event_type, wait_event, query FROM pg_stat_activity"
            " WHERE datname = current_database()"
        )
        return cursor.fetchall()


@pytest.fixture
def portal(transactional_db: None) -> Iterator[Portal]:
    with served_portal() as (url, _):
        found = Portal(int(url.rpartition(":")[2]))
        yield found
        found.close()


def known(portal: Portal, *people: User) -> list[Client]:
    """Their browsers, each of which has been answered before."""
    clients = [signed_in(each) for each in people]
    for client in clients:
        assert portal.ask(client, RECORDINGS)[0] == 200
    return clients


@contextmanager
def full(portal: Portal, *clients: Client) -> Iterator[None]:
    """While each of them has as many at work as there may be; all are answered in the end."""
    with Held(Recording._meta.db_table) as held, ExitStack() as stack:
        begun: list[socket.socket] = []
        for client in clients:
            begun += [stack.enter_context(portal.begin(client, RECORDINGS)) for _ in range(AT_WORK["person"])]
            held.waits(len(begun))
        yield
        held.let_go()
        assert [answer_of(each)[0] for each in begun] == [200] * len(begun)


def test_of_one_person_few_are_at_work_however_many_are_asked(
    portal: Portal, acme: House, globex: House, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others are answered meanwhile, and an operator presses the kill switch."""
    monkeypatch.setattr(handler, "WAIT_SECONDS", 0.01)
    flooding, other = known(portal, acme.owner, globex.owner)
    mate, switch = bearer(acme.editor, "read"), bearer(operator, "operate")
    assert portal.ask(mate, "/api/v1/me/")[0] == portal.ask(switch, "/api/v1/me/")[0] == 200
    with Held(Recording._meta.db_table) as held:
        asked = portal.ask_many(flooding, RECORDINGS, 200)
        eventually(lambda: asked.answered == 200 - AT_WORK["person"])
        held.waits(AT_WORK["person"])
        assert {code for code, _ in asked.so_far()} == {429}
        assert all(b"\r\nretry-after: " in said for _, said in asked.so_far())
        assert portal.ask(other, "/tenants/")[0] == 200
        assert portal.ask(mate, "/api/v1/me/")[0] == 200
        assert portal.ask(Client(), "/login/")[0] == 200
        assert portal.ask(Client(), "/readyz")[0] == 200
        assert portal.ask(switch, "/api/v1/tenants/acme/suspend", '{"reason": "x"}')[0] == 200
        held.let_go()
        assert asked.codes() == {429: 200 - AT_WORK["person"], 200: AT_WORK["person"]}
    assert portal.ask(flooding, "/tenants/")[0] == 200


def test_who_finds_no_place_is_in_the_audit_and_nobody_waits_for_it(
    portal: Portal, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW13: numbered like every refusal; a flood is an event or few, and a count, however long the chain is held up."""
    monkeypatch.setattr(handler, "WAIT_SECONDS", 0.01)
    (browser,) = known(portal, acme.owner)
    script = bearer(acme.owner, "read")
    assert portal.ask(script, "/api/v1/me/")[0] == 200
    refusals.counts_record()
    with full(portal, browser):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SELECT * FROM audit_chain_head(%s)", ["system"])
            said = [portal.ask(browser, "/tenants/") for _ in range(50)]
            said.append(portal.ask(script, "/api/v1/me/"))
            assert {code for code, _ in said} == {429}
        numbers = {number_of(answer) for _, answer in said}
        assert len(numbers) == 51 and "" not in numbers
        assert number_of(said[-1][1]).encode() in said[-1][1].partition(b"\r\n\r\n")[2], "the problem names it too"
        events = AuditEntry.objects.filter(action="access.deny", user_id=acme.owner.pk, detail__code=429)

        def told() -> int:
            refusals.counts_record()
            return sum(entry.detail.get("count", 1) for entry in events.all())

        eventually(lambda: told() == 51)
        alone = [entry for entry in events.all() if "count" not in entry.detail]
        assert 1 <= len(alone) <= refusals.SENDER.burst
        assert {entry.request_id for entry in alone} <= numbers
        assert {(entry.actor, entry.outcome, entry.ip_address) for entry in alone} == {
            (acme.owner.email, "denied", "127.0.0.1")
        }
        assert "GET /tenants/" in {entry.target for entry in alone}


def test_whoever_waits_has_the_next_place_and_no_thread_before(
    portal: Portal, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A browser with many pages open is told nothing; more than may wait are refused at once."""
    monkeypatch.setattr(handler, "WAIT_SECONDS", 300)
    (browser,) = known(portal, acme.owner)
    placed = AT_WORK["person"] + WAITING["person"]
    with Held(Recording._meta.db_table) as held:
        asked = portal.ask_many(browser, RECORDINGS, placed + 9)
        eventually(lambda: asked.answered == 9)
        held.waits(AT_WORK["person"])
        held.let_go()
        assert asked.codes() == {200: placed, 429: 9}


def test_many_of_a_tenant_are_one_tenant_and_many_tenants_are_not_all(
    portal: Portal, acme: House, globex: House, operator: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "WAIT_SECONDS", 0.01)
    third = house("initech")
    owners, admins = known(portal, acme.owner, globex.owner), known(portal, acme.admin, globex.admin)
    mate, other, master = known(portal, acme.editor, third.owner, operator)
    with full(portal, owners[0], admins[0]):
        code, said = portal.ask(mate, "/tenants/")
        assert (code, b"\r\nretry-after: " in said) == (429, True)
        assert portal.ask(other, "/tenants/")[0] == 200
    with full(portal, *owners, *admins):
        for client in (other, Client()):
            code, said = portal.ask(client, "/login/")
            assert (code, b"\r\nretry-after: " in said, bool(number_of(said))) == (503, True, True)
        assert b'"status": 503' in portal.ask(Client(), "/api/v1/me/")[1]
        assert portal.ask(master, "/tenants/")[0] == 200
        assert portal.ask(Client(), "/healthz")[0] == 200
    assert portal.ask(other, "/tenants/")[0] == 200


def test_strangers_are_counted_by_where_they_come_from_whatever_they_say_they_are(
    portal: Portal, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "WAIT_SECONDS", 0.01)
    (browser,) = known(portal, acme.owner)
    with Held("django_session") as held, ExitStack() as stack:
        for number in range(AT_WORK["address"]):
            inventing = Client()
            inventing.cookies[settings.SESSION_COOKIE_NAME] = f"{number:032}"
            stack.enter_context(portal.begin(inventing, "/tenants/"))
        held.waits(AT_WORK["address"])
        assert portal.ask(Client(), "/login/")[0] == 429
        stack.enter_context(portal.begin(browser, "/tenants/"))
        held.waits(AT_WORK["address"] + 1)
    eventually(lambda: portal.ask(Client(), "/login/")[0] == 200)


def test_who_goes_keeps_the_place_for_as_long_as_the_thread(
    portal: Portal, acme: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handler, "WAIT_SECONDS", 0.01)
    (browser,) = known(portal, acme.owner)
    with Held(Recording._meta.db_table) as held:
        gone = [portal.begin(browser, RECORDINGS) for _ in range(AT_WORK["person"])]
        held.waits(AT_WORK["person"])
        for each in gone:
            each.close()
        assert portal.ask(browser, "/tenants/")[0] == 429
    eventually(lambda: portal.ask(browser, "/tenants/")[0] == 200)


def test_few_exports_of_a_person_are_open_at_a_time(portal: Portal, acme: House) -> None:
    """Of either kind; refused before it counts as one, or is in the record. Both are read while they are sent."""
    reader = bearer(acme.owner)
    archive, audit, asking = (
        "/api/v1/tenants/acme/export",
        "/api/v1/audit-logs/export?tenant=acme",
        '{"secrets": false}',
    )
    with Held(UsageHour._meta.db_table) as held, ExitStack() as stack:
        open_ = [stack.enter_context(portal.begin(reader, archive, asking)) for _ in range(LARGE["person"])]
        held.waits(LARGE["person"])
        for code, said in (portal.ask(reader, archive, asking), portal.ask(reader, audit)):
            assert (code, b"\r\nretry-after: " in said) == (429, True)
        assert AuditEntry.objects.filter(action="tenant.export").count() == LARGE["person"]
        held.let_go()
        assert [answer_of(each)[0] for each in open_] == [200] * LARGE["person"]
    eventually(lambda: portal.ask(reader, audit)[0] == 200)


def test_a_large_file_is_made_for_few_and_counts_until_it_was_sent(portal: Portal, acme: House) -> None:
    """By clients that take nothing: what others may have depends on nobody's patience."""
    found = factories.recording(acme.workspace, acme.editor, shown="x" * LARGE_BYTES)
    path = f"/recordings/{found.pk}/cast/"
    reader, other = known(portal, acme.owner, acme.admin)
    slow = [portal.begin(reader, path, keeps=4096) for _ in range(LARGE["person"])]
    for each in slow:
        assert each.recv(15) == b"HTTP/1.1 200 OK"
    assert portal.ask(reader, path)[0] == 429
    assert AuditEntry.objects.filter(action="recording.watch").count() == LARGE["person"]
    assert portal.ask(reader, "/tenants/")[0] == 200
    assert portal.ask(other, path)[0] == 200, "there is one more about the tenant"
    for each in slow:
        each.close()
    eventually(lambda: portal.ask(reader, path)[0] == 200)


def test_a_static_file_that_is_not_there_costs_nobody_a_connection(transactional_db: None) -> None:
    """It needs no place."""
    client = Client()
    client.cookies[settings.SESSION_COOKIE_NAME] = "a" * 32
    connection.close()
    assert client.get("/static/nowhere.css").status_code == 404
    assert connection.connection is None


def test_a_place_that_comes_as_nobody_waits_any_more_is_given_to_the_next() -> None:
    async def story() -> None:
        places = Places({"all": 1})
        first = places.take(("all", ""))
        assert first is not None
        leaving, staying = (asyncio.create_task(places.wait(("all", ""), seconds=300)) for _ in range(2))
        await asyncio.sleep(0)
        first.close()
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        place = await staying
        assert place is not None
        assert places.take(("all", "")) is None
        place.close()
        place.close()
        assert places.take(("all", "")) is not None

    asyncio.run(story())
