"""Makes bound APIs served in their consumers, and takes them away again (KC5, KC11)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import Any, Final

import orjson

from gateway.resources.objects import timestamp
from kube.customresources.definitions import CRDS
from kube.customresources.endings import ending
from kube.workspaces.apiexports import (
    BINDING,
    BINDINGS,
    EXPORTS,
    FINALIZER,
    SCHEMA,
    SCHEMA_UID,
    SCHEMAS,
    bound_definition,
    consents_to,
    identity_of,
    is_applied,
)
from kube.workspaces.types import reference
from store.engine import Engine
from store.fairqueue import FairQueue
from store.garbagecollection import Holds
from store.types import AllSpaces, Create, Delete, Event, EventType, Key, PreconditionFailed, Range, StoreError, Update

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.2
_TOGETHER: Final = 64
"""Bindings that are looked through before others get a turn."""

_ANEW: Final = "delete the binding, and make it again to consent to what has the name then"
Body = dict[str, Any]


class BindingController:
    """Every process may run one: each step is a write with preconditions, so doing it twice changes nothing."""

    resources: Final = (BINDINGS, EXPORTS, SCHEMAS, CRDS)
    """What ``on_events`` looks at."""

    def __init__(self, store: Engine, holds: Holds) -> None:
        self._store = store
        self._holds = holds
        self._queue = FairQueue(self._reconcile_safely)

    def on_events(self, events: Sequence[Event]) -> None:
        """Note bindings, and what bindings rest on."""
        for event in events:
            key, kind = event.key, event.key[1:3]
            if kind == BINDINGS and event.type is not EventType.DELETED:
                self._queue.add(key)
            elif kind in (EXPORTS, SCHEMAS):
                self._queue.add(_provider(key.space))
            elif kind == CRDS and event.type is EventType.DELETED:
                name = (orjson.loads(event.data)["metadata"].get("annotations") or {}).get(BINDING)
                if name:
                    self._queue.add(Key(key.space, *BINDINGS, "", name))

    def on_doors(self) -> None:
        """Go on with what waited for a door."""
        self._queue.take_up()

    async def run(self) -> None:
        """Work until cancelled; begins with what an earlier process left."""
        for item in (await self._store.list(AllSpaces(*BINDINGS), cached=True)).items:
            self._queue.add(item.key)
        await self._queue.run()

    async def _reconcile_safely(self, key: Key) -> None:
        try:
            if key == _provider(key.space):
                await self._note_consumers(key.space)
            else:
                await self._reconcile(key)
        except (PreconditionFailed, StoreError) as error:
            if not isinstance(error, PreconditionFailed):
                logger.warning("the binding %s of %s was not settled: %s", key.name, key.space, error)
            self._queue.add(key)
            await asyncio.sleep(_RETRY_SECONDS)
        except (KeyError, TypeError, ValueError, AttributeError):
            logger.exception("the binding %s of %s cannot be settled", key.name, key.space)

    async def _note_consumers(self, provider: str) -> None:
        for number, item in enumerate((await self._store.list(AllSpaces(*BINDINGS), cached=True)).items):
            if number % _TOGETHER == 0:
                await asyncio.sleep(0)
            if _export_of(orjson.loads(item.data))[0] == provider:
                self._queue.add(item.key)

    async def _reconcile(self, key: Key) -> None:
        stored = await self._store.get(key)
        if stored is None:
            return
        body = orjson.loads(stored.data)
        listing = await self._store.list(Range(key.space, *CRDS))
        definitions = {item.key.name: (item.revision, orjson.loads(item.data)) for item in listing.items}
        own = {name: found for name, found in definitions.items() if _binding_of(found[1]) == key.name}
        if "deletionTimestamp" in body["metadata"]:
            if self._holds(key.space, ""):
                self._queue.set_aside(key)
                return
            for name, (revision, crd) in own.items():
                if "deletionTimestamp" not in crd["metadata"]:
                    marked = ending(CRDS, crd, now=timestamp(time.time()))
                    await self._store.commit(Update(Key(key.space, *CRDS, "", name), revision, marked))
            if own or FINALIZER not in (body["metadata"].get("finalizers") or ()):
                return  # The last definition that goes brings the binding back here.
            kept = [name for name in body["metadata"]["finalizers"] if name != FINALIZER]
            body["metadata"] = {**body["metadata"], "finalizers": kept}
            operation = Update if kept else Delete
            await self._store.commit(operation(key, stored.revision, body))
            return
        status = await self._bind(key, body, definitions)
        if status != (body.get("status") or {}):
            await self._store.commit(Update(key, stored.revision, {**body, "status": status}))

    async def _bind(self, key: Key, body: Body, definitions: dict[str, tuple[int, Body]]) -> Body:
        """Write the definitions of what is exported; the status of the binding."""
        path, name = _export_of(body)
        status: Body = dict(body.get("status") or {"phase": "Binding"})
        export = await self._store.get(Key(path, *EXPORTS, "", name))
        if export is None:
            problem = ("APIExportValid", "APIExportNotFound", f"there is no export any more; {_ANEW}")
            return {**status, "phase": "Binding", "conditions": _conditions(status, *problem)}
        exported = orjson.loads(export.data)
        if not consents_to(body, exported):
            problem = ("APIExportValid", "IdentityMismatch", f"another export has taken the name; {_ANEW}")
            return {**status, "phase": "Binding", "conditions": _conditions(status, *problem)}
        identity = identity_of(exported)
        bound: list[Body] = []
        problems: list[str] = []
        for schema_name in (exported.get("spec") or {}).get("latestResourceSchemas") or ():
            stored = await self._store.get(Key(path, *SCHEMAS, "", schema_name))
            if stored is None:
                problems.append(f'there is no schema "{schema_name}"')
                continue
            schema = orjson.loads(stored.data)
            crd_name = f"{schema['spec']['names']['plural']}.{schema['spec']['group']}"
            revision, before = definitions.get(crd_name, (0, None))
            crd = bound_definition(
                schema,
                path=key.space,
                binding=key.name,
                export=f"{path}:{name}",
                identity=identity,
                others=[other for other_name, (_, other) in definitions.items() if other_name != crd_name],
                now=timestamp(time.time()),
                before=before,
            )
            if before is not None and _binding_of(before) != key.name:
                problems.append(f'"{crd_name}" is defined here already')
                continue
            if before is None:
                await self._store.commit(Create(Key(key.space, *CRDS, "", crd_name), crd))
            elif "deletionTimestamp" not in before["metadata"] and any(
                before["metadata"]["annotations"].get(part) != crd["metadata"]["annotations"][part]
                for part in (SCHEMA, SCHEMA_UID)
            ):
                await self._store.commit(Update(Key(key.space, *CRDS, "", crd_name), revision, crd))
            bound.append(
                {
                    "group": schema["spec"]["group"],
                    "resource": schema["spec"]["names"]["plural"],
                    "schema": {"name": schema_name, "UID": schema["metadata"]["uid"], "identityHash": identity},
                    "storageVersions": crd["status"]["storedVersions"],
                }
            )
        claims = (exported.get("spec") or {}).get("permissionClaims") or []
        applied = [
            claim for claim in (body.get("spec") or {}).get("permissionClaims") or () if is_applied(claim, claims)
        ]
        for field, value in (("exportPermissionClaims", claims), ("appliedPermissionClaims", applied)):
            status.pop(field, None)
            if value:
                status[field] = value
        return {
            **status,
            "phase": "Binding" if problems else "Bound",
            "apiExportClusterName": path,
            "boundResources": bound,
            "conditions": _conditions(status, "BindingUpToDate", "NamingConflicts", "; ".join(problems)),
        }


def _provider(space: str) -> Key:
    """Stands for all that a logical cluster exports."""
    return Key(space, *EXPORTS, "", "")


def _export_of(body: Body) -> tuple[str, str]:
    return reference(body["spec"]["reference"]["export"])


def _binding_of(crd: Body) -> str:
    return str((crd["metadata"].get("annotations") or {}).get(BINDING) or "")


def _conditions(status: Body, kind: str, reason: str, message: str) -> list[Body]:
    """What is the matter, or that nothing is, and ``Ready``; their times stay while they say the same."""
    stand = {"status": "False" if message else "True", "reason": reason if message else "Ready", "message": message}
    now = timestamp(time.time())
    found = []
    for wanted in ({"type": kind, **stand}, {"type": "Ready", **stand}):
        known = [one for one in status.get("conditions") or () if one == {**one, **wanted}]
        found.append(known[0] if known else {**wanted, "lastTransitionTime": now})
    return found
