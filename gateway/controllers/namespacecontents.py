"""Every namespace has its ``default`` service account and ``kube-root-ca.crt``, whatever is done to them (TS15).

One worker of a database, beside the requests as in Kubernetes. A namespace is looked at when it is made or changed, and
when one of the two goes or says something else; who begins to lead asks the database once where something is missing.
Each write holds the revisions of its namespace and of its workspace, so that nothing comes into what ends.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import orjson

from access.authorization.workspaces.state import held_open
from access.reloading import ReloadedFile
from gateway.resources.objects import timestamp
from kube.workspaces import namespacecontents as contents
from kube.workspaces.namespacecontents import ROOT_CERTIFICATES, SERVICE_ACCOUNT
from store.engine import Engine
from store.fairqueue import FairQueue
from store.postgresql.leadership import CheckLeadership, lead
from store.types import Check, Create, Event, EventType, Key, Operation, PreconditionFailed, Stored, Update
from tenants.clusters.objects import CLUSTER_LABEL

logger = logging.getLogger(__name__)

LEADER_LOCK: Final = 7_236_018_506
_IDLE_SECONDS: Final = 5.0
_NAMESPACES: Final = ("", "namespaces")
_DELETED: Final = b'"deletionTimestamp"'
_TOGETHER: Final = 32
"""Namespaces of one space that are looked at together."""


class NamespaceContentsController:
    """The worker; ``run`` works until it is cancelled.

    ``bundle`` are the certificates with which clients verify the server, in PEM, followed while they are rotated;
    ``remade`` is told of namespaces in which something was made again, whose quotas count it.
    """

    def __init__(
        self, store: Engine, conninfo: str, bundle: ReloadedFile[str], remade: Callable[[str, str], None]
    ) -> None:
        self._store = store
        self._conninfo = conninfo
        self._file = bundle
        self._bundle = bundle.value
        self._remade = remade
        self._queue = FairQueue(self._reconcile_safely)
        self._due: dict[str, dict[str, None]] = {}
        """Space → the namespaces that are to be looked at there."""

    async def run(self) -> None:
        """Lead, or wait to, and start over whenever the database went away."""
        await lead(self._conninfo, LEADER_LOCK, "tenantry-namespaces", self._lead)

    async def _lead(self, check_leadership: CheckLeadership) -> None:
        self._queue.clear()
        self._due.clear()
        undo = self._store.subscribe(self._note)
        try:
            await self._look_for((SERVICE_ACCOUNT, ""), (ROOT_CERTIFICATES, self._right()))

            async def check() -> None:
                await check_leadership()
                await self._follow_bundle()

            await self._queue.run(check, every=_IDLE_SECONDS)
        finally:
            undo()

    def _right(self) -> str:
        return orjson.dumps({"ca.crt": self._bundle})[1:-1].decode()

    async def _look_for(self, *wanted: tuple[tuple[str, str, str], str]) -> None:
        for kind, text in wanted:
            for key in await self._store.namespaces_lacking(kind, text):
                self._look_at(key.space, key.name)

    async def _follow_bundle(self) -> None:
        bundle = await self._file.current(time.time())
        if bundle != self._bundle:
            self._bundle = bundle
            await self._look_for((ROOT_CERTIFICATES, self._right()))

    def _note(self, events: Sequence[Event]) -> None:
        for event in events:
            key, gone = event.key, event.type is EventType.DELETED
            if key[1:3] == _NAMESPACES:
                if not gone and _DELETED not in event.data:
                    self._look_at(key.space, key.name)
            elif (*key[1:3], key.name) == SERVICE_ACCOUNT:
                if gone:
                    self._look_at(key.space, key.namespace)
            elif (*key[1:3], key.name) == ROOT_CERTIFICATES and (gone or not self._is_right(event.data)):
                self._look_at(key.space, key.namespace)

    def _look_at(self, space: str, namespace: str) -> None:
        self._due.setdefault(space, {})[namespace] = None
        self._queue.add(Key(space, *_NAMESPACES, "", ""))

    def _is_right(self, data: bytes) -> bool:
        return contents.is_up_to_date(orjson.loads(data), self._bundle)

    async def _reconcile_safely(self, key: Key) -> None:
        """Look at some of what is due in a space, and come back for the rest."""
        due = list(self._due.pop(key.space, ()))
        now, later = due[:_TOGETHER], due[_TOGETHER:]
        for namespace in later:
            self._look_at(key.space, namespace)
        held = await held_open(self._store, key.space)
        if held is None or not now:
            return
        places = [
            Key(key.space, group, resource, namespace, name)
            for namespace in now
            for group, resource, name in (SERVICE_ACCOUNT, ROOT_CERTIFICATES)
        ]
        found = await self._store.current([*places, *(_namespace_key(key.space, name) for name in now)])
        writes = (self._complete(_namespace_key(key.space, name), found, held) for name in now)
        for failure in await asyncio.gather(*writes, return_exceptions=True):
            if failure is not None:
                raise failure

    async def _complete(self, key: Key, found: Mapping[Key, Stored], held: Sequence[Operation]) -> None:
        """Give one namespace what it lacks."""
        try:
            namespace = found.get(key)
            writes = [] if namespace is None or _is_none_of_ours(namespace) else list(self._writes(key, found))
            if namespace is not None and writes:
                await self._store.commit(*writes, Check(namespace.key, namespace.revision), *held)
                if any(isinstance(write, Create) for write in writes):
                    self._remade(key.space, key.name)
        except PreconditionFailed:
            await asyncio.sleep(0.01)
            self._look_at(key.space, key.name)
        except (KeyError, TypeError, ValueError, AttributeError):
            # An object that is not shaped as it should be must not stop the work for all others.
            logger.exception("the namespace %s of %s cannot be completed", key.name, key.space)

    def _writes(self, namespace: Key, found: Mapping[Key, Stored]) -> Sequence[Operation]:
        space, name, now = namespace.space, namespace.name, timestamp(time.time())
        account, certificates = (
            Key(space, group, resource, name, own) for group, resource, own in (SERVICE_ACCOUNT, ROOT_CERTIFICATES)
        )
        writes: list[Operation] = []
        if account not in found:
            writes.append(Create(account, contents.service_account(space, name, uid=str(uuid.uuid4()), now=now)))
        there = found.get(certificates)
        if there is None:
            made = contents.root_certificates(space, name, self._bundle, uid=str(uuid.uuid4()), now=now)
            writes.append(Create(certificates, made))
        elif not self._is_right(there.data):
            restored = contents.restored(orjson.loads(there.data), self._bundle, now=now)
            if restored is not None:
                writes.append(Update(certificates, there.revision, restored))
        return writes


def _is_none_of_ours(namespace: Stored) -> bool:
    """Whether a namespace ends, or is on a cluster, which completes it itself."""
    metadata = orjson.loads(namespace.data)["metadata"]
    return "deletionTimestamp" in metadata or CLUSTER_LABEL in (metadata.get("labels") or {})


def _namespace_key(space: str, name: str) -> Key:
    return Key(space, *_NAMESPACES, "", name)
