"""Exports and bindings of APIs: from the schemas of a provider to the definitions in a consumer (KC5, KC6, KC11).

What an ``APIBinding`` makes served is kept as a CustomResourceDefinition of the consumer's logical cluster that nobody
but the server writes. All definitions of one export's resource carry one uid, so that the provider finds all objects.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kube.authentication.identity import Principal
from kube.authentication.subjects import BINDING_PREFIX
from kube.authorization.rbac import Attributes
from kube.customresources.definitions import CLEANUP, CRDS, crd_causes, crd_status
from kube.kinds.schemas import Definitions
from kube.requests.fielderrors import invalid
from kube.requests.labelselectors import Selector, from_object
from kube.requests.logicalclusters import full_path, tenant_of
from kube.requests.status import BadRequest, Cause
from kube.workspaces.types import tenant_group

GROUP: Final = "apis.kcp.io"
VERSION: Final = "v1alpha1"
EXPORTS: Final = (GROUP, "apiexports")
BINDINGS: Final = (GROUP, "apibindings")
SCHEMAS: Final = (GROUP, "apiresourceschemas")

BINDING: Final = "apis.kcp.io/binding"
EXPORT: Final = "apis.kcp.io/export"
IDENTITY: Final = "apis.kcp.io/identity"
SCHEMA: Final = "apis.kcp.io/schema"
SCHEMA_UID: Final = "apis.kcp.io/schema-uid"
ANNOTATIONS: Final = (BINDING, EXPORT, IDENTITY, SCHEMA, SCHEMA_UID)
"""Those of a bound definition: its binding, ``<path>:<export>`` and that export's identity hash, and the name and uid of
the schema it was made of."""

FINALIZER: Final = "apis.kcp.io/apibinding-finalizer"
"""Holds a deleted ``APIBinding`` until the objects of what it bound are gone."""

SCHEMAS_MAX: Final = 100
"""Of one export; and as many definitions one binding brings, whatever its export has named before."""

BINDING_BYTES_MAX: Final = 8 << 20
"""Of the definitions that one binding brings: they are the consumer's bytes, and its provider chooses them."""

CLAIMS_BYTES_MAX: Final = 64 << 10
"""Of what an export claims, for each binding of it says so too."""

CLAIMS_MAX: Final = 100
"""Permission claims of one export, or of one binding."""

VALUES_MAX: Final = 100
"""Labels and values that the selector of one claim may name: each object that is read through it is held against all."""

_NAMESPACE: Final = uuid.UUID("6f0d2f0e-5f0b-4c7e-9d51-0c3f0f6d6c11")

Body = dict[str, Any]


def identity_hash(path: str, uid: str) -> str:
    """What tells an export from any other, one of the same name that comes after it included."""
    return hashlib.sha256(f"{path}/{uid}".encode()).hexdigest()


def identity_of(export: Mapping[str, Any] | None) -> str:
    """The identity hash of an export; empty for one that is not there."""
    return str(((export or {}).get("status") or {}).get("identityHash") or "")


def consents_to(binding: Mapping[str, Any], export: Mapping[str, Any]) -> bool:
    """Whether it was this very export that the binding was made for, and none that has come under its name since."""
    consented = (binding.get("status") or {}).get("exportIdentityHash")
    return bool(consented) and consented == identity_of(export)


def source_of(definition: Mapping[str, Any] | None) -> tuple[str, str] | None:
    """The export ``<path>:<name>`` that a definition comes from and its identity; ``None`` for a logical cluster's own."""
    annotations = ((definition or {}).get("metadata") or {}).get("annotations") or {}
    export = annotations.get(EXPORT)
    return (export, str(annotations.get(IDENTITY) or "")) if isinstance(export, str) else None


def may_bind(name: str) -> Attributes:
    """The question whether an export may be bound (KC11)."""
    return Attributes("bind", *EXPORTS, name=name)


def split_export(name: str) -> tuple[str, str]:
    """The logical cluster and the name of an export written ``<path>:<name>``."""
    path, _, short = name.rpartition(":")
    return path, short


def definition_of(schema: Mapping[str, Any]) -> Body:
    """The CustomResourceDefinition that a schema describes, without metadata but its name, and without status."""
    spec = schema.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    names = dict(spec["names"]) if isinstance(spec.get("names"), Mapping) else {}
    if isinstance(names.get("kind"), str):
        names.setdefault("singular", names["kind"].lower())
        names.setdefault("listKind", names["kind"] + "List")
    versions = [
        {**version, "schema": {"openAPIV3Schema": version["schema"]}}
        if isinstance(version, Mapping) and isinstance(version.get("schema"), Mapping)
        else version
        for version in spec.get("versions") or ()
    ]
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names.get('plural')}.{spec.get('group')}"},
        "spec": {
            "group": spec.get("group", ""),
            "names": names,
            "scope": spec.get("scope", ""),
            "versions": versions,
            "conversion": {"strategy": "None"},
        },
    }


def schema_causes(schema: Mapping[str, Any], definitions: Definitions) -> list[Cause]:
    """What is wrong with an ``APIResourceSchema``: what would be wrong with its definition, and with its name."""
    crd = definition_of(schema)
    causes = crd_causes(crd, definitions)
    name = schema["metadata"].get("name", "")
    if not name.endswith(f".{crd['metadata']['name']}"):
        detail = f"must be a prefix of your choice and .{crd['metadata']['name']}"
        causes.append(invalid("metadata.name", name, detail))
    return causes


def bound_definition(
    schema: Mapping[str, Any],
    *,
    path: str,
    binding: str,
    export: str,
    identity: str,
    others: Iterable[Body],
    now: str,
    before: Body | None = None,
) -> Body:
    """The definition of a bound resource in the consumer ``path``, with its status among the ``others`` of its group there.

    One that was there ``before``, of another schema, goes on: its objects may be in versions, and have fields, that are no
    more.
    """
    crd = definition_of(schema)
    name = crd["metadata"]["name"]
    crd["metadata"] = {
        "name": name,
        "uid": str(uuid.uuid5(_NAMESPACE, f"{identity}/{name}")),
        "creationTimestamp": now,
        "generation": 1,
        "tenant": tenant_of(path),
        "selfLink": full_path(path, CRDS[0], "v1", CRDS[1], name=name),
        "annotations": {
            BINDING: binding,
            EXPORT: export,
            IDENTITY: identity,
            SCHEMA: schema["metadata"]["name"],
            SCHEMA_UID: schema["metadata"]["uid"],
        },
        "finalizers": [CLEANUP],
    }
    if before is not None:
        made, known = before["metadata"], crd["metadata"]["annotations"]
        generation = int(made.get("generation") or 1) + (crd["spec"] != before["spec"])
        crd["metadata"] = {**made, "annotations": known, "generation": generation}
        crd["status"] = before.get("status") or {}
    crd["status"] = crd_status(crd, others, now=now)
    return crd


_Names = frozenset[tuple[str, str]]
"""Pairs of namespace and name, each of which may be empty for any."""

_ANY: Final[_Names] = frozenset({("", "")})


@dataclass(frozen=True, slots=True)
class Selected:
    """Which objects of a resource claims are about: whatever one of them selects."""

    names: _Names = frozenset()
    """Of the claims that select by names alone, or all."""

    labels: frozenset[tuple[Selector, _Names]] = frozenset()
    """Of each of the others."""

    def __bool__(self) -> bool:
        """Whether any claim is about anything."""
        return bool(self.names or self.labels)

    def __or__(self, other: Selected) -> Selected:
        """What either is about."""
        return Selected(self.names | other.names, self.labels | other.labels)

    def includes(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        """Whether this object is meant."""
        return _place(self.names, namespace, name) or any(
            _place(names, namespace, name) and selector.matches(labels) for selector, names in self.labels
        )

    def places(self, namespace: str, name: str) -> bool:
        """Whether an object of this name can be meant, whatever its labels."""
        return _place(self.names, namespace, name) or any(_place(names, namespace, name) for _, names in self.labels)


def _place(names: _Names, namespace: str, name: str) -> bool:
    return not names.isdisjoint(((namespace, name), ("", name), (namespace, ""), ("", "")))


def claimed(
    body: Mapping[str, Any], *, group: str, resource: str, verb: str, identity: str, answered: bool = False
) -> Selected:
    """What of a resource an export claims for a verb or, ``answered``, a binding accepts (KC6).

    The provider reaches what both say, each of the very resource. ``identity`` is that of the export which the consumer
    has the resource from, empty for its own.
    """
    names: set[tuple[str, str]] = set()
    labels: set[tuple[Selector, _Names]] = set()
    for claim in (body.get("spec") or {}).get("permissionClaims") or ():
        if not _covers(claim, group, resource, verb, identity) or (answered and claim.get("state") != "Accepted"):
            continue
        with contextlib.suppress(BadRequest):
            one = selected(claim)
            names |= one.names
            labels |= one.labels
    return Selected(frozenset(names), frozenset(labels))


def is_applied(answer: Mapping[str, Any], claims: Sequence[Mapping[str, Any]]) -> bool:
    """Whether this accepted claim of a binding answers one of the export's."""

    def about(claim: Mapping[str, Any]) -> tuple[str, str, str]:
        return claim.get("group") or "", claim.get("resource") or "", claim.get("identityHash") or ""

    return answer.get("state") == "Accepted" and any(about(claim) == about(answer) for claim in claims)


def _covers(claim: Mapping[str, Any], group: str, resource: str, verb: str, identity: str) -> bool:
    verbs = claim.get("verbs") or ("*",)
    return (
        (claim.get("group") or "", claim.get("resource")) == (group, resource)
        and (claim.get("identityHash") or identity) == identity
        and ("*" in verbs or verb in verbs)
    )


def selected(claim: Mapping[str, Any]) -> Selected:
    """Which objects a claim is about. Raises ``BadRequest`` for one that does not say which, or cannot be read."""
    selector, names = claim.get("selector") or {}, claim.get("resourceSelector") or ()
    if claim.get("all") is True or selector.get("matchAll") is True:
        return Selected(_ANY)
    labels = {part: selector[part] for part in ("matchLabels", "matchExpressions") if selector.get(part)}
    pairs = frozenset((one.get("namespace") or "", one.get("name") or "") for one in names)
    if (not labels and not pairs) or ("", "") in pairs:
        raise BadRequest("a permission claim is for all objects, or selects some by labels or by names")
    if not labels:
        return Selected(pairs)
    wanted = from_object(labels)
    if sum(1 + len(requirement.values) for requirement in wanted.requirements) > VALUES_MAX:
        raise BadRequest(f"the selector of a permission claim names at most {VALUES_MAX} labels and values")
    return Selected(labels=frozenset({(wanted, pairs or _ANY)}))


def claim_causes(claims: Sequence[Mapping[str, Any]], *, answered: bool) -> list[Cause]:
    """What is wrong with the permission claims of an export or, ``answered``, of a binding."""
    if len(claims) > CLAIMS_MAX:
        return [invalid("spec.permissionClaims", len(claims), f"at most {CLAIMS_MAX}")]
    causes = []
    for position, claim in enumerate(claims):
        path = f"spec.permissionClaims[{position}]"
        try:
            selected(claim)
        except BadRequest as error:
            causes.append(invalid(path, claim.get("resource"), error.message))
        if answered and claim.get("state") not in ("Accepted", "Rejected"):
            causes.append(invalid(f"{path}.state", claim.get("state"), "must be Accepted or Rejected"))
    return causes


def maximal_permission_subject(principal: Principal) -> tuple[str, tuple[str, ...]]:
    """The user and groups that a maximal permission policy is asked about (KC5).

    Names of two tenants may be equal; the group of the consumer's tenant lets a provider tell them apart.
    """
    groups = principal.groups if principal.tenant is None else (*principal.groups, tenant_group(principal.tenant))
    return BINDING_PREFIX + principal.name, tuple(BINDING_PREFIX + group for group in groups)


def has_policy(export: Mapping[str, Any]) -> bool:
    """Whether an export limits what is done with its resources; any policy that is not known limits to nothing."""
    return (export.get("spec") or {}).get("maximalPermissionPolicy") is not None


def is_local(export: Mapping[str, Any]) -> bool:
    """Whether the limit is the provider's own RBAC."""
    policy = (export.get("spec") or {}).get("maximalPermissionPolicy") or {}
    return isinstance(policy, Mapping) and policy.get("local") is not None
