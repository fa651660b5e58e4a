"""The definitions of Tenantry's own kinds, and what it adds to Kubernetes' (TS1, TS2, AZ7, AZ9, KC2 to KC13)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kube.kinds.schemas import LABEL_SELECTOR, LIST_META, OBJECT_META, Definitions

_REFERENCE: Final = "#/definitions/"
_CONDITION: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.Condition"
_POLICY_RULE: Final = "io.k8s.api.rbac.v1.PolicyRule"
_ANY: Final[dict[str, Any]] = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


def with_own_kinds(definitions: Definitions) -> Definitions:
    """Kubernetes' definitions with the tenant in every object's metadata, rule scopes, and the own kinds."""
    own: dict[str, Mapping[str, Any]] = {}
    for group, version, kind, description, spec, status in _kinds():
        own |= _kind(group, version, kind, description, spec=spec, status=status)
    definitions = definitions.with_properties(
        OBJECT_META, {"tenant": _text("The tenant whose space holds the object.")}
    )
    definitions = definitions.with_properties(
        _POLICY_RULE,
        {
            "scopeType": _text(
                "In the system space: Cluster reaches every tenant's space, Tenanted (the default) the system's alone."
            ),
            "tenants": _list(_text("In the system space: the tenants whose spaces the rule reaches.")),
            "tenantSelector": _ref(LABEL_SELECTOR, "In the system space: chooses tenants by their labels."),
        },
    )
    return definitions.with_definitions(own)


def _text(description: str) -> dict[str, Any]:
    return {"description": description, "type": "string"}


def _flag(description: str) -> dict[str, Any]:
    return {"description": description, "type": "boolean"}


def _amounts(description: str) -> dict[str, Any]:
    quantity = {"$ref": f"{_REFERENCE}io.k8s.apimachinery.pkg.api.resource.Quantity"}
    return {"description": description, "type": "object", "additionalProperties": quantity}


def _list(items: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": items.get("description", ""), "type": "array", "items": dict(items)}


def _ref(name: str, description: str = "") -> dict[str, Any]:
    return {"description": description, "$ref": _REFERENCE + name}


def _object(description: str = "", /, **properties: Any) -> dict[str, Any]:
    return {"description": description, "type": "object", "properties": properties}


def _status(**properties: Any) -> dict[str, Any]:
    phase = _text("Where the object is in its life.")
    conditions = {
        "type": "array",
        "items": _ref(_CONDITION),
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "x-kubernetes-patch-merge-key": "type",
        "x-kubernetes-patch-strategy": "merge",
    }
    return _object("What is observed.", phase=phase, conditions=conditions, **properties)


def _path_and_name(description: str) -> dict[str, Any]:
    return _object(description, path=_text("The logical cluster's path."), name=_text("The object's name."))


def _permission_claim() -> dict[str, Any]:
    return _object(
        "A claim to objects of another resource.",
        group=_text("The resource's group."),
        resource=_text("The resource's plural name."),
        identityHash=_text("The identity of the export that the resource comes from."),
        all=_flag("Whether all objects are claimed."),
        verbs=_list(_text("The verbs that are claimed.")),
        selector=_object(
            "Which objects.", matchAll=_flag("All."), matchLabels=dict(_ANY), matchExpressions=_list(_ANY)
        ),
        resourceSelector=_list(_object("Which objects.", name=_text("Name."), namespace=_text("Namespace."))),
        state=_text("Accepted or Rejected."),
    )


def _kinds() -> tuple[tuple[str, str, str, str, dict[str, Any], dict[str, Any] | None], ...]:
    tenancy, apis = "tenancy.kcp.io", "apis.kcp.io"
    initializers = _list(_text("Who still has to initialize it."))
    reference = _path_and_name("The type, by the path of its workspace and its name.")
    return (
        (
            "",
            "v1",
            "Tenant",
            "A tenant: an organisation or a person with a space of its own.",
            _object(
                "What the tenant is to be.",
                displayName=_text("The name that people read."),
                storageClusterId={
                    "description": "Accepted and not used.",
                    "type": "string",
                    "format": "int-or-string",
                },
                finalizers=_list(_text("Who has to finish before the tenant is gone.")),
            ),
            _status(),
        ),
        (
            tenancy,
            "v1alpha1",
            "Workspace",
            "A workspace below the logical cluster that holds this object.",
            _object(
                "What the workspace is to be.",
                type=reference,
                cluster=_text("The logical cluster of the workspace."),
                URL=_text("The address of the workspace."),
            ),
            _status(initializers=initializers),
        ),
        (
            tenancy,
            "v1alpha1",
            "WorkspaceType",
            "A kind of workspace: who may have one and what it begins with.",
            _object(
                "What workspaces of the type are.",
                initializer=_flag("Whether they wait for an initializer."),
                extend=_object("Types whose properties it has as well.", **{"with": _list(reference)}),
                defaultChildWorkspaceType=reference,
                defaultAPIBindings=_list(
                    _object(
                        "An export that workspaces of the type are bound to from the beginning.",
                        path=_text("The logical cluster's path; the type's own by default."),
                        export=_text("The name of the export."),
                    )
                ),
                defaultAPIBindingLifecycle=_text("InitializeOnly: what workspaces have been given is theirs."),
                limitAllowedChildren=_object("Types below.", none=_flag("None."), types=_list(reference)),
                limitAllowedParents=_object("Types above.", none=_flag("None."), types=_list(reference)),
            ),
            _status(
                defaultAPIBindings=_list(
                    _object(
                        "An export that the type names, as it was when it was named.",
                        path=_text("The logical cluster's path."),
                        export=_text("The name of the export."),
                        identityHash=_text("The identity of the export."),
                    )
                )
            ),
        ),
        (
            "core.kcp.io",
            "v1alpha1",
            "LogicalCluster",
            "The workspace seen from within; its name is cluster.",
            _object(
                "What the logical cluster is to be.",
                owner=_object(
                    "The workspace object that it belongs to.",
                    apiVersion=_text("apiVersion."),
                    resource=_text("Resource."),
                    name=_text("Name."),
                    namespace=_text("Namespace."),
                    cluster=_text("Logical cluster."),
                    uid=_text("UID."),
                ),
                initializers=initializers,
            ),
            _status(URL=_text("The address of the logical cluster."), initializers=initializers),
        ),
        (
            apis,
            "v1alpha1",
            "APIExport",
            "Resources that other workspaces may bind.",
            _object(
                "What is exported.",
                latestResourceSchemas=_list(_text("Names of APIResourceSchemas.")),
                maximalPermissionPolicy=_object("The provider's limit.", local=_object("By its own RBAC.")),
                permissionClaims=_list(_permission_claim()),
            ),
            _status(identityHash=_text("The hash of the identity.")),
        ),
        (
            apis,
            "v1alpha1",
            "APIBinding",
            "The use of an APIExport in this workspace.",
            _object(
                "What is bound.",
                reference=_object("The export.", export=_path_and_name("The export.")),
                permissionClaims=_list(_permission_claim()),
            ),
            _status(
                apiExportClusterName=_text("The logical cluster of the export."),
                exportIdentityHash=_text("The identity of the export that the binding was made for."),
                boundResources=_list(_ANY),
                appliedPermissionClaims=_list(_permission_claim()),
                exportPermissionClaims=_list(_permission_claim()),
            ),
        ),
        (
            apis,
            "v1alpha1",
            "APIResourceSchema",
            "One version of a resource that an APIExport offers; it never changes.",
            _object(
                "The resource.",
                group=_text("The group."),
                names=dict(_ANY),
                scope=_text("Namespaced or Cluster."),
                versions=_list(_ANY),
            ),
            None,
        ),
        (
            "tenancy.tenantry.io",
            "v1alpha1",
            "TenantQuota",
            "What all namespaces and workspaces of the tenant may hold together; operators change it, nobody removes it.",
            _object(
                "The bounds.",
                hard=_amounts("How much there may be, by resource name as in a ResourceQuota."),
                scopes=_list(_text("What an object must be to be counted, as in a ResourceQuota.")),
                scopeSelector=_object(
                    "The same with operators and values.",
                    matchExpressions=_list(
                        _object(
                            "One condition.",
                            scopeName=_text("The scope."),
                            operator=_text("In, NotIn, Exists or DoesNotExist."),
                            values=_list(_text("A value.")),
                        )
                    ),
                ),
            ),
            _object(
                "What is observed.",
                hard=_amounts("The bounds that are in force."),
                used=_amounts("How much there is."),
            ),
        ),
        (
            "abac.authorization.kubernetes.io",
            "v1beta1",
            "Policy",
            "What users of other tenants may do in the space that holds this object.",
            _object(
                "Who may do what.",
                tenant=_text("The tenant of the user."),
                space=_text("Accepted and ignored: the policy opens its own space alone."),
                user=_text("The user, or * for all."),
                group=_text("The group, or * for all."),
                readonly=_flag("Whether only reading is allowed."),
                apiGroup=_text("The API group, or * for all."),
                resource=_text("The resource, or * for all."),
                namespace=_text("The namespace, or * for all."),
                nonResourcePath=_text("The path, * at its end for all below."),
            ),
            None,
        ),
    )


def _kind(
    group: str, version: str, kind: str, description: str, *, spec: dict[str, Any], status: dict[str, Any] | None
) -> dict[str, Mapping[str, Any]]:
    """A kind's definition and its list's."""
    name = ".".join(("io.tenantry", *filter(None, (group,)), version, kind))
    identity = {"apiVersion": _text("The version of the object."), "kind": _text("The kind of the object.")}
    parts: dict[str, Any] = {"spec": spec} | ({} if status is None else {"status": status})
    gvk = {"group": group, "version": version}
    return {
        name: {
            "description": description,
            "type": "object",
            "properties": identity | {"metadata": _ref(OBJECT_META)} | parts,
            "x-kubernetes-group-version-kind": [gvk | {"kind": kind}],
        },
        f"{name}List": {
            "description": f"A list of {kind} objects.",
            "type": "object",
            "required": ["items"],
            "properties": identity
            | {"metadata": _ref(LIST_META), "items": {"type": "array", "items": {"$ref": _REFERENCE + name}}},
            "x-kubernetes-group-version-kind": [gvk | {"kind": f"{kind}List"}],
        },
    }
