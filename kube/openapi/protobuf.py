"""An OpenAPI v2 document in the protobuf encoding that kubectl asks for (TS15).

kubectl reads ``/openapi/v2`` in no other form: to validate kinds that OpenAPI v3 does not describe, such as ``List``,
and to explain in words of OpenAPI v2. The messages are those of
https://github.com/google/gnostic-models/blob/main/openapiv2/OpenAPIv2.proto.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

CONTENT_TYPE: Final = b"application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
"""Clients ask for it with ``@v1.0``, which may not stand in a media type."""

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_PATHS, _DEFINITIONS = 8, 9
_Encode = Callable[[Any], int | float | bytes]
"""From a JSON value to what goes on the wire: a varint, a double, or delimited bytes."""
_Fields = Mapping[str, tuple[int, _Encode, bool]]
"""By name in JSON: the field's number, its encoding, and whether it repeats. ``x-`` takes every extension."""


def document(head: Mapping[str, Any], paths: bytes, definitions: bytes) -> bytes:
    """A ``Document`` message of what was encoded before and the rest. What the messages have no field for is left out."""
    return _message(_DOCUMENT, head) + _field(_PATHS, paths) + _field(_DEFINITIONS, definitions)


def paths(paths: Mapping[str, Any]) -> bytes:
    """Fields of a ``Paths`` message: they can be put one after the other."""
    return _pairs(_of(_PATH), paths, 2)


def definitions(schemas: Mapping[str, Any]) -> bytes:
    """Fields of a ``Definitions`` message: they can be put one after the other."""
    return _pairs(_schema, schemas)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, value: int | float | bytes) -> bytes:  # noqa: PYI041 - mypy takes them apart
    if isinstance(value, bytes):
        return _varint(number << 3 | _BYTES) + _varint(len(value)) + value
    if isinstance(value, float):
        return _varint(number << 3 | _FIXED64) + struct.pack("<d", value)
    return _varint(number << 3 | _VARINT) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _message(fields: _Fields, value: Mapping[str, Any]) -> bytes:
    out = bytearray()
    for name, item in value.items():
        known = fields.get(name)
        if known is not None:
            number, encode_value, repeated = known
            for entry in item if repeated else (item,):
                out += _field(number, encode_value(entry))
        elif name.startswith("x-") and "x-" in fields:
            number, encode_value, _ = fields["x-"]
            out += _field(number, _pair(name, encode_value(item)))
    return bytes(out)


def _of(fields: _Fields) -> _Encode:
    return lambda value: _message(fields, value)


def _pair(name: str, value: float | bytes) -> bytes:
    return _field(1, name.encode()) + _field(2, value)


def _map(encode_value: _Encode, number: int = 1) -> _Encode:
    """A message of repeated pairs of a name and a value."""
    return lambda value: _pairs(encode_value, value, number)


def _pairs(encode_value: _Encode, value: Mapping[str, Any], number: int = 1) -> bytes:
    return b"".join(_field(number, _pair(name, encode_value(item))) for name, item in value.items())


def _text(value: Any) -> bytes:
    return str(value).encode()


def _any(value: Any) -> bytes:
    """A text of YAML, of which JSON is a part."""
    return _field(2, orjson.dumps(value) + b"\n")


def _schema(value: Any) -> bytes:
    return _message(_SCHEMA, value)


def _schema_or_boolean(value: Any) -> bytes:
    return _field(2, int(value)) if isinstance(value, bool) else _field(1, _schema(value))


def _one_or_more(encode_value: _Encode) -> _Encode:
    """A message of one repeated field, which JSON writes without its brackets when there is one value."""
    return lambda value: b"".join(
        _field(1, encode_value(item)) for item in (value if isinstance(value, list) else [value])
    )


def _parameter(value: Any) -> bytes:
    if value["in"] == "body":
        return _field(1, _message(_BODY_PARAMETER, value))
    number, fields = _PLACES[value["in"]]
    return _field(2, _field(number, _message(fields, value)))


def _parameter_or_reference(value: Any) -> bytes:
    if "$ref" in value:
        return _field(2, _field(1, _text(value["$ref"])))
    return _field(1, _parameter(value))


def _response(value: Any) -> bytes:
    return _field(1, _message(_RESPONSE, value))


def _schema_item(value: Any) -> bytes:
    return _field(1, _schema(value))


_SCHEMA: Final[_Fields] = {
    "$ref": (1, _text, False),
    "format": (2, _text, False),
    "title": (3, _text, False),
    "description": (4, _text, False),
    "default": (5, _any, False),
    "multipleOf": (6, float, False),
    "maximum": (7, float, False),
    "exclusiveMaximum": (8, int, False),
    "minimum": (9, float, False),
    "exclusiveMinimum": (10, int, False),
    "maxLength": (11, int, False),
    "minLength": (12, int, False),
    "pattern": (13, _text, False),
    "maxItems": (14, int, False),
    "minItems": (15, int, False),
    "uniqueItems": (16, int, False),
    "maxProperties": (17, int, False),
    "minProperties": (18, int, False),
    "required": (19, _text, True),
    "enum": (20, _any, True),
    "additionalProperties": (21, _schema_or_boolean, False),
    "type": (22, _one_or_more(_text), False),
    "items": (23, _one_or_more(_schema), False),
    "allOf": (24, _schema, True),
    "properties": (25, _map(_schema), False),
    "example": (30, _any, False),
    "x-": (31, _any, False),
}
_BODY_PARAMETER: Final[_Fields] = {
    "description": (1, _text, False),
    "name": (2, _text, False),
    "in": (3, _text, False),
    "required": (4, int, False),
    "schema": (5, _schema, False),
    "x-": (6, _any, False),
}
_ANYWHERE: Final[_Fields] = {
    "required": (1, int, False),
    "in": (2, _text, False),
    "description": (3, _text, False),
    "name": (4, _text, False),
}
_PLACES: Final[Mapping[str, tuple[int, _Fields]]] = {
    "query": (3, {**_ANYWHERE, "type": (6, _text, False), "uniqueItems": (20, int, False)}),
    "path": (4, {**_ANYWHERE, "type": (5, _text, False), "uniqueItems": (19, int, False)}),
}
_RESPONSE: Final[_Fields] = {"description": (1, _text, False), "schema": (2, _schema_item, False)}
_OPERATION: Final[_Fields] = {
    "tags": (1, _text, True),
    "description": (3, _text, False),
    "operationId": (5, _text, False),
    "produces": (6, _text, True),
    "consumes": (7, _text, True),
    "parameters": (8, _parameter_or_reference, True),
    "responses": (9, _map(_response), False),
    "schemes": (10, _text, True),
    "x-": (13, _any, False),
}
_PATH: Final[_Fields] = {
    "get": (2, _of(_OPERATION), False),
    "put": (3, _of(_OPERATION), False),
    "post": (4, _of(_OPERATION), False),
    "delete": (5, _of(_OPERATION), False),
    "options": (6, _of(_OPERATION), False),
    "head": (7, _of(_OPERATION), False),
    "patch": (8, _of(_OPERATION), False),
    "parameters": (9, _parameter_or_reference, True),
    "x-": (10, _any, False),
}
_API_KEY: Final[_Fields] = {
    "type": (1, _text, False),
    "name": (2, _text, False),
    "in": (3, _text, False),
    "description": (4, _text, False),
}
_DOCUMENT: Final[_Fields] = {
    "swagger": (1, _text, False),
    "info": (2, _of({"title": (1, _text, False), "version": (2, _text, False)}), False),
    "parameters": (10, _map(_parameter), False),
    "security": (12, _map(_one_or_more(_text)), True),
    "securityDefinitions": (13, _map(lambda value: _field(2, _message(_API_KEY, value))), False),
}
