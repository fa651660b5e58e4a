"""Which node needs which objects (AZ4)."""

from __future__ import annotations

from typing import Any

import pytest

from kube.authorization.nodegraph import NodeGraph, ObjectReference, node_of


def pod(name: str = "p", node: str = "n1", **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "a"}, "spec": {"nodeName": node, **spec}}


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ({}, ObjectReference("serviceaccounts", "a", "default")),
        ({"serviceAccountName": "sa"}, ObjectReference("serviceaccounts", "a", "sa")),
        ({"imagePullSecrets": [{"name": "s"}]}, ObjectReference("secrets", "a", "s")),
        ({"containers": [{"envFrom": [{"secretRef": {"name": "s"}}]}]}, ObjectReference("secrets", "a", "s")),
        ({"initContainers": [{"envFrom": [{"configMapRef": {"name": "c"}}]}]}, ObjectReference("configmaps", "a", "c")),
        (
            {"containers": [{"env": [{"name": "X", "valueFrom": {"secretKeyRef": {"name": "s"}}}]}]},
            ObjectReference("secrets", "a", "s"),
        ),
        ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, ObjectReference("secrets", "a", "s")),
        ({"volumes": [{"name": "v", "configMap": {"name": "c"}}]}, ObjectReference("configmaps", "a", "c")),
        (
            {"volumes": [{"name": "v", "projected": {"sources": [{"secret": {"name": "s"}}]}}]},
            ObjectReference("secrets", "a", "s"),
        ),
        (
            {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]},
            ObjectReference("persistentvolumeclaims", "a", "c"),
        ),
        ({"volumes": [{"name": "v", "ephemeral": {}}]}, ObjectReference("persistentvolumeclaims", "a", "p-v")),
        ({"resourceClaims": [{"name": "r", "resourceClaimName": "c"}]}, ObjectReference("resourceclaims", "a", "c")),
        ({}, ObjectReference("pods", "a", "p")),
    ],
)
def test_a_node_needs_what_its_pods_refer_to(spec: dict[str, Any], place: ObjectReference) -> None:
    """AZ4."""
    graph = NodeGraph()
    graph.put("pods", pod(**spec))
    assert graph.is_needed(place, "n1")
    assert not graph.is_needed(place, "n2")
    assert not graph.is_needed(place._replace(namespace="b"), "n1")
    graph.put("pods", pod("other", "n2", **spec))
    graph.remove("pods", "a", "p")
    assert not graph.is_needed(place, "n1")


def test_claims_lead_to_volumes_and_their_secrets() -> None:
    """AZ4."""
    graph = NodeGraph()
    graph.put("pods", pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]))
    places = ObjectReference("persistentvolumes", "", "pv"), ObjectReference("secrets", "drivers", "s")
    spec = {"csi": {"nodeStageSecretRef": {"name": "s", "namespace": "drivers"}}}

    def needed(**claim: str) -> list[bool]:
        bound = {"claimRef": claim} if claim else {}
        graph.put("persistentvolumes", {"metadata": {"name": "pv"}, "spec": spec | bound})
        return [graph.is_needed(place, "n1") for place in places]

    assert needed(namespace="a", name="c") == [True, True]
    # A volume says itself which claim has it: the author of a claim could name any volume.
    assert needed(namespace="a", name="d") == needed(namespace="b", name="c") == needed() == [False, False]
    assert needed(namespace="a", name="c") == [True, True]
    assert list(graph.nodes_needing(places[1])) == ["n1"]
    graph.put("pods", pod())
    assert [graph.is_needed(place, "n1") for place in places] == [False, False]
    graph.put("pods", pod(volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]))
    graph.remove("persistentvolumes", "", "pv")
    assert [graph.is_needed(place, "n1") for place in places] == [False, False]


def test_a_mirror_pod_and_a_pod_without_node_refer_to_nothing() -> None:
    """AZ4: a kubelet writes its mirror pods itself."""
    graph = NodeGraph()
    mirror = pod(imagePullSecrets=[{"name": "s"}])
    mirror["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    graph.put("pods", mirror)
    graph.put("pods", pod("q", "", imagePullSecrets=[{"name": "s"}]))
    assert not graph.is_needed(ObjectReference("secrets", "a", "s"), "n1")
    assert not graph.is_needed(ObjectReference("secrets", "a", "s"), "")


@pytest.mark.parametrize("spec", [{"volumes": "x"}, {"containers": [1, {"env": {}}]}, {"volumes": [{"secret": []}]}])
def test_malformed_pods_refer_to_nothing_more(spec: dict[str, Any]) -> None:
    graph = NodeGraph()
    graph.put("pods", pod(**spec))
    assert graph.is_needed(ObjectReference("pods", "a", "p"), "n1")


def test_only_names_of_nodes_in_their_group_are_nodes() -> None:
    assert node_of("system:node:n1", ("system:nodes",)) == "n1"
    assert node_of("system:node:n1", ()) == ""
    assert node_of("n1", ("system:nodes",)) == ""
