"""What a write to a placed namespace is about, asked of its cluster before the write is passed on (AD5).

Others write to the object meanwhile: what is judged by it, or by what the write would make of it, is sent for the state
that was judged alone. And who there refused it, read from what the cluster answers.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Final

import orjson

from gateway.handlers.placednamespaces.lastapplied import Correction, correction, is_copied, last_applied
from gateway.http.messages import JSON, Headers, Request
from gateway.http.negotiation import APPLY_PATCH, JSON_PATCH, PATCHES, content_type, require_patch_type
from gateway.upstream.answers import LINE_MAX, HeldAnswers, Room, Share, decode, version_of, whole
from gateway.upstream.client import Answer, BadGateway, ShareTaken
from kube.authorization.decisions import Decision, Verdict
from kube.policies.clusterrefusals import refused_by
from kube.requests.conditionalpatches import (
    NOTHING,
    StaleVersion,
    conditional_changes,
    conditional_operations,
    depends_on_status,
    unambiguous,
)
from kube.requests.decoding import MAX_BYTES
from kube.requests.fielderrors import CAUSES_CHARACTERS
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Cause, Conflict, StatusError

logger = logging.getLogger(__name__)

_OWN: Final = frozenset({b"accept", b"accept-encoding"})
_CHANGES: Final = frozenset({"update", "patch"})
_REFUSALS: Final = frozenset({409, 422})
"""Statuses of a write whose condition does not hold, and of others."""

_CREATED: Final = 201
_BUSY: Final = {429: "TooManyRequests", 503: "ServiceUnavailable", 504: "Timeout"}
"""What a cluster that has too much to do answers, and the reasons of each."""

_JSON: Final = "application/json"
_JUDGED_STATUS: Final = frozenset({("", "pods"), ("", "persistentvolumeclaims")})
"""What quotas count by its status."""

_KEPT: Final = 3
"""Objects that are kept at once: as it was, what would come of it, and the newest."""

_NAME_MAX: Final = 1024
"""Characters of what a refusal names beside its words."""

_PATIENCE_SECONDS: Final = 34.0
_PAUSE_SECONDS: Final = 0.001
_PAUSE_SECONDS_MAX: Final = 0.05


class Overtaken(Exception):
    """Somebody else has written to the object since it was looked at."""


class Patience:
    """How long a write is tried that others keep overtaking: as long as kube-apiserver tries a patch, and ever more slowly."""

    def __init__(self, seconds: float = _PATIENCE_SECONDS) -> None:
        self._end = asyncio.get_running_loop().time() + seconds
        self._pause = _PAUSE_SECONDS

    async def wait(self, info: RequestInfo) -> None:
        """Until it may be tried again. Raises ``Conflict`` once it has been tried long enough."""
        if asyncio.get_running_loop().time() > self._end:
            raise overtaken(info)
        # Whoever writes at a steady pace is not met in step with it.
        await asyncio.sleep(random.random() * self._pause)  # noqa: S311 - jitter
        self._pause = min(2 * self._pause, _PAUSE_SECONDS_MAX)


class Rehearsal:
    """Asks with the token of the write itself, by ``ask``: nobody learns what the write would not show.

    All of it is about one state of the object. Where a tenant asks, what is kept of the answers counts as ``held`` by it for
    as long as this is in use.
    """

    def __init__(
        self,
        ask: Callable[[Request], Awaitable[Answer]],
        request: Request,
        cluster: str,
        patience: Patience,
        held: HeldAnswers | None = None,
        tenant: str = "",
    ) -> None:
        self._ask = ask
        self._cluster = cluster
        self._request = request
        self._patience = patience
        self._room = partial(Room, held, tenant, size=LINE_MAX)
        self._kept = Share(held, tenant)
        self._longest = 0
        self._seen = False
        self._current: Mapping[str, Any] | None = None
        self._outcome: Mapping[str, Any] | None = None
        self._judged: Request | None = None
        self._changes_nothing = False
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
        if self._outcome is None:
            self._outcome = await self._rehearsed()
        return self._outcome

    @contextmanager
    def believed(self) -> Iterator[None]:
        """Whatever is worked out of what the cluster has said: what comes to nothing was no such object (P9).

        Raises ``BadGateway`` then.
        """
        try:
            yield
        except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            if not self._seen and self._outcome is None:
                raise
            logger.warning("what the cluster %s says cannot be judged", self._cluster, exc_info=error)
            text = f'the cluster "{self._cluster}" answers with something that is no {self._request.info.resource}'
            raise BadGateway(text) from error

    async def judged(self) -> Request:
        """The write for the state that was looked at alone, if it was. Raises as ``outcome``."""
        if not self._seen or self._request.dry_run or self._request.info.verb not in _CHANGES:
            return self._request
        outcome = await self.outcome()
        if self._is_copied(outcome) and outcome == self._current:
            # Sent for one state alone it would change what it is copied into.
            self._changes_nothing = True
            self._judged = _dry_run(self._request)
        else:
            self._judged = await self._for_this_state(outcome)
        return self._judged

    async def again(self, answer: Answer) -> Request | None:
        """The write for the newest state, where ``answer`` refuses that of the judged one and nothing judged has changed.

        ``None``: the answer stands. Raises ``StatusError``, and ``Overtaken`` where it is to be judged anew; done with the
        answer then.
        """
        if self._judged is None or (answer.status not in _REFUSALS and not self._changes_nothing):
            return None
        try:
            newest = await self._read()
            if _version(newest) == _version(self._current) or (self._changes_nothing and self._is_judged_alike(newest)):
                return None
            await self._patience.wait(self._request.info)
        except BaseException:
            answer.close()
            raise
        answer.close()
        if self._changes_nothing or not self._is_judged_alike(newest):
            raise Overtaken
        self._current = newest
        self._judged = await self._for_this_state(await self.outcome())
        return self._judged

    async def corrected(self, answer: Answer) -> Answer:
        """The answer to a write that was made; of an apply that was copied with its condition, to what takes that out again."""
        outcome, current = self._outcome, self._current
        if answer.status >= 300 or self._judged is None or self._changes_nothing or not self._is_copied(outcome):
            return answer
        version, text = _version(current), last_applied(outcome)
        try:
            while (newest := await self._read()) is not None:
                wanted = correction(newest, version, text)
                if wanted is None:
                    return answer
                corrected = await self._ask(_correcting(self._request, wanted))
                if corrected.status < 300:
                    answer.close()
                    warnings = tuple(pair for pair in answer.headers if pair[0] == b"warning")
                    return replace(corrected, headers=(*corrected.headers, *warnings))
                corrected.close()
                if corrected.status not in _REFUSALS:
                    return answer
                await self._patience.wait(self._request.info)
        except StatusError:
            # It has been made, and its client is told so.
            return answer
        except BaseException:
            answer.close()
            raise
        return answer

    async def _rehearsed(self) -> Mapping[str, Any]:
        verb = self._request.info.verb
        current = await self.current() if verb in _CHANGES else None
        if verb == "patch":
            require_patch_type(self._request, *PATCHES)
            self._request = await self._read_once()
            # Refuses what is for another state of the object by itself.
            await self._conditional(current)
        while True:
            answer = await self._ask(_plainly(_dry_run(self._request)))
            try:
                outcome = await self._object(answer)
            except ShareTaken:
                raise
            except StatusError as refused:
                self.refusal = refusal_of(self._cluster, refused.message)
                raise
            base = NOTHING if answer.status == _CREATED else _version(outcome)
            if verb not in _CHANGES or base == _version(self._current):
                return outcome
            newest = await self._read()
            # Whoever has been told of the object judges by it.
            if not self._is_judged_alike(newest):
                raise Overtaken
            self._current = newest
            if base == _version(newest):
                return outcome
            await self._patience.wait(self._request.info)

    def _is_copied(self, outcome: Mapping[str, Any] | None) -> bool:
        """Whether a condition in the write would come to be kept in the object."""
        if outcome is None or self._current is None or content_type(self._request) != APPLY_PATCH:
            return False
        return is_copied(self._request.query.get("fieldManager", ""), outcome)

    def _is_judged_alike(self, newest: Mapping[str, Any] | None) -> bool:
        """Whether only what nobody judges, and the write cannot take from, is another than before: the status of most kinds."""
        info = self._request.info
        if self._current is None or newest is None or info.subresource or (info.group, info.resource) in _JUDGED_STATUS:
            return False
        if content_type(self._request) == JSON_PATCH and depends_on_status(self._request.body):
            return False
        return _without_status(newest) == _without_status(self._current)

    async def _read(self) -> Mapping[str, Any] | None:
        info = replace(self._request.info, method="GET", verb="get", subresource="")
        asked = _plainly(replace(self._request, info=info, parameters={}, body=b"", raw_headers=()))
        answer = await self._ask(asked)
        if answer.status == 404:
            answer.close()
            return None
        found = await self._object(answer)
        version_of(found["metadata"], self._cluster)
        return found

    async def _object(self, answer: Answer) -> Mapping[str, Any]:
        """What an answer says, held from now on. Raises ``StatusError``."""
        with self._room() as room:
            data = await whole(answer, self._cluster, room)
            found = await _object(self._request, answer, data, self._cluster)
            self._longest = max(self._longest, len(data))
            self._kept.resize(_KEPT * self._longest)
        return found

    async def _read_once(self) -> Request:
        """The patch as it is read here: what is judged is what is sent."""
        is_yaml = content_type(self._request) == APPLY_PATCH
        size = MAX_BYTES if is_yaml else len(self._request.body)
        body = await self._request.in_thread(size, partial(unambiguous, self._request.body, is_yaml=is_yaml))
        return replace(self._request, body=body)

    async def _for_this_state(self, outcome: Mapping[str, Any]) -> Request:
        if self._request.info.verb == "update" and content_type(self._request) != _JSON:
            return self._replacing(self._current, outcome)
        return await self._conditional(self._current)

    async def _conditional(self, current: Mapping[str, Any] | None) -> Request:
        """The patch, or the update in JSON, for this state alone."""
        request, version = self._request, _version(current)
        if content_type(request) == JSON_PATCH:
            condition = partial(conditional_operations, request.body, version)
        else:
            uid = str(current["metadata"].get("uid") or "") if current is not None else ""
            condition = partial(conditional_changes, request.body, version, uid)
        try:
            return replace(request, body=await request.in_thread(len(request.body), condition))
        except StaleVersion:
            raise overtaken(request.info) from None

    def _replacing(self, current: Mapping[str, Any] | None, outcome: Mapping[str, Any]) -> Request:
        """The update for this state alone, of what the cluster has read in another encoding than JSON."""
        metadata = {**outcome["metadata"], "resourceVersion": _version(current)}
        if current is None:
            metadata.pop("uid", None)
        body = orjson.dumps({**outcome, "metadata": metadata})
        return replace(self._request, body=body, raw_headers=_with_media(self._request.raw_headers, JSON))


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


def _plainly(request: Request) -> Request:
    headers = (*(pair for pair in request.raw_headers if pair[0] not in _OWN), (b"accept", JSON))
    return replace(request, raw_headers=headers)


def _dry_run(request: Request) -> Request:
    return replace(request, parameters={**request.parameters, "dryRun": ("All",)})


def _correcting(request: Request, wanted: Correction) -> Request:
    parameters = {"fieldManager": (wanted.manager,)}
    if wanted.media == APPLY_PATCH:
        parameters["force"] = ("true",)
    headers = _with_media(request.raw_headers, wanted.media.encode())
    return replace(request, parameters=parameters, body=wanted.body, raw_headers=headers)


def _with_media(headers: Headers, media: bytes) -> Headers:
    return (*(pair for pair in headers if pair[0] != b"content-type"), (b"content-type", media))


def _without_status(body: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = {name: value for name, value in body["metadata"].items() if name != "resourceVersion"}
    managed = metadata.get("managedFields")
    if isinstance(managed, list):
        metadata["managedFields"] = [
            entry for entry in managed if not isinstance(entry, dict) or entry.get("subresource") != "status"
        ]
    return {**body, "metadata": metadata, "status": None}


async def _object(request: Request, answer: Answer, data: bytes, cluster: str) -> Mapping[str, Any]:
    headers = dict(answer.headers)
    later = headers.get(b"retry-after", b"")
    if later and answer.status in _BUSY and not headers.get(b"content-type", b"").startswith(JSON):
        # kube-apiserver has no time to make a Status then.
        text = f'the cluster "{cluster}" is too busy, please try again later'
        raise StatusError(text, code=answer.status, reason=_BUSY[answer.status], retry_after=_seconds(later))
    body = await request.in_thread(len(data), decode, data, cluster)
    if answer.status >= 300:
        raise _refusal(answer.status, body, _seconds(later))
    if not isinstance(body.get("metadata"), dict):
        raise BadGateway(f'the cluster "{cluster}" answers with something else than an object')
    return body


def _seconds(later: bytes) -> int | None:
    """What ``Retry-After`` says, unless it is a date."""
    return int(later) if re.fullmatch(rb"[0-9]{1,6}", later) else None


def _refusal(status: int, body: Mapping[str, Any], retry_after: int | None) -> StatusError:
    """A cluster's refusal as it is passed on: whatever looks into its words later takes no longer than for one of ours."""
    given = body.get("details")
    details = given if isinstance(given, dict) else {}
    refusal = StatusError(
        _text(body, "message", CAUSES_CHARACTERS) or "the cluster refuses this",
        group=_text(details, "group"),
        kind=_text(details, "kind"),
        name=_text(details, "name"),
        causes=tuple(_causes(details.get("causes"))),
        retry_after=retry_after,
        code=status if 400 <= status < 600 else 502,
        reason=_text(body, "reason"),
    )
    refusal.always_detailed = isinstance(given, dict)
    return refusal


def _causes(listed: Any) -> Iterator[Cause]:
    left = CAUSES_CHARACTERS
    for each in listed if isinstance(listed, list) else ():
        if not isinstance(each, dict):
            continue
        texts = [_text(each, part, left) for part in ("reason", "message", "field")]
        left -= sum(map(len, texts)) + 1
        if left < 0:
            return
        yield Cause(*texts)


def _text(body: Mapping[str, Any], name: str, most: int = _NAME_MAX) -> str:
    value = body.get(name)
    return value[:most] if isinstance(value, str) else ""
