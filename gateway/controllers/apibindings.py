"""Makes bound APIs served in their consumers, and takes them away again (KC5, KC11)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from access.admission.kubernetes.customresourcedefinitions import statuses_in_group
from gateway.resources.objects import timestamp
from kube.customresources.definitions import CRDS
from kube.customresources.endings import ending
from kube.quota import storedbytes
from kube.requests.status import Forbidden
from kube.workspaces.apiexports import (
    BINDING,
    BINDING_BYTES_MAX,
    BINDINGS,
    CLAIMS_BYTES_MAX,
    EXPORTS,
    FINALIZER,
    SCHEMA,
    SCHEMA_UID,
    SCHEMAS,
    SCHEMAS_MAX,
    bound_definition,
    consents_to,
    identity_of,
    is_applied,
)
from kube.workspaces.types import reference
from store.engine import Engine
from store.fairqueue import FairQueue
from store.garbagecollection import Holds
from store.pace import Pace
from store.types import (
    AllSpaces,
    Create,
    Delete,
    Event,
    EventType,
    Key,
    Operation,
    PreconditionFailed,
    Range,
    Room,
    Stored,
    StoreError,
    Update,
)

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.2
FULL_SECONDS: Final = 30.0
"""Until it is tried again where a tenant has no room: nobody tells when it has."""

_BOUND: Final = f'"{BINDING}"'.encode()
_ANEW: Final = "delete the binding, and make it again to consent to what has the name then"
_CURRENT: Final = "BindingUpToDate"
_CONFLICTS: Final = "NamingConflicts"
_LARGE: Final = "TooLarge"
_FULL: Final = "QuotaExceeded"
Body = dict[str, Any]


class _Hindrance(NamedTuple):
    """Why a binding is not what its export says."""

    reason: str
    message: str


class _Defined(NamedTuple):
    """A definition that a binding has brought; together they are no more than ``BINDING_BYTES_MAX``."""

    revision: int
    body: Body
    size: int


class BindingController:
    """Every process may run one: each step is a write with preconditions, so doing it twice changes nothing.

    What a provider has written into its consumers' spaces is bounded for each binding, and by the ``room`` of the consumer,
    as if it had written that itself (AD8). What has no room is tried again, and the binding says so meanwhile.
    """

    resources: Final = (BINDINGS, EXPORTS, SCHEMAS, CRDS)
    """What ``on_events`` looks at."""

    def __init__(self, store: Engine, holds: Holds, room: Callable[[Key], Awaitable[Room | None]]) -> None:
        self._store = store
        self._holds = holds
        self._room = room
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
        async for item in Pace().over((await self._store.list(AllSpaces(*BINDINGS), cached=True)).items):
            if _export_of(orjson.loads(item.data))[0] == provider:
                self._queue.add(item.key)

    async def _reconcile(self, key: Key) -> None:
        stored = await self._store.get(key)
        if stored is None:
            return
        body = orjson.loads(stored.data)
        there = (await self._store.list(Range(key.space, *CRDS))).items
        own = await _brought_by(key.name, there)
        if "deletionTimestamp" in body["metadata"]:
            if self._holds(key.space, ""):
                self._queue.set_aside(key)
                return
            for name, (revision, crd, _) in own.items():
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
        before = body.get("status") or {}
        status = await self._bind(key, body, there, own)
        if status == before:
            return
        try:
            await self._commit(Update(key, stored.revision, {**body, "status": status}))
        except Forbidden:
            # What the export claims has no room either: that is all that is said.
            self._queue.add_later(key, FULL_SECONDS)
            full = _conditions(before, _CURRENT, *await self._no_room(key))
            if full != before.get("conditions"):
                await self._store.commit(
                    Update(key, stored.revision, {**body, "status": {**before, "conditions": full}})
                )

    async def _commit(self, operation: Operation) -> None:
        """Raises ``Forbidden`` where its tenant has no room for it."""
        await self._store.commit(operation, room=await self._room(operation.key))

    async def _no_room(self, key: Key) -> _Hindrance:
        room = await self._room(key)
        return _Hindrance(_FULL, storedbytes.full(room.limit if room is not None else 0))

    async def _bind(self, key: Key, body: Body, there: Sequence[Stored], own: Mapping[str, _Defined]) -> Body:
        """Write the definitions of what is exported, beside all that are ``there``; the status of the binding."""
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
        known = {(one["group"], one["resource"]): one for one in status.get("boundResources") or ()}
        sizes = {name: found.size for name, found in own.items()}
        names = {item.key.name for item in there}
        statuses: dict[str, dict[str, Body]] = {}
        pace = Pace()
        bound: list[Body] = []
        hindrances: list[_Hindrance] = []
        full: _Hindrance | None = None
        for schema_name in (exported.get("spec") or {}).get("latestResourceSchemas") or ():
            stored = await self._store.get(Key(path, *SCHEMAS, "", schema_name))
            if stored is None:
                hindrances.append(_Hindrance(_CONFLICTS, f'there is no schema "{schema_name}"'))
                continue
            await pace.step(len(stored.data))
            schema = orjson.loads(stored.data)
            group, plural = schema["spec"]["group"], schema["spec"]["names"]["plural"]
            crd_name = f"{plural}.{group}"
            before = own.get(crd_name)
            if before is None and crd_name in names:
                hindrances.append(_Hindrance(_CONFLICTS, f'"{crd_name}" is defined here already'))
                continue
            stands, hindrance = before.body if before is not None else {}, None
            if before is None or _is_of_another(before.body, schema):
                if group not in statuses:
                    statuses[group] = await statuses_in_group(there, group)
                crd = bound_definition(
                    schema,
                    path=key.space,
                    binding=key.name,
                    export=f"{path}:{name}",
                    identity=identity,
                    others=[status for other, status in statuses[group].items() if other != crd_name],
                    now=timestamp(time.time()),
                    before=before.body if before is not None else None,
                )
                hindrance = full or await self._define(Key(key.space, *CRDS, "", crd_name), before, crd, sizes)
                stands = crd
            if hindrance is None:
                bound.append(
                    {
                        "group": group,
                        "resource": plural,
                        "schema": {"name": schema_name, "UID": schema["metadata"]["uid"], "identityHash": identity},
                        "storageVersions": stands["status"]["storedVersions"],
                    }
                )
                continue
            hindrances.append(hindrance)
            full = hindrance if hindrance.reason == _FULL else None
            # What is served is what was served before.
            if (served := known.get((group, plural))) is not None:
                bound.append(served)
        if full is not None:
            self._queue.add_later(key, FULL_SECONDS)
        claims = (exported.get("spec") or {}).get("permissionClaims") or []
        applied = [
            claim for claim in (body.get("spec") or {}).get("permissionClaims") or () if is_applied(claim, claims)
        ]
        if len(orjson.dumps(claims)) > CLAIMS_BYTES_MAX:
            hindrances.append(_Hindrance(_LARGE, f"what the export claims takes more than {CLAIMS_BYTES_MAX} bytes"))
            claims = []
        for field, value in (("exportPermissionClaims", claims), ("appliedPermissionClaims", applied)):
            status.pop(field, None)
            if value:
                status[field] = value
        # What is missing for its size takes nothing from what is in force.
        missing = (
            hindrances if status.get("phase") != "Bound" else [one for one in hindrances if one.reason == _CONFLICTS]
        )
        reason = hindrances[0].reason if hindrances else ""
        message = "; ".join(dict.fromkeys(one.message for one in hindrances))
        return {
            **status,
            "phase": "Binding" if missing else "Bound",
            "apiExportClusterName": path,
            "boundResources": bound,
            "conditions": _conditions(status, _CURRENT, reason, message),
        }

    async def _define(self, key: Key, before: _Defined | None, crd: Body, sizes: dict[str, int]) -> _Hindrance | None:
        """Keep a definition beside those of ``sizes``, which the binding has brought; what is in its way."""
        name, size = key.name, len(orjson.dumps(crd))
        if len({*sizes, name}) > SCHEMAS_MAX:
            return _Hindrance(_LARGE, f'"{name}" is one more than the {SCHEMAS_MAX} that a binding may bring')
        if size > sizes.get(name, 0) and sum({**sizes, name: size}.values()) > BINDING_BYTES_MAX:
            return _Hindrance(
                _LARGE, f'with "{name}" it would bring more than the {BINDING_BYTES_MAX} bytes that it may'
            )
        try:
            if before is None:
                await self._commit(Create(key, crd))
            else:
                await self._commit(Update(key, before.revision, crd))
        except Forbidden:
            return await self._no_room(key)
        sizes[name] = size
        return None


def _provider(space: str) -> Key:
    """Stands for all that a logical cluster exports."""
    return Key(space, *EXPORTS, "", "")


def _export_of(body: Body) -> tuple[str, str]:
    return reference(body["spec"]["reference"]["export"])


async def _brought_by(binding: str, definitions: Sequence[Stored]) -> dict[str, _Defined]:
    """Those of a space's definitions that a binding has brought, by name; most of the others are not even read."""
    found = {}
    async for item in Pace().over(definitions):
        crd = orjson.loads(item.data) if _BOUND in item.data else {"metadata": {}}
        if (crd["metadata"].get("annotations") or {}).get(BINDING) == binding:
            found[item.key.name] = _Defined(item.revision, crd, len(item.data))
    return found


def _is_of_another(crd: Body, schema: Body) -> bool:
    """Whether a definition that stays was made of another schema."""
    metadata, made_of = crd["metadata"], schema["metadata"]
    stands = [metadata["annotations"].get(part) for part in (SCHEMA, SCHEMA_UID)]
    return "deletionTimestamp" not in metadata and stands != [made_of["name"], made_of["uid"]]


def _conditions(status: Body, kind: str, reason: str, message: str) -> list[Body]:
    """What is the matter, or that nothing is, and ``Ready``; their times stay while they say the same."""
    stand = {"status": "False" if message else "True", "reason": reason if message else "Ready", "message": message}
    now = timestamp(time.time())
    found = []
    for wanted in ({"type": kind, **stand}, {"type": "Ready", **stand}):
        known = [one for one in status.get("conditions") or () if one == {**one, **wanted}]
        found.append(known[0] if known else {**wanted, "lastTransitionTime": now})
    return found
