"""What a write to a placed namespace is about, asked of its cluster before the write is passed on (AD5).

Others write to the object meanwhile: what is judged by it, or by what the write would make of it, is sent for the state
that was judged alone. And who there refused it, read from what the cluster answers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson

from gateway.http.messages import JSON, Headers, Request
from gateway.http.negotiation import APPLY_PATCH, JSON_PATCH, PATCHES, content_type, require_patch_type
from gateway.upstream.answers import LINE_MAX, Room, decode, version_of, whole
from gateway.upstream.client import Answer, BadGateway
from kube.authorization.decisions import Decision, Verdict
from kube.policies.clusterrefusals import refused_by
from kube.requests.conditionalpatches import NOTHING, StaleVersion, conditional_changes, conditional_operations
from kube.requests.decoding import MAX_BYTES
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Cause, Conflict, StatusError

_OWN: Final = frozenset({b"accept", b"accept-encoding"})
_CHANGES: Final = frozenset({"update", "patch"})
_REFUSALS: Final = frozenset({409, 422})
"""Statuses of a write whose condition does not hold, and of others."""

_CREATED: Final = 201
_JSON: Final = "application/json"


class Overtaken(Exception):
    """Somebody else has written to the object since it was looked at."""


class Rehearsal:
    """Asks with the token of the write itself, by ``ask``: nobody learns what the write would not show.

    All of it is about one state of the object.
    """

    def __init__(self, ask: Callable[[Request], Awaitable[Answer]], request: Request, cluster: str) -> None:
        self._ask = ask
        self._cluster = cluster
        self._request = request
        self._seen = False
        self._current: Mapping[str, Any] | None = None
        self._outcome: Mapping[str, Any] | None = None
        self._judged: Request | None = None
        self.refusal: Decision | None = None
        """What in the cluster refuses, once it has."""

    async def current(self) -> Mapping[str, Any] | None:
        """The object as it is, asked once. Raises ``StatusError``."""
        if not self._seen:
            self._current, self._seen = await self._read(), True
        return self._current

    async def outcome(self) -> Mapping[str, Any]:
        """What the write would make of it, asked once.

        Raises ``StatusError`` with what the cluster has against it, and ``Overtaken``.
        """
        if self._outcome is not None:
            return self._outcome
        request, verb = self._request, self._request.info.verb
        current = await self.current() if verb in _CHANGES else None
        if verb == "patch":
            request = self._judged = await self._conditional(current)
        parameters = {**request.parameters, "dryRun": ("All",)}
        answer = await self._ask(replace(request, parameters=parameters, raw_headers=_plain(request.raw_headers)))
        await self.require_newest(answer)
        try:
            outcome = await _object(answer, self._cluster)
        except StatusError as refused:
            self.refusal = refusal_of(self._cluster, refused.message)
            raise
        if verb == "update":
            if _version(None if answer.status == _CREATED else outcome) != _version(current):
                raise Overtaken
            self._judged = await self._replacing(current, outcome)
        self._outcome = outcome
        return outcome

    async def judged(self) -> Request:
        """The write for the state that was looked at alone, if it was. Raises as ``outcome``."""
        if not self._seen or self._request.dry_run or self._request.info.verb not in _CHANGES:
            return self._request
        await self.outcome()
        return self._judged or self._request

    async def require_newest(self, answer: Answer) -> None:
        """Raise ``Overtaken``, and be done with the answer, where it is a refusal and the state another one by now."""
        if answer.status not in _REFUSALS or self._judged is None:
            return
        try:
            newest = await self._read()
        except BaseException:
            answer.close()
            raise
        if _version(newest) != _version(self._current):
            answer.close()
            raise Overtaken

    async def _read(self) -> Mapping[str, Any] | None:
        info = replace(self._request.info, method="GET", verb="get", subresource="")
        asked = replace(self._request, info=info, parameters={}, body=b"", raw_headers=_plain(()))
        answer = await self._ask(asked)
        if answer.status == 404:
            answer.close()
            return None
        found = await _object(answer, self._cluster)
        version_of(found["metadata"], self._cluster)
        return found

    async def _conditional(self, current: Mapping[str, Any] | None) -> Request:
        """The patch, or the update in JSON, for this state alone."""
        request, media = self._request, content_type(self._request)
        if request.info.verb == "patch":
            require_patch_type(request, *PATCHES)
        version = _version(current)
        if media == JSON_PATCH:
            condition = partial(conditional_operations, request.body, version)
        else:
            uid = str(current["metadata"].get("uid") or "") if current is not None else ""
            condition = partial(conditional_changes, request.body, version, uid, is_yaml=media == APPLY_PATCH)
        size = MAX_BYTES if media == APPLY_PATCH else len(request.body)
        try:
            return replace(request, body=await request.in_thread(size, condition))
        except StaleVersion:
            raise overtaken(request.info) from None

    async def _replacing(self, current: Mapping[str, Any] | None, outcome: Mapping[str, Any]) -> Request:
        """The update for this state alone; in other encodings than JSON, what the cluster has read in it."""
        if content_type(self._request) == _JSON:
            return await self._conditional(current)
        metadata = {**outcome["metadata"], "resourceVersion": _version(current)}
        if current is None:
            metadata.pop("uid", None)
        headers = (*(pair for pair in self._request.raw_headers if pair[0] != b"content-type"), (b"content-type", JSON))
        return replace(self._request, body=orjson.dumps({**outcome, "metadata": metadata}), raw_headers=headers)


def overtaken(info: RequestInfo) -> Conflict:
    """The 409 that tells a client to read again."""
    qualified = f"{info.resource}.{info.group}" if info.group else info.resource
    return Conflict(
        f'Operation cannot be fulfilled on {qualified} "{info.name}": the object has been modified; please apply your '
        "changes to the latest version and try again",
        group=info.group,
        kind=info.resource,
        name=info.name,
    )


def _version(current: Mapping[str, Any] | None) -> str:
    return NOTHING if current is None else str(current["metadata"].get("resourceVersion"))


def refusal_of(cluster: str, message: str) -> Decision:
    """What is noted of a refusal by a cluster, for the trace of the request (AZ11)."""
    plugin, rule = refused_by(message)
    return Decision(Verdict.DENY, f"admission/{plugin}" if plugin else f"cluster/{cluster}", message, rule)


def _plain(headers: Headers) -> Headers:
    return (*(pair for pair in headers if pair[0] not in _OWN), (b"accept", b"application/json"))


async def _object(answer: Answer, cluster: str) -> Mapping[str, Any]:
    body = decode(await whole(answer, cluster, Room(size=LINE_MAX)), cluster)
    if answer.status >= 300:
        raise _refusal(answer.status, body)
    if not isinstance(body.get("metadata"), dict):
        raise BadGateway(f'the cluster "{cluster}" answers with something else than an object')
    return body


def _refusal(status: int, body: Mapping[str, Any]) -> StatusError:
    given = body.get("details")
    details = given if isinstance(given, dict) else {}
    listed = details.get("causes")
    causes = [
        Cause(*(str(each.get(part) or "") for part in ("reason", "message", "field")))
        for each in (listed if isinstance(listed, list) else ())
        if isinstance(each, dict)
    ]
    refusal = StatusError(
        str(body.get("message") or "the cluster refuses this"),
        group=str(details.get("group") or ""),
        kind=str(details.get("kind") or ""),
        name=str(details.get("name") or ""),
        causes=causes,
        code=status if 400 <= status < 600 else 502,
        reason=str(body.get("reason") or ""),
    )
    refusal.always_detailed = isinstance(given, dict)
    return refusal
