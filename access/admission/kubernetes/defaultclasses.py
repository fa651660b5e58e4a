"""Claims and ingresses that name no class get the one that their space has marked as the default."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from access.admission.base import CREATE, Attributes, NoopPlugin
from store.interface import Store
from store.pace import Pace
from store.types import Range


@dataclass(frozen=True, slots=True)
class Defaulting:
    """Which objects get which classes: ``marks`` are annotations of a class, ``asked`` one of an object that names its own."""

    name: str
    of: tuple[str, str]
    classes: tuple[str, str]
    field: str
    marks: tuple[str, ...]
    asked: str


STORAGE: Final = Defaulting(
    "DefaultStorageClass",
    ("", "persistentvolumeclaims"),
    ("storage.k8s.io", "storageclasses"),
    "storageClassName",
    ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class"),
    "volume.beta.kubernetes.io/storage-class",
)
INGRESS: Final = Defaulting(
    "DefaultIngressClass",
    ("networking.k8s.io", "ingresses"),
    ("networking.k8s.io", "ingressclasses"),
    "ingressClassName",
    ("ingressclass.kubernetes.io/is-default-class",),
    "kubernetes.io/ingress.class",
)


class DefaultClass(NoopPlugin):
    """Kubernetes' ``DefaultStorageClass`` and ``DefaultIngressClass``. Of several defaults the newest counts (TS15)."""

    def __init__(self, store: Store, defaulting: Defaulting) -> None:
        self._store = store
        self._of = defaulting
        self.name, self.kinds = defaulting.name, frozenset({defaulting.of})

    async def admit(self, attributes: Attributes) -> None:
        """Name the default class, where there is one and the object names none."""
        body, of = attributes.object, self._of
        if body is None or attributes.operation != CREATE or attributes.subresource:
            return
        spec = body.setdefault("spec", {})
        if spec.get(of.field) is not None or of.asked in _annotations(body):
            return
        listing = await self._store.list(Range(attributes.cluster, *of.classes, ""), cached=True)
        marked: list[dict[str, Any]] = []
        async for item in Pace().over(listing.items):
            # Most have no mark, which their bytes tell.
            if any(mark.encode() in item.data for mark in of.marks):
                found = orjson.loads(item.data)
                if any(_annotations(found).get(mark) == "true" for mark in of.marks):
                    marked.append(found["metadata"])
        if marked:
            # Of several of one moment the first by its name.
            marked.sort(key=lambda each: str(each["name"]))
            spec[of.field] = max(marked, key=lambda each: str(each["creationTimestamp"]))["name"]


def _annotations(body: Mapping[str, Any]) -> Mapping[str, Any]:
    return body["metadata"].get("annotations") or {}
