"""A tenant's space in the store: made with the tenant, ended with it (TS1, TS2, TS5).

Members act in their tenant's space as the groups ``tenantry:<role>``; four ClusterRoleBindings, written with the
space, give these groups the bootstrap roles (KC7): owners ``cluster-admin``, admins ``admin``, editors ``edit``,
viewers ``view``. They are the space's own objects: its owners may change them, and see in them why they may.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import orjson
from django.db import transaction
from django.utils import timezone

from kube.authentication.identity import MEMBERS
from kube.workspaces.namespacecontents import SERVICE_ACCOUNT, service_account
from store import synchronous
from store.models import StoredObject
from store.types import Create, Delete, Key, Operation, PreconditionFailed, Stored, Update
from tenants import manifests
from tenants.models import Role, Tenant, TenantState
from tenants.quotas import tenant_quota_object

ROOT: Final = "root"
_RBAC: Final = "rbac.authorization.k8s.io"

MEMBER_ROLES: Final[Mapping[Role, str]] = {
    Role.OWNER: "cluster-admin",
    Role.ADMIN: "admin",
    Role.EDITOR: "edit",
    Role.VIEWER: "view",
}

FIRST_NAMESPACES: Final = ("default", "kube-system", "kube-public")
"""What charts and operators take for granted in any cluster (Arktos gives a new tenant the same)."""

SYSTEM_NAMESPACES: Final = (*FIRST_NAMESPACES, "kube-node-lease")
"""Those of the system space, the only one with nodes."""

_CHUNK: Final = 500

_PHASES: Final = {
    TenantState.ACTIVE: "Active",
    TenantState.SUSPENDED: "Suspended",
    TenantState.TERMINATING: "Terminating",
}


def tenant_key(name: str) -> Key:
    """Where the ``Tenant`` object is kept."""
    return Key(ROOT, "", "tenants", "", name)


def space_create(
    tenant: Tenant, *, body: Mapping[str, Any] | None, quota: Mapping[str, str], held: Sequence[Operation]
) -> None:
    """Write the ``Tenant`` object and the first objects of its space, its quota among them, in the caller's transaction.

    ``body`` is the object as somebody wants it, ``held`` what must hold. Call it last: every writer of the store waits
    until the transaction ends. Raises ``PreconditionFailed`` when the store has any of them already.
    """
    objects = [*_first_objects(tenant, body), tenant_quota_object(tenant.name, quota)]
    synchronous.commit([*(Create(key, made) for key, made in objects), *held])


def tenant_object(name: str) -> Stored | None:
    """The ``Tenant`` object, as the caller's transaction sees it."""
    return synchronous.get(tenant_key(name))


@transaction.atomic
def system_space_create() -> None:
    """Write what the system space begins with: its namespaces and the gateway's role; what is there stays."""
    wanted = [(_namespace_key(ROOT, name), _namespace(name)) for name in SYSTEM_NAMESPACES]
    wanted += [_first_account(ROOT, name) for name in SYSTEM_NAMESPACES]
    for manifest in manifests.load("embedded-gateway-role.yaml"):
        resource, name = f"{manifest['kind'].lower()}s", manifest["metadata"]["name"]
        link = f"/apis/{_RBAC}/v1/{resource}/{name}"
        body = {**manifest, **_body(f"{_RBAC}/v1", manifest["kind"], name, link, labels=manifest["metadata"]["labels"])}
        wanted.append((Key(ROOT, _RBAC, resource, "", name), body))
    missing = [Create(key, body) for key, body in wanted if synchronous.get(key) is None]
    if missing:
        synchronous.commit(missing)


def namespaces_made(tenant: str, *, limit: int) -> list[str]:
    """Namespaces that are stored in the tenant's space beside those that it began with: the first by name."""
    kept = StoredObject.objects.filter(group="", resource="namespaces", space=f"{ROOT}:{tenant}", namespace="")
    return list(kept.exclude(name__in=FIRST_NAMESPACES).order_by("name").values_list("name", flat=True)[:limit])


def tenant_mark_phase(tenant: Tenant) -> None:
    """Show the tenant's state in its object's ``status.phase``."""
    _change_tenant(
        tenant.name, lambda body: body.setdefault("status", {}).update(phase=_PHASES[TenantState(tenant.state)])
    )


def tenant_show_name(tenant: Tenant, together: Sequence[Operation] = ()) -> None:
    """Show the tenant's display name in its object's ``spec``; ``together`` as in ``tenant_mark_terminating``."""
    _change_tenant(tenant.name, lambda body: body.update(spec=_spec_of(tenant, body)), together)


def tenant_mark_terminating(tenant: Tenant, together: Sequence[Operation] = ()) -> None:
    """Show in the ``Tenant`` object that its end has begun.

    ``together`` is the object's write by which somebody asks for it, and what must hold then. Raises
    ``PreconditionFailed`` where there is any.
    """
    now = _now()

    def mark(body: dict[str, Any]) -> None:
        body["metadata"].setdefault("deletionTimestamp", now)
        body.setdefault("status", {})["phase"] = _PHASES[TenantState.TERMINATING]

    _change_tenant(tenant.name, mark, together)


def tenant_is_held(name: str) -> bool:
    """Whether somebody's finalizer keeps the ``Tenant`` object."""
    stored = tenant_object(name)
    body = orjson.loads(stored.data) if stored is not None else {}
    return any((body.get(part) or {}).get("finalizers") for part in ("metadata", "spec"))


def space_empty(name: str) -> bool:
    """Delete some objects of the tenant's space and of the workspaces below it; whether there may be others.

    Some hundreds, and no more than the store reads at once: one commit holds up every writer.
    """
    found = synchronous.objects_below(f"{ROOT}:{name}", portion=_CHUNK)
    if found:
        # Somebody else deleted or changed one of them in between: look again.
        with contextlib.suppress(PreconditionFailed):
            synchronous.commit([Delete(each.key, each.revision, orjson.loads(each.data)) for each in found])
    return bool(found)


def tenant_object_delete(name: str) -> None:
    """Delete the ``Tenant`` object, in the caller's transaction and last."""
    if (stored := tenant_object(name)) is not None:
        synchronous.commit([Delete(stored.key, stored.revision, orjson.loads(stored.data))])


def _change_tenant(name: str, change: Callable[[dict[str, Any]], None], together: Sequence[Operation] = ()) -> None:
    written = next((each for each in together if isinstance(each, Update) and each.key == tenant_key(name)), None)
    if written is not None:
        change(written.body)
        synchronous.commit(together)
        return
    while (stored := tenant_object(name)) is not None:
        body = orjson.loads(stored.data)
        change(body)
        try:
            synchronous.commit([Update(stored.key, stored.revision, body)])
        except PreconditionFailed:
            continue
        return


def _first_objects(tenant: Tenant, wanted: Mapping[str, Any] | None) -> Iterator[tuple[Key, dict[str, Any]]]:
    name, space = tenant.name, f"{ROOT}:{tenant.name}"
    body = wanted or _body("v1", "Tenant", name, f"/api/v1/tenants/{name}")
    status = {"phase": _PHASES[TenantState(tenant.state)]}
    yield tenant_key(name), {**body, "spec": _spec_of(tenant, body), "status": status}

    for namespace in FIRST_NAMESPACES:
        yield _namespace_key(space, namespace), _namespace(namespace, tenant=name)
        yield _first_account(space, namespace)

    prefix = f"/apis/{_RBAC}/v1/tenants/{name}"
    for member, target in MEMBER_ROLES.items():
        group = f"{MEMBERS}{member.value}"
        link = f"{prefix}/clusterrolebindings/{group}"
        binding = _body(f"{_RBAC}/v1", "ClusterRoleBinding", group, link, tenant=name)
        binding["roleRef"] = {"apiGroup": _RBAC, "kind": "ClusterRole", "name": target}
        binding["subjects"] = [{"apiGroup": _RBAC, "kind": "Group", "name": group}]
        yield Key(space, _RBAC, "clusterrolebindings", "", group), binding


def _spec_of(tenant: Tenant, body: Mapping[str, Any]) -> dict[str, Any]:
    """The ``spec`` of a ``Tenant`` object with the name that the row has."""
    spec = {name: value for name, value in (body.get("spec") or {}).items() if name != "displayName"}
    return {"displayName": tenant.display_name, **spec} if tenant.display_name else spec


def _namespace_key(space: str, name: str) -> Key:
    return Key(space, "", "namespaces", "", name)


def _first_account(space: str, namespace: str) -> tuple[Key, dict[str, Any]]:
    group, resource, name = SERVICE_ACCOUNT
    account = service_account(space, namespace, uid=str(uuid.uuid4()), now=_now())
    return Key(space, group, resource, namespace, name), account


def _namespace(name: str, *, tenant: str = "") -> dict[str, Any]:
    prefix = f"/api/v1/tenants/{tenant}" if tenant else "/api/v1"
    labels = {"kubernetes.io/metadata.name": name}
    namespace = _body("v1", "Namespace", name, f"{prefix}/namespaces/{name}", tenant=tenant, labels=labels)
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}
    return namespace


def _body(
    api_version: str,
    kind: str,
    name: str,
    link: str,
    *,
    tenant: str = "",
    labels: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "uid": str(uuid.uuid4()),
        "creationTimestamp": _now(),
        "selfLink": link,
    }
    if tenant:
        metadata["tenant"] = tenant
    if labels:
        metadata["labels"] = dict(labels)
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _now() -> str:
    return timezone.now().strftime("%Y-%m-%dT%H:%M:%SZ")
