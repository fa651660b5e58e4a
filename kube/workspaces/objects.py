"""What a workspace begins with (KC2, KC3, KC13)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from kube.authentication.identity import ADMIN_GROUPS, AUTHENTICATED, SERVICE_ACCOUNT_PREFIX
from kube.authorization.bootstrap.namespaces import NAMESPACED_BINDINGS, NAMESPACED_ROLES
from kube.authorization.bootstrappolicy import COMPONENT_BINDINGS
from kube.authorization.policyobjects import binding, role, rule
from kube.authorization.rbac import GROUP as RBAC
from kube.requests.logicalclusters import ROOT, full_path, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.workspaces.namespacecontents import service_account
from kube.workspaces.types import (
    CLUSTER_NAME,
    CORE,
    LOGICAL_CLUSTERS,
    ORGANIZATION_TYPE,
    OWNER,
    REQUIRED_GROUPS,
    TENANCY,
    TYPE,
    TYPE_UID,
    TYPES,
    VERSION,
    Phase,
)

Body = dict[str, Any]
Place = tuple[str, str, str, str]
"""Group, resource, namespace and name."""

OWNERS_GROUP: Final = "tenantry:owner"
"""The owners of a tenant: administrators of workspaces that nobody of the tenant made."""


def logical_cluster_objects(
    path: str,
    workspace: Body,
    *,
    initializers: Sequence[str],
    required: str | None,
    url: str,
    now: str,
    uids: list[str],
) -> list[tuple[Place, Body]]:
    """The first objects of a workspace: its ``LogicalCluster``, namespace ``default``, and its administrators.

    ``required`` are the parent's required groups, ``now`` is RFC 3339, ``uids`` five fresh ones.
    """
    metadata, spec = workspace["metadata"], workspace["spec"]
    owner = orjson.loads((metadata.get("annotations") or {}).get(OWNER) or b"{}")
    kind = spec["type"]
    annotations = {TYPE: f"{kind['path']}:{kind['name']}"}
    given = metadata.get("annotations") or {}
    annotations |= {name: given[name] for name in (OWNER, TYPE_UID) if name in given}
    if required is not None:
        annotations[REQUIRED_GROUPS] = required
    cluster = {
        "apiVersion": f"{CORE}/{VERSION}",
        "kind": "LogicalCluster",
        "metadata": {
            **_metadata(path, *LOGICAL_CLUSTERS, VERSION, CLUSTER_NAME, now, uids[0]),
            "annotations": annotations,
        },
        "spec": {
            "owner": {
                "apiVersion": f"{TENANCY}/{VERSION}",
                "resource": "workspaces",
                "name": metadata["name"],
                "cluster": path.rpartition(":")[0],
                "uid": metadata["uid"],
            },
            "initializers": list(initializers),
        },
        "status": {"phase": Phase.INITIALIZING, "URL": url, "initializers": list(initializers)},
    }
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            **_metadata(path, "", "namespaces", "v1", "default", now, uids[1]),
            "labels": {"kubernetes.io/metadata.name": "default"},
        },
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
    account = service_account(path, "default", uid=uids[4], now=now)
    return [
        ((*LOGICAL_CLUSTERS, "", CLUSTER_NAME), cluster),
        (("", "namespaces", "", "default"), namespace),
        (("", "serviceaccounts", "default", "default"), account),
        _admins(path, "system:kcp:workspace:admin", {"kind": "Group", "name": ADMIN_GROUPS[0]}, now, uids[2]),
        _admins(path, "workspace-admin", _maker(owner, tenant_of(path)), now, uids[3]),
    ]


def organization_object(path: str, *, tenant: str, url: str, now: str, uid: str) -> Body:
    """The ``LogicalCluster`` of a tenant's space: what its workspaces inherit is written there (KC3).

    ``tenant`` is the uid of the ``Tenant`` object.
    """
    return {
        "apiVersion": f"{CORE}/{VERSION}",
        "kind": "LogicalCluster",
        "metadata": {
            **_metadata(path, *LOGICAL_CLUSTERS, VERSION, CLUSTER_NAME, now, uid),
            "annotations": {TYPE: ORGANIZATION_TYPE},
        },
        "spec": {
            "owner": {
                "apiVersion": "v1",
                "resource": "tenants",
                "name": tenant_of(path),
                "cluster": ROOT,
                "uid": tenant,
            },
        },
        "status": {"phase": Phase.READY, "URL": url},
    }


def _maker(owner: Mapping[str, Any], tenant: str) -> Body:
    """Who administers a new workspace: the user who made it.

    Names mean users of the tenant here. So what a service account, whose name another may bear in here, or an
    operator made belongs to the tenant's owners.
    """
    name = str(owner.get("username") or "")
    if not name or owner.get("tenant") != tenant or name.startswith(SERVICE_ACCOUNT_PREFIX):
        return {"kind": "Group", "name": OWNERS_GROUP}
    return {"kind": "User", "name": name}


def _admins(path: str, name: str, subject: Body, now: str, uid: str) -> tuple[Place, Body]:
    body = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": _metadata(path, RBAC, "clusterrolebindings", "v1", name, now, uid),
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": RBAC, **subject}],
    }
    return (RBAC, "clusterrolebindings", "", name), body


def root_objects(*, now: str, uid: Callable[[], str]) -> list[tuple[Place, Body]]:
    """What the system space begins with: the types ``organization`` and ``universal``, and who may do what there.

    ``now`` is RFC 3339; ``uid`` gives a fresh one each time.
    """
    name = "system:kcp:tenancy:use-universal"
    policy = [
        ("clusterroles", role(name, rule("use", TENANCY, TYPES[1], names=("universal",)))),
        *(("clusterrolebindings", made) for made in (binding(name, name, AUTHENTICATED), *COMPONENT_BINDINGS)),
        *(("roles", made) for made in NAMESPACED_ROLES),
        *(("rolebindings", made) for made in NAMESPACED_BINDINGS),
    ]
    return [
        _type("organization", "The space of a tenant.", {"limitAllowedParents": {"none": True}}, now, uid()),
        _type("universal", "A workspace for anything.", {}, now, uid()),
        *(_kept(resource, made, now, uid()) for resource, made in policy),
    ]


def _kept(resource: str, manifest: Body, now: str, uid: str) -> tuple[Place, Body]:
    name, namespace = manifest["metadata"]["name"], manifest["metadata"].get("namespace", "")
    metadata = manifest["metadata"] | _metadata(ROOT, RBAC, resource, "v1", name, now, uid, namespace=namespace)
    return (RBAC, resource, namespace, name), {**manifest, "metadata": metadata}


def _type(name: str, description: str, spec: Body, now: str, uid: str) -> tuple[Place, Body]:
    metadata = _metadata("root", *TYPES, VERSION, name, now, uid)
    body = {
        "apiVersion": f"{TENANCY}/{VERSION}",
        "kind": "WorkspaceType",
        "metadata": {**metadata, "annotations": {"kubernetes.io/description": description}},
        "spec": spec,
    }
    return (*TYPES, "", name), body


def _metadata(
    path: str, group: str, resource: str, version: str, name: str, now: str, uid: str, *, namespace: str = ""
) -> Body:
    metadata: Body = {
        "name": name,
        "uid": uid,
        "creationTimestamp": now,
        "selfLink": full_path(path, group, version, resource, namespace=namespace, name=name),
    }
    tenant = tenant_of(path)
    if tenant != SYSTEM_TENANT:
        metadata["tenant"] = tenant
    return metadata
