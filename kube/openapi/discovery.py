"""Discovery documents, made from a catalog: what ``kubectl api-resources`` and client libraries read first.

Pass ``catalog.for_tenants()`` (extended by the space's CRDs) for a tenant space: what is not in the catalog
does not show (TS10, TS13, TS15).
"""

from __future__ import annotations

import base64
import hashlib
from typing import Any, Final

from kube.customresources.definitions import CRDS
from kube.kinds.resources import Catalog, Resource, Subresource, Version, api_version

_CUSTOM_VERBS: Final = ("delete", "deletecollection", "get", "list", "patch", "create", "update", "watch")

AGGREGATED_VERSIONS: Final = ("v2", "v2beta1")
"""The versions of ``apidiscovery.k8s.io`` that ``aggregated`` makes, the preferred one first."""


def aggregated_media_type(version: str) -> str:
    """The ``Content-Type`` of aggregated discovery: ``application/json;g=apidiscovery.k8s.io;v=v2;as=…``."""
    return f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"


def api_versions(server_address: str) -> dict[str, Any]:
    """``/api``: the versions of the core group. ``server_address`` is ``host:port``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}],
    }


def api_group_list(catalog: Catalog) -> dict[str, Any]:
    """``/apis``: the named groups in the real server's order."""
    groups = [_group(group, versions) for group, versions in catalog.groups().items() if group]
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}


def api_group(catalog: Catalog, group: str) -> dict[str, Any] | None:
    """``/apis/<group>``, or ``None`` when the catalog has no such group."""
    versions = catalog.groups().get(group)
    if not group or versions is None:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}


def api_resource_list(catalog: Catalog, group: str, version: str) -> dict[str, Any] | None:
    """``/api/v1`` (group ``""``) or ``/apis/<group>/<version>``; ``None`` when there is no such version."""
    if version not in catalog.groups().get(group, ()):
        return None
    entries: list[dict[str, Any]] = []
    for resource in catalog.in_version(group, version):
        served = resource.version(version)
        if served is None:
            continue
        entries.append(_resource(resource))
        entries.extend(_subresource(resource, version, part) for part in _sorted_parts(resource, served))
    body: dict[str, Any] = {"kind": "APIResourceList"}
    if group:
        body["apiVersion"] = "v1"
    return body | {"groupVersion": api_version(group, version), "resources": entries}


def aggregated(catalog: Catalog, *, core: bool, version: str = "v2") -> dict[str, Any]:
    """Aggregated discovery of ``/api`` (``core``) or ``/apis``: every resource in one document.

    ``version`` is one of ``AGGREGATED_VERSIONS``.
    """
    items = [
        {
            "metadata": {"name": group} if group else {},
            "versions": [_aggregated_version(catalog, group, name) for name in versions],
        }
        for group, versions in catalog.groups().items()
        if core != bool(group)
    ]
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": items,
    }


def _group(group: str, versions: tuple[str, ...]) -> dict[str, Any]:
    entries = [{"groupVersion": api_version(group, name), "version": name} for name in versions]
    return {"name": group, "versions": entries, "preferredVersion": entries[0]}


def _resource(resource: Resource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": _verbs(resource),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    if resource.persistent:
        entry["storageVersionHash"] = _storage_version_hash(resource)
    return entry


def _verbs(resource: Resource) -> list[str]:
    """The verbs in the real server's order, which for custom resources is another one."""
    return sorted(resource.verbs, key=_CUSTOM_VERBS.index) if resource.custom else list(resource.verbs)


def _storage_version_hash(resource: Resource) -> str:
    """What tells clients that migrate storage that the version in which objects are kept is another one now."""
    group = resource.group if resource.storage_group is None else resource.storage_group
    # Kubernetes still keeps definitions as v1beta1, and this is its hash.
    version = "v1beta1" if resource.storage_key == CRDS else resource.storage_version.name
    digest = hashlib.sha256(f"{group}/{version}/{resource.kind}".encode()).digest()
    return base64.b64encode(digest[:8]).decode()


def _subresource(resource: Resource, version: str, part: Subresource) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "name": f"{resource.plural}/{part.name}",
        "singularName": "",
        "namespaced": resource.namespaced,
    }
    if (part.group, part.version) != (resource.group, version):
        entry |= {"group": part.group, "version": part.version}
    return entry | {"kind": part.kind, "verbs": list(part.verbs)}


def _aggregated_version(catalog: Catalog, group: str, version: str) -> dict[str, Any]:
    resources = [_aggregated_resource(resource, version) for resource in catalog.in_version(group, version)]
    return {"version": version, "resources": resources, "freshness": "Current"}


def _aggregated_resource(resource: Resource, version: str) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "resource": resource.plural,
        "responseKind": {"group": resource.group, "version": version, "kind": resource.kind},
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": _verbs(resource),
    }
    if resource.short_names:
        entry["shortNames"] = list(resource.short_names)
    if resource.categories:
        entry["categories"] = list(resource.categories)
    served = resource.version(version)
    if served is not None and served.subresources:
        entry["subresources"] = [
            {
                "subresource": part.name,
                "responseKind": {"group": part.group, "version": part.version, "kind": part.kind},
                "verbs": list(part.verbs),
            }
            for part in _sorted_parts(resource, served)
        ]
    return entry


def _sorted_parts(resource: Resource, version: Version) -> list[Subresource]:
    return sorted(version.subresources, key=lambda part: part.name, reverse=resource.custom)
