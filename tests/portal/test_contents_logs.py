"""Logs in the portal, and what a server behind the door may send that means harm or sends nothing (GW27)."""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from portal.contents import door
from tenants.models import Cluster
from tests import factories
from tests.hostilecluster import HostileCluster, hostile_cluster
from tests.portal.conftest import House, signed_in
from tests.portal.inhabited import HOSTILE, RIGHT_TO_LEFT
from tests.portal.test_contents import LIVE, text_of
from tests.portal.test_stored_texts import Looking

RESOURCE = {"resource": "pods", "responseKind": {"kind": "Pod"}, "scope": "Namespaced", "verbs": ["get", "list"]}
DISCOVERY = {"items": [{"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": [RESOURCE]}]}]}
POD = {
    "kind": "Pod",
    "apiVersion": "v1",
    "metadata": {"name": "web"},
    "spec": {"initContainers": [{"name": "first"}], "containers": [{"name": "app"}, {"name": "side"}]},
}
LOG = b"begun\n\x1b[31mERROR\x1b[0m out of <b data-forged>memory\n" + HOSTILE.encode() + b"\n"


@pytest.fixture
def server(settings: Any, tmp_path: Any) -> Iterator[HostileCluster]:
    """What the portal takes for the product's API server."""
    key = ec.generate_private_key(ec.SECP256R1())
    settings.PORTAL_TOKEN_KEY_FILE = tmp_path / "key"
    settings.PORTAL_TOKEN_KEY_FILE.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    with hostile_cluster() as made:
        factories.cluster("own", kind=Cluster.Kind.EMBEDDED, server=made.url, ca_data=made.ca.cert_pem.bytes().decode())
        yield made


@pytest.fixture
def says(server: HostileCluster) -> Callable[[str, Any], None]:
    """Have it answer what stands in paths that contain a text; the rest is a pod and its log."""
    answers: dict[str, Any] = {"/log": (200, LOG), "/pods/web": (200, POD), "/api": (200, DISCOVERY)}

    def reply(_method: str, path: str) -> Any:
        return next((answer for part, answer in answers.items() if part in path), (404, {}))

    def say(part: str, answer: Any) -> None:
        rest = {known: value for known, value in answers.items() if known != part}
        answers.clear()
        answers.update({part: answer, **rest})

    server.reply = reply
    return say


def url(acme: House, path: str = "") -> str:
    return f"/workspaces/{acme.workspace.pk}/contents/pods/web/{path}"


def test_a_log_is_followed_searched_and_taken_away(
    acme: House, server: HostileCluster, says: Callable[[str, Any], None]
) -> None:
    browser = signed_in(acme.viewer)
    page = browser.get(url(acme, "logs/"))
    assert "ERROR out of <b data-forged>memory" in text_of(page).replace("&lt;", "<")
    looking = Looking()
    looking.feed(page.content.decode())
    assert not looking.found
    assert not [letter for letter in (RIGHT_TO_LEFT, "\x1b", "\x07") if letter in page.content.decode()]
    asked = server.calls[-1][1]
    assert "container=app" in asked, "not the one that only begins"
    assert "tailLines=500" in asked
    assert "previous" not in asked

    found = browser.get(url(acme, "logs/?q=error&container=side&previous=1&lines=100&times=1"))
    assert "<mark>ERROR</mark>" in found.content.decode()
    assert "begun" not in text_of(found).split("Log", 1)[1].split("lines", 1)[1]
    assert "1 of 3 lines" in text_of(found)
    asked = server.calls[-1][1]
    assert all(part in asked for part in ("container=side", "tailLines=100", "previous=true", "timestamps=true"))
    assert "kubectl -n" in text_of(found)
    assert "logs web -c side --tail=100 --previous" in text_of(found)
    forged = browser.get(url(acme, "logs/?container=%3Cb%20data-forged%3E&lines=99999999"))
    assert "container=app&tailLines=500" in server.calls[-1][1]
    assert forged.status_code == 200

    part = browser.get(url(acme, "logs/"), headers=LIVE)
    assert "<html" not in part.content.decode()
    file = browser.get(url(acme, "logs/file/?container=app"))
    assert file.content == LOG
    assert file["Content-Disposition"] == 'attachment; filename="web-app.log"'
    assert file["Content-Type"].startswith("text/plain")
    assert file["X-Content-Type-Options"] == "nosniff"


def test_a_container_without_a_log_is_said_to_have_none(acme: House, says: Callable[[str, Any], None]) -> None:
    message = 'previous terminated container "app" in pod "web" not found'
    says("/log", (400, {"kind": "Status", "message": message, "reason": "BadRequest"}))
    page = signed_in(acme.viewer).get(url(acme, "logs/?previous=1"))
    assert page.status_code == 200
    assert "previous terminated container" in text_of(page)


def test_a_log_of_long_lines_says_that_the_newest_are_missing(acme: House, says: Callable[[str, Any], None]) -> None:
    says("/log", (200, b"x" * 1024 * 1024))
    assert "the newest are missing" in text_of(signed_in(acme.viewer).get(url(acme, "logs/")))


def _nothing(connection: ssl.SSLSocket) -> None:
    connection.recv(1)


def _slowly(connection: ssl.SSLSocket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
    while connection.send(b"{"):
        if connection.pending():
            return
        connection.settimeout(0.05)
        try:
            connection.recv(1)
        except TimeoutError:
            continue
        return


def _cut(connection: ssl.SSLSocket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        (_nothing, 503, "has not answered in time"),
        (_slowly, 503, "has not answered in time"),
        (_cut, 503, "has not answered in time"),
        (lambda connection: connection.sendall(b"garbage\r\n\r\n"), 503, "cannot be reached"),
        ((200, b"not JSON"), 502, "was not Kubernetes"),
        ((200, b"[1]"), 502, "was not Kubernetes"),
        ((200, b" " * (9 * 1024 * 1024)), 413, "larger than 8 MiB"),
        ((302, {"message": "go on"}), 502, "go on"),
        ((403, {"kind": "Status", "message": "pods is forbidden: \u202eno <b data-forged>"}), 403, "pods is forbidden"),
        ((500, b"<html><b data-forged>"), 500, "The API server answered 500"),
    ],
    ids=["hangs", "drips", "cut", "garbage", "no JSON", "a list", "too large", "redirect", "forbidden", "HTML"],
)
def test_no_answer_holds_a_page_up_or_is_more_than_text(
    answer: Any, code: int, said: str, acme: House, says: Callable[[str, Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    if said == "has not answered in time":
        monkeypatch.setattr(door, "CALL_SECONDS", 0.7)
    door._pool.cache_clear()
    says("/pods/web", answer)
    page = signed_in(acme.viewer).get(url(acme))
    door._pool.cache_clear()
    assert page.status_code == code
    assert said in text_of(page)
    looking = Looking()
    looking.feed(page.content.decode())
    assert not looking.found
    assert RIGHT_TO_LEFT not in page.content.decode()


def test_a_page_of_many_calls_has_one_deadline(
    acme: House, server: HostileCluster, says: Callable[[str, Any], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has taken long enough asks for no more, and changes nothing any more."""
    late = 0.0
    monkeypatch.setattr(door, "time", SimpleNamespace(monotonic=lambda: time.monotonic() + late))
    answer = server.reply

    def slowly(method: str, path: str) -> Any:
        nonlocal late
        late += door.ANSWER_SECONDS if path == "/apis" else 0.0
        return answer(method, path)

    server.reply = slowly
    page = signed_in(acme.viewer).get(url(acme))
    assert page.status_code == 503
    assert "has not answered in time" in text_of(page)
    assert page["Retry-After"] == "5"
    assert server.calls[-1][1] == "/apis"


def test_a_server_without_the_right_certificate_hears_no_token(acme: House, server: HostileCluster) -> None:
    with hostile_cluster() as other:
        Cluster.objects.filter(kind=Cluster.Kind.EMBEDDED).update(server=other.url)
        page = signed_in(acme.viewer).get(url(acme))
        assert page.status_code == 503
        assert "certificate does not fit" in text_of(page)
        assert not other.calls
