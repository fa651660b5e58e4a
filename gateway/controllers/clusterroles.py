"""ClusterRoles with an aggregation rule are read back with the rules of those that they choose (KC7, KC8).

Decisions do not wait for it: they put the rules together themselves. One worker of a database; each step is a write that
holds only while the role is as it was seen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from access.authorization.workspaces.state import held_open
from gateway.resources import bootstrappolicy
from gateway.resources.objects import timestamp
from kube.authorization.aggregation import aggregated_rules, choices_of, with_rules
from kube.authorization.rbac import GROUP
from store.engine import Engine
from store.fairqueue import FairQueue
from store.postgresql.leadership import CheckLeadership, lead
from store.types import Create, Event, Key, Operation, PreconditionFailed, Range, Stored, Update

logger = logging.getLogger(__name__)

LEADER_LOCK: Final = 7_236_018_505
_IDLE_SECONDS: Final = 5.0
_ROLES: Final = (GROUP, "clusterroles")
_MARKS: Final = (b'"aggregationRule"', b"/aggregate-to-")


class ClusterRoleController:
    """The worker; ``run`` works until it is cancelled."""

    def __init__(self, store: Engine, conninfo: str) -> None:
        self._store = store
        self._conninfo = conninfo
        self._queue = FairQueue(self._reconcile_safely)

    async def run(self) -> None:
        """Lead, or wait to, and start over whenever the database went away."""
        await lead(self._conninfo, LEADER_LOCK, "tenantry-clusterroles", self._lead)

    async def _lead(self, check_leadership: CheckLeadership) -> None:
        self._queue.clear()
        undo = self._store.subscribe(self._note, resources=[_ROLES])
        try:
            for key in await self._store.keys_containing(*_MARKS):
                if key[1:3] == _ROLES:
                    self._queue.add(_all_of(key))
            await self._queue.run(check_leadership, every=_IDLE_SECONDS)
        finally:
            undo()

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.key[1:3] == _ROLES:
                self._queue.add(_all_of(event.key))

    async def _reconcile_safely(self, key: Key) -> None:
        try:
            await self._reconcile(key)
        except PreconditionFailed:
            self._queue.add(key)
            await asyncio.sleep(0.01)
        except (KeyError, TypeError, ValueError, AttributeError):
            # A role that is not shaped as it should be must not stop the work for all others.
            logger.exception("the rules of aggregated cluster roles of %s cannot be written", key.space)

    async def _reconcile(self, key: Key) -> None:
        """Write the rules of every aggregated role of a space; what it writes brings the space back here."""
        selection = Range(key.space, *_ROLES)
        own = {item.key.name: item for item in (await self._store.list(selection)).items}
        if not own:
            return
        # Tenants have as many as they like: the loop goes on while they are put together.
        writes = await asyncio.to_thread(_writes, {**bootstrappolicy.objects_in(selection), **own})
        held = await held_open(self._store, key.space)
        if writes and held is not None:
            await self._store.commit(*writes, *held)


def _writes(stored: Mapping[str, Stored]) -> list[Operation]:
    roles = {name: orjson.loads(item.data) for name, item in stored.items()}
    choices = choices_of(roles)
    writes: list[Operation] = []
    for name, role in roles.items():
        rules = aggregated_rules(role, roles, choices)
        if rules is not None and rules != (role.get("rules") or []):
            writes.append(_written(stored[name], role, rules))
    return writes


def _written(stored: Stored, role: dict[str, Any], rules: list[Any]) -> Operation:
    now = timestamp(time.time())
    body = with_rules(role, rules, now=now)
    if stored.revision != bootstrappolicy.NOT_KEPT:
        return Update(stored.key, stored.revision, body)
    # The space gets one of its own: what every space falls back on is the same for all.
    return Create(stored.key, {**body, "metadata": {**body["metadata"], "creationTimestamp": now}})


def _all_of(key: Key) -> Key:
    return Key(key.space, *_ROLES, "", "")
