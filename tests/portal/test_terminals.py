"""Who may open a terminal through the portal, and who may not: tickets, origins, sessions, and how one ends (GW27)."""

from __future__ import annotations

import socket
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.conf import settings as django_settings
from django.core.cache import cache
from django.test import Client
from django.utils import timezone

from audit.models import ApiRequest, AuditEntry
from portal.contents import terminals
from portal.serving import PortalServer
from tenants.models import Cluster, Tenant, Workspace
from tests import factories
from tests.podserver import PodServer, messages_in, pod_server
from tests.portal.conftest import House, signed_in
from tests.portalserver import served_portal

pytestmark = pytest.mark.django_db(transaction=True)

FORM = {"container": "app", "command": "sh"}


@dataclass
class Place:
    """The portal on a socket, two tenants, and the API server that lets into the pod web-1 of everybody."""

    url: str
    server: PortalServer
    acme: House
    globex: House
    pods: PodServer

    def at(self, workspace: Workspace | None = None, pod: str = "web-1", page: str = "connect/") -> str:
        return f"/workspaces/{(workspace or self.acme.workspace).pk}/contents/pods/{pod}/terminal/{page}"

    def suspend(self) -> None:
        said = {"suspended_at": timezone.now(), "suspended_reason": "unpaid"}
        Tenant.objects.filter(pk=self.acme.tenant.pk).update(state="suspended", **said)

    def ticket(self, browser: Client, **form: str) -> str:
        answer = browser.post(self.at(page="ticket/"), {**FORM, **form})
        assert answer.status_code == 200, answer.content
        assert answer.json()["path"] == self.at()
        return str(answer.json()["ticket"])

    def shake(self, browser: Client, ticket: str, path: str = "", **changed: str | None) -> bytes:
        """A handshake as browsers make it; what is answered to it at first."""
        name = django_settings.SESSION_COOKIE_NAME
        headers: dict[str, str | None] = {
            "Host": self.url.removeprefix("http://"),
            "Origin": self.url,
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec-WebSocket-Version": "13",
            "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            "Sec-WebSocket-Protocol": f"v5.channel.k8s.io, {ticket}",
            "Sec-WebSocket-Extensions": "permessage-deflate",
            "Cookie": f"{name}={browser.cookies[name].value}",
            "Authorization": "Bearer stolen",
            **{key.replace("_", "-"): value for key, value in changed.items()},
        }
        head = "".join(f"{key}: {value}\r\n" for key, value in headers.items() if value is not None)
        with socket.create_connection(("127.0.0.1", int(self.url.rpartition(":")[2])), timeout=300) as client:
            client.sendall(f"GET {path or self.at()} HTTP/1.1\r\n{head}\r\n".encode())
            said = b""
            while b"\r\n\r\n" not in said or (said.startswith(b"HTTP/1.1 101") and not said.endswith(b"$ ")):
                piece = client.recv(65536)
                if not piece:
                    break
                said += piece
        return said


@pytest.fixture
def place(acme: House, globex: House, settings: Any, tmp_path: Path) -> Iterator[Place]:
    key = ec.generate_private_key(ec.SECP256R1()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    settings.PORTAL_TOKEN_KEY_FILE = tmp_path / "key.pem"
    (tmp_path / "key.pem").write_bytes(key)
    with pod_server() as pods, served_portal() as (url, server):
        authority = pods.cluster.ca.cert_pem.bytes().decode()
        factories.cluster(
            "own", kind=Cluster.Kind.EMBEDDED, server=pods.cluster.url, ca_data=authority, is_default=False
        )
        yield Place(url, server, acme, globex, pods)


def test_a_ticket_opens_one_terminal_and_the_person_goes_in(place: Place) -> None:
    """Once, whatever is tried: as the person, with a token that no browser sees, and with nothing else of the browser's."""
    browser = signed_in(place.acme.editor)
    ticket = place.ticket(browser, command="bash -c 'echo a b'")
    opened = place.shake(browser, ticket)
    head, _, rest = opened.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 ")
    assert b"set-cookie" not in head.lower()
    assert b"permessage-deflate" not in head
    assert messages_in(rest) == [b"\x01$ "]
    (asked,) = place.pods.asked
    assert asked.endswith("?container=app&command=bash&command=-c&command=echo+a+b&stdin=true&stdout=true&tty=true")
    sent = place.pods.headers
    assert sent["authorization"].startswith("Bearer ey")
    assert "stolen" not in sent["authorization"]
    assert sent["sec-websocket-protocol"] == "v5.channel.k8s.io"
    assert not {"cookie", "origin", "sec-websocket-extensions"} & set(sent)
    token = sent["authorization"].removeprefix("Bearer ")
    for model in (AuditEntry, ApiRequest):
        assert not any(secret in repr(row) for secret in (token, ticket) for row in model.objects.values_list())

    assert place.shake(browser, ticket).startswith(b"HTTP/1.1 403 ")
    assert len(place.pods.asked) == 1


def test_nothing_that_is_kept_opens_a_terminal(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """What lies in the cache is a digest, and goes by itself."""
    kept: list[tuple[str, Any, float]] = []
    keep = cache.set

    def watched(key: str, value: Any, timeout: float) -> None:
        kept.append((key, value, timeout))
        keep(key, value, timeout)

    monkeypatch.setattr(terminals.cache, "set", watched)
    browser = signed_in(place.acme.editor)
    ticket = place.ticket(browser)
    ((key, value, seconds),) = kept
    assert seconds == terminals.TICKET_SECONDS <= 30
    session = browser.cookies[django_settings.SESSION_COOKIE_NAME].value
    assert not [secret for secret in (ticket.removeprefix(terminals.TICKET), session) if secret in f"{key} {value}"]
    assert place.shake(browser, terminals.TICKET + key.partition(":")[2]).startswith(b"HTTP/1.1 403 ")
    cache.delete(key)
    assert place.shake(browser, ticket).startswith(b"HTTP/1.1 403 "), "too old"
    assert place.pods.asked == []


@pytest.mark.parametrize(
    ("code", "changed"),
    [
        pytest.param(403, {"Origin": "http://evil.test"}, id="another site"),
        pytest.param(403, {"Origin": "null"}, id="a page of nowhere"),
        pytest.param(403, {"Origin": None}, id="no page"),
        pytest.param(403, {"Sec_WebSocket_Protocol": "v5.channel.k8s.io"}, id="no ticket"),
        pytest.param(403, {"Sec_WebSocket_Protocol": "v5.channel.k8s.io, tenantry.ticket.x"}, id="a guessed one"),
        pytest.param(302, {"Cookie": None}, id="nobody"),
        pytest.param(400, {"Host": "evil.test", "Origin": "http://evil.test"}, id="another host"),
        pytest.param(426, {"Upgrade": None, "Connection": "close"}, id="no WebSocket"),
    ],
)
def test_no_other_site_opens_one(place: Place, code: int, changed: dict[str, str | None]) -> None:
    """Each of them alone is enough: a cookie that a browser sends along is not, nor a ticket that somebody has seen."""
    browser = signed_in(place.acme.editor)
    assert place.shake(browser, place.ticket(browser), **changed).startswith(b"HTTP/1.1 %d " % code)
    assert place.pods.asked == []


def test_a_ticket_is_of_one_session_and_one_pod(place: Place) -> None:
    browser, again = signed_in(place.acme.editor), signed_in(place.acme.editor)
    colleague, stranger = signed_in(place.acme.admin), signed_in(place.globex.editor)
    for other in (again, colleague):
        assert place.shake(other, place.ticket(browser)).startswith(b"HTTP/1.1 403 ")
    assert place.shake(stranger, place.ticket(browser)).startswith(b"HTTP/1.1 404 ")
    theirs = factories.workspace(place.acme.tenant, place.acme.editor, "other")
    for path in (place.at(pod="web-2"), place.at(theirs)):
        assert place.shake(browser, place.ticket(browser), path).startswith(b"HTTP/1.1 403 ")
    browser.post("/logout/")
    assert place.pods.asked == []


def test_who_may_not_gets_no_ticket(place: Place) -> None:
    """Nor does a pod of another tenant, or none, or a form of another site."""
    browser = signed_in(place.acme.editor)
    at = place.at(page="ticket/")
    assert signed_in(place.globex.editor).post(at, FORM).status_code == 404
    assert browser.post(place.at(place.globex.workspace, page="ticket/"), FORM).status_code == 404
    assert browser.post(place.at(pod="nobody", page="ticket/"), FORM).status_code == 404
    assert browser.get(at).status_code == 405
    assert signed_in(place.acme.editor, enforce_csrf_checks=True).post(at, FORM).status_code == 403
    for form, said in (
        ({**FORM, "container": "other"}, "no such container"),
        ({**FORM, "command": "sh 'open"}, "quotation marks"),
        ({**FORM, "command": " "}, "Name a command"),
        ({**FORM, "command": "x" * 201}, "at most 200"),
        ({**FORM, "command": "sh\n-c"}, "Name a command"),
    ):
        answer = browser.post(at, form)
        assert (answer.status_code, said in answer.json()["message"]) == (400, True)
    place.pods.may = False
    answer = browser.post(at, FORM)
    assert (answer.status_code, "create pods/exec" in answer.json()["message"]) == (403, True)
    auditor = factories.user("audra@platform.test", is_auditor=True)
    assert signed_in(auditor).post(at, FORM).status_code == 403
    place.suspend()
    answer = browser.post(at, FORM)
    assert (answer.status_code, "is suspended" in answer.json()["message"]) == (409, True)
    assert place.pods.asked == []


def words(said: bytes) -> str:
    """The reason of the close frame that a handshake was answered with."""
    head, _, rest = said.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 101 "), said
    assert b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" in head, "the answer to the key of RFC 6455"
    return messages_in(rest)[-1][2:].decode()


def test_what_cannot_be_opened_says_why(place: Place) -> None:
    """To a browser a refused handshake would be no more than refused."""
    browser = signed_in(place.acme.editor)
    place.pods.refusal = 403, 'pods "web-1" is forbidden: the workspace is frozen'
    assert words(place.shake(browser, place.ticket(browser))) == 'pods "web-1" is forbidden: the workspace is frozen'
    ticket = place.ticket(browser)
    place.suspend()
    assert words(place.shake(browser, ticket)).startswith("The tenant acme is suspended")
    Tenant.objects.update(state="active", suspended_at=None, suspended_reason="")
    ticket = place.ticket(browser)
    place.pods.cluster.close()
    assert 'cluster "own" cannot be reached' in words(place.shake(browser, ticket))


def test_the_portal_says_that_it_stops(place: Place) -> None:
    browser = signed_in(place.acme.editor)
    name = django_settings.SESSION_COOKIE_NAME
    ticket = place.ticket(browser)
    with socket.create_connection(("127.0.0.1", int(place.url.rpartition(":")[2])), timeout=300) as client:
        client.sendall(
            f"GET {place.at()} HTTP/1.1\r\nHost: {place.url.removeprefix('http://')}\r\nOrigin: {place.url}\r\n"
            "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
            f"Sec-WebSocket-Key: {uuid.uuid4().hex}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io, {ticket}\r\n"
            f"Cookie: {name}={browser.cookies[name].value}\r\n\r\n".encode()
        )
        said = b""
        while not said.endswith(b"$ "):
            said += client.recv(65536)
        place.server.should_exit = True
        while piece := client.recv(65536):
            said += piece
    assert b"The portal is being restarted: open the terminal again." in said
