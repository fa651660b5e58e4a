"""Refusals of the portal and its REST API as events of the audit (401, 403 and 429; GW13).

A chain is written one event at a time, and nothing in it can be taken back: a flood of refusals must neither hold it up
nor fill it. Each sender has a few events of their own, strangers share what they have; the rest is counted, and the
counts become one event a minute for each account and kind.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

import redis
from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponseBase

from audit.actions import Action
from audit.models import Outcome
from audit.recorder import SYSTEM_CHAIN
from audit.recorder import record as audit_record
from portal.http.actors import actor_of, visitor_of
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

_COUNTS: Final = "tenantry:refusals"
_COUNT: Final = """
local field = ARGV[1]
if redis.call('HEXISTS', KEYS[1], field) == 0 and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[3]) then
    field = ARGV[2]
end
redis.call('HINCRBY', KEYS[1], field, 1)
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
    if actor.user_id is not None:
        fits = actionlimits.wait_for(SENDER, actor.user_id) == 0
    else:
        fits = actionlimits.wait_for(SENDER, network_of(request)) == 0 and actionlimits.wait_for(STRANGERS, "all") == 0
    try:
        if fits:
            what = {"code": code, **(detail or {})}
            actor.record(action, chain=SYSTEM_CHAIN, outcome=Outcome.DENIED, target=target, detail=what)
        else:
            _count(code, action, actor.name if actor.user_id else "", actor.user_id)
    except (Error, redis.RedisError):
        logger.exception("a refusal could not be recorded")


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


def _count(code: int, action: Action, name: str, user_id: UUID | None) -> None:
    field = json.dumps([code, action, name, str(user_id or "")])
    nobody_in_particular = json.dumps([code, action, "", ""])
    with redis.Redis.from_url(settings.REDIS_URL, socket_timeout=0.5, socket_connect_timeout=0.5) as client:
        client.eval(_COUNT, 1, _COUNTS, field, nobody_in_particular, KINDS)
