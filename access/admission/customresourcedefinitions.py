"""CRDs: defaults, judgement, and the status that establishes them at once (TS10)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

import orjson

from access.admission.base import CREATE, UPDATE, Attributes
from kube.crds import crd_causes, crd_status, crd_update_causes
from kube.schemas import Definitions
from kube.validation.causes import invalid_object
from store.port import Store
from store.types import Operation, Range

CLEANUP: Final = "customresourcecleanup.apiextensions.k8s.io"
"""Holds a deleted CRD until its objects are gone."""


class CustomResourceDefinitions:
    """Looks after CRDs; there is no controller to wait for."""

    name = "CustomResourceDefinitions"

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
        if isinstance(names.get("kind"), str):
            names.setdefault("singular", names["kind"].lower())
            names.setdefault("listKind", names["kind"] + "List")
        if attributes.operation == CREATE:
            finalizers = body["metadata"].setdefault("finalizers", [])
            if isinstance(finalizers, list) and CLEANUP not in finalizers:
                finalizers.append(CLEANUP)

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Invalid``; otherwise gives the CRD its status."""
        body, old = attributes.object, attributes.old
        if not _concerns(attributes) or body is None or attributes.subresource:
            return ()
        causes = (
            crd_update_causes(old, body, self._definitions())
            if old is not None
            else crd_causes(body, self._definitions())
        )
        if causes:
            raise invalid_object(attributes.resource.group, attributes.resource.kind, attributes.name, causes)
        listing = await self._store.list(
            Range(attributes.cluster, attributes.resource.group, attributes.resource.plural)
        )
        others = [orjson.loads(item.data) for item in listing.items if item.key.name != attributes.name]
        taken = [other for other in others if other["spec"]["group"] == body["spec"]["group"]]
        now = datetime.fromtimestamp(attributes.now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        body["status"] = crd_status(body, taken, now=now)
        return ()


def _concerns(attributes: Attributes) -> bool:
    resource = attributes.resource
    return (
        resource.group == "apiextensions.k8s.io"
        and resource.plural == "customresourcedefinitions"
        and attributes.operation in (CREATE, UPDATE)
    )
