"""A client that says exactly what it is told to an API server, and hears everything that comes back."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml


@dataclass(frozen=True)
class Answer:
    """What a server answered. ``body`` is the decoded JSON, or the text when it is none; ``content`` the bytes."""

    status: int
    headers: Mapping[str, str]
    warnings: tuple[str, ...]
    body: Any
    content: bytes = b""

    def __getitem__(self, name: str) -> Any:
        return self.body[name]

    @property
    def revision(self) -> str:
        """The object's or list's ``resourceVersion``."""
        return str(self.body["metadata"]["resourceVersion"])


class Speaker:
    """One kept connection to one server; ``prefix`` stands before every path."""

    def __init__(self, url: str, context: ssl.SSLContext, headers: Mapping[str, str] = {}, prefix: str = "") -> None:
        self.url, self.context, self.headers, self.prefix = url, context, dict(headers), prefix
        self._connection: HTTPConnection | None = None
        self._others: list[Speaker] = []

    def close(self) -> None:
        """Hang up, here and wherever else this speaker was sent ``at``."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        for other in self._others:
            other.close()

    def at(self, prefix: str, **headers: str) -> Speaker:
        """The same server and user behind another prefix, over a connection of its own."""
        self._others.append(Speaker(self.url, self.context, {**self.headers, **headers}, prefix))
        return self._others[-1]

    def send(self, method: str, path: str, body: Any = None, media: str = "application/json", **headers: str) -> Answer:
        """Ask. A body that is no string or bytes is sent as JSON; ``headers`` use ``_`` for ``-``."""
        data = body if body is None or isinstance(body, str | bytes) else json.dumps(body)
        given = {**self.headers, **({"Content-Type": media} if media and data is not None else {})}
        given |= {name.replace("_", "-"): value for name, value in headers.items()}
        for attempt in (1, 2):
            if self._connection is None:
                self._connection = HTTPSConnection(urlsplit(self.url).netloc, context=self.context, timeout=300)
            try:
                self._connection.request(method, self.prefix + path, data, given)
                return _answer(self._connection.getresponse())
            except (ConnectionError, ssl.SSLEOFError, HTTPException):
                # A server may close a kept connection whenever it likes.
                self._connection = None
                if attempt == 2:
                    raise
        raise AssertionError

    def request(self, method: str, path: str, body: Any = None, media: str = "application/json") -> tuple[int, Any]:
        """Ask; the status and the body alone."""
        answer = self.send(method, path, body, media)
        return answer.status, answer.body

    @contextmanager
    def watch(self, path: str, **headers: str) -> Iterator[Iterator[dict[str, Any]]]:
        """The events of a watch, until the server or the reader has enough."""
        connection = HTTPSConnection(urlsplit(self.url).netloc, context=self.context, timeout=300)
        try:
            given = self.headers | {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request("GET", self.prefix + path, headers=given)
            response = connection.getresponse()
            assert response.status == 200, response.read()
            yield (json.loads(line) for line in response)
        finally:
            connection.close()


def _answer(response: HTTPResponse) -> Answer:
    content = response.read()
    try:
        body = json.loads(content)
    except ValueError:
        body = content.decode(errors="replace")
    headers = {name.lower(): value for name, value in response.getheaders()}
    return Answer(response.status, headers, tuple(response.msg.get_all("Warning") or ()), body, content)


def speaker_of(kubeconfig: str) -> Speaker:
    """A speaker for the first cluster and user of a kubeconfig with a certificate or a token."""
    config = yaml.safe_load(kubeconfig)
    cluster, user = config["clusters"][0]["cluster"], config["users"][0]["user"]
    context = ssl.create_default_context(cadata=_text(cluster["certificate-authority-data"]))
    headers = {"User-Agent": "conformance/1"}
    if "token" in user:
        headers["Authorization"] = f"Bearer {user['token']}"
    else:
        with tempfile.TemporaryDirectory() as folder:
            pair = Path(folder) / "pair.pem"
            pair.write_text(_text(user["client-certificate-data"]) + _text(user["client-key-data"]))
            context.load_cert_chain(pair)
    return Speaker(cluster["server"], context, headers)


def _text(data: str) -> str:
    return base64.b64decode(data).decode()


def without_server_fields(document: Mapping[str, Any]) -> dict[str, Any]:
    """An object without what the server alone decides: uid, revision, times and managed fields."""
    own = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink")
    metadata = {name: value for name, value in document.get("metadata", {}).items() if name not in own}
    return {**document, "metadata": metadata}
