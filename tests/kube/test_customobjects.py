"""Whether custom objects are what their structural schemas say, in the real server's words (TS10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube.customresources.definitions import resource_of
from kube.customresources.schemas import structural_schema
from kube.customresources.validation import MAX_CAUSES, object_causes, without_nulls
from kube.kinds.schemas import Schema
from tests.kube.customkinds import FULL, TEXT
from tests.kube.kinds import definitions

FULL_SCHEMA = resource_of(FULL, definitions()).versions[0].schema
assert FULL_SCHEMA is not None
SCHEMA: Schema = FULL_SCHEMA


def said(**spec: Any) -> list[str]:
    causes = object_causes(SCHEMA, {"spec": {"r": 1, **spec}})
    return [f"{cause.field}: {cause.message}" for cause in causes]


CASES: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    ({"r": "1"}, ['spec.r: Invalid value: "string": spec.r in body must be of type integer: "string"']),
    ({"s": "abcd"}, ["spec.s: Too long: may not be more than 3 bytes"]),
    ({"s": "bb"}, ["spec.s: Invalid value: \"bb\": spec.s in body should match '^a'"]),
    ({"e": "z"}, ['spec.e: Unsupported value: "z": supported values: "x", "y"']),
    ({"n": 5}, ["spec.n: Invalid value: 5: spec.n in body should be less than 5"] * 1),
    ({"l": []}, ["spec.l: Invalid value: 0: spec.l in body should have at least 1 items"]),
    ({"l": [1, 2, 3]}, ["spec.l: Too many: 3: must have at most 2 items"]),
    ({"set": ["a", "a"]}, ['spec.set[1]: Duplicate value: "a"']),
    ({"m": [{"k": "a", "j": "d"}] * 2}, ['spec.m[1]: Duplicate value: {"j":"d","k":"a"}']),
    ({"i": True}, ['spec.i: Invalid value: "boolean": spec.i in body must be of type integer,string: "boolean"']),
    ({"em": {}}, ["spec.em.apiVersion: Required value", "spec.em.kind: Required value"]),
    ({"not": "a"}, ['<nil>: Invalid value: "": "spec.not" must not validate the schema (not)']),
    ({"free": {"anything": [None, {"goes": 1}]}}, []),
]


@pytest.mark.parametrize(("spec", "expected"), CASES)
def test_an_object_is_held_against_its_schema(spec: dict[str, Any], expected: list[str]) -> None:
    found = said(**spec)
    assert [line for line in found if "multiple of" not in line] == expected


def test_a_required_field_is_missed() -> None:
    assert [c.as_dict() for c in object_causes(SCHEMA, {"spec": {}})] == [
        {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.r"}
    ]


def test_nulls_of_fields_that_are_not_nullable_are_dropped() -> None:
    document = {"spec": {"r": None, "nul": None, "i": None, "l": [None], "free": {"a": None}}}
    assert without_nulls(SCHEMA, document) == {"spec": {"nul": None, "l": [None], "free": {"a": None}}}


def test_a_list_of_nothing_but_mistakes_is_told_by_its_first_hundred() -> None:
    assert len(said(set=[1] * 100_000)) == MAX_CAUSES


SMALL = {"type": "integer", "maximum": 9}
KEYED = {
    "type": "array",
    "maxItems": 3,
    "items": {"type": "object", "properties": {"k": TEXT, "n": SMALL}, "required": ["k"]},
    "x-kubernetes-list-type": "map",
    "x-kubernetes-list-map-keys": ["k"],
}
LATER = {
    "type": "object",
    "required": ["there"],
    "properties": {
        "n": SMALL,
        "other": TEXT,
        "there": TEXT,
        "any": {**SMALL, "not": {"enum": [77]}},
        "few": {"type": "array", "maxItems": 2, "items": TEXT},
        "list": {"type": "array", "items": SMALL},
        "set": {"type": "array", "items": SMALL, "x-kubernetes-list-type": "set"},
        "map": {"type": "object", "additionalProperties": SMALL},
        "keyed": KEYED,
    },
}
STRICTER = structural_schema({"type": "object", "properties": {"spec": LATER}}, definitions())

WRONG = {"k": "a", "n": 99}
CHANGES: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({"n": 99}, {"n": 99, "other": "x"}, ["spec.there"]),
    ({"n": 99, "there": "x"}, {"n": 99, "there": "y"}, []),
    ({"n": 99, "there": "x"}, {"n": 98, "there": "x"}, ["spec.n"]),
    ({"list": [99], "there": "x"}, {"list": [99], "there": "y"}, []),
    ({"list": [99], "there": "x"}, {"list": [99, 1], "there": "x"}, ["spec.list[0]"]),
    ({"set": [99], "there": "x"}, {"set": [99, 1], "there": "x"}, ["spec.set[0]"]),
    ({"few": ["a"] * 3, "there": "x"}, {"few": ["b"] * 3, "there": "x"}, ["spec.few"]),
    ({"map": {"a": 99}, "there": "x"}, {"map": {"b": 99, "a": 99}, "there": "x"}, ["spec.map.b"]),
    ({"keyed": [WRONG], "there": "x"}, {"keyed": [{"k": "b", "n": 1}, WRONG], "there": "x"}, []),
    ({"keyed": [WRONG], "there": "x"}, {"keyed": [{"k": "b", "n": 99}], "there": "x"}, ["spec.keyed[0].n"]),
    ({"set": [1, 1], "there": "x"}, {"set": [1, 1, 2], "there": "x"}, []),
    ({"set": [1], "there": "x"}, {"set": [1, 1], "there": "x"}, ["spec.set[1]"]),
    ({"any": 77, "there": "x"}, {"any": 77, "there": "y"}, []),
]


@pytest.mark.parametrize(("old", "new", "expected"), CHANGES)
def test_a_change_is_judged_by_the_values_that_it_changes(
    old: dict[str, Any], new: dict[str, Any], expected: list[str]
) -> None:
    """TS10: whatever is said of them, and wherever in a list with keys they stand now."""
    assert [cause.field for cause in object_causes(STRICTER, {"spec": new}, {"spec": old})] == expected


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("ab0:.-", max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("krsxy"), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    sorted(FULL["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])
)


@example({"set": [-(2**63) - 1]})
@given(st.dictionaries(names, values, max_size=5))
def test_no_object_ends_in_anything_but_causes(spec: dict[str, Any]) -> None:
    document = without_nulls(SCHEMA, {"spec": spec})
    assert isinstance(object_causes(SCHEMA, document), list)


@given(st.dictionaries(names, values, max_size=5), st.dictionaries(names, values, max_size=5))
def test_of_a_change_nothing_is_said_that_is_not_said_of_the_new_object(old: Any, new: Any) -> None:
    found = object_causes(SCHEMA, {"spec": new}, {"spec": old})
    assert set(found) <= set(object_causes(SCHEMA, {"spec": new}))
    assert object_causes(SCHEMA, {"spec": new}, {"spec": new}) == []
