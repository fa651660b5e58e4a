"""Required fields, and for custom resources types and choices, by schema."""

from __future__ import annotations

from typing import Any, Final

from kube.schemas import Schema
from kube.status import Cause
from kube.validation.causes import invalid, key_path, not_supported, required

MAX_CAUSES: Final = 100
"""How many causes are collected by schema; who has more has read enough."""

_EXEMPT: Final = ("metadata", "status")
"""Parts of a built-in object that other rules judge, or that only controllers write."""


def required_causes(body: dict[str, Any], schema: Schema) -> list[Cause]:
    """The required fields that a built-in object lacks, with their paths in document order."""
    causes = [required(name) for name in schema.required if name not in body]
    for name, child in schema.properties.items():
        if name in body and name not in _EXEMPT:
            _collect(body[name], child, name, causes)
    return causes[:MAX_CAUSES]


def _collect(value: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    if len(causes) >= MAX_CAUSES:
        return
    if type(value) is dict:
        causes += [required(f"{path}.{name}") for name in schema.required if name not in value]
        if schema.properties:
            for name, child in value.items():
                field = schema.properties.get(name)
                if field is not None and type(child) in (dict, list):
                    _collect(child, field, f"{path}.{name}", causes)
        elif schema.additional is not None:
            for name, child in value.items():
                if type(child) in (dict, list):
                    _collect(child, schema.additional, key_path(path, name), causes)
    elif type(value) is list and schema.items is not None:
        for index, child in enumerate(value):
            if type(child) in (dict, list):
                _collect(child, schema.items, f"{path}[{index}]", causes)


_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
}


def structural_causes(body: dict[str, Any], schema: Schema) -> list[Cause]:
    """What is wrong with a custom object by its schema's types, required fields and enums.

    Value constraints (``Schema.rules``: bounds, patterns, combinations) are judged by their own validator.
    """
    causes: list[Cause] = []
    _judge(body, schema, "", causes)
    return causes[:MAX_CAUSES]


def _judge(value: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    if len(causes) >= MAX_CAUSES:
        return
    if value is None:
        if not schema.nullable and schema.type:
            causes.append(_wrong_type(value, schema, path))
        return
    if not _fits(value, schema):
        causes.append(_wrong_type(value, schema, path))
        return
    if schema.enum and value not in schema.enum:
        causes.append(not_supported(path, value, [word for word in schema.enum if isinstance(word, str)]))
    if type(value) is dict:
        causes += [required(f"{path}.{name}" if path else name) for name in schema.required if name not in value]
        for name, child in value.items():
            field = schema.properties.get(name, schema.additional)
            if field is not None and not (schema.embedded_resource and name == "metadata"):
                below = key_path(path, name) if name not in schema.properties else f"{path}.{name}" if path else name
                _judge(child, field, below, causes)
    elif type(value) is list and schema.items is not None:
        for index, child in enumerate(value):
            _judge(child, schema.items, f"{path}[{index}]", causes)


def _fits(value: Any, schema: Schema) -> bool:
    if schema.int_or_string:
        return type(value) in (int, str)
    expected = _TYPES.get(schema.type)
    if expected is None:
        return True
    if schema.type == "integer" and type(value) is float:
        return value.is_integer()
    return type(value) in expected


def _wrong_type(value: Any, schema: Schema, path: str) -> Cause:
    actual = {
        type(None): "null",
        dict: "object",
        list: "array",
        str: "string",
        bool: "boolean",
        int: "integer",
    }.get(type(value), "number")
    wanted = "integer,string" if schema.int_or_string else schema.type
    cause = invalid(path, actual, f'{path} in body must be of type {wanted}: "{actual}"')
    return Cause("FieldValueTypeInvalid", cause.message, path)
