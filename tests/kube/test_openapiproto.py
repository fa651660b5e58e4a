"""OpenAPI v2 in the encoding that kubectl asks for (TS15). That kubectl reads it, ``tests/gateway`` shows."""

from __future__ import annotations

from typing import Any

import orjson

from kube.kinds.builtins import TENANT_BUILTINS
from kube.kinds.schemas import Definitions
from kube.openapi import protobuf
from kube.openapi.documents import Documents, Form


def fields(data: bytes) -> dict[int, list[Any]]:
    """The fields of a message by number."""
    found: dict[int, list[Any]] = {}
    position = 0

    def varint() -> int:
        nonlocal position
        result = shift = 0
        while True:
            byte = data[position]
            position += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    while position < len(data):
        tag = varint()
        if tag & 7 == 0:
            value: Any = varint()
        else:
            length = 8 if tag & 7 == 1 else varint()
            value = data[position : position + length]
            assert len(value) == length
            position += length
        found.setdefault(tag >> 3, []).append(value)
    return found


def named(message: bytes, number: int = 1) -> dict[str, bytes]:
    pairs = [fields(pair) for pair in fields(message)[number]]
    return {pair[1][0].decode(): pair[2][0] for pair in pairs}


def test_every_definition_and_path_is_in_the_document(definitions: Definitions) -> None:
    documents = Documents(definitions, "1.37")
    source = orjson.loads(documents.v2(TENANT_BUILTINS).body)
    document = fields(documents.v2(TENANT_BUILTINS, Form.V2_PROTOBUF).body)
    assert document[1] == [b"2.0"]
    known = named(document[9][0])
    assert known.keys() == source["definitions"].keys()
    assert named(document[8][0], 2).keys() == source["paths"].keys()
    shared = named(document[10][0])
    assert shared.keys() == source["parameters"].keys()
    query = fields(fields(fields(shared["continue"])[2][0])[3][0])
    assert query[3] == [source["parameters"]["continue"]["description"].encode()]
    config_map = fields(known["io.k8s.api.core.v1.ConfigMap"])
    properties = named(config_map[25][0])
    assert properties.keys() == source["definitions"]["io.k8s.api.core.v1.ConfigMap"]["properties"].keys()
    assert fields(fields(properties["data"])[22][0]) == {1: [b"object"]}
    extensions = {fields(pair)[1][0]: fields(fields(pair)[2][0])[2][0] for pair in config_map[31]}
    kinds = [{"group": "", "version": "v1", "kind": "ConfigMap"}]
    assert orjson.loads(extensions[b"x-kubernetes-group-version-kind"]) == kinds


def test_numbers_booleans_and_alternatives_keep_their_types() -> None:
    schema = {"type": ["string", "null"], "minimum": 1, "maxLength": 300, "uniqueItems": True, "enum": ["a", 1]}
    schema |= {"additionalProperties": {"type": "string"}, "items": {"type": "integer"}, "x-kubernetes-x": [1]}
    schemas = protobuf.definitions({"d": schema, "e": {"additionalProperties": False}})
    document = protobuf.document({"swagger": "2.0"}, b"", schemas)
    known = named(fields(document)[9][0])
    found = fields(known["d"])
    assert fields(found[22][0])[1] == [b"string", b"null"]
    assert found[9] == [b"\0\0\0\0\0\0\xf0\x3f"]
    assert found[11] == [300]
    assert found[16] == [1]
    assert [fields(value)[2][0] for value in found[20]] == [b'"a"\n', b"1\n"]
    assert fields(found[21][0]).keys() == {1}
    assert fields(fields(known["e"])[21][0]) == {2: [0]}
