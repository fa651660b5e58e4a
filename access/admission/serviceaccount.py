"""Pods run as a service account that exists."""

from __future__ import annotations

from collections.abc import Sequence

from access.admission.base import CREATE, Attributes
from kube.status import Forbidden
from store.port import Store
from store.types import Key, Operation


class ServiceAccount:
    """A new pod runs as ``default`` when that account exists and nothing else is asked; a named one must exist."""

    name = "ServiceAccount"

    def __init__(self, store: Store) -> None:
        self._store = store

    async def admit(self, attributes: Attributes) -> None:
        """Name the account in both fields."""
        body = attributes.object
        if body is None or not _concerns(attributes):
            return
        spec = body.get("spec") or {}
        name = spec.get("serviceAccountName") or spec.get("serviceAccount")
        if not name and await self._exists(attributes, "default"):
            name = "default"
        if name:
            spec["serviceAccountName"] = spec["serviceAccount"] = name

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` when the account is not there."""
        body = attributes.object
        if body is None or not _concerns(attributes):
            return ()
        name = (body.get("spec") or {}).get("serviceAccountName")
        if name and not await self._exists(attributes, name):
            raise Forbidden(
                f'pods "{attributes.name}" is forbidden: error looking up service account '
                f'{attributes.namespace}/{name}: serviceaccount "{name}" not found',
                kind="pods",
                name=attributes.name,
            )
        return ()

    async def _exists(self, attributes: Attributes, name: str) -> bool:
        key = Key(attributes.cluster, "", "serviceaccounts", attributes.namespace, name)
        return await self._store.get(key, cached=True) is not None or await self._store.get(key) is not None


def _concerns(attributes: Attributes) -> bool:
    resource = attributes.resource
    return (
        not resource.group
        and resource.plural == "pods"
        and attributes.operation == CREATE
        and not attributes.subresource
    )
