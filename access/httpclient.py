"""The one door for questions to outside services: webhooks, identity providers, Keystone.

What goes out goes to the configured host and nowhere else: no redirects, no proxies from the environment, no cookies,
TLS always verified; what comes back is small and comes soon.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import aiohttp
import orjson
from aiohttp.abc import AbstractResolver
from yarl import URL

from access.outsidebudget import BUDGET_SECONDS, Unreachable
from access.reloading import UnusableFile, report_exposed
from kube.authentication.webhookfiles import Source, WebhookFile, WebhookFileError, checked_url, parse

ANSWER_MAX: Final = 1024 * 1024
"""Bytes of an answer: reviews and key sets are far smaller."""

CONNECTIONS_MAX: Final = 64
_CONNECT_SECONDS: Final = 5.0

FAILURES_MAX: Final = 3
REST_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Answer:
    """A response: its status, and its body, read whole and within bounds."""

    status: int
    headers: Mapping[str, str]
    body: bytes = field(repr=False)

    def json(self) -> dict[str, Any]:
        """The body as a JSON object; raises ``Unreachable`` for anything else."""
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            value = None
        if not isinstance(value, dict):
            raise Unreachable("the answer is not a JSON object")
        return value


class HttpClient:
    """Connections to one outside service. Make and use it in one event loop; ``close`` it at the end."""

    def __init__(
        self,
        *,
        tls: ssl.SSLContext | None = None,
        server_name: str = "",
        headers: Mapping[str, str] | None = None,
        timeout: float = 10.0,
        resolver: AbstractResolver | None = None,
    ) -> None:
        self._resolver = resolver
        self._tls = tls or ssl.create_default_context()
        self._server_name = server_name or None
        self._headers = dict(headers or {})
        self._timeout = timeout
        self._session: aiohttp.ClientSession | None = None

    async def request(
        self,
        method: str,
        url: str,
        *,
        json: Any = None,
        form: Mapping[str, str] | None = None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> Answer:
        """One question, with a body of JSON, of a form's fields, or as it is; ``tls`` is for this one alone.

        Raises ``Unreachable`` without an answer in time, with a redirect, or with too much of one.
        """
        sent = {"Accept": "application/json", "Accept-Encoding": "identity", **self._headers, **(headers or {})}
        if json is not None:
            body = orjson.dumps(json)
            sent["Content-Type"] = "application/json"
        elif form is not None:
            body = urlencode(form).encode()
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        try:
            async with self._open().request(
                method,
                URL(url, encoded=True),
                data=body,
                headers=sent,
                allow_redirects=False,
                ssl=tls or self._tls,
                server_hostname=self._server_name if url.startswith("https:") else None,
            ) as response:
                if 300 <= response.status < 400:
                    raise Unreachable("the service answered with a redirect")
                if response.headers.get("Content-Encoding", "identity") != "identity":
                    raise Unreachable("the service answered in an encoding that was not asked for")
                content = bytearray()
                async for chunk in response.content.iter_any():
                    content += chunk
                    if len(content) > ANSWER_MAX:
                        raise Unreachable("the answer is too long")
                return Answer(response.status, response.headers, bytes(content))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise Unreachable(f"no answer ({type(error).__name__})") from None

    async def close(self) -> None:
        """Give every connection back."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=CONNECTIONS_MAX, resolver=self._resolver),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=self._timeout, sock_connect=_CONNECT_SECONDS),
                trust_env=False,
                auto_decompress=False,
            )
        return self._session


async def request_again(
    transport: HttpClient, method: str, url: str, *, json: Any, pauses: tuple[float, ...]
) -> Answer:
    """``request``, again after each of ``pauses`` (seconds) while there is no answer, 429 or a 5xx.

    Returns the last answer, or raises the last ``Unreachable``.
    """
    for pause in pauses:
        try:
            answer = await transport.request(method, url, json=json)
            if answer.status < 500 and answer.status != 429:
                return answer
        except Unreachable:
            pass
        await asyncio.sleep(pause)
    return await transport.request(method, url, json=json)


class Breaker:
    """Questions to one outside service, each within ``budget`` seconds.

    A service that hangs, or fails ``FAILURES_MAX`` times on end, is not asked for ``REST_SECONDS``, so that nobody else
    waits for it; then by one question at a time until it answers.
    """

    def __init__(
        self, name: str, *, budget: float = BUDGET_SECONDS, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._budget = budget
        self._clock = clock
        self._failures = 0
        self._rests_until = float("-inf")

    async def ask(self, question: Callable[[], Awaitable[Answer]]) -> Answer:
        """The answer to ``question``, whatever it says. Raises ``Unreachable``."""
        now = self._clock()
        if now < self._rests_until:
            raise Unreachable(f"{self._name} has given no answers and is asked again soon")
        if self._failures >= FAILURES_MAX:
            # This question is the trial; whoever comes meanwhile does not wait for how it ends.
            self._rests_until = now + REST_SECONDS
        try:
            async with asyncio.timeout(self._budget):
                answer = await question()
        except TimeoutError:
            self._failed(FAILURES_MAX)
            raise Unreachable(f"{self._name} did not answer in time") from None
        except Unreachable:
            self._failed(1)
            raise
        if answer.status >= 500:
            self._failed(1)
        else:
            # A refusal can come of the question: what one caller asks must not silence the service for all.
            self._failures, self._rests_until = 0, float("-inf")
        return answer

    def _failed(self, times: int) -> None:
        self._failures += times
        if self._failures >= FAILURES_MAX:
            self._rests_until = self._clock() + REST_SECONDS


def verifying(ca_file: Path | None) -> ssl.SSLContext:
    """TLS that trusts the certificates of ``ca_file`` alone, or the system's without one; raises ``UnusableFile``."""
    try:
        return ssl.create_default_context(cafile=str(ca_file) if ca_file else None)
    except (OSError, ssl.SSLError):
        raise UnusableFile(f"{ca_file}, not a bundle of certificates") from None


class Webhook:
    """A service that answers reviews, within one budget of time for all attempts."""

    def __init__(
        self,
        url: str,
        transport: HttpClient,
        *,
        budget: float = BUDGET_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport = transport
        self._url = url
        self._breaker = Breaker("the webhook", budget=budget, clock=clock)

    async def review(
        self, api_version: str, kind: str, spec: Mapping[str, Any], *, pauses: tuple[float, ...]
    ) -> dict[str, Any]:
        """The status in the answer, tried again after each of ``pauses`` (seconds) as far as the budget goes.

        Raises ``Unreachable`` without an answer of this kind and version.
        """
        review = {"apiVersion": api_version, "kind": kind, "metadata": {"creationTimestamp": None}, "spec": spec}
        answer = await self._breaker.ask(
            lambda: request_again(self._transport, "POST", self._url, json=review, pauses=pauses)
        )
        if answer.status not in (200, 201):
            raise Unreachable(f"the webhook answered with {answer.status}")
        content = answer.json()
        status = content.get("status")
        if (content.get("apiVersion"), content.get("kind")) != (api_version, kind) or not isinstance(status, dict):
            raise Unreachable(f"the answer is not a {kind} of {api_version}")
        return status

    async def close(self) -> None:
        """Give the connections back."""
        await self._transport.close()


def webhook_of_file(path: Path, *, timeout: float = 10.0) -> Webhook:
    """The webhook that a kubeconfig-format file describes; raises ``UnusableFile``.

    Relative paths in it start from its own folder.
    """
    try:
        report_exposed(path, path.stat().st_mode)
        file = parse(path.read_bytes())
        return Webhook(
            url=file.url,
            transport=HttpClient(
                tls=_tls(file, path.parent),
                server_name=file.server_name,
                headers=_authorization(file, path.parent),
                timeout=timeout,
            ),
        )
    except WebhookFileError as error:
        raise UnusableFile(f"{path}, {error}") from None
    except (ssl.SSLError, ValueError):
        raise UnusableFile(f"{path}, its certificates or key cannot be used") from None
    except OSError as error:
        raise UnusableFile(f"{path}, {error.filename or ''} {error.strerror}") from None


def service_url(url: str) -> str:
    """The base URL of a service without its last slash; raises ``UnusableFile`` unless it is a secure one."""
    try:
        return checked_url(url).rstrip("/")
    except WebhookFileError as error:
        raise UnusableFile(f"{url!r}, {error}") from None


def _tls(file: WebhookFile, folder: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(cadata=_content(file.ca, folder).decode("ascii") if file.ca else None)
    if file.certificate is not None and file.key is not None:
        # Python's ssl reads keys from files alone: the folder is its owner's, and gone at once.
        with tempfile.TemporaryDirectory() as name:
            pair = Path(name, "pair.pem")
            pair.touch(mode=0o600)
            pair.write_bytes(_content(file.certificate, folder) + b"\n" + _content(file.key, folder, secret=True))
            context.load_cert_chain(pair)
    return context


def _authorization(file: WebhookFile, folder: Path) -> dict[str, str]:
    if file.token is not None:
        token = _content(file.token, folder, secret=True).decode("latin-1").strip()
        return {"Authorization": f"Bearer {token}"}
    if file.basic is not None:
        pair = base64.b64encode(":".join(file.basic).encode()).decode()
        return {"Authorization": f"Basic {pair}"}
    return {}


def _content(source: Source, folder: Path, *, secret: bool = False) -> bytes:
    path = folder / source.path
    if secret and not source.data:
        report_exposed(path, path.stat().st_mode)
    return source.data or path.read_bytes()
