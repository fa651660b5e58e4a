"""What resources describe themselves by in OpenAPI documents: the schemas of custom kinds, and names of definitions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kube.kinds.resources import Resource, Version
from kube.kinds.schemas import INT_OR_STRING, LIST_META, OBJECT_META, QUANTITY, Definitions

_OPTIONS: Final = (
    "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Patch",
    "io.k8s.apimachinery.pkg.apis.meta.v1.Status",
    OBJECT_META,
    LIST_META,
)
_CONVENTIONS: Final = "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
_IDENTITY: Final[dict[str, Any]] = {
    "apiVersion": {
        "type": "string",
        "description": (
            "APIVersion defines the versioned schema of this representation of an object. Servers should convert "
            "recognized schemas to the latest internal value, and may reject unrecognized values. More info: "
            f"{_CONVENTIONS}#resources"
        ),
    },
    "kind": {
        "type": "string",
        "description": (
            "Kind is a string value representing the REST resource this object represents. Servers may infer this "
            "from the endpoint the client submits requests to. Cannot be updated. In CamelCase. More info: "
            f"{_CONVENTIONS}#types-kinds"
        ),
    },
}
_METADATA: Final = f"Standard object's metadata. More info: {_CONVENTIONS}#metadata"
_ITEMS: Final = f"List of objects. More info: {_CONVENTIONS}"
_V3_REFERENCE: Final = "#/components/schemas/"
_OBJECT: Final[dict[str, Any]] = _IDENTITY | {
    "metadata": {"description": _METADATA, "allOf": [{"$ref": _V3_REFERENCE + OBJECT_META}]}
}
_EMBEDDED_OBJECT: Final[dict[str, Any]] = _OBJECT | {
    name: {"type": "string", "description": f"{words} More info: {_CONVENTIONS}#{place}"}
    for name, words, place in (
        ("apiVersion", "apiVersion defines the versioned schema of this representation of an object.", "resources"),
        ("kind", "kind is a string value representing the type of this object. In CamelCase.", "types-kinds"),
    )
}
_EMBEDDED: Final = "x-kubernetes-embedded-resource"
_V2_DROPPED: Final = frozenset(
    (
        "oneOf",
        "anyOf",
        "allOf",
        "not",
        "nullable",
        "default",
        "x-kubernetes-validations",
        "x-kubernetes-int-or-string",
    )
)


_SHAPE: Final = frozenset(("type", "properties", "items", "additionalProperties"))


def model_name(group: str, version: str, kind: str) -> str:
    """The definition's name of a custom kind: ``io.example.stable.v1.CronTab``."""
    return ".".join((*reversed(group.split(".")), version, kind))


def model_names(resource: Resource, version: str, definitions: Definitions) -> dict[str, str]:
    """The definitions' names of a resource: of the object, of its list, and of its subresources' kinds."""
    found = {
        resource.kind: _name(resource, version, resource.kind, definitions),
        resource.list_kind: _name(resource, version, resource.list_kind, definitions),
    }
    served = resource.version(version)
    for part in served.subresources if served else ():
        name = definitions.name_of(part.group, part.version, part.kind)
        if part.kind not in found and name is not None:
            found[part.kind] = name
    return {kind: name for kind, name in found.items() if name}


def _name(resource: Resource, version: str, kind: str, definitions: Definitions) -> str:
    if resource.custom:
        return model_name(resource.group, version, kind)
    return definitions.name_of(resource.group, version, kind) or ""


def described(resource: Resource, version: str, definitions: Definitions) -> tuple[dict[str, Any], set[str]]:
    """The schemas that a resource brings, as OpenAPI v3 has them, and the definitions that it refers to."""
    served = resource.version(version)
    if resource.custom and served is not None:
        scale = definitions.name_of("autoscaling", "v1", "Scale") or OBJECT_META
        return _custom_schemas(resource, served), {*_OPTIONS, scale}
    return {}, {*_OPTIONS, *model_names(resource, version, definitions).values()}


def _custom_schemas(resource: Resource, version: Version) -> dict[str, Any]:
    kind, kinds = resource.kind, resource.list_kind
    name, names = (model_name(resource.group, version.name, word) for word in (kind, kinds))
    source = _with_embedded(version.openapi or {"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    gvk = {"group": resource.group, "version": version.name}
    return {
        name: source
        | {
            "properties": source.get("properties", {}) | _OBJECT,
            "x-kubernetes-group-version-kind": [gvk | {"kind": kind}],
        },
        names: {
            "type": "object",
            "required": ["items"],
            "description": f"{kinds} is a list of {kind}",
            "properties": _IDENTITY
            | {
                "metadata": {"description": _METADATA, "allOf": [{"$ref": _V3_REFERENCE + LIST_META}]},
                "items": {"type": "array", "description": _ITEMS, "items": {"$ref": _V3_REFERENCE + name}},
            },
            "x-kubernetes-group-version-kind": [gvk | {"kind": kinds}],
        },
    }


def _with_embedded(source: Mapping[str, Any]) -> dict[str, Any]:
    """A schema in which embedded objects have what every object has."""
    result = dict(source)
    if isinstance(source.get("properties"), dict):
        result["properties"] = {name: _with_embedded(child) for name, child in source["properties"].items()}
    for part in ("items", "additionalProperties"):
        if isinstance(source.get(part), dict):
            result[part] = _with_embedded(source[part])
    if source.get(_EMBEDDED) is True:
        result["properties"] = result.get("properties", {}) | _EMBEDDED_OBJECT
        result["required"] = list(dict.fromkeys((*source.get("required", ()), "kind", "apiVersion")))
    return result


def as_v3(name: str, source: Mapping[str, Any]) -> dict[str, Any]:
    """A built-in definition in OpenAPI v3: a reference with neighbours stands in ``allOf``."""
    if name == QUANTITY:
        return {
            "description": source.get("description", ""),
            "oneOf": [{"type": "string"}, {"type": "number"}],
        }
    if name == INT_OR_STRING:
        kinds = [{"type": "integer"}, {"type": "string"}]
        return {"description": source.get("description", ""), "format": "int-or-string", "oneOf": kinds}
    return {key: _v3_value(key, value) for key, value in source.items()}


def _v3_value(key: str, value: Any) -> Any:
    if key == "properties":
        return {name: _v3_node(child) for name, child in value.items()}
    if key in ("items", "additionalProperties") and isinstance(value, dict):
        return _v3_node(value)
    return value


def _v3_node(source: Mapping[str, Any]) -> dict[str, Any]:
    reference = source.get("$ref")
    if not isinstance(reference, str):
        return {key: _v3_value(key, value) for key, value in source.items()}
    target = {"$ref": _V3_REFERENCE + reference.rpartition("/")[2]}
    beside = {key: value for key, value in source.items() if key != "$ref"}
    return beside | {"allOf": [target]} if beside else target


def as_v2(source: Any) -> Any:
    """A custom resource's schema without what OpenAPI v2 cannot say."""
    if isinstance(source, dict):
        alone = source.get("allOf")
        if isinstance(alone, list) and len(alone) == 1 and isinstance(alone[0], dict) and "$ref" in alone[0]:
            beside = {"description": source["description"]} if "description" in source else {}
            return beside | {"$ref": alone[0]["$ref"].replace(_V3_REFERENCE, "#/definitions/")}
        if source.get("x-kubernetes-preserve-unknown-fields") is True or source.get("nullable") is True:
            # kubectl would refuse what is not described beside what is, and null.
            shape = _SHAPE - {"type"} if "x-kubernetes-group-version-kind" in source else _SHAPE
            shape = shape | {"required"} if source.get(_EMBEDDED) is True else shape
            source = {key: value for key, value in source.items() if key not in shape}
        reference = source.get("$ref")
        if isinstance(reference, str):
            return {"$ref": reference.replace(_V3_REFERENCE, "#/definitions/")}
        return {
            key: {name: as_v2(child) for name, child in value.items()} if key == "properties" else as_v2(value)
            for key, value in source.items()
            if key not in _V2_DROPPED
        }
    return [as_v2(item) for item in source] if isinstance(source, list) else source
