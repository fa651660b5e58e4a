"""The REST API: requests, pages, and problems as ``Failure``."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qsl, quote, urlsplit

import httpx

from tenantry_cli.failures import Failure, Status, printable
from tenantry_cli.signin import SignIn

_STATUSES = {
    400: Status.INVALID,
    401: Status.NOT_SIGNED_IN,
    403: Status.FORBIDDEN,
    404: Status.NOT_FOUND,
    409: Status.CONFLICT,
    412: Status.CONFLICT,
    413: Status.INVALID,
    422: Status.INVALID,
    429: Status.UNAVAILABLE,
    503: Status.UNAVAILABLE,
}
_ATTEMPTS = 4
_PAUSE_MAX = 30
"""Seconds that a busy portal is waited for before each further attempt."""


class Api:
    """A portal's REST API, as whoever signed in."""

    def __init__(self, signed_in: SignIn) -> None:
        self._base = f"{signed_in.url}/api/v1/"
        try:
            verify = ssl.create_default_context(cafile=signed_in.ca_file or None)
        except (OSError, ssl.SSLError):
            raise Failure(f"{signed_in.ca_file} holds no certificates.", Status.USAGE) from None
        headers = {"Authorization": f"Bearer {signed_in.token}", "User-Agent": "tenantry-cli/0.1"}
        self._client = httpx.Client(headers=headers, verify=verify, timeout=60, follow_redirects=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._client.close()

    def get(self, *path: str, **query: str) -> Any:
        """The object, or the page of a list, at a path. Raises as the API answers."""
        return self._json("GET", path, query=query)

    def pages(self, *path: str, limit: int = 0, **query: str) -> list[Any]:
        """A list from its first page to its last, or its first ``limit`` rows."""
        rows: list[Any] = []
        for page in self._pages(path, {**query, "limit": str(min(limit, 200))} if limit else query):
            rows += page
            if limit and len(rows) >= limit:
                return rows[:limit]
        return rows

    def post(self, *path: str, body: Any = None, **headers: str) -> Any:
        """Make or do something."""
        return self._json("POST", path, body=body, headers=headers)

    def patch(self, *path: str, body: Any) -> Any:
        """Change what ``body`` names."""
        return self._json("PATCH", path, body=body)

    def put(self, *path: str, body: Any) -> Any:
        """Put ``body`` in place of what is there."""
        return self._json("PUT", path, body=body)

    def tagged(self, *path: str) -> tuple[Any, str]:
        """One object, and the tag by which it is told from another that it may have become since."""
        answer = self._sent("GET", path)
        return self._decoded(answer), answer.headers.get("ETag", "")

    def delete(self, *path: str, tag: str = "") -> Any:
        """Take away; ``None`` when it is gone at once. With a ``tag`` only what was ``tagged`` so."""
        return self._json("DELETE", path, headers={"If-Match": tag} if tag else {})

    def stream(self, *path: str, body: Any = None, **query: str) -> Iterator[bytes]:
        """A file, piece by piece; one that is made by a ``body`` is posted for."""
        method = "GET" if body is None else "POST"
        try:
            with self._client.stream(method, self._url(path), params=query, json=body) as answer:
                if answer.is_error:
                    answer.read()
                    raise _failure(answer)
                yield from answer.iter_bytes()
        except httpx.TransportError as error:
            raise self._unreachable(error) from None

    def _pages(self, path: tuple[str, ...], query: Mapping[str, str]) -> Iterator[list[Any]]:
        while True:
            page = self._json("GET", path, query=query)
            yield page["results"]
            if not page["next"]:
                return
            # The address may be what a proxy in between calls the portal: its query alone is followed.
            query = dict(parse_qsl(urlsplit(page["next"]).query))

    def _json(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        return self._decoded(self._sent(method, path, query=query, body=body, headers=headers))

    def _sent(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
    ) -> httpx.Response:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                answer = self._client.request(
                    method, self._url(path), params=query, json=body, headers=dict(headers or {})
                )
            except httpx.TransportError as error:
                raise self._unreachable(error) from None
            pause = answer.headers.get("Retry-After", "")
            # Nothing was done, so that whatever it was may be sent again.
            if answer.status_code != 429 or attempt == _ATTEMPTS or not pause.isdigit() or int(pause) > _PAUSE_MAX:
                break
            time.sleep(int(pause))
        if answer.is_error or answer.is_redirect:
            raise _failure(answer)
        return answer

    def _decoded(self, answer: httpx.Response) -> Any:
        if answer.status_code == 204:
            return None
        try:
            return answer.json()
        except ValueError:
            raise Failure(f"{self._base} is no API of Tenantry.") from None

    def _url(self, path: tuple[str, ...]) -> str:
        return self._base + "/".join(quote(part, safe="") for part in path)

    def _unreachable(self, error: httpx.TransportError) -> Failure:
        words = f"{self._base} does not answer: {printable(error) or type(error).__name__}."
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            words += " Name the file of its authority with --ca-file or TENANTRY_CA_FILE."
        return Failure(words, Status.UNAVAILABLE)


def _failure(answer: httpx.Response) -> Failure:
    """What the portal says in ``application/problem+json`` (RFC 9457)."""
    try:
        problem = answer.json()
        detail, reason = problem.get("detail") or problem.get("title"), str(problem.get("reason", ""))
        fields = [error for error in problem.get("errors", []) if error["field"] and error["field"] not in detail]
        detail = "; ".join([str(detail), *(f"{error['field']}: {error['message']}" for error in fields)])
    except (ValueError, AttributeError, KeyError, TypeError):
        detail, reason = f"{answer.url.copy_with(query=None)} answers {answer.status_code}.", ""
    text = printable(detail)
    if answer.status_code == 401:
        text += " Make a token in the portal under Tokens, and run `tenantry login`."
    return Failure(text, _STATUSES.get(answer.status_code, Status.FAILED), reason=reason)
