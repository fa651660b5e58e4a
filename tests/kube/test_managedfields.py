"""Field ownership: server-side apply and the tracking of every other write (TS15)."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.kinds.mergestrategies import DEDUCED, structure_of
from kube.kinds.schemas import Schema
from kube.objects.fieldpaths import STATUS, Fields, canonical, difference, intersection, paths, union, without
from kube.objects.managedfields import LAST_APPLIED, Write, apply, manager_from_user_agent, update
from kube.objects.patches import deep_copy
from kube.requests.status import BadRequest, Conflict
from tests.kube.kinds import structure

CONFIG_MAP = structure("", "v1", "ConfigMap")
DEPLOYMENT = structure("apps", "v1", "Deployment")
SERVICE = structure("", "v1", "Service")


def at(second: int) -> str:
    return f"2026-01-01T00:00:{second:02}Z"


def write(manager: str, second: int = 0, version: str = "v1", **more: Any) -> Write:
    return Write(manager=manager, version=version, now=at(second), **more)


def config_map(**data: str | None) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}, "data": data}


def owners(document: dict[str, Any]) -> dict[str, list[str]]:
    """Manager → its paths, sorted."""
    found: dict[str, list[str]] = {}
    for entry in document["metadata"].get("managedFields", []):
        found[entry["manager"]] = sorted([*found.get(entry["manager"], []), *paths(entry["fieldsV1"])])
    return found


def test_a_create_gives_every_field_to_its_manager() -> None:
    body = config_map(a="1")
    body["metadata"].update(labels={"app": "x"}, uid="u", tenant="t", creationTimestamp=at(0))
    created = update(CONFIG_MAP, None, body, write("kubectl-create"))
    assert created["metadata"]["managedFields"] == [
        {
            "manager": "kubectl-create",
            "operation": "Update",
            "apiVersion": "v1",
            "time": at(0),
            "fieldsType": "FieldsV1",
            "fieldsV1": {
                "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
                "f:data": {".": {}, "f:a": {}},
            },
        }
    ]
    assert "managedFields" not in body["metadata"]


def test_structs_of_a_built_in_kind_are_nobodys() -> None:
    container = {"name": "c", "image": "i", "ports": [{"containerPort": 80}]}
    body = {"spec": {"replicas": 1, "template": {"spec": {"containers": [container]}}}}
    created = update(DEPLOYMENT, None, body, write("m", version="apps/v1"))
    assert owners(created)["m"] == [
        ".spec.replicas",
        '.spec.template.spec.containers[name="c"]',
        '.spec.template.spec.containers[name="c"].image',
        '.spec.template.spec.containers[name="c"].name',
        '.spec.template.spec.containers[name="c"].ports',
        '.spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"]',
        '.spec.template.spec.containers[name="c"].ports[containerPort=80,protocol="TCP"].containerPort',
    ]


def test_an_update_takes_only_what_it_changed() -> None:
    created = update(CONFIG_MAP, None, config_map(a="1", b="1", c="1"), write("one"))
    changed = update(CONFIG_MAP, created, {**created, "data": {"a": "1", "b": "2", "d": "1"}}, write("two", 1))
    assert owners(changed) == {"one": [".data", ".data.a"], "two": [".data.b", ".data.d"]}
    assert [entry["time"] for entry in changed["metadata"]["managedFields"]] == [at(0), at(1)]


def test_an_update_that_changes_nothing_keeps_owners_and_times() -> None:
    created = update(CONFIG_MAP, None, config_map(a="1"), write("one"))
    assert update(CONFIG_MAP, created, deep_copy(created), write("two", 1)) == created


def test_a_manager_is_one_entry_for_each_operation_version_and_subresource() -> None:
    live = update(DEPLOYMENT, None, {"spec": {"replicas": 1}}, write("m", version="apps/v1"))
    live = update(DEPLOYMENT, live, {**live, "spec": {"replicas": 2}}, write("m", 1, "apps/v1", subresource="scale"))
    live = update(DEPLOYMENT, live, {**live, "spec": {"replicas": 2, "paused": True}}, write("m", 2, "apps/v1"))
    entries = live["metadata"]["managedFields"]
    assert [(entry.get("subresource"), sorted(paths(entry["fieldsV1"]))) for entry in entries] == [
        ("scale", [".spec.replicas"]),
        (None, [".spec.paused"]),
    ]


def test_the_status_is_not_owned_through_the_main_resource() -> None:
    body = {"spec": {"replicas": 1}, "status": {"replicas": 3}}
    created = update(DEPLOYMENT, None, body, write("m", version="apps/v1", reset=STATUS))
    assert owners(created) == {"m": [".spec.replicas"]}


def test_an_empty_list_of_managed_fields_clears_the_owners() -> None:
    created = update(CONFIG_MAP, None, config_map(a="1"), write("one"))
    for reset in ([], [{}]):
        asked = {**created, "metadata": {"name": "x", "managedFields": reset}}
        assert "managedFields" not in update(CONFIG_MAP, created, asked, write("one", 1))["metadata"]


def test_an_object_without_owners_is_tracked_from_its_first_apply() -> None:
    untracked = config_map(a="1")
    changed = update(CONFIG_MAP, untracked, config_map(a="2"), write("one"))
    assert "managedFields" not in changed["metadata"]
    applied = apply(CONFIG_MAP, changed, config_map(b="1"), write("two"), force=False)
    assert owners(applied) == {"two": [".data.b"], "before-first-apply": [".data", ".data.a"]}


@pytest.mark.parametrize(
    "entry",
    [
        "x",
        {"manager": "m", "operation": "Steal", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}},
        {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"k:{": {}}},
        {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {"f:a": 1}},
        {"manager": 1, "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}},
    ],
)
def test_invalid_managed_fields_in_a_request_are_ignored(entry: Any) -> None:
    created = update(CONFIG_MAP, None, config_map(a="1"), write("one"))
    asked = {**created, "metadata": {"name": "x", "managedFields": [entry]}}
    assert update(CONFIG_MAP, created, asked, write("two", 1)) == created


def test_oldest_updaters_are_merged_when_there_are_too_many() -> None:
    live = update(CONFIG_MAP, None, config_map(k0="1"), write("m0"))
    for n in range(1, 15):
        live = update(CONFIG_MAP, live, {**live, "data": {**live["data"], f"k{n}": "1"}}, write(f"m{n:02}", n))
    found = owners(live)
    assert len(found) == 10
    assert found["ancient-changes"] == [".data", *sorted(f".data.k{n}" for n in range(6))]


def test_entries_of_versions_no_longer_served_are_dropped() -> None:
    live = update(CONFIG_MAP, None, config_map(a="1"), write("old", version="v0"))
    changed = {**live, "data": {"a": "1", "b": "1"}}
    assert owners(update(CONFIG_MAP, live, changed, write("new", served={"v1"}))) == {"new": [".data.b"]}


def test_applying_creates_owns_changes_and_removes() -> None:
    one = apply(CONFIG_MAP, None, config_map(a="1", b="1"), write("one"), force=False)
    assert one["data"] == {"a": "1", "b": "1"}
    assert owners(one) == {"one": [".data.a", ".data.b"]}
    two = apply(CONFIG_MAP, one, config_map(b="2"), write("one", 1), force=False)
    assert two["data"] == {"b": "2"}
    assert two["metadata"]["managedFields"][0]["time"] == at(1)
    three = apply(CONFIG_MAP, two, {"apiVersion": "v1", "kind": "ConfigMap"}, write("one", 2), force=False)
    assert "data" not in three
    assert "managedFields" not in three["metadata"]


def test_taking_anothers_field_conflicts_unless_forced() -> None:
    live = update(CONFIG_MAP, None, config_map(a="1"), write("kubectl-client-side-apply"))
    with pytest.raises(Conflict) as caught:
        apply(CONFIG_MAP, live, config_map(a="2"), write("me", 1), force=False)
    assert caught.value.as_status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": 'Apply failed with 1 conflict: conflict with "kubectl-client-side-apply" using v1: .data.a',
        "reason": "Conflict",
        "details": {
            "causes": [
                {
                    "reason": "FieldManagerConflict",
                    "message": 'conflict with "kubectl-client-side-apply" using v1',
                    "field": ".data.a",
                }
            ]
        },
        "code": 409,
    }
    forced = apply(CONFIG_MAP, live, config_map(a="2"), write("me", 1), force=True)
    assert owners(forced) == {"me": [".data.a"], "kubectl-client-side-apply": [".data"]}


def test_several_conflicts_are_grouped_by_manager() -> None:
    live = apply(CONFIG_MAP, None, config_map(a="1", b="1"), write("two"), force=False)
    live = update(CONFIG_MAP, live, {**live, "data": {**live["data"], "c": "1"}}, write("one", subresource="scale"))
    with pytest.raises(Conflict) as caught:
        apply(CONFIG_MAP, live, config_map(a="2", b="2", c="2"), write("me"), force=False)
    assert caught.value.message == (
        'Apply failed with 3 conflicts: conflicts with "one" with subresource "scale" using v1:\n- .data.c\n'
        'conflicts with "two":\n- .data.a\n- .data.b'
    )


def test_a_shared_field_stays_until_its_last_owner_lets_go() -> None:
    live = apply(CONFIG_MAP, None, config_map(a="1"), write("one"), force=False)
    live = apply(CONFIG_MAP, live, config_map(a="1"), write("two"), force=False)
    assert owners(live) == {"one": [".data.a"], "two": [".data.a"]}
    live = apply(CONFIG_MAP, live, {**config_map(), "data": {}}, write("one", 1), force=False)
    assert live["data"] == {"a": "1"}
    live = apply(CONFIG_MAP, live, {"apiVersion": "v1", "kind": "ConfigMap"}, write("two", 2), force=False)
    assert not live.get("data")


def test_repeating_an_apply_changes_nothing_not_even_the_time() -> None:
    live = apply(CONFIG_MAP, None, config_map(a="1"), write("one"), force=False)
    assert apply(CONFIG_MAP, live, config_map(a="1"), write("one", 5), force=False) == live


def test_ports_are_told_apart_by_port_and_defaulted_protocol() -> None:
    def service(*ports: dict[str, Any]) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": list(ports)}}

    live = apply(SERVICE, None, service({"port": 53, "protocol": "UDP"}), write("one"), force=False)
    live = apply(SERVICE, live, service({"port": 53}), write("two"), force=False)
    assert live["spec"]["ports"] == [{"port": 53, "protocol": "UDP"}, {"port": 53}]
    same_one = apply(SERVICE, live, service({"port": 53, "protocol": "TCP"}), write("two", 1), force=False)
    assert same_one["spec"]["ports"] == [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]


def test_sets_merge_and_atomic_lists_are_replaced() -> None:
    schema = Schema(
        type="object",
        properties={
            "set": Schema(type="array", list_type="set", items=Schema(type="string")),
            "atomic": Schema(type="array", items=Schema(type="string")),
        },
        closed=True,
    )
    kind = structure_of(schema)

    def body(*items: str) -> dict[str, Any]:
        return {"set": list(items), "atomic": list(items)}

    live = update(kind, None, body("a", "b"), write("one"))
    assert owners(live)["one"] == [".atomic", ".set", '.set[="a"]', '.set[="b"]']
    with pytest.raises(Conflict, match=r"\.atomic"):
        apply(_with_type(kind), live, {"apiVersion": "v1", "kind": "K", **body("c")}, write("two"), force=False)


def _with_type(kind: Any) -> Any:
    kind.fields.update(
        apiVersion=structure_of(Schema(type="string")), kind=structure_of(Schema(type="string")), metadata=DEDUCED
    )
    return kind


def test_fields_that_became_atomic_are_owned_as_a_whole() -> None:
    granular = structure_of(Schema(type="object", properties={"m": Schema(type="object")}))
    atomic = structure_of(Schema(type="object", properties={"m": Schema(type="object", map_type="atomic")}))
    live = update(granular, None, {"m": {"a": "1", "b": "1"}}, write("one"))
    changed = update(atomic, live, {**live, "x": 1}, write("two"))
    assert owners(changed) == {"one": [".m"], "two": [".x"]}


def test_kubectl_goes_over_from_client_side_to_server_side_apply_without_conflicts() -> None:
    last = config_map(a="1", b="1")
    body = deep_copy(last)
    body["metadata"]["annotations"] = {LAST_APPLIED: orjson.dumps(last).decode()}
    live = update(CONFIG_MAP, None, body, write("kubectl-client-side-apply"))
    live = update(CONFIG_MAP, live, {**live, "data": {"a": "1", "b": "9"}}, write("other", 1))
    with pytest.raises(Conflict):
        apply(CONFIG_MAP, live, config_map(a="2"), write("someone"), force=False)
    upgraded = apply(CONFIG_MAP, live, config_map(a="2"), write("kubectl", 2), force=False)
    assert upgraded["data"] == {"a": "2", "b": "9"}
    annotation = upgraded["metadata"]["annotations"][LAST_APPLIED]
    assert annotation.endswith("\n")
    assert orjson.loads(annotation) == config_map(a="2")
    with pytest.raises(Conflict, match=r'conflict with "other" using v1: \.data\.b'):
        apply(CONFIG_MAP, live, config_map(a="2", b="2"), write("kubectl", 2), force=False)


UNTYPED = "failed to create typed patch object (/x; apps/v1, Kind=Deployment): "
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"apiVersion": "apps/v2", "kind": "Deployment"}, "invalid object type: apps/v2, Kind=Deployment"),
    (
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"managedFields": []}},
        "metadata.managedFields must be nil",
    ),
    (
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {"foo": 3}},
        f"{UNTYPED}.spec.foo: field not declared in schema",
    ),
    (
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}, "spec": {"replicas": "3"}},
        f"{UNTYPED}.spec.replicas: expected numeric (int or float), got string",
    ),
    (
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "x"},
            "spec": {"template": {"spec": {"containers": [{"name": "a"}, {"name": "a"}]}}},
        },
        f'{UNTYPED}.spec.template.spec.containers: duplicate entries for key [name="a"]',
    ),
]


@pytest.mark.parametrize(("applied", "message"), REFUSED)
def test_a_configuration_that_does_not_fit_its_kind_is_refused(applied: dict[str, Any], message: str) -> None:
    with pytest.raises(BadRequest) as caught:
        apply(DEPLOYMENT, None, applied, write("m", version="apps/v1"), force=True)
    assert caught.value.message == message


def test_the_manager_of_a_nameless_request_is_its_user_agent() -> None:
    assert manager_from_user_agent("kubectl/v1.36 (linux)") == "kubectl"
    assert manager_from_user_agent("a\x00b\n/1") == "ab"
    assert len(manager_from_user_agent("é" * 200).encode()) == 128


data = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("12"), max_size=4)


@given(data, data)
def test_applying_twice_is_applying_once(first: dict[str, str], second: dict[str, str]) -> None:
    live = apply(CONFIG_MAP, None, config_map(**first), write("one"), force=False)
    once = apply(CONFIG_MAP, live, config_map(**second), write("two"), force=True)
    assert apply(CONFIG_MAP, once, config_map(**second), write("two", 9), force=False) == once


@given(data, data)
def test_managers_of_different_fields_never_conflict(first: dict[str, str], second: dict[str, str]) -> None:
    disjoint = {f"x{key}": value for key, value in second.items()}
    live = apply(CONFIG_MAP, None, config_map(**first), write("one"), force=False)
    both = apply(CONFIG_MAP, live, config_map(**disjoint), write("two"), force=False)
    assert both["data"] == {**first, **disjoint}


@given(st.lists(st.tuples(st.sampled_from(["one", "two", "three"]), data, st.booleans()), min_size=1, max_size=6))
def test_every_field_has_an_owner_and_every_owner_a_field(writes: list[tuple[str, dict[str, str], bool]]) -> None:
    live: dict[str, Any] | None = None
    for manager, wanted, applying in writes:
        if applying:
            live = apply(CONFIG_MAP, live, config_map(**wanted), write(manager), force=True)
            assert all(live["data"][key] == value for key, value in wanted.items())
        else:
            metadata = (live or config_map())["metadata"]
            live = update(CONFIG_MAP, live, {**config_map(**wanted), "metadata": metadata}, write(manager))
            assert live["data"] == wanted
    assert live is not None
    owned = {path for fields in owners(live).values() for path in fields if path.startswith(".data.")}
    if "managedFields" in live["metadata"]:
        assert owned == {f".data.{key}" for key in live.get("data", {})}


nodes: st.SearchStrategy[Fields] = st.recursive(
    st.just({}), lambda inner: st.dictionaries(st.sampled_from(["f:a", "f:b", 'k:{"n":1}', "."]), inner, max_size=3)
)


def _valid(fields: Any) -> Any:
    return {key: {} if key == "." else _valid(below) for key, below in fields.items()}


def _top(fields: Any) -> Any:
    return {key: below for key, below in fields.items() if key != "."}


@given(nodes.map(_valid).map(_top), nodes.map(_valid).map(_top))
def test_sets_of_fields_follow_the_laws_of_sets(left: Fields, right: Fields) -> None:
    ours, theirs = set(paths(left)), set(paths(right))
    assert set(paths(union(left, right))) == ours | theirs
    assert set(paths(intersection(left, right))) == ours & theirs
    assert set(paths(difference(left, right))) == ours - theirs
    below = {
        path
        for path in ours
        if not any(path == other or path.startswith((f"{other}.", f"{other}[")) for other in theirs)
    }
    assert set(paths(without(left, right))) == below
    assert difference(left, left) == {}
    assert canonical(left) == left
