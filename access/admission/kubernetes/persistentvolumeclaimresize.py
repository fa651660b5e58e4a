"""A bound claim grows only where the class that provided its volume lets it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson

from access.admission.base import UPDATE, Attributes, NoopPlugin
from kube.quota.quantities import ZERO
from kube.requests.status import Forbidden
from kube.validation.quantities import amount
from store.interface import Store
from store.types import Key, Operation


class PersistentVolumeClaimResize(NoopPlugin):
    """Refuses to enlarge a bound PersistentVolumeClaim whose StorageClass does not say that its volumes can grow."""

    name = "PersistentVolumeClaimResize"
    kinds = frozenset({("", "persistentvolumeclaims")})

    def __init__(self, store: Store) -> None:
        self._store = store

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` in kube-apiserver's words."""
        body, old = attributes.object, attributes.old
        if body is None or old is None or attributes.subresource or attributes.operation != UPDATE:
            return ()
        bound = (old.get("status") or {}).get("phase") == "Bound"
        asked, before = (
            amount(((each.get("spec") or {}).get("resources") or {}).get("requests", {}).get("storage")) or ZERO
            for each in (body, old)
        )
        if bound and asked > before and not await self._can_grow(attributes, body):
            raise Forbidden(
                f'persistentvolumeclaims "{attributes.name}" is forbidden: only dynamically provisioned pvc can be '
                "resized and the storageclass that provisions the pvc must support resize",
                kind="persistentvolumeclaims",
                name=attributes.name,
            )
        return ()

    async def _can_grow(self, attributes: Attributes, body: dict[str, Any]) -> bool:
        name = (body.get("spec") or {}).get("storageClassName")
        if not name:
            return False
        key = Key(attributes.cluster, "storage.k8s.io", "storageclasses", "", name)
        stored = await self._store.get(key, cached=True) or await self._store.get(key)
        return stored is not None and bool(orjson.loads(stored.data).get("allowVolumeExpansion"))
