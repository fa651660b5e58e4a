"""CustomResourceDefinitions: validity, names, the resources they make (TS10 to TS12)."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kube.customresources.definitions import (
    crd_causes,
    crd_status,
    crd_update_causes,
    is_established,
    resource_of,
)
from kube.kinds.patterns import is_pattern, matches
from kube.kinds.resources import PrinterColumn
from kube.requests.fielderrors import invalid_object
from tests.kube.customkinds import FULL, TEXT, changed, crd, renamed, versioned
from tests.kube.kinds import definitions

NOW = "2026-01-01T00:00:00Z"
LATER = "2026-01-01T00:00:01Z"


def said(document: dict[str, Any]) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in crd_causes(document, definitions())]


def test_a_complete_crd_is_valid() -> None:
    assert said(FULL) == []


SELECTABLE = "spec.selectableFields[0].jsonPath"
ROOT = "spec.validation.openAPIV3Schema"
REFUSALS: list[tuple[dict[str, Any], str]] = [
    (changed(scope="World"), 'spec.scope: Unsupported value: "World": supported values: "Cluster", "Namespaced"'),
    (renamed(listKind="Thing"), 'spec.names.listKind: Invalid value: "Thing": kind and listKind may not be the same'),
    (crd({}), f"{ROOT}.properties[spec].type: Required value: must not be empty for specified object fields"),
    (crd({"type": "array"}), f"{ROOT}.properties[spec].items: Required value: must be specified"),
    (
        crd({"type": "integer", "default": "x"}),
        f'{ROOT}.properties[spec].default: Invalid value: "string":  in body must be of type integer: "string"',
    ),
    (versioned(schema=None), "spec.versions[0].schema.openAPIV3Schema: Required value"),
    (
        versioned(selectableFields=[{"jsonPath": ".spec.nope"}]),
        f'{SELECTABLE}: Invalid value: ".spec.nope": is an invalid path: does not refer to a valid field',
    ),
    (
        changed(conversion={"strategy": "Webhook"}),
        "spec.conversion.strategy: Forbidden: conversion webhooks are not called by this server; use None",
    ),
]


@pytest.mark.parametrize(("document", "expected"), REFUSALS)
def test_a_crd_that_is_not_right_is_refused_in_the_real_servers_words(document: dict[str, Any], expected: str) -> None:
    assert said(document) == [expected]


def test_every_cause_is_in_the_one_answer() -> None:
    error = invalid_object(
        "apiextensions.k8s.io", "CustomResourceDefinition", "x", crd_causes(changed(scope="", group=""), definitions())
    )
    assert error.code == 422
    assert error.message == (
        'CustomResourceDefinition.apiextensions.k8s.io "x" is invalid: '
        '[metadata.name: Invalid value: "things.example.com": must be spec.names.plural+"."+spec.group, '
        "spec.group: Required value, spec.scope: Required value]"
    )


def test_the_protected_groups_need_an_approval() -> None:
    document = changed(group="x.k8s.io")
    document["metadata"]["name"] = "things.x.k8s.io"
    assert [line.partition(":")[0] for line in said(document)] == ["metadata.annotations[api-approved.kubernetes.io]"]
    document["metadata"]["annotations"] = {"api-approved.kubernetes.io": "https://example.com"}
    assert said(document) == []


def test_names_are_accepted_and_the_resource_is_established() -> None:
    document = renamed(shortNames=["th"], categories=["all"])
    status = crd_status(document, [], now=NOW)
    assert status["acceptedNames"] == {
        "plural": "things",
        "singular": "thing",
        "kind": "Thing",
        "listKind": "ThingList",
        "shortNames": ["th"],
        "categories": ["all"],
    }
    assert status["storedVersions"] == ["v1"]
    assert is_established({**document, "status": status})
    assert crd_status({**document, "status": status}, [], now=LATER) == status


def test_names_that_another_crd_has_are_not_accepted() -> None:
    first = renamed(shortNames=["th"])
    first["status"] = crd_status(first, [], now=NOW)
    second = renamed(plural="items", singular="item", kind="Thing", listKind="ItemList", shortNames=["th"])
    status = crd_status(second, [first], now=NOW)
    assert {c["type"]: (c["status"], c["reason"]) for c in status["conditions"]} == {
        "NamesAccepted": ("False", "KindConflict"),
        "Established": ("False", "NotAccepted"),
    }
    assert status["acceptedNames"]["kind"] == ""
    assert status["acceptedNames"]["plural"] == "items"


def test_what_objects_rely_on_stays_as_it_is() -> None:
    old = changed()
    old["status"] = crd_status(old, [], now=NOW)
    new = deepcopy(old)
    new["spec"]["scope"] = "Cluster"
    new["spec"]["versions"][0]["name"] = "v2"
    found = [cause.field for cause in crd_update_causes(old, new, definitions())]
    assert found == ["spec.scope", "status.storedVersions[0]"]
    assert crd_update_causes(old, old, definitions()) == []


def test_a_crd_becomes_a_resource() -> None:
    document = versioned(
        name="v1beta1",
        subresources={"status": {}, "scale": {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.b.c"}},
        additionalPrinterColumns=[{"name": "A", "type": "string", "jsonPath": ".spec.a", "priority": 1}],
        selectableFields=[{"jsonPath": ".spec.a"}],
        deprecated=True,
        storage=False,
    )
    document["spec"]["versions"].insert(0, {**deepcopy(changed()["spec"]["versions"][0]), "name": "v2"})
    resource = resource_of(document, definitions())
    assert [version.name for version in resource.versions] == ["v2", "v1beta1"]
    assert (resource.qualified_name, resource.namespaced, resource.custom) == ("things.example.com", True, True)
    beta = resource.versions[1]
    assert [part.name for part in beta.subresources] == ["status", "scale"]
    assert beta.columns == (PrinterColumn(name="A", type="string", path=".spec.a", priority=1),)
    assert beta.deprecation == "example.com/v1beta1 Thing is deprecated; use example.com/v2 Thing"
    assert resource.storage_version.name == "v2"
    scale = beta.scale
    assert scale is not None
    assert (scale.replicas, scale.status_replicas, scale.selector) == (("spec", "a"), ("status", "b", "c"), ())
    assert resource.versions[0].scale is None
    assert beta.selectable == ("spec.a",)


def test_patterns_are_matched_in_linear_time() -> None:
    assert matches("^(a+)+$", "a" * 100_000)
    assert not matches("^(a+)+$", "a" * 100_000 + "!")


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "(a{1000}){1000}", "a" * 5000])
def test_patterns_that_cannot_be_bounded_are_refused(pattern: str) -> None:
    assert not is_pattern(pattern)
    assert not matches(pattern, "a")
    assert len(said(crd({"type": "string", "pattern": pattern}))) == 1


def test_a_schema_that_nests_too_deeply_is_refused() -> None:
    schema: dict[str, Any] = TEXT
    for _ in range(200):
        schema = {"type": "object", "properties": {"a": schema}}
    assert any("nests too deeply" in line for line in said(crd(schema)))


junk = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(["", "a", "object", "array", "string", "map", ".a"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "type",
                    "properties",
                    "items",
                    "additionalProperties",
                    "required",
                    "enum",
                    "default",
                    "anyOf",
                    "not",
                    "x-kubernetes-list-type",
                    "x-kubernetes-list-map-keys",
                    "x-kubernetes-embedded-resource",
                    "scale",
                    "jsonPath",
                    "name",
                    "pattern",
                    "maxLength",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@example(True, "versions")
@given(junk, st.sampled_from(["spec", "names", "versions", "schema", "version", "columns"]))
def test_no_crd_ends_in_anything_but_causes(value: Any, place: str) -> None:
    document = crd(value) if place == "schema" else changed()
    if place == "spec":
        document["spec"] = value
    elif place in ("names", "versions"):
        document["spec"][place] = value
    elif place == "version":
        document["spec"]["versions"][0]["subresources"] = value
        document["spec"]["versions"][0]["selectableFields"] = value
    elif place == "columns":
        document["spec"]["versions"][0]["additionalPrinterColumns"] = value
    assert isinstance(crd_causes(document, definitions()), list)
