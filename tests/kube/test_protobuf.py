"""Built-in kinds in Kubernetes' protobuf encoding, as clients written in Go send them (TS15)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube.objects import protobuf
from kube.requests.decoding import MAX_VALUES, TooManyValues, ValueCount
from kube.requests.status import BadRequest, StatusError, UnsupportedMediaType
from tests.kube.protobufbodies import delimited, encoded, tagged

OBJECTS = [
    {field: value for field, value in body.items() if field != "system"}
    for body in yaml.safe_load((Path(__file__).parents[1] / "conformance" / "objects.yaml").read_text())
]


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


def _wrapped(body: Mapping[str, Any], wire: bytes) -> bytes:
    meta = delimited(1, body["apiVersion"].encode()) + delimited(2, body["kind"].encode())
    return protobuf.MAGIC + delimited(1, meta) + delimited(2, wire)


MANY = {
    "an unknown field": delimited(900, b""),
    "the metadata": delimited(1, b""),
    "a label": delimited(1, delimited(11, b"")),
    "an owner": delimited(1, delimited(13, b"")),
    "a member": delimited(2, b""),
    "a member of a member": delimited(2, delimited(2, b"")),
    "a number": tagged(901, "i", 1),
}


@pytest.mark.parametrize("part", MANY.values(), ids=MANY)
@pytest.mark.parametrize("kind", ["ConfigMap", "Pod", "Secret"])
def test_what_is_there_too_often_is_refused_before_it_is_made(kind: str, part: bytes) -> None:
    """DOS-03: a field takes two bytes, and nothing in the bytes tells beforehand how many there are."""
    wire = _wrapped({"apiVersion": "v1", "kind": kind}, part * MAX_VALUES)
    count = ValueCount(MAX_VALUES)
    with pytest.raises(TooManyValues):
        protobuf.decode(wire, count)
    assert count.values == MAX_VALUES + 1
    with pytest.raises(TooManyValues):
        protobuf.decode(wire)


def test_json_within_a_body_counts_with_the_rest_of_it() -> None:
    """DOS-03: each text of managed fields would else hold as much as a whole body."""
    fields = b'{"a":[' + b"1," * (MAX_VALUES // 3) + b"1]}"
    entry = delimited(1, delimited(17, delimited(7, delimited(1, fields))))
    body = {"apiVersion": "v1", "kind": "ConfigMap"}
    protobuf.decode(_wrapped(body, entry * 2))
    with pytest.raises(TooManyValues):
        protobuf.decode(_wrapped(body, entry * 3))


def values_in(value: Any) -> int:
    """All values in a decoded body, itself included."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(values_in, parts))


@pytest.mark.parametrize("body", [*OBJECTS, DEFINITION], ids=lambda body: f"{body['kind']}-{body['metadata']['name']}")
def test_no_object_holds_more_values_than_are_counted(body: dict[str, Any]) -> None:
    count = ValueCount(MAX_VALUES)
    decoded = protobuf.decode(encoded(body), count)
    # A list, or a map, is made with its first member.
    assert values_in(decoded) <= 2 * count.values
