"""Built-in kinds in Kubernetes' protobuf encoding, as clients written in Go send them (TS15)."""

from __future__ import annotations

import base64
import contextlib
import struct
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube.objects import protobuf
from kube.requests.status import BadRequest, StatusError, UnsupportedMediaType

OBJECTS = [
    {field: value for field, value in body.items() if field != "system"}
    for body in yaml.safe_load((Path(__file__).parents[1] / "conformance" / "objects.yaml").read_text())
]


def varint(number: int) -> bytes:
    number &= 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes(out) + bytes([number])


def delimited(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def encoded(value: Mapping[str, Any]) -> bytes:
    """What a client written in Go would send."""
    meta = delimited(1, value["apiVersion"].encode()) + delimited(2, value["kind"].encode())
    name = protobuf._message_name(value["apiVersion"], value["kind"])
    rest = {key: item for key, item in value.items() if key not in ("apiVersion", "kind")}
    return protobuf.MAGIC + delimited(1, meta) + delimited(2, message(name, rest))


def message(name: str, value: Mapping[str, Any]) -> bytes:
    out, left = b"", dict(value)
    for number, field in sorted(protobuf._table(name).items()):
        if field.inline:
            inner = {
                part.name: left.pop(part.name) for part in protobuf._table(field.type).values() if part.name in left
            }
            out += delimited(number, message(field.type, inner))
        elif field.name in left:
            item = left.pop(field.name)
            if field.mapped:
                for key, entry in item.items():
                    out += delimited(number, delimited(1, key.encode()) + tagged(2, field.type, entry))
            else:
                for entry in item if field.repeated else [item]:
                    out += tagged(number, field.type, entry)
    assert not left, f"{name} has no field for {left}"
    return out


def tagged(number: int, type_: str, value: Any) -> bytes:
    if type_ in ("i", "b"):
        return varint(number << 3) + varint(int(value))
    if type_ == "d":
        return varint(number << 3 | 1) + struct.pack("<d", value)
    return delimited(number, delimited_value(type_, value))


def delimited_value(type_: str, value: Any) -> bytes:
    match type_:
        case "s":
            return str(value).encode()
        case "y":
            return base64.b64decode(value)
        case "q":
            return delimited(1, str(value).encode())
        case "f":
            return delimited(1, orjson.dumps(value))
        case "x":
            return tagged(1, "i", 1) + tagged(3, "s", value) if isinstance(value, str) else tagged(2, "i", value)
        case "t" | "m":
            moment = datetime.fromisoformat(value)
            return tagged(1, "i", int(moment.timestamp())) + tagged(2, "i", moment.microsecond * 1000)
        case "B":
            return tagged(1, "b", value) if isinstance(value, bool) else delimited(2, message(protobuf._SCHEMA, value))
        case "A":
            return delimited(1, message(protobuf._SCHEMA, value))
    return message(type_, value)


@pytest.mark.parametrize("body", OBJECTS, ids=lambda body: f"{body['kind']}-{body['metadata']['name']}")
def test_an_object_of_every_kind_is_read_as_it_was_meant(body: dict[str, Any]) -> None:
    assert protobuf.decode(encoded(body)) == {field: value for field, value in body.items() if value != []}


DEFINITION = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "a.b.c"},
    "spec": {
        "group": "b.c",
        "scope": "Namespaced",
        "names": {"plural": "a", "kind": "A"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": False,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "list": {"type": "array", "items": {"type": "string", "default": "x"}},
                            "map": {"additionalProperties": {"type": "integer", "minimum": 1.5, "enum": [1, 2]}},
                            "free": {"additionalProperties": True, "nullable": True},
                        },
                    }
                },
            }
        ],
    },
}


def test_a_definition_with_its_schema_is_read() -> None:
    assert protobuf.decode(encoded(DEFINITION)) == DEFINITION


def test_a_zero_that_was_meant_is_kept_and_one_that_goes_without_saying_is_not() -> None:
    """``replicas`` is a pointer in Go, ``minReadySeconds`` is not and always sent."""
    wire = delimited(2, tagged(1, "i", 0) + tagged(5, "i", 0))
    meta = delimited(1, b"apps/v1") + delimited(2, b"Deployment")
    assert protobuf.decode(protobuf.MAGIC + delimited(1, meta) + delimited(2, wire))["spec"] == {"replicas": 0}


def test_a_field_of_another_minor_version_is_passed_over() -> None:
    wire = delimited(1, delimited(1, b"x") + delimited(900, b"?"))
    meta = delimited(1, b"v1") + delimited(2, b"ConfigMap")
    body = protobuf.decode(protobuf.MAGIC + delimited(1, meta) + delimited(2, wire))
    assert body == {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}


@pytest.mark.parametrize("version", ["example.com/v1", "core.example.com/v1", "v2", ""])
def test_a_kind_that_is_not_built_in_is_refused(version: str) -> None:
    meta = delimited(1, version.encode()) + delimited(2, b"ConfigMap")
    with pytest.raises(UnsupportedMediaType):
        protobuf.decode(protobuf.MAGIC + delimited(1, meta))


def test_a_schema_that_is_nested_without_end_is_refused() -> None:
    wire = b""
    for _ in range(200):
        wire = delimited(28, wire)
    for number in (1, 4):
        wire = delimited(number, wire)
    meta = delimited(1, b"apiextensions.k8s.io/v1") + delimited(2, b"CustomResourceDefinition")
    body = protobuf.MAGIC + delimited(1, meta) + delimited(2, delimited(2, delimited(7, wire)))
    with pytest.raises(BadRequest):
        protobuf.decode(body)


@given(st.binary(max_size=200), st.sampled_from(OBJECTS))
def test_a_broken_body_is_the_clients_error(junk: bytes, body: dict[str, Any]) -> None:
    meta = delimited(1, body["apiVersion"].encode()) + delimited(2, body["kind"].encode())
    whole = encoded(body)
    for wire in (
        protobuf.MAGIC + junk,
        protobuf.MAGIC + delimited(1, meta) + delimited(2, junk),
        whole[: len(junk)] + junk,
        whole[:-7] + junk,
    ):
        with contextlib.suppress(StatusError):
            assert isinstance(protobuf.decode(wire), dict)
