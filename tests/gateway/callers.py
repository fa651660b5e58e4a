"""Callers of the API server: raw HTTP with a certificate or a token, one connection a request."""

from __future__ import annotations

import contextlib
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPResponse, HTTPSConnection
from itertools import count
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from kube.authentication import pki

PATIENCE = 300.0
"""Seconds after which a test gives up waiting for what must come."""


class Answered(Protocol):
    """Whatever tells how it went."""

    @property
    def status(self) -> int: ...


A = TypeVar("A", bound=Answered)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    raw: bytes

    @property
    def body(self) -> Any:
        return json.loads(self.raw)

    @property
    def reason(self) -> str:
        return str(self.body.get("reason", ""))


class Certified:
    """Client certificates from the server's own authority."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[tuple[str, ...], tuple[Path, Path]] = {}
        self._numbers = count()

    def anew(self) -> None:
        """Make out new ones from now on: those from before count for nobody who has a tenant's name now."""
        self._known.clear()

    def pair(self, tenant: str, name: str, *groups: str) -> tuple[Path, Path]:
        identity = (tenant, name, *groups)
        if identity not in self._known:
            pem = self._folder / "pki"
            authority = pki.KeyPair((pem / "client-ca.crt").read_bytes(), (pem / "client-ca.key").read_bytes())
            now = datetime.now(UTC)
            made = pki.make_client_certificate(
                authority,
                name,
                organizations=[f"tenant:{tenant}"],
                units=groups,
                # As old as it is, not five minutes older.
                now=now + pki.BACKDATED,
                lifetime=timedelta(hours=1),
            )
            if now.microsecond < 50_000:
                time.sleep(
                    0.05
                )  # TLS judges by a clock that is a tick behind: a second that has only just begun is yet to come.
            self._known[identity] = self.write(made, f"user-{next(self._numbers)}")
        return self._known[identity]

    def write(self, pair: pki.KeyPair, name: str) -> tuple[Path, Path]:
        paths = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        paths[0].write_bytes(pair.certificate)
        paths[1].write_bytes(pair.key)
        return paths


class Caller:
    """Somebody who sends requests."""

    def __init__(
        self, url: str, ca: Path, *, certificate: Path | None = None, key: Path | None = None, token: str = ""
    ) -> None:
        self.host = urlsplit(url).netloc
        self.certificate, self.key, self.token, self.ca = certificate, key, token, ca
        self.context = ssl.create_default_context(cafile=str(ca))
        if certificate is not None:
            self.context.load_cert_chain(certificate, key)

    def open(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, timeout: float = PATIENCE
    ) -> HTTPResponse:
        connection = HTTPSConnection(self.host, context=self.context, timeout=timeout)
        fields = {"Accept": "application/json", "User-Agent": "tests/1", **(headers or {})}
        if self.token:
            fields.setdefault("Authorization", f"Bearer {self.token}")
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        if data is not None:
            fields.setdefault("Content-Type", "application/json")
        connection.request(method, path, body=data, headers=fields)
        response = connection.getresponse()
        response.connection = connection  # type: ignore[attr-defined]
        return response

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, **query: object
    ) -> Answer:
        if query:
            path = f"{path}?{urlencode(query, quote_via=quote)}"
        response = self.open(method, path, body, headers)
        answer = Answer(response.status, {k.lower(): v for k, v in response.getheaders()}, response.read())
        response.connection.close()  # type: ignore[attr-defined]
        return answer

    def get(self, path: str, headers: dict[str, str] | None = None, **query: object) -> Answer:
        return self.call("GET", path, headers=headers, **query)

    def post(self, path: str, body: Any, headers: dict[str, str] | None = None, **query: object) -> Answer:
        return self.call("POST", path, body, headers, **query)

    def put(self, path: str, body: Any, headers: dict[str, str] | None = None, **query: object) -> Answer:
        return self.call("PUT", path, body, headers, **query)

    def patch(self, path: str, body: Any, kind: str = "merge", **query: object) -> Answer:
        media = "application/apply-patch+yaml" if kind == "apply" else f"application/{kind}-patch+json"
        return self.call("PATCH", path, body, {"Content-Type": media}, **query)

    def delete(self, path: str, body: Any = None, **query: object) -> Answer:
        return self.call("DELETE", path, body, **query)

    def watch(self, path: str, headers: dict[str, str] | None = None, **query: object) -> Watch:
        query = {"watch": "true", **query}
        return Watch(self.open("GET", f"{path}?{urlencode(query)}", headers=headers, timeout=PATIENCE))


class Watch:
    """An open watch, read line by line; a thread collects, so that a test can look at what came so far."""

    def __init__(self, response: HTTPResponse) -> None:
        self.status = response.status
        self._response = response
        self._events: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self.ended = False
        if self.status == 200:
            threading.Thread(target=self._read, daemon=True).start()
        else:
            self.error = json.loads(response.read())

    def _read(self) -> None:
        try:
            for line in self._response:
                with self._changed:
                    self._events.append(json.loads(line))
                    self._changed.notify_all()
        except (OSError, ValueError, AttributeError):
            pass
        with self._changed:
            self.ended = True
            self._changed.notify_all()

    def take(self, count: int, seconds: float = PATIENCE) -> list[dict[str, Any]]:
        """The next ``count`` events."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._events) >= count, seconds), self._events
            taken, self._events = self._events[:count], self._events[count:]
        return taken

    def until_end(self, seconds: float = PATIENCE) -> list[dict[str, Any]]:
        """Everything up to the end of the stream."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.ended, seconds), self._events
            taken, self._events = self._events, []
        return taken

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._response.connection.sock.shutdown(socket.SHUT_RDWR)  # type: ignore[attr-defined]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        while True:
            yield from self.take(1)


def config_map(name: str, data: dict[str, str] | None = None, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": data or {"a": "1"}}


def names(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def answered(ask: Callable[[], A]) -> A:
    """What is answered; a server or a cluster that is too busy to say is asked again."""
    deadline = time.monotonic() + PATIENCE
    while (answer := ask()).status in (429, 503, 504) and time.monotonic() < deadline:
        time.sleep(0.1)
    return answer


def created(ask: Callable[[], Answer]) -> int:
    """The status of a creation by a name of its own: 201 too where it is there after an answer that did not tell."""
    unknown = False

    def once() -> Answer:
        nonlocal unknown
        answer = ask()
        unknown |= answer.status == 504
        return answer

    status = answered(once).status
    return 201 if unknown and status == 409 else status


def eventually(condition: Callable[[], bool], seconds: float = PATIENCE) -> bool:
    """Whether the condition comes true; ``seconds`` is where a test gives up, never how fast something must be."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False
