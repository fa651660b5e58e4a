"""The status of ValidatingAdmissionPolicies: what the schemas of the kinds that they name have against them (TS15).

As kube-controller-manager writes it, beside the requests. A policy is looked at when it says something else than at the
last look, not when a kind does. One worker of a database; a write holds only while the policy is as it was seen.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson

from gateway.resources.customresources import CustomResources
from gateway.resources.kinds import Kind, definitions
from gateway.resources.objects import timestamp
from kube.admissionpolicies.matching import GROUP, POLICIES
from kube.admissionpolicies.typechecking import (
    MANAGER,
    Found,
    Typed,
    is_due,
    kinds_of,
    params_of,
    typed,
    warnings,
    with_type_checking,
)
from kube.kinds.builtins import BUILTINS
from kube.kinds.schemas import OBJECT_META
from kube.objects import managedfields
from kube.objects.managedfields import Write
from kube.requests.logicalclusters import ROOT
from store.engine import Engine
from store.fairqueue import FairQueue
from store.postgresql.leadership import CheckLeadership, lead
from store.types import Event, EventType, Key, PreconditionFailed, Range, Update

logger = logging.getLogger(__name__)

LEADER_LOCK: Final = 7_236_018_507
_IDLE_SECONDS: Final = 5.0
_POLICIES: Final = (GROUP, POLICIES)


class PolicyTypesController:
    """The worker; ``run`` works until it is cancelled."""

    def __init__(self, store: Engine, conninfo: str, custom: CustomResources) -> None:
        self._store = store
        self._conninfo = conninfo
        self._custom = custom
        self._queue = FairQueue(self._reconcile_safely)

    async def run(self) -> None:
        """Lead, or wait to, and start over whenever the database went away."""
        await lead(self._conninfo, LEADER_LOCK, "tenantry-policytypes", self._lead)

    async def _lead(self, check_leadership: CheckLeadership) -> None:
        self._queue.clear()
        undo = self._store.subscribe(self._note, resources=[_POLICIES])
        try:
            for item in (await self._store.list(Range(ROOT, *_POLICIES))).items:
                self._queue.add(item.key)
            await self._queue.run(check_leadership, every=_IDLE_SECONDS)
        finally:
            undo()

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            if event.key[:3] == (ROOT, *_POLICIES) and event.type is not EventType.DELETED:
                self._queue.add(event.key)

    async def _reconcile_safely(self, key: Key) -> None:
        try:
            await self._reconcile(key)
        except PreconditionFailed:
            self._queue.add(key)
            await asyncio.sleep(0.01)
        except (KeyError, TypeError, ValueError, AttributeError):
            # A policy that is not shaped as it should be must not stop the work for all others.
            logger.exception("the types of the admission policy %s cannot be checked", key.name)

    async def _reconcile(self, key: Key) -> None:
        stored = await self._store.get(key)
        policy = orjson.loads(stored.data) if stored is not None else {}
        if stored is None or not is_due(policy):
            return
        found = await self._warnings(policy.get("spec") or {})
        resource = BUILTINS.by_group_resource(*_POLICIES)
        if resource is None:
            return
        kind = Kind(resource, resource.storage_version)
        write = Write(MANAGER, kind.api_version, timestamp(time.time()), subresource="status")
        applied = with_type_checking(policy, found)
        body = managedfields.apply(kind.structure, policy, applied, write, force=True)
        await self._store.commit(Update(key, stored.revision, body))

    async def _warnings(self, spec: Mapping[str, Any]) -> list[dict[str, str]]:
        catalog = await self._custom.catalog_of(ROOT)
        kinds = [each for each in map(_typed, kinds_of(spec, catalog)) if each is not None]
        named = params_of(spec, catalog)
        params = _typed(named) if named is not None else None
        told: list[dict[str, str]] = []
        for warning in warnings(spec, kinds, params.schema if params is not None else None):
            await asyncio.sleep(0)
            told += [warning] if warning is not None else []
        return told


def _typed(found: Found) -> Typed | None:
    return typed(found, Kind(*found).schema, definitions().definition(OBJECT_META))
