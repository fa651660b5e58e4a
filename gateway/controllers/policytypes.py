"""The status of ValidatingAdmissionPolicies: what the schemas of the kinds that they name have against them (TS15).

As kube-controller-manager writes it, beside the requests. A policy is looked at when it says something else than at the
last look, not when a kind does. Each process looks, and the first to write is done: a write holds only while the policy is as it
was seen.
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
from kube.requests.status import StatusError
from store.engine import Engine
from store.fairqueue import FairQueue
from store.types import Event, EventType, Key, PreconditionFailed, Range, StoreError, Update

logger = logging.getLogger(__name__)

_POLICIES: Final = (GROUP, POLICIES)
_RETRY_SECONDS: Final = 0.1


class PolicyTypesController:
    """The worker; ``run`` works until it is cancelled."""

    resources: Final = (_POLICIES,)
    """What ``on_events`` looks at."""

    def __init__(self, store: Engine, custom: CustomResources) -> None:
        self._store = store
        self._custom = custom
        self._queue = FairQueue(self._reconcile_safely)

    async def run(self) -> None:
        """Look at all that there are, and then at each that changes."""
        for item in (await self._store.list(Range(ROOT, *_POLICIES))).items:
            self._queue.add(item.key)
        await self._queue.run()

    def on_events(self, events: Sequence[Event]) -> None:
        """Note what was made or changed."""
        for event in events:
            if event.key[:3] == (ROOT, *_POLICIES) and event.type is not EventType.DELETED:
                self._queue.add(event.key)

    async def _reconcile_safely(self, key: Key) -> None:
        try:
            await self._reconcile(key)
        except StoreError as error:
            if not isinstance(error, PreconditionFailed):
                logger.warning("the types of the admission policy %s were not checked: %s", key.name, error)
            self._queue.add(key)
            await asyncio.sleep(_RETRY_SECONDS)
        except (StatusError, KeyError, TypeError, ValueError, AttributeError):
            # A policy that is not shaped as it should be must not stop the work for all others.
            logger.exception("the types of the admission policy %s cannot be checked", key.name)

    async def _reconcile(self, key: Key) -> None:
        stored, resource = await self._store.get(key), BUILTINS.by_group_resource(*_POLICIES)
        policy = orjson.loads(stored.data) if stored is not None else {}
        if stored is None or resource is None or not is_due(policy):
            return
        found = await self._warnings(policy.get("spec") or {})
        kind = Kind(resource, resource.storage_version)
        write = Write(MANAGER, kind.api_version, timestamp(time.time()), subresource="status")
        applied = with_type_checking(policy, found)
        body = managedfields.apply(kind.structure, policy, applied, write, force=True)
        # What is said is said where it is empty, too.
        said = {**body, "status": {**body["status"], **applied["status"]}}
        await self._store.commit(Update(key, stored.revision, said))

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
