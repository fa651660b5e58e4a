"""CRDs: defaults, judgement, and the status that establishes them at once (TS10)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import orjson

from access.admission.base import CREATE, UPDATE, Attributes, NoopPlugin
from kube.customresources.definitions import CRDS, crd_causes, crd_status, crd_update_causes
from kube.customresources.schemas import unknown_formats
from kube.kinds.schemas import Definitions
from kube.requests.fielderrors import invalid_object
from kube.requests.requestinfo import not_found
from kube.requests.status import Forbidden, MethodNotAllowed
from store.interface import Store
from store.types import Check, Key, Operation, Range, Stored

MAX_DEFINITIONS: Final = 1000
"""CRDs of one space, so that no tenant fills the memory of all."""


class CustomResourceDefinitions(NoopPlugin):
    """Looks after CRDs; there is no controller to wait for."""

    name = "CustomResourceDefinitions"
    changes = frozenset({CRDS})

    def __init__(self, store: Store, definitions: Callable[[], Definitions]) -> None:
        self._store = store
        self._definitions = definitions

    async def admit(self, attributes: Attributes) -> None:
        """Fill in the names that follow from others, and the conversion."""
        body = attributes.object
        if not _concerns(attributes) or body is None:
            return
        spec = body.get("spec")
        names = spec.get("names") if isinstance(spec, dict) else None
        if not isinstance(spec, dict) or not isinstance(names, dict):
            return
        spec.setdefault("conversion", {"strategy": "None"})
        status, versions = body.get("status"), spec.get("versions")
        if isinstance(status, dict) and isinstance(versions, list) and not status.get("storedVersions"):
            status["storedVersions"] = [each.get("name") for each in versions if each.get("storage")]
        if isinstance(names.get("kind"), str):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", names["kind"] + "List")

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Gives a CRD its status, and holds the CRD that a new custom object rests on. Raises ``Invalid``."""
        body, old = attributes.object, attributes.old
        if attributes.operation == CREATE and attributes.resource.definition:
            return (await self._standing(attributes),)
        if not _concerns(attributes) or body is None or attributes.subresource:
            return ()
        causes = (
            crd_update_causes(old, body, self._definitions())
            if old is not None
            else crd_causes(body, self._definitions())
        )
        if causes:
            raise invalid_object(attributes.resource.group, attributes.resource.kind, attributes.name, causes)
        before = frozenset(unknown_formats(old)) if old is not None else frozenset()
        new = [name for name in unknown_formats(body) if name not in before]
        attributes.warnings.extend(f'unrecognized format "{name}"' for name in new)
        listing = await self._store.list(
            Range(attributes.cluster, attributes.resource.group, attributes.resource.plural)
        )
        if old is None and len(listing.items) >= MAX_DEFINITIONS:
            raise Forbidden(
                f'{attributes.resource.qualified_name} "{attributes.name}" is forbidden: '
                f"a space holds at most {MAX_DEFINITIONS} definitions",
                group=attributes.resource.group,
                kind=attributes.resource.plural,
                name=attributes.name,
            )
        taken = await statuses_in_group(listing.items, body["spec"]["group"], but=attributes.name)
        now = datetime.fromtimestamp(attributes.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body["status"] = crd_status(body, taken.values(), now=now)
        return ()

    async def _standing(self, attributes: Attributes) -> Check:
        """The definition as it is; raises when it is gone or going, so that nothing new escapes its cleaning up."""
        resource = attributes.resource
        key = Key(resource.defined_in, *CRDS, "", resource.qualified_name)
        stored = await self._store.get(key, cached=True) or await self._store.get(key)
        metadata = orjson.loads(stored.data)["metadata"] if stored is not None else {}
        if stored is None or metadata["uid"] != resource.definition:
            raise not_found()
        if "deletionTimestamp" in metadata:
            words = "create not allowed while custom resource definition is terminating"
            raise MethodNotAllowed(words, group=resource.group, kind=resource.plural)
        return Check(key, stored.revision)


async def statuses_in_group(items: Sequence[Stored], group: str, but: str = "") -> dict[str, dict[str, Any]]:
    """The statuses of the CRDs of a group, by name, ``but`` for one; one of them is read a turn of the loop."""
    found = {}
    for item in items:
        if item.key.name != but and item.key.name.partition(".")[2] == group:
            found[item.key.name] = {"status": orjson.loads(item.data).get("status")}
            await asyncio.sleep(0)
    return found


def _concerns(attributes: Attributes) -> bool:
    resource = attributes.resource
    return (resource.group, resource.plural) == CRDS and attributes.operation in (CREATE, UPDATE)
