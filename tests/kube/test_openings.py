"""What an operator opens of a cluster's own objects, line by line (GW20)."""

from __future__ import annotations

import pytest

from kube.kinds.openings import (
    APPROVED,
    DEFINITIONS,
    aggregated_version,
    definitions_from,
    opening_from,
    openings_from,
    shown_form,
)
from kube.requests.status import BadRequest

CLASSES = ("storage.k8s.io", "storageclasses")


@pytest.mark.parametrize(
    ("line", "name", "labels", "open_"),
    [
        ("storageclasses.storage.k8s.io", "any", {}, True),
        ("storageclasses.storage.k8s.io/fast", "fast", {}, True),
        ("storageclasses.storage.k8s.io/fast", "faster", {}, False),
        ("storageclasses.storage.k8s.io?team in (a,b)", "any", {"team": "b"}, True),
        ("storageclasses.storage.k8s.io?team in (a,b)", "any", {}, False),
    ],
)
def test_a_line_opens_what_it_says(line: str, name: str, labels: dict[str, str], open_: bool) -> None:
    opening = opening_from(line)
    assert (opening.place, opening.includes(name, labels)) == (CLASSES, open_)


@pytest.mark.parametrize("name", ["", "..", "a/b", "a%b", "a\0b", "a\nb", "x" * 254])
def test_what_no_object_is_called_is_not_opened(name: str) -> None:
    """A hostile cluster names its objects as it likes; what cannot be kept under its name would end the look at all."""
    assert not opening_from("storageclasses.storage.k8s.io").includes(name, {})


def test_a_defined_kind_is_opened_with_its_definition() -> None:
    kind, definition = openings_from("gatewayclasses.gateway.networking.k8s.io/public")
    assert kind.includes("public", {})
    assert (definition.place, definition.name) == (DEFINITIONS, "gatewayclasses.gateway.networking.k8s.io")


def test_the_kinds_of_namespaces_of_another_server_are_definitions_that_can_be_taken() -> None:
    document = {
        "resources": [
            {"name": "pods", "kind": "PodMetrics", "namespaced": True, "verbs": ["get", "list"]},
            {"name": "pods/log", "kind": "Log", "namespaced": True},
            {"name": "nodes", "kind": "NodeMetrics", "namespaced": False},
        ]
    }
    made = definitions_from("metrics.k8s.io", "v1beta1", document, {"mark": "m"})
    assert list(made) == ["pods.metrics.k8s.io"]
    assert made["pods.metrics.k8s.io"]["spec"]["names"]["singular"] == "podmetrics"
    assert made["pods.metrics.k8s.io"]["metadata"]["labels"] == {"mark": "m"}


@pytest.mark.parametrize("name", ["v1beta1.metrics.k8s.io", "v1.certificates.acme.test", "metrics.k8s.io", ""])
def test_what_an_operator_opens_by_name_speaks_for_that_group_alone(name: str) -> None:
    """A hostile cluster would show its tenants, under the name that is opened, whatever groups it likes."""
    spec = {"service": {"name": "s"}, "group": "cert-manager.io", "version": "v1"}
    assert aggregated_version({"metadata": {"name": name}, "spec": spec}) is None


@pytest.mark.parametrize(
    ("spec", "served"),
    [
        ({"service": {"name": "s"}, "group": "metrics.k8s.io", "version": "v1beta1"}, ("metrics.k8s.io", "v1beta1")),
        ({"group": "apps", "version": "v1"}, None),
        ({"service": {"name": "s"}, "group": "rbac.authorization.k8s.io", "version": "v1"}, None),
        ({"service": {"name": "s"}, "group": "../x", "version": "v1"}, None),
        ({"service": {"name": "s"}, "group": "a.b", "version": ""}, None),
        ("x", None),
    ],
)
def test_only_what_another_server_answers_for_is_aggregated(spec: object, served: object) -> None:
    named = f"{spec['version']}.{spec['group']}" if isinstance(spec, dict) else "x"
    assert aggregated_version({"metadata": {"name": named}, "spec": spec}) == served


@pytest.mark.parametrize(
    "line",
    [
        "nodes",
        "secrets.",
        "storageclasses",
        "storageclasses.storage.k8s.io/",
        "storageclasses.storage.k8s.io/Fast",
        "storageclasses.storage.k8s.io/a?b=c",
        "storageclasses.storage.k8s.io?a b",
    ],
)
def test_no_other_line_can_be_read(line: str) -> None:
    with pytest.raises(BadRequest):
        openings_from(f"\n{line}\n")


def test_what_the_cluster_keeps_for_itself_is_not_shown() -> None:
    item = {
        "apiVersion": "storage.k8s.io/v1beta1",
        "kind": "Other",
        "metadata": {"name": "fast", "uid": "1", "annotations": {"internal": "x"}, "labels": {"a": "b"}},
        "provisioner": "p",
        "status": {"x": 1},
    }
    assert shown_form(CLASSES, item, {"mark": "m"}) == {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast", "labels": {"a": "b", "mark": "m"}},
        "provisioner": "p",
    }


def test_a_definition_of_a_protected_group_keeps_its_approval() -> None:
    annotations = {APPROVED: "https://example.org/1", "internal": "x"}
    shown = shown_form(DEFINITIONS, {"metadata": {"name": "a.b.k8s.io", "annotations": annotations}, "spec": {}}, {})
    assert shown["metadata"]["annotations"] == {APPROVED: "https://example.org/1"}
