"""What a workspace may be, and who may make one of which type (KC1, KC3, KC10, KC13)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from access.admission.base import CREATE, DELETE, UPDATE, Attributes, NoopPlugin
from access.admission.tenancy.apibindings import identity_at
from access.authorization.workspaces.state import Workspaces
from kube.authentication.identity import Principal, is_masters
from kube.requests.fielderrors import forbidden, invalid, invalid_object
from kube.requests.logicalclusters import is_tenant_space, is_valid, is_workspace, parent_of, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import Cause
from kube.workspaces import defaultbindings
from kube.workspaces.apiexports import may_bind
from kube.workspaces.types import (
    BASES_MAX,
    DEFAULT_TYPE,
    FINALIZER,
    INACTIVE,
    LOGICAL_CLUSTERS,
    ORGANIZATION_TYPE,
    OWNER,
    REQUIRED_GROUPS,
    RESERVED_TYPES,
    TYPE,
    TYPE_UID,
    TYPES,
    WORKSPACES,
    Phase,
    depth_of,
    may_use,
    parent_cluster,
    phase_wanted,
    reference,
    required_groups,
    split_type,
)
from store.interface import Store
from store.types import Key, Operation, Range, Update

Body = dict[str, Any]
WORKSPACES_MAX: Final = 1000
"""Workspaces of one logical cluster, so that no tenant fills the store for all."""

_STATE: Final = (OWNER, TYPE, TYPE_UID)
"""Annotations that the server alone writes."""


class WorkspaceTree(NoopPlugin):
    """Looks after ``Workspace``, ``WorkspaceType`` and ``LogicalCluster`` objects. ``depth_max`` limits the nesting."""

    name = "WorkspaceTree"
    kinds = frozenset({LOGICAL_CLUSTERS, TYPES, WORKSPACES})

    def __init__(self, store: Store, workspaces: Workspaces, depth_max: int) -> None:
        self._store = store
        self._workspaces = workspaces
        self._depth_max = depth_max

    async def admit(self, attributes: Attributes) -> None:
        """Give a new workspace its type, owner, finalizer and phase; keep what is the server's as it was."""
        body = attributes.object
        key = (attributes.resource.group, attributes.resource.plural)
        if body is None or attributes.subresource:
            return
        if key == TYPES:
            await self._keep_default_exports(attributes, body)
        elif attributes.operation == UPDATE and attributes.old is not None:
            _keep(body, attributes.old, workspace=key == WORKSPACES)
            if key == LOGICAL_CLUSTERS and is_workspace(attributes.cluster):
                _show_phase(body)
        elif attributes.operation == CREATE and key == WORKSPACES:
            await self._prepare(attributes, body)

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` and ``Invalid``."""
        resource, operation = attributes.resource, attributes.operation
        key = (resource.group, resource.plural)
        if key == WORKSPACES and operation in (CREATE, UPDATE):
            await self._judge_workspace(attributes)
        elif key == LOGICAL_CLUSTERS:
            return await self._judge_logical_cluster(attributes)
        elif key == TYPES and operation in (CREATE, UPDATE):
            await self._judge_type(attributes)
        return ()

    async def _keep_default_exports(self, attributes: Attributes, body: Body) -> None:
        """Note the identity of what a type names newly; what it named before stays what its author might bind then."""
        spec = body.get("spec")
        if not isinstance(spec, dict) or defaultbindings.causes(spec, attributes.cluster):
            return
        before = {each[:2]: each for each in defaultbindings.known(attributes.old or {})}
        exports = {}
        for path, name, _ in defaultbindings.wanted(spec, attributes.cluster):
            identity = await identity_at(self._store, path, name)
            exports[path, name] = before.get((path, name)) or defaultbindings.Export(path, name, identity)
        status = {name: value for name, value in (body.get("status") or {}).items() if name != defaultbindings.FIELD}
        if exports:
            status[defaultbindings.FIELD] = defaultbindings.shown(exports.values())
        if status or "status" in body:
            body["status"] = status

    async def _judge_type(self, attributes: Attributes) -> None:
        if attributes.subresource == "status":
            if not is_masters(attributes.principal):
                raise attributes.forbidden("the status of workspace types is the server's")
            return
        _judge_type(attributes)
        body, principal = attributes.object or {}, attributes.principal
        before = defaultbindings.known(attributes.old or {})
        for export in defaultbindings.known(body):
            if export in before:
                continue
            # One answer for exports that are not there and for those one may not bind: nobody finds out by asking.
            asked = (
                is_masters(principal)
                or (await self._workspaces.asked(principal, export.path, may_bind(export.name))).allowed
            )
            if not export.identity or not asked:
                why = f'there is no export "{export.path}:{export.name}", or the user "{principal.name}" may not "bind" it'
                raise attributes.forbidden(why)

    async def _prepare(self, attributes: Attributes, body: Body) -> None:
        cluster, principal = attributes.cluster, attributes.principal
        if not is_tenant_space(cluster) and not is_workspace(cluster):
            raise attributes.forbidden("workspaces live in tenants' spaces; the system space holds tenants")
        spec = body.setdefault("spec", {})
        if not isinstance(spec, dict):
            return
        for field in ("cluster", "URL"):
            if spec.get(field):
                raise _invalid(attributes, forbidden(f"spec.{field}", "is set by the server"))
        path, name = await self._type_of(attributes, spec)
        spec["type"] = {"path": path, "name": name}
        metadata = body["metadata"]
        annotations = metadata.setdefault("annotations", {}) or {}
        metadata["annotations"] = annotations
        for field in (*_STATE, REQUIRED_GROUPS):
            if field in annotations:
                raise _invalid(attributes, forbidden(f"metadata.annotations[{field}]", "is set by the server"))
        annotations[OWNER] = orjson.dumps(owner_of(principal)).decode()
        if is_valid(path) and tenant_of(path) not in (tenant_of(cluster), SYSTEM_TENANT):
            kind = await self._type(f"{path}:{name}")
            annotations |= {TYPE_UID: kind["metadata"]["uid"]} if kind else {}
        metadata["finalizers"] = list(dict.fromkeys([*(metadata.get("finalizers") or ()), FINALIZER]))
        body["status"] = {"phase": Phase.SCHEDULING.value}

    async def _type_of(self, attributes: Attributes, spec: Body) -> tuple[str, str]:
        """The type that is asked for, or the parent's default; looked for here, above, and in the system space."""
        cluster = attributes.cluster
        if spec.get("type") is None:
            parent = await self._type(*await self._parent_type(cluster))
            default = ((parent or {}).get("spec") or {}).get("defaultChildWorkspaceType")
            if default is None:
                return split_type(DEFAULT_TYPE)
            spec["type"] = default
        try:
            path, name = reference(spec["type"])
        except ValueError:
            raise _invalid(attributes, invalid("spec.type", spec["type"], "must name a workspace type")) from None
        if path:
            return path, name
        here: str | None = cluster
        while here is not None:
            if await self._type(f"{here}:{name}") is not None:
                return here, name
            here = parent_of(here)
        return split_type(DEFAULT_TYPE)[0], name

    async def _judge_workspace(self, attributes: Attributes) -> None:
        body, old = attributes.object, attributes.old
        if body is None:
            return
        if old is not None:
            if attributes.subresource == "status" and not is_masters(attributes.principal):
                raise attributes.forbidden("the status of workspaces is the server's")
            if body.get("spec") != old.get("spec"):
                raise _invalid(attributes, invalid("spec", "", "field is immutable"))
            return
        child = f"{attributes.cluster}:{attributes.name}"
        if depth_of(child) > self._depth_max:
            raise attributes.forbidden(f"workspaces nest at most {self._depth_max} deep")
        listing = await self._store.list(Range(attributes.cluster, *WORKSPACES), cached=True)
        if len(listing.items) >= WORKSPACES_MAX:
            raise attributes.forbidden(f"a logical cluster holds at most {WORKSPACES_MAX} workspaces")
        wanted = body["spec"]["type"]
        types = await self._usable(attributes, f"{wanted['path']}:{wanted['name']}")
        parent = await self._lineage(*await self._parent_type(attributes.cluster))
        if not _fits(types.values(), "limitAllowedParents", parent):
            raise attributes.forbidden(f'a workspace of type "{next(iter(types))}" cannot be here')
        if not _fits(parent.values(), "limitAllowedChildren", types):
            raise attributes.forbidden(f'no workspace of type "{next(iter(types))}" can be below this one')

    async def _usable(self, attributes: Attributes, wanted: str) -> dict[str, Body]:
        """The type and all it extends; each must be there and be free to use (KC10).

        One answer for both, so that nobody finds out which types others have.
        """
        types = await self._lineage(wanted)
        for name in types if len(types) <= BASES_MAX else (wanted,):
            path, short = split_type(name)
            found = bool(types[name]) and len(types) <= BASES_MAX
            if not found or not await self._may_use(attributes.principal, path, short):
                user = attributes.principal.name
                raise attributes.forbidden(
                    f'there is no workspace type "{name}", or the user "{user}" may not "use" it'
                )
        return types

    async def _may_use(self, principal: Principal, path: str, name: str) -> bool:
        if is_masters(principal):
            return True
        return (await self._workspaces.asked(principal, path, may_use(name))).allowed

    async def _lineage(self, name: str, uid: str = "") -> dict[str, Body]:
        """A type, of this uid if one is given, and those it extends, by name; an empty body for one that is not there."""
        found: dict[str, Body] = {}
        queue = [name]
        while queue and len(found) <= BASES_MAX:
            name = queue.pop(0)
            if name in found:
                continue
            body = await self._type(name, "" if found else uid)
            found[name] = body or {}
            for value in ((found[name].get("spec") or {}).get("extend") or {}).get("with") or ():
                path, short = reference(value)
                queue.append(f"{path or split_type(name)[0]}:{short}")
        return found

    async def _type(self, name: str, uid: str = "") -> Body | None:
        path, short = split_type(name)
        if not is_valid(path):
            return None
        stored = await self._store.get(Key(path, *TYPES, "", short), cached=True)
        body: Body | None = orjson.loads(stored.data) if stored else None
        return body if body is not None and uid in ("", body["metadata"]["uid"]) else None

    async def _parent_type(self, cluster: str) -> tuple[str, str]:
        """The type of a logical cluster, with its uid when it is another tenant's."""
        if is_tenant_space(cluster):
            return ORGANIZATION_TYPE, ""
        state = await self._workspaces.state(cluster)
        return (state.type, state.type_uid) if state else (DEFAULT_TYPE, "")

    async def _judge_logical_cluster(self, attributes: Attributes) -> Sequence[Operation]:
        """It is made and ended with the workspace.

        The workspace's administrators in the parent set the required groups, say that it is inactive, and take
        initializers off its status. Its phase is shown by the ``Workspace`` as well.
        """
        old, body, principal = attributes.old, attributes.object, attributes.principal
        if attributes.operation in (CREATE, DELETE):
            raise attributes.forbidden("a logical cluster begins and ends with its Workspace or Tenant object")
        if body is None or old is None:
            return ()
        if attributes.subresource == "status":
            if not await self._workspaces.administers(principal, attributes.cluster):
                raise attributes.forbidden(f'the user "{principal.name}" is no administrator of the workspace above')
            _judge_status(attributes, body, old)
            return ()
        if body.get("spec") != old.get("spec"):
            raise _invalid(attributes, invalid("spec", "", "field is immutable"))
        await self._judge_annotations(attributes, old, body)
        return await self._with_phase(attributes, old, body)

    async def _judge_annotations(self, attributes: Attributes, old: Body, body: Body) -> None:
        changed = [name for name in (REQUIRED_GROUPS, INACTIVE) if _annotation(old, name) != _annotation(body, name)]
        if not changed:
            return
        below = is_workspace(attributes.cluster)
        if INACTIVE in changed and not below:
            raise attributes.forbidden(
                "only workspaces are inactive; a tenant's space is closed by suspending the tenant"
            )
        # What a tenant's workspaces inherit is for those to say who may change the object in the tenant's own space.
        if below and not await self._workspaces.administers(attributes.principal, attributes.cluster):
            what = "required groups are" if REQUIRED_GROUPS in changed else "whether it is inactive is"
            raise attributes.forbidden(f'{what} changed by those with the verb "admin" on workspaces/content above')
        required = _annotation(body, REQUIRED_GROUPS)
        if REQUIRED_GROUPS in changed and required is not None:
            try:
                required_groups(required, self._workspaces.dialect)
            except ValueError as error:
                raise _invalid(
                    attributes, invalid(f"metadata.annotations[{REQUIRED_GROUPS}]", required, str(error))
                ) from None

    async def _with_phase(self, attributes: Attributes, old: Body, body: Body) -> Sequence[Operation]:
        """The ``Workspace`` in the phase of its logical cluster, where that changes."""
        phase = (body.get("status") or {}).get("phase")
        if phase == (old.get("status") or {}).get("phase"):
            return ()
        parent, name = parent_cluster(attributes.cluster)
        key = Key(parent, *WORKSPACES, "", name)
        stored = await self._store.get(key)
        if stored is None:
            return ()
        workspace = orjson.loads(stored.data)
        workspace["status"] = {**(workspace.get("status") or {}), "phase": phase}
        return (Update(key, stored.revision, workspace),)


def owner_of(principal: Principal) -> Body:
    """Who made a workspace, as its annotation says it: enough to tell equal names of two tenants apart."""
    owner: Body = {"username": principal.name, "uid": principal.uid, "tenant": principal.tenant or ""}
    if principal.cluster is not None:
        owner["cluster"] = principal.cluster
    return owner


def _annotation(body: Body, name: str) -> str | None:
    value = (body["metadata"].get("annotations") or {}).get(name)
    return value if value is None or isinstance(value, str) else ""


def _show_phase(body: Body) -> None:
    phase = phase_wanted(body)
    if phase != (body.get("status") or {}).get("phase"):
        body["status"] = {**(body.get("status") or {}), "phase": phase}


def _keep(body: Body, old: Body, *, workspace: bool) -> None:
    """Put the server's annotations and its finalizer back as they were."""
    metadata, before = body["metadata"], old["metadata"]
    was: Mapping[str, str] = before.get("annotations") or {}
    annotations = {name: value for name, value in (metadata.get("annotations") or {}).items() if name not in _STATE}
    annotations |= {name: was[name] for name in _STATE if name in was}
    if workspace:
        annotations.pop(REQUIRED_GROUPS, None)
        if FINALIZER in (before.get("finalizers") or ()):
            metadata["finalizers"] = list(dict.fromkeys([*(metadata.get("finalizers") or ()), FINALIZER]))
    if annotations:
        metadata["annotations"] = annotations
    else:
        metadata.pop("annotations", None)


def _judge_status(attributes: Attributes, body: Body, old: Body) -> None:
    """Initializers can only be taken off, and only while the workspace initializes."""
    was, now = dict(old.get("status") or {}), dict(body.get("status") or {})
    before, after = was.pop("initializers", None) or [], now.pop("initializers", None) or []
    was.pop("conditions", None), now.pop("conditions", None)
    if was != now:
        raise _invalid(attributes, forbidden("status", "only initializers and conditions can be changed"))
    if after != before and (was.get("phase") != Phase.INITIALIZING or not set(after) <= set(before)):
        raise _invalid(attributes, forbidden("status.initializers", "can only be taken off while initializing"))


def _judge_type(attributes: Attributes) -> None:
    spec = (attributes.object or {}).get("spec") or {}
    causes: list[Cause] = []
    if attributes.operation == CREATE and attributes.name in RESERVED_TYPES:
        raise attributes.forbidden(f'metadata.name: Invalid value: "{attributes.name}": name is reserved')
    references = [("spec.extend.with", value) for value in (spec.get("extend") or {}).get("with") or ()]
    for field in ("limitAllowedChildren", "limitAllowedParents"):
        limit = spec.get(field) or {}
        references += [(f"spec.{field}.types", value) for value in limit.get("types") or ()]
        if limit.get("none") and limit.get("types"):
            causes.append(forbidden(f"spec.{field}.types", "may not be set together with none"))
    if spec.get("defaultChildWorkspaceType") is not None:
        references.append(("spec.defaultChildWorkspaceType", spec["defaultChildWorkspaceType"]))
    for path, value in references:
        try:
            reference(value)
        except ValueError:
            causes.append(invalid(path, value, "must name a workspace type"))
    causes += defaultbindings.causes(spec, attributes.cluster)
    if len(references) > BASES_MAX:
        causes.append(invalid("spec", len(references), f"names more than {BASES_MAX} types"))
    if causes:
        raise _invalid(attributes, *causes)


def _fits(types: Iterable[Body], field: str, others: Mapping[str, Body]) -> bool:
    """Whether no limit of these types speaks against all of the others' names."""
    for body in types:
        limit = (body.get("spec") or {}).get(field)
        if not limit:
            continue
        allowed = {"{}:{}".format(*reference(value)) for value in limit.get("types") or ()}
        if limit.get("none") or (allowed and not allowed & others.keys()):
            return False
    return True


def _invalid(attributes: Attributes, *causes: Cause) -> Exception:
    return invalid_object(attributes.resource.group, attributes.resource.kind, attributes.name, causes)
