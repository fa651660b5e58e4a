"""Lists: chunks, selectors, versions and forms (TS3, TS15)."""

from __future__ import annotations

import base64
import gzip

import pytest

from tests.gateway.callers import Caller, config_map
from tests.gateway.conftest import completed

TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


@pytest.fixture(scope="module")
def maps(alice: Caller) -> str:
    alice.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "lists"}})
    completed(alice, "lists")
    path = "/api/v1/namespaces/lists/configmaps"
    for index in range(7):
        labels = {"odd": str(bool(index % 2)).lower(), "index": str(index)}
        assert alice.post(path, config_map(f"c{index}", labels=labels)).status == 201
    return path


def listed(body: dict) -> list[str]:
    return [item["metadata"]["name"] for item in body["items"]]


def test_list_names_its_kind_and_version(alice: Caller, maps: str) -> None:
    body = alice.get(maps).body
    assert (body["kind"], body["apiVersion"]) == ("ConfigMapList", "v1")
    assert body["metadata"]["resourceVersion"].isdigit()
    assert listed(body) == [*(f"c{i}" for i in range(7)), "kube-root-ca.crt"]


def test_chunks_are_of_one_moment_whatever_is_written_between(alice: Caller, maps: str) -> None:
    first = alice.get(maps, limit=3).body
    assert listed(first) == ["c0", "c1", "c2"]
    assert first["metadata"]["remainingItemCount"] == 5
    alice.post(maps, config_map("c3a"))
    second = alice.get(maps, limit=3, **{"continue": first["metadata"]["continue"]}).body
    assert listed(second) == ["c3", "c4", "c5"]
    assert second["metadata"]["resourceVersion"] == first["metadata"]["resourceVersion"]
    third = alice.get(maps, limit=3, **{"continue": second["metadata"]["continue"]}).body
    assert listed(third) == ["c6", "kube-root-ca.crt"]
    assert "continue" not in third["metadata"]
    alice.delete(f"{maps}/c3a")


def test_chunks_count_selected_objects_only(alice: Caller, maps: str) -> None:
    first = alice.get(maps, limit=2, labelSelector="odd=false").body
    second = alice.get(maps, limit=2, labelSelector="odd=false", **{"continue": first["metadata"]["continue"]}).body
    assert listed(first) + listed(second) == ["c0", "c2", "c4", "c6"]


def test_continue_token_is_good_for_its_own_request_alone(alice: Caller, gina: Caller, maps: str) -> None:
    """TS3."""
    token = alice.get(maps, limit=2).body["metadata"]["continue"]
    for caller, path, query in (
        (alice, "/api/v1/namespaces/default/configmaps", {}),
        (alice, maps.replace("configmaps", "secrets"), {}),
        (alice, maps, {"labelSelector": "odd=true"}),
        (gina, "/api/v1/namespaces/default/configmaps", {}),
    ):
        assert caller.get(path, limit=2, **query, **{"continue": token}).status == 400
    for broken in ("x", "!!!!", base64.b64encode(b"[1]").decode(), base64.b64encode(b"[" * 3000).decode(), "A" * 9000):
        assert alice.get(maps, limit=2, **{"continue": broken}).status == 400


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"labelSelector": "odd=true"}, ["c1", "c3", "c5"]),
        ({"labelSelector": "index in (1,2),odd!=true"}, ["c2"]),
        ({"labelSelector": "!odd"}, ["kube-root-ca.crt"]),
        ({"fieldSelector": "metadata.name=c4"}, ["c4"]),
        ({"fieldSelector": "metadata.name!=c4", "labelSelector": "odd=false"}, ["c0", "c2", "c6"]),
        ({"fieldSelector": "metadata.namespace=elsewhere"}, []),
    ],
)
def test_selectors_select(alice: Caller, maps: str, selector: dict[str, str], expected: list[str]) -> None:
    assert listed(alice.get(maps, **selector).body) == expected


@pytest.mark.parametrize(
    ("query", "status"),
    [
        ({"labelSelector": "a in ("}, 400),
        ({"fieldSelector": "spec.x=1"}, 400),
        ({"limit": "x"}, 400),
        ({"resourceVersion": "-1"}, 400),
        ({"resourceVersion": "1e3"}, 400),
        ({"resourceVersionMatch": "Exact"}, 422),
        ({"resourceVersionMatch": "Other", "resourceVersion": "1"}, 422),
        ({"resourceVersionMatch": "Exact", "resourceVersion": "0"}, 422),
    ],
)
def test_unreadable_parameters_are_refused(alice: Caller, maps: str, query: dict[str, str], status: int) -> None:
    assert alice.get(maps, **query).status == status


def test_list_at_an_exact_version_is_that_moment(alice: Caller, maps: str) -> None:
    version = alice.get(maps).body["metadata"]["resourceVersion"]
    alice.post(maps, config_map("later"))
    then = alice.get(maps, resourceVersion=version, resourceVersionMatch="Exact").body
    assert "later" not in listed(then)
    assert "later" in listed(alice.get(maps, resourceVersion=version, resourceVersionMatch="NotOlderThan").body)
    alice.delete(f"{maps}/later")


def test_table_has_the_real_columns(alice: Caller, maps: str) -> None:
    table = alice.get(maps, headers=TABLE).body
    assert table["kind"] == "Table"
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Data", "Age"]
    assert table["rows"][0]["cells"][:2] == ["c0", 1]
    assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
    assert alice.get(f"{maps}/c0", headers=TABLE).body["rows"][0]["cells"][0] == "c0"
    assert alice.get(maps, headers=TABLE, includeObject="Object").body["rows"][0]["object"]["data"] == {"a": "1"}


def test_metadata_alone_can_be_asked_for(alice: Caller, maps: str) -> None:
    accept = {"Accept": "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"}
    body = alice.get(maps, headers=accept).body
    assert body["kind"] == "PartialObjectMetadataList"
    assert "data" not in body["items"][0]


def test_encodings_are_negotiated(alice: Caller, maps: str) -> None:
    """HDR-26."""
    answer = alice.get(f"{maps}/c0", headers={"Accept": "application/yaml"})
    assert answer.headers["content-type"] == "application/yaml"
    assert b"kind: ConfigMap" in answer.raw
    both = {"Accept": "application/vnd.kubernetes.protobuf,application/json"}
    assert alice.get(f"{maps}/c0", headers=both).body["kind"] == "ConfigMap"
    assert alice.get(f"{maps}/c0", headers={"Accept": "application/vnd.kubernetes.protobuf"}).status == 406
    assert alice.get(f"{maps}/c0", headers={"Accept": "text/html"}).status == 406


def test_large_lists_are_compressed_for_who_takes_it(alice: Caller, maps: str) -> None:
    alice.post(maps, config_map("large", {"big": "x" * 200_000}))
    answer = alice.get(maps, headers={"Accept-Encoding": "gzip"})
    assert answer.headers["content-encoding"] == "gzip"
    assert len(answer.raw) < 20_000
    assert b"xxxx" in gzip.decompress(answer.raw)
    assert "content-encoding" not in alice.get(maps).headers
    alice.delete(f"{maps}/large")


def test_yaml_bodies_are_read(alice: Caller, maps: str) -> None:
    text = b"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: from-yaml}\ndata: {on: 'yes'}\n"
    answer = alice.call("POST", maps, text, {"Content-Type": "application/yaml"})
    assert answer.status == 201
    alice.delete(f"{maps}/from-yaml")
