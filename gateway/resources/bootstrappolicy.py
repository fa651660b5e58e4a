"""The bootstrap policy as objects: any space shows what holds there and can be bound there (KC7).

They cost no space a row. Whoever changes one makes it the space's own, which then counts there in its place, whatever
the policy says; until then it has the resource version 1, and cannot be deleted.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from kube.authorization import bootstrappolicy
from kube.authorization.rbac import GROUP
from kube.requests.logicalclusters import full_path, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import Forbidden
from store.types import AllSpaces, Key, Range, Spaces, Stored

NOT_KEPT: Final = 0
"""The revision of what no space keeps."""

SHOWN: Final = "1"
"""Its resource version: older than any that is kept, and no "0", with which a write would overwrite whatever is there."""

_MANIFESTS: Final = {
    "clusterroles": bootstrappolicy.CLUSTER_ROLES,
    "clusterrolebindings": bootstrappolicy.CLUSTER_ROLE_BINDINGS,
}
_ROLES: Final = uuid.UUID("6f6b5c0e-5b0f-5d4c-9f3f-0d9f6f1f3c55")
_SPACES: Final = 64


def found(key: Key) -> Stored | None:
    """The object of the bootstrap policy that has this key, unless its space keeps one of its own."""
    if key.group != GROUP or key.resource not in _MANIFESTS or key.namespace:
        return None
    return _objects(key.space, key.resource).get(key.name)


def objects_in(selection: Range | AllSpaces | Spaces) -> Mapping[str, Stored]:
    """Those of a selection by name; none in a reading across spaces."""
    if not isinstance(selection, Range) or selection.group != GROUP or selection.resource not in _MANIFESTS:
        return {}
    return _objects(selection.space, selection.resource)


def require_kept(stored: Stored, qualified_name: str) -> None:
    """Raise ``Forbidden`` for what only the bootstrap policy holds: there is nothing to delete."""
    if stored.revision == NOT_KEPT:
        key = stored.key
        raise Forbidden(
            f'{qualified_name} "{key.name}" is forbidden: it belongs to the policy that every space falls back on; '
            "change it here to make it the space's own",
            group=key.group,
            kind=key.resource,
            name=key.name,
        )


@lru_cache(maxsize=_SPACES * len(_MANIFESTS))
def _objects(space: str, resource: str) -> Mapping[str, Stored]:
    return {stored.key.name: stored for stored in _made(space, resource)}


def _made(space: str, resource: str) -> Iterator[Stored]:
    tenant = tenant_of(space)
    for manifest in _MANIFESTS[resource]:
        name = manifest["metadata"]["name"]
        metadata: dict[str, Any] = {
            **manifest["metadata"],
            "uid": str(uuid.uuid5(_ROLES, f"{space}/{resource}/{name}")),
            "resourceVersion": SHOWN,
            "creationTimestamp": None,
            "selfLink": full_path(space, GROUP, "v1", resource, name=name),
        }
        if tenant != SYSTEM_TENANT:
            metadata["tenant"] = tenant
        body = {**manifest, "metadata": metadata}
        if tenant != SYSTEM_TENANT and "rules" in body:
            # How far a role of the system space reaches means nothing in another.
            body["rules"] = [
                {name: part for name, part in rule.items() if name != "scopeType"} for rule in body["rules"]
            ]
        yield Stored(Key(space, GROUP, resource, "", name), NOT_KEPT, orjson.dumps(body))
