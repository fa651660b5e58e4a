"""The names of logical clusters, and the full path and the registry key of what lives in them.

``root`` is the system space, ``root:<tenant>`` a tenant's space, ``root:<tenant>:<workspace>…`` a workspace and
``system:admin`` the bootstrap policy (KC7, KC12, KC13).
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from kube.requests.names import SYSTEM_TENANT, is_dns_label, is_tenant_name

ROOT: Final = "root"
"""The system space."""

BOOTSTRAP: Final = "system:admin"
"""Where the bootstrap policy lives (KC7)."""

DEPTH_MAX: Final = 16
"""Segments of a path, ``root`` included: deeper nesting has no use and would make every check above longer."""

_NAME_SAFE: Final = "!$&'()*+,;=:@~"
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_.:-]+")


def is_valid(path: str) -> bool:
    """Whether this names a logical cluster that can exist; says nothing about whether it does."""
    return len(path) <= DEPTH_MAX * 64 and _is_valid(path)


@lru_cache(maxsize=4096)
def _is_valid(path: str) -> bool:
    if path in {ROOT, BOOTSTRAP}:
        return True
    first, *rest = path.split(":")
    return (
        first == ROOT
        and 0 < len(rest) < DEPTH_MAX
        and is_tenant_name(rest[0])
        and all(is_dns_label(segment) for segment in rest[1:])
    )


def space_of(tenant: str) -> str:
    """The logical cluster of a tenant's own space; ``root`` for ``system``."""
    return ROOT if tenant == SYSTEM_TENANT else f"{ROOT}:{tenant}"


@lru_cache(maxsize=16384)
def tenant_of(path: str) -> str:
    """The tenant that a logical cluster belongs to: ``system`` for the root and the bootstrap cluster.

    The space of a user whose tenant cannot exist, such as ``root:tenantA``, belongs to that tenant and to nobody else.
    Raises ``ValueError`` for what belongs to no one.
    """
    if path in {ROOT, BOOTSTRAP}:
        return SYSTEM_TENANT
    first, _, rest = path.partition(":")
    tenant = rest.partition(":")[0]
    if first != ROOT or not tenant or tenant == SYSTEM_TENANT:
        msg = "not the path of a logical cluster"
        raise ValueError(msg)
    return tenant


def parent_of(path: str) -> str | None:
    """The logical cluster that this one is an object of; ``None`` for the root and for ``system:`` clusters."""
    if tenant_of(path) == SYSTEM_TENANT:
        return None
    return path.rpartition(":")[0]


def child_of(path: str, name: str) -> str:
    """The logical cluster of a workspace in this one. Raises ``ValueError`` where none can be."""
    child = f"{path}:{name}"
    if path == BOOTSTRAP or not is_valid(child):
        msg = "no workspace can have this path"
        raise ValueError(msg)
    return child


class ClusterKind(IntEnum):
    """The kinds of logical clusters, by who lives there."""

    SYSTEM = 0
    """The operators': the system space and the bootstrap policy."""
    TENANT = 1
    WORKSPACE = 2


_SYSTEM, _TENANT, _WORKSPACE = ClusterKind


@lru_cache(maxsize=16384)
def cluster_kind_of(path: str) -> ClusterKind:
    """The kind of a logical cluster."""
    if not path.startswith("root:"):
        return _SYSTEM
    return _WORKSPACE if path.count(":") > 1 else _TENANT


def is_tenant_space(path: str) -> bool:
    """Whether this is a tenant's own space: neither the system space nor a workspace below it."""
    return cluster_kind_of(path) is _TENANT


def is_workspace(path: str) -> bool:
    """Whether this is a workspace inside a tenant."""
    return cluster_kind_of(path) is _WORKSPACE


def full_path(
    cluster: str,
    group: str,
    version: str,
    resource: str,
    *,
    namespace: str = "",
    name: str = "",
    subresource: str = "",
) -> str:
    """The path that names an object or a collection without regard to the caller (TS4, TS5).

    This is ``metadata.selfLink``. The system space has the plain Kubernetes path, a tenant's space the one with
    ``tenants/<tenant>``, everything else is reached below ``/clusters/<path>``.
    """
    parts = ["/api" if not group else f"/apis/{group}", version]
    if is_tenant_space(cluster):
        parts += ("tenants", cluster[5:])
    elif cluster != ROOT:
        parts[0] = f"/clusters/{cluster}{parts[0]}"
    if namespace and resource != "namespaces":
        parts += ("namespaces", namespace)
    parts.append(resource)
    if name:
        parts.append(name if _PLAIN_NAME.fullmatch(name) else quote(name, safe=_NAME_SAFE))
    if subresource:
        parts.append(subresource)
    return "/".join(parts)


def registry_key(cluster: str, resource: str, *, group: str = "", namespace: str = "", name: str = "") -> str:
    """The key of SPACES (TS9): derived, for people and tools to read; isolation never rests on it.

    ``group`` is for groups whose resources keep it in their key (custom resources, ``apiregistration.k8s.io``).
    The part between resource and namespace is the tenant, or for workspaces the path below ``root``.
    """
    parts = ["/registry"]
    if group:
        parts.append(group)
    parts.append(resource)
    if cluster != ROOT:
        parts.append(cluster.removeprefix("root:"))
    if namespace and resource != "namespaces":
        parts.append(namespace)
    if name:
        parts.append(name)
    return "/".join(parts)
