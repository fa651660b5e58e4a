"""A real OpenID Connect provider on this host, over TLS, whose people and tokens a test can change."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import oidc_provider_mock
import requests
import trustme
import werkzeug.serving
from django.test import Client

AUTHORITY = trustme.CA()
Answer = Callable[[dict[str, Any]], Any]


class Provider:
    """``oidc-provider-mock``; ``lifetime`` is that of its tokens. ``change`` may alter an ID token's claims."""

    def __init__(self, lifetime: timedelta) -> None:
        self._app = oidc_provider_mock.app(access_token_max_age=lifetime)
        self.url = ""
        self.ca = ""
        self.down = False
        self.describe: dict[str, Any] = {}
        self.change: Callable[[dict[str, Any]], dict[str, Any]] | None = None
        self.asked: list[str] = []

    def __call__(self, environ: dict[str, Any], start: Any) -> Any:
        self.asked.append(environ["PATH_INFO"])
        if self.down:
            start("503 Service Unavailable", [])
            return [b""]
        if environ["PATH_INFO"] == "/oauth2/token" and self.change:
            return self._altered(environ, start, self._with_claims)
        if environ["PATH_INFO"] == "/.well-known/openid-configuration" and self.describe:
            return self._altered(environ, start, lambda body: {**body, **self.describe})
        return self._app(environ, start)

    def person(self, subject: str, **claims: object) -> None:
        """Make somebody known, or change what is said of them."""
        answer = requests.put(f"{self.url}/users/{subject}", json=claims, verify=self.ca, timeout=300)
        assert answer.status_code == 204

    def consent(self, address: str, subject: str) -> str:
        """Sign in there as ``subject``; the address that the browser is sent back to."""
        answer = requests.post(address, data={"sub": subject}, verify=self.ca, timeout=300, allow_redirects=False)
        assert answer.status_code == 302, answer.text
        return answer.headers["Location"]

    def token(self, subject: str, audience: str = "tenantry") -> str:
        """An ID token of a sign-in that had nothing to do with the portal."""
        sent = {"client_id": audience, "redirect_uri": "https://elsewhere.test/", "response_type": "code"}
        back = self.consent(f"{self.url}/oauth2/authorize?{urlencode({**sent, 'scope': 'openid email'})}", subject)
        fields = {"grant_type": "authorization_code", "code": query(back)["code"]}
        fields["redirect_uri"] = sent["redirect_uri"]
        answer = requests.post(
            f"{self.url}/oauth2/token", data=fields, auth=(audience, "x"), verify=self.ca, timeout=300
        )
        return str(answer.json()["id_token"])

    def _altered(self, environ: dict[str, Any], start: Any, alter: Answer) -> Any:
        said: list[Any] = []
        body = b"".join(self._app(environ, lambda status, headers, *_: said.extend((status, headers))))
        if said[0].startswith("200"):
            body = json.dumps(alter(json.loads(body))).encode()
        start(said[0], [(name, value) for name, value in said[1] if name.lower() != "content-length"])
        return [body]

    def _with_claims(self, body: dict[str, Any]) -> dict[str, Any]:
        claims = jwt.decode(body["id_token"], options={"verify_signature": False})
        assert self.change is not None
        return {**body, "id_token": self.signed(self.change(claims))}

    def signed(self, claims: dict[str, Any]) -> str:
        """Any claims, signed by the provider's own key."""
        return jwt.encode(claims, self._key(), algorithm="RS256")

    def _key(self) -> Any:
        storages = []
        for function in self._app.before_request_funcs[None]:
            cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
            if "storage" in cells:
                storages.append(cells["storage"].cell_contents)
        return jwt.PyJWK(storages[0].jwk.as_dict(is_private=True), algorithm="RS256").key


def query(address: str) -> dict[str, str]:
    """The query of an address."""
    return {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}


@contextmanager
def providing(folder: Path, lifetime: timedelta = timedelta(hours=1)) -> Iterator[Provider]:
    """A provider that answers; its CA stands in ``folder``."""
    provider = Provider(lifetime)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("localhost").configure_cert(context)
    ca = folder / "provider-ca.pem"
    AUTHORITY.cert_pem.write_to_path(str(ca))
    server = werkzeug.serving.make_server("localhost", 0, provider, threaded=True, ssl_context=context)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    provider.url, provider.ca = f"https://localhost:{server.server_port}", str(ca)
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


ELSEWHERE = [
    "https://evil.test/",
    "//evil.test",
    "///evil.test",
    "/\\evil.test",
    "\\\\evil.test",
    "\\/evil.test",
    "/\t/evil.test",
    "\t//evil.test",
    " https://evil.test",
    "https:evil.test",
    "https:///evil.test",
    "https://testserver@evil.test/",
    "https://testserver.evil.test/",
    "https://evil.test\\@testserver/",
    "javascript:alert(1)",
    "data:text/html,x",
]
"""Where no sign-in leads, however it is written."""


def begin(client: Client, following: str = "") -> str:
    """Press the button; the address at the provider."""
    response = client.get("/oidc/authenticate/", {"next": following} if following else {})
    assert response.status_code == 302, response.content
    return str(response.headers["Location"])


def come_back(client: Client, address: str) -> Any:
    """Follow the provider's redirect into the portal."""
    parts = urlsplit(address)
    return client.get(f"{parts.path}?{parts.query}")
