"""CustomResourceDefinitions for tests: one that is right, and ways to make it wrong."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

TEXT = {"type": "string"}
NUMBER = {"type": "integer"}


def crd(spec: Any, kind: str = "Thing", **version: Any) -> dict[str, Any]:
    """A valid CRD of example.com whose objects have a ``spec`` of this schema."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"},
            "conversion": {"strategy": "None"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema, **version}],
        },
    }


def changed(**spec: Any) -> dict[str, Any]:
    """A CRD with other members of its spec."""
    made = crd({"type": "object", "properties": {"a": TEXT}})
    made["spec"].update(deepcopy(spec))
    return made


def renamed(**names: Any) -> dict[str, Any]:
    """A CRD with other names."""
    made = crd({"type": "object"})
    made["spec"]["names"].update(names)
    return made


def versioned(**version: Any) -> dict[str, Any]:
    """A CRD with other members of its one version."""
    return crd({"type": "object", "properties": {"a": TEXT}}, **version)


KEYED = {"type": "object", "properties": {"a": TEXT}, "required": ["a"]}
LIST = {"type": "array", "items": TEXT}
KEEP = {"x-kubernetes-preserve-unknown-fields": True}
EITHER = {"x-kubernetes-int-or-string": True}
EMBEDDED = {"x-kubernetes-embedded-resource": True}


def mapped(items: Any, *keys: str) -> dict[str, Any]:
    """A list schema of type map."""
    return {
        "type": "array",
        "items": items,
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": list(keys),
    }


SCHEMAS: list[Any] = [
    TEXT,
    {},
    {"type": "thing"},
    {"type": "array"},
    {"type": "object", "properties": {"a": {}}},
    {"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT},
    {"type": "object", "additionalProperties": TEXT},
    EITHER,
    KEEP,
    {**EITHER, **KEEP},
    {"type": "object", "x-kubernetes-preserve-unknown-fields": False},
    {"type": "object", **EMBEDDED},
    {"type": "object", **EMBEDDED, **KEEP},
    {"type": "string", **EMBEDDED, **KEEP},
    {"type": "object", "x-kubernetes-map-type": "atomic"},
    {"type": "object", "x-kubernetes-map-type": "x"},
    {"type": "string", "x-kubernetes-map-type": "atomic"},
    {**LIST, "uniqueItems": True},
    {"type": "string", "pattern": "^[a-z]+$"},
    {"type": "string", "pattern": "(?=a)"},
    {"type": "string", "pattern": "("},
    mapped(KEYED, "a"),
    mapped(KEYED),
    mapped(TEXT, "a"),
    mapped(KEYED, "a", "b"),
    mapped(KEYED, "a", "a"),
    mapped({"type": "object", "properties": {"a": TEXT}}, "a"),
    mapped({"type": "object", "properties": {"a": LIST}, "required": ["a"]}, "a"),
    {**LIST, "x-kubernetes-list-type": "set"},
    {**LIST, "x-kubernetes-list-type": "set", "x-kubernetes-list-map-keys": ["a"]},
    {**LIST, "x-kubernetes-list-type": "zzz"},
    {**LIST, "x-kubernetes-list-map-keys": ["a"]},
    {"type": "array", "items": {"type": "object"}, "x-kubernetes-list-type": "set"},
    {"type": "string", "x-kubernetes-list-type": "set"},
    {"type": "object", "allOf": [{"properties": {"q": {"minLength": 1}}}]},
    {"type": "object", "properties": {"q": TEXT}, "allOf": [{"properties": {"q": {"minLength": 1}}}]},
    {"type": "string", "anyOf": [{"default": "a"}, {"nullable": True}, {"description": "a"}]},
    {"type": "string", "not": {"type": "string"}},
    {"type": "object", "$ref": "#/x"},
    {"type": "object", "id": "x"},
    {"type": "object", "definitions": {"a": TEXT}},
    {"type": "object", "patternProperties": {"a": TEXT}},
    {"type": "array", "items": [TEXT]},
    {"type": "integer", "default": 3},
    {"type": "integer", "default": "x"},
    {"type": "string", "minLength": 1, "default": ""},
    {"type": "object", "properties": {"a": TEXT}, "default": {"b": 1}},
    {"type": "string", "format": "unheard-of"},
]

DEFINITIONS: list[dict[str, Any]] = [
    changed(),
    changed(scope="World"),
    changed(scope=""),
    changed(group="other.com"),
    changed(group="Nope"),
    changed(versions=[]),
    changed(preserveUnknownFields=True),
    changed(conversion={"strategy": "X"}),
    renamed(kind="9x"),
    renamed(kind="Bad_Kind"),
    renamed(shortNames=["X"]),
    renamed(listKind="Thing"),
    renamed(singular="BAD"),
    versioned(storage=False),
    versioned(name="V1"),
    versioned(schema=None),
    versioned(subresources={"scale": {}}),
    versioned(subresources={"scale": {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.b"}}),
    versioned(
        subresources={
            "scale": {"specReplicasPath": ".x", "statusReplicasPath": "status.x", "labelSelectorPath": ".x[1]"}
        }
    ),
    versioned(additionalPrinterColumns=[{"name": "a", "type": "string", "jsonPath": ".spec.a"}]),
    versioned(additionalPrinterColumns=[{"name": "a", "type": "x", "jsonPath": ".a", "format": "q"}]),
    versioned(additionalPrinterColumns=[{"type": "string", "jsonPath": ""}]),
    versioned(additionalPrinterColumns=[{"name": "a", "type": "string", "jsonPath": "a b"}]),
    versioned(selectableFields=[{"jsonPath": ".spec.a"}]),
    versioned(selectableFields=[{"jsonPath": ".spec.a"}, {"jsonPath": ".spec.a"}]),
    versioned(selectableFields=[{"jsonPath": ".spec.nope"}]),
    versioned(selectableFields=[{"jsonPath": ".metadata.name"}]),
    versioned(selectableFields=[{"jsonPath": ".spec"}]),
    versioned(selectableFields=[{"jsonPath": ".spec.a[0]"}]),
    *(crd(schema) for schema in SCHEMAS),
]

FULL = crd(
    {
        "type": "object",
        "required": ["r"],
        "properties": {
            "r": NUMBER,
            "s": {"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^a"},
            "e": {"type": "string", "enum": ["x", "y"]},
            "n": {"type": "number", "minimum": 1, "maximum": 5, "exclusiveMaximum": True, "multipleOf": 2},
            "b": {"type": "boolean"},
            "l": {"type": "array", "minItems": 1, "maxItems": 2, "items": NUMBER},
            "set": {"type": "array", "items": TEXT, "x-kubernetes-list-type": "set"},
            "m": mapped(
                {
                    "type": "object",
                    "required": ["k"],
                    "properties": {"k": TEXT, "j": {"type": "string", "default": "d"}},
                },
                "k",
                "j",
            ),
            "p": {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": TEXT},
            "i": EITHER,
            "ia": {**EITHER, "anyOf": [{"type": "integer"}, {"type": "string"}], "pattern": "^a"},
            "em": {"type": "object", **EMBEDDED, **KEEP},
            "any": {"type": "string", "anyOf": [{"pattern": "^a"}, {"pattern": "b$"}]},
            "one": {"type": "string", "oneOf": [{"pattern": "^a"}, {"pattern": "b$"}]},
            "not": {"type": "string", "not": {"pattern": "^a"}},
            "all": {"type": "string", "allOf": [{"pattern": "^a"}, {"minLength": 3}]},
            "nul": {"type": "string", "nullable": True},
            "en": {"type": "integer", "enum": [1, 2]},
            "i32": {"type": "integer", "format": "int32"},
            "free": {"type": "object", **KEEP},
            "obj": {
                "type": "object",
                "properties": {"x": NUMBER, "y": NUMBER, "z": NUMBER},
                "anyOf": [{"required": ["x"]}, {"required": ["y"]}],
                "not": {"required": ["z"]},
            },
            **{
                name: {"type": "string", "format": name}
                for name in (
                    "date-time",
                    "ipv4",
                    "ipv6",
                    "uuid",
                    "byte",
                    "date",
                    "duration",
                    "uri",
                    "hostname",
                    "cidr",
                    "mac",
                    "email",
                )
            },
        },
    },
    "Full",
)

SPECS: list[Any] = [
    {},
    {"r": "1"},
    {"r": 1.5},
    {"r": True},
    {"r": None},
    [],
    *(
        {"r": 1, **more}
        for more in (
            *({"s": value} for value in ("a", "abc", "abcd", "bb", "b", 5, None)),
            *({"e": value} for value in ("x", "z", 3)),
            *({"en": value} for value in (1, 3, "1")),
            *({"n": value} for value in (0, 2, 5, 6, 3, 1.5, "x")),
            *({"b": value} for value in (True, "true", 1)),
            *({"l": value} for value in ([], [1], [1, 2, 3], ["a", 1], {}, [None])),
            *({"set": value} for value in (["a", "b"], ["a", "a", "b", "a"], ["a", 1])),
            *({"m": value} for value in ([{"k": "a"}, {"k": "b"}], [{"k": "a"}, {"k": "a", "j": "d"}], [{}], ["x"])),
            *({"p": value} for value in ({}, {"a": "1"}, {"a": "1", "b": "2", "c": "3"}, {"a": 1})),
            *({"i": value} for value in (1, "a", True, 1.5, [], None)),
            *({"ia": value} for value in ("a", "b", 3)),
            *({"em": value} for value in ({}, {"apiVersion": "", "kind": ""}, {"apiVersion": "a/b/c", "kind": "X"}, 3)),
            {"em": {"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "anything": 1}},
            *({"any": value} for value in ("a", "c")),
            *({"one": value} for value in ("a", "ab", "c")),
            *({"not": value} for value in ("a", "b")),
            *({"all": value} for value in ("abc", "a", "b")),
            *({"nul": value} for value in (None, "x", 3)),
            *({"i32": value} for value in (2**31 - 1, 2**31, -(2**31), -(2**31) - 1)),
            *({"obj": value} for value in ({}, {"x": 1}, {"y": 1}, {"x": 1, "z": 1})),
            *({"date-time": value} for value in ("x", "2020-01-01T00:00:00Z", "2020-13-01T00:00:00Z")),
            *({"ipv4": value} for value in ("1.2.3.4", "1.2.3", "::1")),
            *({"ipv6": value} for value in ("::1", "1.2.3.4")),
            *({"uuid": value} for value in ("x", "123e4567-e89b-12d3-a456-426614174000")),
            *({"byte": value} for value in ("!!", "YQ==")),
            *({"date": value} for value in ("2020-1-1", "2020-01-01")),
            *({"duration": value} for value in ("5x", "1h5m", "0")),
            *({"uri": value} for value in ("a b", "http://x", "x", "/x")),
            *({"hostname": value} for value in ("A_b", "Abc.de")),
            *({"cidr": value} for value in ("1.2.3.4", "1.2.3.4/33", "1.2.3.4/8")),
            *({"mac": value} for value in ("x", "01:02:03:04:05:06")),
            *({"email": value} for value in ("x", "a@b.c")),
            {"free": {"a": [{"b": None}]}},
            {"unknown": 1},
            {"s": "a", "e": "q", "n": 77},
        )
    ),
]
