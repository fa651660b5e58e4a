"""Strategic merge patches of built-in kinds (TS15)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.objects.patches import deep_copy
from kube.objects.strategicmerge import strategic_merge
from kube.requests.status import StatusError
from tests.kube.kinds import structure

DEPLOYMENT = structure("apps", "v1", "Deployment")


def deployment(*containers: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    return {"metadata": metadata, "spec": {"template": {"spec": {"containers": list(containers)}}}}


def containers(document: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = document["spec"]["template"]["spec"]["containers"]
    return found


A, B, C = {"name": "a", "image": "a"}, {"name": "b", "image": "b"}, {"name": "c", "image": "c"}

CASES: list[tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    (
        "items are found by their merge key",
        deployment(A, B),
        deployment({"name": "b", "image": "new"}),
        deployment(A, {"name": "b", "image": "new"}),
    ),
    ("new items come first unless an order says where", deployment(A, B), deployment(C), deployment(C, A, B)),
    ("an item is deleted by its key", deployment(A, B), deployment({"name": "a", "$patch": "delete"}), deployment(B)),
    ("a list is replaced", deployment(A, B), deployment(C, {"$patch": "replace"}), deployment(C)),
    (
        "lists in items merge too",
        deployment({"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}),
        deployment({"name": "a", "env": [{"name": "Y", "value": "3"}]}),
        deployment({"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "3"}]}),
    ),
    (
        "a list without strategy is replaced",
        deployment({"name": "a", "args": ["x", "y"]}),
        deployment({"name": "a", "args": ["z"]}),
        deployment({"name": "a", "args": ["z"]}),
    ),
    (
        "a list of scalars is united",
        {"metadata": {"finalizers": ["a/a", "b/b"]}},
        {"metadata": {"finalizers": ["c/c", "a/a"]}},
        {"metadata": {"finalizers": ["c/c", "a/a", "b/b"]}},
    ),
    (
        "scalars are deleted from a list",
        {"metadata": {"finalizers": ["a/a", "b/b"]}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/a"]}},
        {"metadata": {"finalizers": ["b/b"]}},
    ),
    (
        "an order is enforced and unknown items keep their places",
        deployment(A, B, C),
        {"spec": {"template": {"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "a"}]}}}},
        deployment(B, C, A),
    ),
    (
        "only retained keys are left",
        {"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}}},
        {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
        {"spec": {"strategy": {"type": "Recreate"}}},
    ),
    (
        "a map is replaced",
        {"metadata": {"labels": {"a": "1"}}},
        {"metadata": {"labels": {"$patch": "replace", "b": "2"}}},
        {"metadata": {"labels": {"b": "2"}}},
    ),
    (
        "a map is emptied",
        {"metadata": {"labels": {"a": "1"}}},
        {"metadata": {"labels": {"$patch": "delete"}}},
        {"metadata": {"labels": {}}},
    ),
    (
        "null deletes",
        {"spec": {"replicas": 1, "paused": True}},
        {"spec": {"replicas": None}},
        {"spec": {"paused": True}},
    ),
    (
        "null for what is not there stays away",
        {"spec": {}},
        {"spec": {"template": {"metadata": None}}},
        {"spec": {"template": {}}},
    ),
    (
        "directives in what is new have nothing to act upon",
        {"spec": {}},
        deployment(A, {"name": "b", "$patch": "delete"}),
        {"metadata": {}, **deployment(A)},
    ),
]


@pytest.mark.parametrize(("live", "patch", "expected"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_patch_merges_as_the_kind_says(live: Any, patch: Any, expected: Any) -> None:
    before, given_patch = deep_copy(live), deep_copy(patch)
    assert strategic_merge(DEPLOYMENT, live, patch) == expected
    assert (live, patch) == (before, given_patch)


REFUSALS: list[tuple[dict[str, Any], int, str]] = [
    (deployment({"image": "x"}), 400, "map: map[image:x] does not contain declared merge key: name"),
    (deployment({"name": "a", "$patch": "paint"}), 400, "unknown patch type: paint in map: map[$patch:paint name:a]"),
    (deployment({"name": "a", "$patch": "merge"}), 400, "merging lists cannot yet be specified in the patch"),
    ({"$patch": "merge"}, 400, "unknown patch type: merge in map: map[$patch:merge]"),
    ({"spec": {"$retainKeys": "a"}}, 400, "invalid patch format of retainKeys"),
    ({"spec": {"$retainKeys": ["paused"], "replicas": 2}}, 400, "invalid patch format of retainKeys"),
    ({"metadata": {"$deleteFromPrimitiveList": ["a"]}}, 400, "invalid patch format of primitive list"),
    ({"metadata": {"$setElementOrder": ["a"]}}, 400, "invalid patch format of setElementOrder list"),
    ({"metadata": {"$setElementOrder/finalizers": 3}}, 400, "expected a []interface {}, but received a int64"),
    (deployment({"name": ["a"]}), 422, "the server rejected our request due to an error in our request"),
]


@pytest.mark.parametrize(("patch", "code", "message"), REFUSALS)
def test_a_patch_that_makes_no_sense_is_refused_in_the_real_servers_words(patch: Any, code: int, message: str) -> None:
    live = deployment(A, finalizers=["x/x"])
    with pytest.raises(StatusError) as caught:
        strategic_merge(DEPLOYMENT, live, patch)
    assert (caught.value.code, caught.value.message) == (code, message)


items = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from("abcd"), "image": st.sampled_from("xyz")}),
    max_size=4,
    unique_by=lambda item: item["name"],
)


@given(items, items)
def test_a_merged_list_holds_every_item_once(live: list[Any], patch: list[Any]) -> None:
    merged = containers(strategic_merge(DEPLOYMENT, deployment(*live), deployment(*patch)))
    names = [item["name"] for item in merged]
    assert sorted(names) == sorted({item["name"] for item in [*live, *patch]})
    assert [name for name in names if name in [item["name"] for item in patch]] == [item["name"] for item in patch]
    again = containers(strategic_merge(DEPLOYMENT, deployment(*merged), deployment(*patch)))
    assert again == merged


NAMES = [
    "name",
    "spec",
    "template",
    "containers",
    "metadata",
    "labels",
    "finalizers",
    "$patch",
    "$retainKeys",
    "$setElementOrder/containers",
    "$deleteFromPrimitiveList/containers",
]
junk = st.recursive(
    st.none() | st.booleans() | st.integers(0, 2) | st.sampled_from(["a", "delete", "replace", "merge"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(NAMES),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.sampled_from(["spec", "metadata", "$patch"]), junk, max_size=3))
def test_no_patch_ends_in_anything_but_an_object_or_a_refusal(patch: Any) -> None:
    live = deployment(A, B, finalizers=["x/x"], labels={"a": "b"})
    try:
        assert isinstance(strategic_merge(DEPLOYMENT, live, patch), dict)
    except StatusError as refusal:
        assert refusal.code in (400, 422)
