"""Exports, bindings and schemas of APIs: who may bind what, and what stays as it is (KC5, KC11)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from access.admission.base import CREATE, UPDATE, Attributes, NoopPlugin
from access.authorization.workspaces.state import Workspaces
from kube.authentication.identity import is_masters
from kube.customresources.definitions import CRDS
from kube.kinds.schemas import Definitions
from kube.requests.fielderrors import forbidden, invalid, invalid_object
from kube.requests.logicalclusters import is_tenant_space, is_valid, is_workspace
from kube.requests.status import Cause
from kube.workspaces.apiexports import (
    ANNOTATIONS,
    BINDING,
    BINDING_BYTES_MAX,
    BINDINGS,
    CLAIMS_BYTES_MAX,
    EXPORTS,
    FINALIZER,
    SCHEMAS,
    SCHEMAS_MAX,
    claim_causes,
    identity_hash,
    identity_of,
    may_bind,
    schema_causes,
)
from kube.workspaces.types import reference
from store.interface import Store
from store.types import Key, Operation

Body = dict[str, Any]


class ApiBindings(NoopPlugin):
    """Looks after ``APIExport``, ``APIBinding``, ``APIResourceSchema``, and the definitions that bindings make."""

    name = "ApiBindings"
    kinds = frozenset({BINDINGS, CRDS, EXPORTS, SCHEMAS})

    def __init__(self, store: Store, workspaces: Workspaces, definitions: Callable[[], Definitions]) -> None:
        self._store = store
        self._workspaces = workspaces
        self._definitions = definitions

    async def admit(self, attributes: Attributes) -> None:
        """Give exports their identity, and bindings their path, the identity they are made for, and their finalizer."""
        body, old = attributes.object, attributes.old
        key = (attributes.resource.group, attributes.resource.plural)
        if body is None or attributes.subresource:
            return
        if key == EXPORTS and attributes.operation == CREATE:
            body["status"] = {"identityHash": identity_hash(attributes.cluster, body["metadata"]["uid"])}
        elif key == BINDINGS and attributes.operation == CREATE:
            export = ((body.get("spec") or {}).get("reference") or {}).get("export")
            if isinstance(export, dict) and not export.get("path"):
                export["path"] = attributes.cluster
            metadata = body["metadata"]
            metadata["finalizers"] = list(dict.fromkeys([*(metadata.get("finalizers") or ()), FINALIZER]))
            body["status"] = {"phase": "Binding"}
            # Read before anybody is asked for the right to bind it: an export that takes its place in between is not
            # the one consented to.
            if identity := await self._identity(export):
                body["status"]["exportIdentityHash"] = identity
        elif key == BINDINGS and old is not None and FINALIZER in (old["metadata"].get("finalizers") or ()):
            metadata = body["metadata"]
            metadata["finalizers"] = list(dict.fromkeys([*(metadata.get("finalizers") or ()), FINALIZER]))

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` and ``Invalid``."""
        key = (attributes.resource.group, attributes.resource.plural)
        if key == CRDS:
            _judge_definition(attributes)
        elif attributes.object is None or attributes.operation not in (CREATE, UPDATE):
            return ()
        elif key in (EXPORTS, BINDINGS) and attributes.subresource == "status":
            if not is_masters(attributes.principal):
                raise attributes.forbidden("the status of exports and bindings is the server's")
        elif key == SCHEMAS:
            self._judge_schema(attributes, attributes.object)
        elif key == EXPORTS:
            await self._judge_export(attributes, attributes.object)
        elif key == BINDINGS:
            await self._judge_binding(attributes, attributes.object)
        return ()

    def _judge_schema(self, attributes: Attributes, body: Body) -> None:
        old = attributes.old
        if old is not None:
            if old.get("spec") != body.get("spec"):
                raise _invalid(attributes, invalid("spec", "", "field is immutable"))
        elif causes := schema_causes(body, self._definitions()):
            raise _invalid(attributes, *causes)

    async def _judge_export(self, attributes: Attributes, body: Body) -> None:
        spec = body.get("spec") or {}
        names, claims = spec.get("latestResourceSchemas") or [], spec.get("permissionClaims") or []
        if len(names) > SCHEMAS_MAX or len(set(names)) < len(names):
            too_many = invalid("spec.latestResourceSchemas", len(names), f"at most {SCHEMAS_MAX}, each once")
            raise _invalid(attributes, too_many)
        policy = spec.get("maximalPermissionPolicy")
        if policy is not None and (policy or {}).get("local") is None:
            raise _invalid(attributes, forbidden("spec.maximalPermissionPolicy", "only local is known"))
        if causes := claim_causes(claims, answered=False):
            raise _invalid(attributes, *causes)
        if attributes.old is not None and attributes.old.get("spec") == spec:
            return
        # Schemas may come later: what a binding may bring is looked at again where it is brought.
        keys = [Key(attributes.cluster, *SCHEMAS, "", name) for name in names]
        schemas = [await self._store.get(key, cached=True) for key in keys]
        size = sum(len(stored.data) for stored in schemas if stored is not None)
        for field, taken, most in (
            ("latestResourceSchemas", size, BINDING_BYTES_MAX),
            ("permissionClaims", len(orjson.dumps(claims)), CLAIMS_BYTES_MAX),
        ):
            if taken > most:
                raise _invalid(attributes, invalid(f"spec.{field}", taken, f"a binding may bring {most} bytes of them"))

    async def _judge_binding(self, attributes: Attributes, body: Body) -> None:
        cluster, principal = attributes.cluster, attributes.principal
        value = ((body.get("spec") or {}).get("reference") or {}).get("export")
        old = attributes.old
        if causes := claim_causes((body.get("spec") or {}).get("permissionClaims") or (), answered=True):
            raise _invalid(attributes, *causes)
        if old is not None:
            if ((old.get("spec") or {}).get("reference") or {}).get("export") != value:
                raise _invalid(attributes, invalid("spec.reference", "", "field is immutable"))
            return
        if not is_tenant_space(cluster) and not is_workspace(cluster):
            raise attributes.forbidden("the system space provides APIs and binds none")
        try:
            path, name = reference(value)
        except ValueError:
            raise _invalid(attributes, invalid("spec.reference.export", value, "must name an export")) from None
        # One answer for exports that are not there and for those one may not bind: nobody finds out by asking.
        if not await self._may_bind(attributes, path, name):
            raise attributes.forbidden(
                f'there is no export "{path}:{name}", or the user "{principal.name}" may not "bind" it',
            )

    async def _identity(self, value: Any) -> str:
        try:
            path, name = reference(value)
        except ValueError:
            return ""
        return await identity_at(self._store, path, name)

    async def _may_bind(self, attributes: Attributes, path: str, name: str) -> bool:
        if not is_valid(path) or await self._store.get(Key(path, *EXPORTS, "", name), cached=True) is None:
            return False
        principal = attributes.principal
        return is_masters(principal) or (await self._workspaces.asked(principal, path, may_bind(name))).allowed


async def identity_at(store: Store, path: str, name: str) -> str:
    """The identity of the export of this name, empty where there is none."""
    stored = await store.get(Key(path, *EXPORTS, "", name), cached=True) if is_valid(path) else None
    return identity_of(orjson.loads(stored.data)) if stored else ""


def _judge_definition(attributes: Attributes) -> None:
    """Bound definitions are the server's; nobody makes one that looks like it."""
    old, body = attributes.old, attributes.object
    if old is not None and BINDING in (old["metadata"].get("annotations") or {}):
        raise attributes.forbidden("it belongs to an APIBinding")
    annotations = ((body or {}).get("metadata", {}).get("annotations") or {}) if old is None else {}
    for name in ANNOTATIONS:
        if name in annotations:
            raise _invalid(attributes, forbidden(f"metadata.annotations[{name}]", "is set by the server"))
    if old is not None and body is not None:
        was, now = (state["metadata"].get("annotations") or {} for state in (old, body))
        if any(was.get(name) != now.get(name) for name in ANNOTATIONS):
            raise _invalid(attributes, forbidden("metadata.annotations", "bindings are the server's"))


def _invalid(attributes: Attributes, *causes: Cause) -> Exception:
    return invalid_object(attributes.resource.group, attributes.resource.kind, attributes.name, causes)
