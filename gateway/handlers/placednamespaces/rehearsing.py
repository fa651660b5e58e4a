"""What a write to a placed namespace is about, asked of its cluster before the write is passed on (AD5)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from gateway.http.messages import Headers, Request
from gateway.upstream.answers import Room, decode, whole
from gateway.upstream.client import Answer
from kube.requests.status import Cause, StatusError

_OWN: Final = frozenset({b"accept", b"accept-encoding"})


class Rehearsal:
    """Asks with the token of the write itself, by ``ask``: nobody learns what the write would not show."""

    def __init__(self, ask: Callable[[Request], Awaitable[Answer]], request: Request, cluster: str) -> None:
        self._ask = ask
        self._cluster = cluster
        self._request = request
        self._outcome: Mapping[str, Any] | None = None

    async def current(self) -> Mapping[str, Any] | None:
        """The object as it is. Raises ``StatusError``."""
        info = replace(self._request.info, method="GET", verb="get", subresource="")
        asked = replace(self._request, info=info, parameters={}, body=b"", raw_headers=_plain(()))
        answer = await self._ask(asked)
        if answer.status == 404:
            answer.close()
            return None
        return await _object(answer, self._cluster)

    async def outcome(self) -> Mapping[str, Any]:
        """What the write would make of it, asked once. Raises ``StatusError`` with what the cluster has against it."""
        if self._outcome is not None:
            return self._outcome
        parameters = {**self._request.parameters, "dryRun": ("All",)}
        headers = _plain(self._request.raw_headers)
        answer = await self._ask(replace(self._request, parameters=parameters, raw_headers=headers))
        self._outcome = await _object(answer, self._cluster)
        return self._outcome


def _plain(headers: Headers) -> Headers:
    return (*(pair for pair in headers if pair[0] not in _OWN), (b"accept", b"application/json"))


async def _object(answer: Answer, cluster: str) -> Mapping[str, Any]:
    body = decode(await whole(answer, cluster, Room()), cluster)
    if answer.status >= 300:
        raise _refusal(answer.status, body)
    return body


def _refusal(status: int, body: Mapping[str, Any]) -> StatusError:
    details = body.get("details")
    details = details if isinstance(details, dict) else {}
    given = details.get("causes")
    causes = [
        Cause(*(str(each.get(part) or "") for part in ("reason", "message", "field")))
        for each in (given if isinstance(given, list) else ())
        if isinstance(each, dict)
    ]
    return StatusError(
        str(body.get("message") or "the cluster refuses this"),
        group=str(details.get("group") or ""),
        kind=str(details.get("kind") or ""),
        name=str(details.get("name") or ""),
        causes=causes,
        code=status if 400 <= status < 600 else 502,
        reason=str(body.get("reason") or ""),
    )
