"""Whether a cluster has a kind, as its own discovery tells it (GW4, AD1).

A 404 does not say that it has not. Of what it does not serve kube-apiserver says ``404 page not found``, and so does
whatever stands before one that is away. Whoever takes what is not there for gone has the discovery say so too: a list of
groups, or of kinds, without it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from gateway.upstream.answers import Room
from gateway.upstream.client import BadGateway
from gateway.upstream.clusters import Clusters
from gateway.upstream.reading import read_document
from kube.kinds.builtins import BUILTINS

_OPTIONAL: Final = frozenset({"resource.k8s.io"})
"""Groups of built-in kinds that not every cluster serves, or in other versions."""


def is_everywhere(group: str, plural: str) -> bool:
    """Whether every cluster has a kind: one that says otherwise does not answer."""
    return group not in _OPTIONAL and BUILTINS.by_group_resource(group, plural) is not None


async def is_served(
    clusters: Clusters,
    cluster: str,
    kind: tuple[str, str, str],
    *,
    room: Room | None = None,
    tenant: str = "",
) -> bool:
    """Whether a cluster serves a group's version of a plural. Raises ``StatusError`` where nobody can tell."""
    group, version, plural = kind
    if is_everywhere(group, plural):
        return True
    told = (await read_groups(clusters, cluster, room=room, tenant=tenant)).get(group)
    if told is None or version not in _named(told, "versions", "version", cluster):
        return False
    path = f"/apis/{quote(group, safe='')}/{quote(version, safe='')}"
    document = await read_document(clusters, cluster, path, room=room, tenant=tenant)
    return plural in _named(document, "resources", "name", cluster)


async def read_groups(
    clusters: Clusters, cluster: str, *, room: Room | None = None, tenant: str = ""
) -> dict[str, Mapping[str, Any]]:
    """What a cluster says of its groups, by name. Raises ``StatusError``."""
    return _named(await read_document(clusters, cluster, "/apis", room=room, tenant=tenant), "groups", "name", cluster)


def _named(document: Mapping[str, Any], part: str, name: str, cluster: str) -> dict[str, Mapping[str, Any]]:
    """What a document lists, by name. Raises ``BadGateway`` where it has no such list."""
    try:
        return {each[name]: each for each in document[part]}
    except (KeyError, TypeError):
        raise BadGateway(f'the cluster "{cluster}" does not say which kinds it has') from None
