"""Patches that do what they did to the state that was judged, or nothing (AD5)."""

from __future__ import annotations

import contextlib
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from kube.objects.patches import json_patch, merge_patch
from kube.requests.conditionalpatches import (
    NOTHING,
    StaleVersion,
    conditional_changes,
    conditional_operations,
    depends_on_status,
    unambiguous,
)
from kube.requests.status import BadRequest, Invalid

NAMES = st.sampled_from(["a", "b", "resourceVersion", "uid", "metadata", "spec"])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.text(max_size=3)
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
POINTERS = st.lists(NAMES, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
OPERATIONS = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": POINTERS},
        optional={"from": POINTERS, "value": VALUES},
    ),
    max_size=4,
)
SPECS = st.dictionaries(NAMES, VALUES, max_size=3)


def thing(spec: Any, version: str) -> dict[str, Any]:
    return {"metadata": {"name": "x", "uid": "u", "resourceVersion": version}, "spec": spec}


def patched(document: dict[str, Any], operations: Any) -> Any:
    with contextlib.suppress(Invalid):
        return json_patch(document, operations)
    return Invalid


@given(OPERATIONS, SPECS)
def test_operations_do_the_same_to_the_version_that_they_are_for_and_nothing_to_others(
    operations: list[Any], spec: dict[str, Any]
) -> None:
    conditional = orjson.loads(conditional_operations(orjson.dumps(operations), "7"))
    assert patched(thing(spec, "7"), conditional) == patched(thing(spec, "7"), operations)
    assert patched(thing(spec, "8"), conditional) is Invalid


@given(st.dictionaries(NAMES, VALUES, max_size=4), SPECS)
def test_changes_do_the_same_and_always_state_the_version(changes: dict[str, Any], spec: dict[str, Any]) -> None:
    try:
        conditional = orjson.loads(conditional_changes(orjson.dumps(changes), "7", "u"))
    except StaleVersion:
        assert changes["metadata"]["resourceVersion"] not in ("7", "", "0")
        return
    result, plain = (merge_patch(thing(spec, "6"), patch) for patch in (conditional, changes))
    if isinstance(changes.get("metadata", {}), dict):
        assert result["metadata"]["resourceVersion"] == "7"
        plain["metadata"] = result["metadata"]
    assert result == plain


@pytest.mark.parametrize("stated", [None, "", "0", "00", 0, 5])
def test_what_states_no_version_is_for_the_one_that_was_judged(stated: Any) -> None:
    body = orjson.dumps({"metadata": {"resourceVersion": stated, "labels": {}}})
    assert orjson.loads(conditional_changes(body, "7", "u")) == {
        "metadata": {"resourceVersion": "7", "uid": "u", "labels": {}}
    }


def test_another_version_and_another_object_stay_what_is_asked_for() -> None:
    with pytest.raises(StaleVersion):
        conditional_changes(b'{"metadata":{"resourceVersion":"6"}}', "7", "u")
    kept = orjson.loads(conditional_changes(b'{"metadata":{"uid":"v"}}', NOTHING, ""))
    assert kept["metadata"] == {"uid": "v", "resourceVersion": NOTHING}


@pytest.mark.parametrize("body", [b"null", b"[]", b'"x"', b'{"metadata":null}', b'{"metadata":[]}'])
def test_what_no_server_takes_is_left_as_it_is(body: bytes) -> None:
    assert conditional_changes(body, "7", "u") == body


@pytest.mark.parametrize("body", [b"null", b"{}", b'"x"'])
def test_what_is_no_list_of_operations_is_left_as_it_is(body: bytes) -> None:
    assert conditional_operations(body, "7") == body


def test_yaml_is_read_as_a_cluster_reads_it_and_said_once() -> None:
    body = yaml.safe_dump(thing({"a": [1, True]}, "0")).encode()
    assert orjson.loads(unambiguous(body, is_yaml=True)) == thing({"a": [1, True]}, "0")
    for twice in (b"a: 1\na: 2\n", b'{"a":1,"a":2}'):
        with pytest.raises(BadRequest, match="already set"):
            unambiguous(twice, is_yaml=True)


@pytest.mark.parametrize("body", [b'{"a":1,"a":2}', b'{"a":1,"\\u0061":2}', b'[{"op":"test","op":"add"}]'])
def test_what_two_readers_could_read_in_two_ways_is_refused(body: bytes) -> None:
    for condition in (
        lambda: conditional_changes(body, "7", "u"),
        lambda: conditional_operations(body, "7"),
        lambda: unambiguous(body),
    ):
        with pytest.raises(BadRequest, match="duplicate field"):
            condition()


STATUS_POINTERS = st.lists(
    st.sampled_from(["status", "a", "metadata", "resourceVersion", "managedFields", "spec"]), max_size=3
).map(lambda parts: "".join(f"/{part}" for part in parts))
READING = st.lists(
    st.fixed_dictionaries(
        {"op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test"]), "path": STATUS_POINTERS},
        optional={"from": STATUS_POINTERS, "value": VALUES},
    ),
    max_size=3,
)


@given(READING, st.dictionaries(NAMES, VALUES, max_size=3), VALUES)
def test_what_does_not_depend_on_the_status_does_the_same_whatever_it_is(
    operations: list[Any], spec: dict[str, Any], status: Any
) -> None:
    if depends_on_status(orjson.dumps(operations)):
        return
    before = {**thing(spec, "7"), "status": {"a": 1}}
    after = {**thing(spec, "8"), "status": status}
    after["metadata"]["managedFields"] = []
    results = [patched(each, operations) for each in (before, after)]
    for result in results:
        if result is not Invalid:
            result.pop("status")
            result["metadata"].pop("resourceVersion")
            result["metadata"].pop("managedFields", None)
    assert results[0] == results[1]


@pytest.mark.parametrize("body", [b"{}", b'[{"op":"test","path":""}]', b'[{"op":"copy","from":5,"path":"/spec"}]'])
def test_what_nobody_knows_may_depend_on_the_status(body: bytes) -> None:
    assert depends_on_status(body)
