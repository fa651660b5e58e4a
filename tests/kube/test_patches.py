"""JSON and merge patches: the RFCs' examples, kube-apiserver's answers, bounds (TS15, ADM-11)."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.objects.patches import MAX_OPERATIONS, deep_copy, diff, json_patch, merge_patch, same
from kube.requests.status import BadRequest, Invalid, RequestEntityTooLarge
from tests.effort import effort

scalars = st.booleans() | st.integers(-3, 3) | st.text("ab", max_size=2)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("xyz", max_size=1), inner, max_size=3)
)
documents = st.dictionaries(st.text("xyz", max_size=1), values, max_size=4)

RFC_7396 = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
    ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("document", "patch", "expected"), RFC_7396)
def test_merge_patches_follow_the_examples_of_the_rfc(document: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(document, patch) == expected


@given(documents)
def test_an_empty_patch_changes_nothing(document: dict[str, Any]) -> None:
    assert merge_patch(document, {}) == document
    assert json_patch(document, []) == document


@given(documents, documents)
def test_the_difference_of_two_documents_turns_one_into_the_other(old: dict[str, Any], new: dict[str, Any]) -> None:
    before = deep_copy(old)
    assert same(merge_patch(old, diff(old, new)), new)
    assert same(old, before)
    assert diff(new, new) == {}


@given(documents, documents)
def test_a_merge_patch_applied_twice_gives_what_it_gives_once(document: dict[str, Any], patch: dict[str, Any]) -> None:
    once = merge_patch(document, patch)
    assert same(merge_patch(once, patch), once)


def test_truth_is_not_one() -> None:
    assert not same({"a": [True]}, {"a": [1]})
    assert same({"a": [1]}, {"a": [1.0]})
    with pytest.raises(Invalid):
        json_patch({"a": 1}, [{"op": "test", "path": "/a", "value": True}])


def test_json_patches_leave_the_document_alone() -> None:
    document = {"a": {"b": [1]}}
    patched = json_patch(
        document, [{"op": "add", "path": "/a/b/-", "value": 2}, {"op": "copy", "from": "/a", "path": "/c"}]
    )
    assert patched == {"a": {"b": [1, 2]}, "c": {"b": [1, 2]}}
    assert document == {"a": {"b": [1]}}


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "remove", "path": "/missing"}],
        [{"op": "test", "path": "/a", "value": 2}],
        [{"op": "add", "path": "/a/b/c", "value": 2}],
        [{"op": "replace", "path": "", "value": 2}],
        [{"op": "remove", "path": ""}],
        [{"op": "paint", "path": "/a"}],
        [{"op": "add", "path": "a", "value": 2}],
        [{"op": "add", "path": "/a"}],
        [{"op": "add"}],
        [{"op": "copy", "path": "/b"}],
        [{"op": "copy", "path": "/b", "from": 7}],
        [{"op": "move", "path": "/l/0/x", "from": "/l"}],
        [{"op": "add", "path": "/l/9", "value": 1}],
        [{"op": "add", "path": "/l/x", "value": 1}],
        [{"op": ["add"], "path": "/l/x", "value": 1}],
        [{"op": "add", "path": "/l/-3", "value": 1}],
        [{"op": "remove", "path": "/l/-2"}],
        [{"op": "remove", "path": "/l/-"}],
        [{"op": "test", "path": "/l/-2/x", "value": 1}],
        [{"op": "move", "path": "/l/-3", "from": "/a"}],
        [{"op": "move", "path": "/l/-1", "from": "/l/1"}],
        [{"op": "move", "path": "/l/2", "from": "/a"}],
        [{"op": "move", "path": "/b", "from": "/missing"}],
        [{"op": "move", "path": "/a/b", "from": "/l"}],
        [{"op": "move", "path": "/b", "from": "/l/-"}],
    ],
)
def test_an_operation_that_does_not_apply_is_unprocessable(operations: Any) -> None:
    with pytest.raises(Invalid) as caught:
        json_patch({"a": 1, "l": [{}]}, operations)
    assert caught.value.code == 422
    assert caught.value.message == "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ({"op": "remove", "path": "/l/-1"}, {"l": [1, {"x": [2]}], "-1": 0}),
        ({"op": "remove", "path": "/l/-2/x/-1"}, {"l": [1, {"x": []}, 3], "-1": 0}),
        ({"op": "remove", "path": "/-1"}, {"l": [1, {"x": [2]}, 3]}),
        ({"op": "replace", "path": "/l/-3", "value": 9}, {"l": [9, {"x": [2]}, 3], "-1": 0}),
        ({"op": "test", "path": "/l/-1", "value": 3}, {"l": [1, {"x": [2]}, 3], "-1": 0}),
        ({"op": "add", "path": "/l/-1", "value": 9}, {"l": [1, {"x": [2]}, 3, 9], "-1": 0}),
        ({"op": "add", "path": "/l/-4", "value": 9}, {"l": [9, 1, {"x": [2]}, 3], "-1": 0}),
        ({"op": "add", "path": "/l/-2/x/-2", "value": 9}, {"l": [1, {"x": [9, 2]}, 3], "-1": 0}),
        ({"op": "add", "path": "/l/+01", "value": 9}, {"l": [1, 9, {"x": [2]}, 3], "-1": 0}),
        ({"op": "copy", "from": "/l/-1", "path": "/l/-4"}, {"l": [3, 1, {"x": [2]}, 3], "-1": 0}),
        ({"op": "move", "from": "/l/-1", "path": "/l/-3"}, {"l": [3, 1, {"x": [2]}], "-1": 0}),
        ({"op": "move", "from": "/l/0", "path": "/l/-"}, {"l": [{"x": [2]}, 3, 1], "-1": 0}),
        ({"op": "move", "from": "/l/0", "path": "/l/0/x/0"}, {"l": [{"x": [1, 2]}, 3], "-1": 0}),
        ({"op": "move", "from": "/-1", "path": "/l/-2/x/-1"}, {"l": [1, {"x": [2, 0]}, 3]}),
    ],
)
def test_indexes_are_read_as_kube_apiserver_reads_them(operation: dict[str, Any], expected: dict[str, Any]) -> None:
    """TS15: what is negative counts from the end of a list; of an object it is a name like any other."""
    document = {"l": [1, {"x": [2]}, 3], "-1": 0}
    assert json_patch(document, [operation]) == expected
    assert document == {"l": [1, {"x": [2]}, 3], "-1": 0}


def test_paths_are_read_from_their_first_slash_on() -> None:
    """TS15, as kube-apiserver's library reads them."""
    assert json_patch({"a": {"b": 1}}, [{"op": "add", "path": "x/a/b", "value": 2}]) == {"a": {"b": 2}}
    assert json_patch({"a": {"b": 1}}, [{"op": "replace", "path": "", "value": {"c": 3}}]) == {"c": 3}
    for wrong in ({"op": "add", "path": "a", "value": 2}, {"op": "copy", "from": "", "path": "/c"}):
        with pytest.raises(Invalid):
            json_patch({"a": {"b": 1}}, [wrong])


def test_no_patch_at_all_changes_nothing() -> None:
    assert json_patch({"a": 1}, None) == {"a": 1}


@pytest.mark.parametrize("patch", [3, "x", True, {}])
def test_a_body_that_is_no_json_patch_is_a_bad_request(patch: Any) -> None:
    with pytest.raises(BadRequest, match="error decoding patch: json: cannot unmarshal"):
        json_patch({}, patch)


def test_a_list_is_no_merge_patch() -> None:
    with pytest.raises(BadRequest) as caught:
        merge_patch({}, [])
    assert caught.value.message == (
        "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}"
    )


def test_more_operations_than_allowed_are_too_large() -> None:
    operations = [{"op": "add", "path": "/a", "value": 1}] * (MAX_OPERATIONS + 1)
    with pytest.raises(RequestEntityTooLarge) as caught:
        json_patch({}, operations)
    assert caught.value.code == 413
    assert caught.value.message.endswith("The allowed maximum operations in a JSON patch is 10000, got 10001")


def test_doubling_a_document_by_copies_is_stopped_early() -> None:
    operations = [{"op": "copy", "from": "/a", "path": f"/a/c{n}"} for n in range(40)]
    with pytest.raises(RequestEntityTooLarge):
        json_patch({"a": {"b": list(range(100))}}, operations)


def test_nesting_beyond_the_bound_is_stopped() -> None:
    deep: Any = {}
    for _ in range(5000):
        deep = {"a": deep}
    with pytest.raises(RequestEntityTooLarge):
        merge_patch({}, deep)
    moves = [{"op": "add", "path": "/a" * depth, "value": {}} for depth in range(1, 400)]
    with pytest.raises(RequestEntityTooLarge):
        json_patch({}, moves)


operations = st.fixed_dictionaries(
    {},
    optional={
        "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]),
        "path": st.sampled_from(["", "/", "/x", "/x/0", "/x/y", "/y/-", "/x/-1", "/~2", "x"]) | scalars,
        "from": st.sampled_from(["", "/x", "/y/0"]) | scalars,
        "value": values,
    },
)


@given(documents, st.lists(operations, max_size=4))
def test_no_json_patch_ends_in_anything_but_an_object_or_a_refusal(document: Any, patch: Any) -> None:
    try:
        assert isinstance(json_patch(document, patch), dict)
    except (BadRequest, Invalid) as refusal:
        assert refusal.code in (400, 422)


def test_copies_end_before_they_cost_much() -> None:
    """P9, CVE-2019-1002100: doubling a small object over and over."""
    operations = [{"op": "copy", "from": "/a", "path": f"/a/n{n}"} for n in range(30)]

    def ask() -> None:
        with pytest.raises(RequestEntityTooLarge):
            json_patch({"a": {"x": "y"}}, operations)

    assert effort(ask) < 50


class Phase(StrEnum):
    READY = "Ready"


JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text()
    | st.just(Phase.READY),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
)


@given(JSON_VALUES)
def test_a_copy_is_equal_plain_and_shares_nothing(value: Any) -> None:
    """Whatever the product has put into an object, its own enumerations too."""

    def containers(value: Any) -> list[Any]:
        within = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        return [
            *([value] if isinstance(value, dict | list) else []),
            *(one for each in within for one in containers(each)),
        ]

    copied = deep_copy([value, value])
    assert copied == [value, value]
    assert orjson.loads(orjson.dumps(copied, option=orjson.OPT_PASSTHROUGH_SUBCLASS)) is not None
    ids = [id(one) for one in containers(copied)]
    assert len(ids) == len(set(ids))
    assert not set(ids) & {id(one) for one in containers(value)}
