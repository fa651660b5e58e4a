"""What is sent is read, however its sender says how long it is: every route and form, over a socket."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest
import yaml
from django.utils import timezone

from portal.api.openapi.docs import document
from tenants.models import Announcement, Cluster, Tenant, User
from tests import factories
from tests.portal.conftest import House, signed_in
from tests.portalserver import served_portal

CSRF = "c" * 32
CHUNKED = [pytest.param(False, id="with its length"), pytest.param(True, id="in chunks")]


class Caller:
    """Somebody who is signed in, on a connection of their own."""

    def __init__(self, url: str, user: User, settings: Any) -> None:
        self._line = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port or 0, timeout=300)
        session = signed_in(user).cookies[settings.SESSION_COOKIE_NAME].value
        cookies = {settings.SESSION_COOKIE_NAME: session, settings.CSRF_COOKIE_NAME: CSRF}
        self._headers = {"Cookie": "; ".join(f"{name}={value}" for name, value in cookies.items()), "X-CSRFToken": CSRF}

    def send(self, method: str, path: str, kind: str, body: bytes, *, chunked: bool) -> tuple[int, str, bytes]:
        """The answer's code, type and body; one that is sent in chunks has no length, and comes in two pieces."""
        headers = {**self._headers, "Content-Type": kind}
        if chunked:
            headers["Transfer-Encoding"] = "chunked"
            self._line.request(method, path, iter((body[:5], body[5:])), headers, encode_chunked=True)
        else:
            self._line.request(method, path, body, headers)
        answer = self._line.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read()

    def ask(self, method: str, path: str, body: Any, *, chunked: bool) -> tuple[int, dict[str, Any]]:
        """The same for JSON, without the number that every request has for itself."""
        code, _, said = self.send(method, path, "application/json", json.dumps(body).encode(), chunked=chunked)
        told: dict[str, Any] = json.loads(said)
        return code, {name: value for name, value in told.items() if name != "request_id"}

    def close(self) -> None:
        self._line.close()


@pytest.fixture
def operator(transactional_db: None) -> User:
    return factories.operator()


@pytest.fixture
def caller(operator: User, settings: Any) -> Iterator[Caller]:
    with served_portal() as (url, _):
        made = Caller(url, operator, settings)
        try:
            yield made
        finally:
            made.close()


def routes_with_a_body(acme: House) -> Iterator[tuple[str, str]]:
    """Every route of the document that takes one, of things that there are."""
    asked = factories.access_request(acme.tenant, acme.viewer)
    said = Announcement.objects.create(text="x", starts_at=timezone.now(), created_by="x")
    things: dict[str, dict[str, Any]] = {
        "announcements": {"id": said.pk},
        "clusters": {"name": acme.workspace.cluster.name},
        "requests": {"id": asked.pk},
        "tenants": {"name": acme.tenant.name, "user_id": acme.viewer.pk},
        "tiers": {"name": acme.workspace.tier_id},
        "users": {"id": acme.viewer.pk},
        "workspaces": {"id": acme.workspace.pk},
    }
    for path, methods in document()["paths"].items():
        for method, operation in methods.items():
            if "requestBody" in operation:
                yield method.upper(), path.format(**things.get(path.split("/")[3], {}))


def test_every_route_reads_a_body_that_does_not_say_its_length(caller: Caller, acme: House) -> None:
    """API-04: a member that there is not is told, so the body was read; and so is what is no object."""
    routes = list(routes_with_a_body(acme))
    assert len(routes) > 40
    for method, path in routes:
        for body, named in (({"no-such-member": 1}, "no-such-member"), (["x"], "")):
            told = [caller.ask(method, path, body, chunked=chunked) for chunked in (False, True)]
            assert told[0] == told[1], (method, path)
            code, said = told[0]
            assert (code, said["errors"][0]["field"]) == (400, named), (method, path, said)


@pytest.mark.parametrize("chunked", CHUNKED)
@pytest.mark.parametrize("place", ["workspaces/{}/credentials", "tenants/acme/kubeconfig"])
def test_a_credential_has_no_more_rights_than_were_asked_for(
    caller: Caller, operator: User, acme: House, place: str, chunked: bool
) -> None:
    """GW3: a body that is taken for none would be a question for everything that its sender may."""
    own = factories.cluster("own", kind=Cluster.Kind.EMBEDDED, credential_kinds=["gateway", "exec"], ca_data="")
    factories.member(acme.tenant, "owner", operator)
    path = place.format(factories.workspace(acme.tenant, operator, "api", cluster=own).pk)
    code, issued = caller.ask("POST", f"/api/v1/{path}", {"via": "exec", "role": "viewer"}, chunked=chunked)
    assert (code, issued["via"]) == (201, "exec"), issued
    for entry in yaml.safe_load(issued["kubeconfig"])["users"]:
        assert entry["user"]["exec"]["args"][-2:] == ["--role", "viewer"]


@pytest.mark.parametrize("chunked", CHUNKED)
def test_what_is_neither_json_nor_yaml_is_not_taken_for_nothing(caller: Caller, acme: House, chunked: bool) -> None:
    path = f"/api/v1/workspaces/{acme.workspace.pk}/credentials"
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=b", ""):
        code, form, said = caller.send("POST", path, kind, b'{"role": "viewer"}', chunked=chunked)
        assert (code, form) == (415, "application/problem+json"), (kind, said)


@pytest.mark.parametrize("chunked", CHUNKED)
@pytest.mark.parametrize("multipart", [False, True])
def test_a_form_is_read_that_does_not_say_its_length(caller: Caller, multipart: bool, chunked: bool) -> None:
    kind, body = "application/x-www-form-urlencoded", urlencode({"name": "globex"}).encode()
    if multipart:
        kind = "multipart/form-data; boundary=b"
        body = b'--b\r\nContent-Disposition: form-data; name="name"\r\n\r\nglobex\r\n--b--\r\n'
    code, _, _ = caller.send("POST", "/tenants/new/", kind, body, chunked=chunked)
    assert code == 302
    assert Tenant.objects.filter(name="globex").exists()
