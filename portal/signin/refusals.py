"""Refusals of the portal and its REST API as events of the audit (401, 403 and 429; GW13).

A chain is written one event at a time, and nothing in it can be taken back: a flood of refusals must neither hold it up
nor fill it. Each sender has a few events of their own, strangers share what they have; the rest is counted, and the
counts become one event a minute for each account and kind.

What is refused before it has a thread (``portal.http.handler``) is noted in memory, and written by the one thread that
does nothing else: no request waits for it, and a flood costs as many events as its kinds, a few times a second at most.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final
from uuid import UUID

import redis
from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponseBase

from audit.actions import Action
from audit.models import Outcome
from audit.recorder import SYSTEM_CHAIN, Actor
from audit.recorder import record as audit_record
from portal.database.connections import give_back
from portal.http.actors import actor_of, visitor_of
from portal.http.askers import Asker
from portal.signin.attempts import network_of
from tenants import actionlimits
from tenants.actionlimits import Bucket

logger = logging.getLogger(__name__)

CODES: Final = frozenset({401, 403, 429})

SENDER: Final = Bucket("refusals", burst=20, interval=60)
"""Events of one account, or of the strangers at one address."""

STRANGERS: Final = Bucket("refusals-strangers", burst=600, interval=10)
"""Events of all who are not signed in: addresses cost nothing."""

KINDS: Final = 200
"""Accounts and kinds that are counted apart."""

WRITE_SECONDS: Final = 0.5
"""Between two looks at what has been noted in memory."""

_COUNTS: Final = "tenantry:refusals"
_COUNT: Final = """
local field = ARGV[1]
if redis.call('HEXISTS', KEYS[1], field) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
    field = ARGV[2]
end
redis.call('HINCRBY', KEYS[1], field, ARGV[4])
"""
_TAKE: Final = """
local all = redis.call('HGETALL', KEYS[1])
redis.call('DEL', KEYS[1])
return all
"""


def record(
    request: HttpRequest,
    code: int,
    action: Action,
    *,
    target: str,
    name: str = "",
    detail: Mapping[str, Any] | None = None,
) -> None:
    """Record a refusal, or count it. ``name`` is what somebody who is not signed in calls themselves.

    Never raises for a database or Redis that is away: a refusal stays one.
    """
    request.refusal_recorded = True  # type: ignore[attr-defined]
    signed_in = getattr(request, "user", None) is not None and request.user.is_authenticated
    actor = actor_of(request) if signed_in else visitor_of(request, name)
    _record(actor, network_of(request), code, action, target, detail or {})


def record_answer(request: HttpRequest, response: HttpResponseBase) -> None:
    """Record what an answer refuses, on a form as well, unless that has been done where more is known of it."""
    code = getattr(request, "refused_with", response.status_code)
    if code in CODES and not getattr(request, "refusal_recorded", False):
        record(request, code, Action.ACCESS_DENIED, target=f"{request.method} {request.path}")


def counts_record() -> int:
    """Turn what has been counted since the last time into events, and return how many."""
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=2) as client:
        flat: Any = client.eval(_TAKE, 1, _COUNTS)
    for field, count in zip(flat[::2], flat[1::2], strict=True):
        code, action, name, user_id = json.loads(field)
        audit_record(
            Action(action),
            actor=name,
            user_id=UUID(user_id) if user_id else None,
            outcome=Outcome.DENIED,
            detail={"code": code, "count": int(count)},
        )
    return len(flat) // 2


@dataclass(slots=True)
class _Several:
    """Refusals of one kind, of which the first is told of."""

    actor: Actor
    network: str
    code: int
    target: str
    times: int = 1


class Noted:
    """What one process refuses in its event loop, until it is written."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kinds: dict[object, _Several] = {}
        self._writer = ThreadPoolExecutor(1, "refusals")
        self._writing = False

    def note(self, request: HttpRequest, response: HttpResponseBase, asker: Asker | None) -> None:
        """Note a refusal, if it is one (``CODES``), of whoever is known to ask; never waits, and keeps ``KINDS`` and one."""
        if response.status_code not in CODES:
            return
        actor = visitor_of(request, "")
        if asker is not None:
            actor = replace(actor, name=asker.name, user_id=asker.person)
        noted = _Several(actor, network_of(request), response.status_code, f"{request.method} {request.path}"[:512])
        with self._lock:
            kind: object = asker.person if asker is not None else noted.network
            if kind not in self._kinds and len(self._kinds) >= KINDS:
                kind, noted.actor = None, replace(actor, name="", user_id=None)
            if kind in self._kinds:
                self._kinds[kind].times += 1
            else:
                self._kinds[kind] = noted
            begins, self._writing = not self._writing, True
        if begins:
            self._writer.submit(self._write)

    def _write(self) -> None:
        """Write until nothing is noted any more; what has come meanwhile is one of its kind again."""
        try:
            while noted := self._taken():
                for each in noted:
                    _record(each.actor, each.network, each.code, Action.ACCESS_DENIED, each.target, {}, each.times)
                give_back()
                time.sleep(WRITE_SECONDS)
        except BaseException:
            logger.exception("refusals that were noted could not be recorded")
            with self._lock:
                self._writing = False
            raise

    def _taken(self) -> list[_Several]:
        with self._lock:
            noted, self._kinds = list(self._kinds.values()), {}
            self._writing = bool(noted)
        return noted


def _record(
    actor: Actor, network: str, code: int, action: Action, target: str, detail: Mapping[str, Any], times: int = 1
) -> None:
    """An event for one, as far as there is room for those of its sender, and a count of the others."""
    if actor.user_id is not None:
        fits = actionlimits.wait_for(SENDER, actor.user_id) == 0
    else:
        fits = actionlimits.wait_for(SENDER, network) == 0 and actionlimits.wait_for(STRANGERS, "all") == 0
    try:
        if fits:
            what = {"code": code, **detail}
            actor.record(action, chain=SYSTEM_CHAIN, outcome=Outcome.DENIED, target=target, detail=what)
        if times > fits:
            _count(code, action, actor.name if actor.user_id else "", actor.user_id, times - fits)
    except (Error, redis.RedisError):
        logger.exception("a refusal could not be recorded")


def _count(code: int, action: Action, name: str, user_id: UUID | None, times: int) -> None:
    field = json.dumps([code, action, name, str(user_id or "")])
    nobody_in_particular = json.dumps([code, action, "", ""])
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=0.5, socket_connect_timeout=0.5) as client:
        client.eval(_COUNT, 1, _COUNTS, field, nobody_in_particular, KINDS, times)
