"""The four kinds of patches over HTTP, and field ownership (TS15)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.callers import Caller, config_map


@pytest.fixture
def maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


CONTAINER = {"name": "c", "image": "i"}


def deployment(*containers: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": list(containers)}},
        },
    }


def test_json_patch_applies_its_operations_or_nothing(alice: Caller, maps: str) -> None:
    alice.post(maps, config_map("p"))
    good = [{"op": "test", "path": "/data/a", "value": "1"}, {"op": "add", "path": "/data/b", "value": "2"}]
    assert alice.patch(f"{maps}/p", good, "json").body["data"] == {"a": "1", "b": "2"}
    bad = [{"op": "add", "path": "/data/c", "value": "3"}, {"op": "test", "path": "/data/a", "value": "9"}]
    assert alice.patch(f"{maps}/p", bad, "json").status == 422
    assert alice.patch(f"{maps}/p", {"op": "add"}, "json").status == 400
    assert alice.get(f"{maps}/p").body["data"] == {"a": "1", "b": "2"}


def test_json_patch_counts_from_the_end_of_a_list(alice: Caller, maps: str) -> None:
    """TS15."""
    alice.post(maps, config_map("p", finalizers=["e.com/a", "e.com/b", "e.com/c"]))
    last = [{"op": "test", "path": "/metadata/finalizers/-1", "value": "e.com/c"}]
    last += [{"op": "remove", "path": "/metadata/finalizers/-2"}]
    last += [{"op": "add", "path": "/metadata/finalizers/-1", "value": "e.com/d"}]
    kept = alice.patch(f"{maps}/p", last, "json").body["metadata"]["finalizers"]
    assert kept == ["e.com/a", "e.com/c", "e.com/d"]
    assert alice.patch(f"{maps}/p", [{"op": "remove", "path": "/metadata/finalizers/-4"}], "json").status == 422


def test_merge_patch_removes_by_null(alice: Caller, maps: str) -> None:
    alice.post(maps, config_map("p", {"a": "1", "b": "2"}))
    assert alice.patch(f"{maps}/p", {"data": {"a": None, "c": "3"}}).body["data"] == {"b": "2", "c": "3"}
    assert alice.patch(f"{maps}/p", [1]).status == 400


def test_strategic_merge_patch_merges_containers_by_name(alice: Caller, namespace: str) -> None:
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    alice.post(path, deployment({"name": "one", "image": "a"}, {"name": "two", "image": "b"}))
    change = {"spec": {"template": {"spec": {"containers": [{"name": "two", "image": "c"}]}}}}
    patched = alice.patch(f"{path}/web", change, "strategic-merge").body
    images = {c["name"]: c["image"] for c in patched["spec"]["template"]["spec"]["containers"]}
    assert images == {"one": "a", "two": "c"}


def test_patch_cannot_rename_move_or_change_the_tenant(alice: Caller, maps: str) -> None:
    alice.post(maps, config_map("p"))
    assert alice.patch(f"{maps}/p", {"metadata": {"name": "q"}}).status in (400, 422)
    assert alice.patch(f"{maps}/p", {"metadata": {"namespace": "default"}}).status == 400
    assert alice.patch(f"{maps}/p", {"metadata": {"tenant": "globex"}}).status == 400
    assert alice.patch(f"{maps}/p", {"metadata": {"resourceVersion": "1"}}).status == 409
    assert alice.patch(f"{maps}/none", {"data": {}}).status == 404


def test_unknown_kind_of_patch_is_refused(alice: Caller, maps: str) -> None:
    alice.post(maps, config_map("p"))
    refused = alice.call("PATCH", f"{maps}/p", {"data": {}}, {"Content-Type": "application/json"})
    assert refused.status == 415


def test_server_side_apply_creates_owns_and_conflicts(alice: Caller, maps: str) -> None:
    applied = config_map("ssa", {"a": "1", "b": "2"})
    created = alice.patch(f"{maps}/ssa", applied, "apply", fieldManager="first")
    assert created.status == 201
    entry = created.body["metadata"]["managedFields"][0]
    assert (entry["manager"], entry["operation"]) == ("first", "Apply")
    again = alice.patch(f"{maps}/ssa", applied, "apply", fieldManager="first")
    assert again.body["metadata"]["resourceVersion"] == created.body["metadata"]["resourceVersion"]
    other = alice.patch(f"{maps}/ssa", config_map("ssa", {"a": "9"}), "apply", fieldManager="second")
    assert other.status == 409
    cause = other.body["details"]["causes"][0]
    assert (cause["reason"], cause["field"]) == ("FieldManagerConflict", ".data.a")
    forced = alice.patch(f"{maps}/ssa", config_map("ssa", {"a": "9"}), "apply", fieldManager="second", force="true")
    assert forced.body["data"] == {"a": "9", "b": "2"}
    less = alice.patch(f"{maps}/ssa", config_map("ssa", {"a": "9"}), "apply", fieldManager="first", force="true")
    assert less.body["data"] == {"a": "9"}
    assert alice.patch(f"{maps}/ssa", applied, "apply").status == 422


@pytest.mark.parametrize("kind", ["json", "merge", "strategic-merge", "apply"])
def test_no_patch_takes_the_tenant_from_an_object(alice: Caller, maps: str, kind: str) -> None:
    """TS2, TS5: also one that says nothing of the metadata."""
    made = alice.post(maps, config_map("owned")).body["metadata"]
    body: Any = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "2"}}
    if kind == "json":
        body = [{"op": "add", "path": "/data/b", "value": "2"}]
    elif kind == "apply":
        body["metadata"] = {"name": "owned"}
    query = {"fieldManager": "t"} if kind == "apply" else {}
    patched = alice.patch(f"{maps}/owned", body, kind, **query)
    assert patched.status == 200, patched.body
    for metadata in (patched.body["metadata"], alice.get(f"{maps}/owned").body["metadata"]):
        assert (metadata["tenant"], metadata["selfLink"]) == ("acme", made["selfLink"])


def test_status_patch_takes_no_tenant_either(alice: Caller, maps: str) -> None:
    """TS2."""
    pods = maps.replace("configmaps", "pods")
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [CONTAINER]}}
    assert alice.post(pods, pod).status == 201
    assert alice.patch(f"{pods}/p/status", {"status": {"message": "m"}}).body["metadata"]["tenant"] == "acme"
