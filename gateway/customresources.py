"""What CRDs add to the catalogs of their spaces (TS10, TS11, TS12)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

import orjson

from gateway.kinds import Catalogs, definitions
from kube.builtins import BUILTINS, TENANT_BUILTINS
from kube.crds import is_established, resource_of
from kube.logicalclusters import ROOT
from kube.resources import Catalog, Resource
from store.port import Store
from store.types import Event, EventType, Everywhere

logger = logging.getLogger(__name__)

CRDS: Final = ("apiextensions.k8s.io", "customresourcedefinitions")
PUBLISHED: Final = "multi-tenancy.k8s.io/published"


class CustomResources:
    """Follows all CRDs and keeps the catalogs right.

    A space serves its own CRDs; tenants' spaces also the published ones of the system space, unless they have one of
    the same name.
    """

    def __init__(self, catalogs: Catalogs) -> None:
        self._catalogs = catalogs
        self._own: dict[str, dict[str, Resource]] = {}
        self._published: dict[str, Resource] = {}

    async def load(self, store: Store) -> None:
        """Read all CRDs once; afterwards ``on_events`` is enough."""
        listing = await store.list(Everywhere(*CRDS), cached=True)
        for item in listing.items:
            self._take(item.key.space, orjson.loads(item.data), gone=False)
        self._catalogs.publish(self._tenant_catalog() if self._published else None)
        for cluster in list(self._own):
            self._extend(cluster)

    def on_events(self, events: Sequence[Event]) -> None:
        """Take in changes of CRDs."""
        changed = set()
        for event in events:
            if (event.key.group, event.key.resource) != CRDS:
                continue
            self._take(event.key.space, orjson.loads(event.data), gone=event.type is EventType.DELETED)
            changed.add(event.key.space)
        if ROOT in changed:
            changed.update(self._own)
            # Spaces without CRDs of their own see what is published as well.
            self._catalogs.publish(self._tenant_catalog() if self._published else None)
        for cluster in changed:
            self._extend(cluster)

    def _take(self, cluster: str, crd: dict[str, Any], *, gone: bool) -> None:
        name = crd["metadata"]["name"]
        resource: Resource | None = None
        if not gone and is_established(crd):
            try:
                resource = resource_of(crd, definitions())
            except (KeyError, TypeError, ValueError):
                logger.exception("the CRD %s of %s cannot be served", name, cluster)
        annotations = crd["metadata"].get("annotations") or {}
        published = cluster == ROOT and resource is not None and annotations.get(PUBLISHED) == "true"
        own = self._own.setdefault(cluster, {})
        if resource is None:
            own.pop(name, None)
        else:
            own[name] = resource
        if published and resource is not None:
            self._published[name] = resource
        elif cluster == ROOT:
            self._published.pop(name, None)

    def _tenant_catalog(self) -> Catalog:
        return TENANT_BUILTINS.extended(self._published.values())

    def _extend(self, cluster: str) -> None:
        own = self._own.get(cluster, {})
        if not own:
            self._own.pop(cluster, None)
            self._catalogs.extend(cluster, None)
            return
        base = BUILTINS if cluster == ROOT else self._tenant_catalog()
        self._catalogs.extend(cluster, base.extended(own.values()))
