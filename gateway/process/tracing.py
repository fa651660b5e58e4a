"""Parts of an API server that say how long they took, where the process is traced (``audit.tracing``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from access.admission.base import Attributes
from access.admission.chain import AdmissionChain
from audit import tracing
from gateway.process.runtime import Runtime
from store.engine import Engine
from store.types import AllSpaces, Key, Listing, Operation, Range, Room, Spaces, Stored


class TracedEngine(Engine):
    """The store: what it is asked on the way of a request and cannot just take out of its memory."""

    async def get(self, key: Key, *, cached: bool = False) -> Stored | None:
        """See ``store.interface.Store``."""
        if cached:
            return await super().get(key, cached=True)
        with tracing.span("store.get", db__system__name="postgresql", db__collection__name=key.resource):
            return await super().get(key)

    async def list(self, selection: Range | AllSpaces | Spaces, **options: Any) -> Listing:
        """See ``store.interface.Store``."""
        with tracing.span("store.list", db__system__name="postgresql", db__collection__name=selection.resource):
            return await super().list(selection, **options)

    async def commit(self, *operations: Operation, room: Room | None = None) -> Sequence[Stored]:
        """See ``store.interface.Store``."""
        with tracing.span("store.commit", db__system__name="postgresql", db__operation__batch__size=len(operations)):
            return await super().commit(*operations, room=room)


class TracedAdmission(AdmissionChain):
    """A chain of plug-ins."""

    def __init__(self, chain: AdmissionChain) -> None:
        self._chain = chain

    async def admit(self, attributes: Attributes) -> list[Operation]:
        """See ``AdmissionChain``."""
        with tracing.span("admission"):
            return await self._chain.admit(attributes)


def trace(runtime: Runtime) -> None:
    """Have the chains of a runtime say how long they took."""
    runtime.admission = TracedAdmission(runtime.admission)
    runtime.part_admission = TracedAdmission(runtime.part_admission)
    runtime.cluster_admission = TracedAdmission(runtime.cluster_admission)
    runtime.cluster_namespace_admission = TracedAdmission(runtime.cluster_namespace_admission)
