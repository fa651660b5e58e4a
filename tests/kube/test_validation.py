"""Objects are refused with every cause at once, in the real server's words."""

from __future__ import annotations

import copy
import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.authorization import abac
from kube.customresources.schemas import structural_schema
from kube.kinds.builtins import BUILTINS
from kube.kinds.resources import Resource, Version
from kube.kinds.schemas import Definitions
from kube.objects import tables
from kube.objects.defaults import fill_defaults
from kube.objects.fieldvalidation import decode_fields
from kube.objects.strategies import prepare_for_create
from kube.objects.warnings.objects import warnings_for
from kube.requests.fielderrors import forbidden, invalid_object, required
from kube.requests.status import BadRequest, Cause
from kube.validation.configuration import MAX_DATA
from kube.validation.objects import _FIRST_JUDGES, _JUDGES, _NEW_JUDGES, create_causes, update_causes

HERE = Path(__file__).parent
CREATES = yaml.safe_load((HERE / "validation.yaml").read_text())
UPDATES = yaml.safe_load((HERE / "updates.yaml").read_text())


def resource_of(body: dict[str, Any]) -> tuple[Resource, str]:
    group, _, version = body["apiVersion"].rpartition("/")
    found = BUILTINS.by_kind(group, version, body["kind"])
    assert found is not None
    return found, version


def prepared(source: dict[str, Any], definitions: Definitions) -> dict[str, Any]:
    """The object as a handler has it when it asks: decoded, named, defaulted."""
    body = copy.deepcopy(source)
    resource, version = resource_of(body)
    metadata = body.setdefault("metadata", {})
    metadata.setdefault("name", "x")
    if resource.namespaced:
        metadata.setdefault("namespace", "n")
    schema = definitions.schema(resource.group, version, resource.kind)
    if schema is not None:
        body = decode_fields(body, schema, kind=resource.kind, version=version).value
    fill_defaults(body)
    body["metadata"].setdefault("uid", "u")
    prepare_for_create(body)
    return body


def lines(causes: list[Cause]) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in causes]


def check(case: dict[str, Any], causes: list[Cause]) -> None:
    if "fields" in case:
        assert list(dict.fromkeys(cause.field for cause in causes)) == case["fields"], lines(causes)
    else:
        assert lines(causes) == case["causes"]


@pytest.mark.parametrize("case", CREATES, ids=[case["name"] for case in CREATES])
def test_a_new_object_is_judged_as_by_the_real_server(case: dict[str, Any], definitions: Definitions) -> None:
    """TS15, validation: 422 with every cause at once."""
    body = prepared(case["object"], definitions)
    resource, version = resource_of(body)
    check(case, create_causes(resource, version, body, definitions))


def merged(value: Any, change: Any) -> Any:
    if isinstance(value, dict) and isinstance(change, dict):
        return value | {key: merged(value.get(key), child) for key, child in change.items()}
    return change


@pytest.mark.parametrize("case", UPDATES, ids=[case["name"] for case in UPDATES])
def test_an_update_keeps_what_is_immutable(case: dict[str, Any], definitions: Definitions) -> None:
    source = merged(
        {"metadata": {"uid": "u", "resourceVersion": "1", "creationTimestamp": "2026-01-01T00:00:00Z"}},
        case["object"],
    )
    old = prepared(source, definitions)
    new = prepared(merged(source, case["change"]), definitions)
    for field in case.get("keep", ()):
        new["spec"]["containers"][0][field] = old["spec"]["containers"][0][field]
    resource, version = resource_of(new)
    check(case, list(dict.fromkeys(update_causes(resource, version, new, old, definitions))))


def test_an_update_names_what_is_wrong_with_metadata_as_often_as_the_real_server(definitions: Definitions) -> None:
    """TS15: it judges metadata several times over."""
    old = prepared(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"uid": "u", "resourceVersion": "1"}}, definitions
    )
    new = prepared(merged(old, {"metadata": {"uid": "v", "labels": {"a b": "x"}}}), definitions)
    resource, version = resource_of(new)
    fields = [cause.field for cause in update_causes(resource, version, new, old, definitions)]
    assert (fields.count("metadata.uid"), fields.count("metadata.labels")) == (2, 4)


def test_an_unchanged_object_may_be_updated(definitions: Definitions) -> None:
    for case in CREATES:
        if case.get("causes") == []:
            body = prepared(case["object"], definitions)
            body["metadata"]["resourceVersion"] = "1"
            resource, version = resource_of(body)
            assert update_causes(resource, version, body, copy.deepcopy(body), definitions) == []


def test_every_kind_can_be_judged_when_it_is_empty(definitions: Definitions) -> None:
    """Bad input never gives a 500."""
    for resource in BUILTINS:
        for version in resource.versions:
            api = f"{resource.group}/{version.name}" if resource.group else version.name
            body = prepared({"apiVersion": api, "kind": resource.kind}, definitions)
            bare = {"apiVersion": api, "kind": resource.kind}
            create_causes(resource, version.name, body, definitions)
            create_causes(resource, version.name, bare, definitions)
            update_causes(resource, version.name, body, bare, definitions)


def values_of(schema: Any, depth: int) -> st.SearchStrategy[Any]:
    """Values of the right type with any content, as decoding lets them through."""
    if schema.type == "string":
        if schema.format == "int-or-string":
            return st.integers(-2, 70000) | st.text(max_size=4)
        return st.sampled_from(["", "a", "A B", "None", "-1", "1Gi", "10.0.0.1/8", "é"])
    if schema.type == "integer":
        return st.integers(-2, 70000)
    if schema.type == "boolean":
        return st.booleans()
    if schema.type == "array":
        return st.just([]) if depth == 0 else st.lists(values_of(schema.items, depth - 1), max_size=2)
    if schema.type == "object" and schema.additional is not None:
        return st.dictionaries(st.sampled_from(["a", "..", "b c"]), values_of(schema.additional, 0), max_size=2)
    if schema.type == "object" and depth > 0:
        fields = {
            name: st.deferred(lambda c=child: values_of(c, depth - 1)) for name, child in schema.properties.items()
        }
        return st.fixed_dictionaries({}, optional=fields)
    return st.just({}) if schema.type == "object" else st.none()


@cache
def bodies_of(definitions: Definitions, group: str, version: str, kind: str) -> st.SearchStrategy[Any]:
    """Objects of a kind; made once, as making the strategy takes far longer than drawing from it."""
    schema = definitions.schema(group, version, kind)
    assert schema is not None
    return values_of(schema, 5)


KINDS = sorted({(group, kind) for group, kind in (*_JUDGES, *_NEW_JUDGES, *_FIRST_JUDGES) if group != abac.GROUP})


@settings(max_examples=200)
@given(st.data())
def test_any_decoded_object_is_judged_without_a_crash(definitions: Definitions, data: st.DataObject) -> None:
    """P9: hostile input never gives a 500."""
    group, kind = data.draw(st.sampled_from(KINDS))
    version = {"autoscaling": "v2", "tenancy.tenantry.io": "v1alpha1"}.get(group, "v1")
    body = data.draw(bodies_of(definitions, group, version, kind))
    body |= {"apiVersion": f"{group}/{version}".strip("/"), "kind": kind}
    fill_defaults(body)
    resource, version = resource_of(body)
    causes = create_causes(resource, version, body, definitions)
    update_causes(resource, version, body, {"metadata": {}}, definitions)
    assert all(isinstance(text, str) for text in warnings_for(body))
    assert all(cause.reason.startswith("FieldValue") for cause in causes)


@pytest.mark.parametrize("word", ["", "one", "1e999"])
@pytest.mark.parametrize(
    ("kind", "spec", "field"),
    [
        ("LimitRange", {"limits": [{"type": "Container", "min": {"cpu": "{}"}, "max": {"cpu": "1"}}]}, "min"),
        ("ResourceQuota", {"hard": {"pods": "{}"}}, "spec.hard[pods]"),
        ("PersistentVolumeClaim", {"resources": {"requests": {"storage": "{}"}}}, "spec.resources[storage]"),
        ("Pod", {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "{}"}}}]}, "limits[cpu]"),
    ],
)
def test_an_amount_that_is_no_quantity_is_a_cause(
    kind: str, spec: dict[str, Any], field: str, word: str, definitions: Definitions
) -> None:
    """P9: even where decoding did not see it."""
    body = json.loads(json.dumps({"apiVersion": "v1", "kind": kind, "spec": spec}).replace("{}", word))
    found = [cause for cause in create_causes(*resource_of(body), body, definitions) if field in cause.field]
    assert [cause.reason for cause in found] == ["FieldValueInvalid"]
    assert "quantit" in found[0].message


def test_a_null_amount_is_zero(definitions: Definitions) -> None:
    """As Kubernetes decodes it."""
    schema = definitions.schema("", "v1", "ResourceQuota")
    assert schema is not None
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": None}}}
    assert decode_fields(body, schema, kind="ResourceQuota", version="v1").value["spec"] == {"hard": {"pods": "0"}}


OBJECTS = [case["object"] for case in CREATES] + [
    case["object"] for case in yaml.safe_load((HERE / "defaults.yaml").read_text())
]
JUNK: list[Any] = [None, True, 0, -1, 1.5, 2**63, "", "x", "1Gi", [], [None], ["x"], [{}], {}, {"a": None}, {"a": {}}]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in an object, to put something else there."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, child in items for place in ((value, key), *places(child))]


@settings(max_examples=400)
@given(st.data())
def test_an_object_with_junk_in_it_is_refused_or_judged(definitions: Definitions, data: st.DataObject) -> None:
    """API-26, P9: a body that is almost right never gives a 500, from decoding to its row in a table."""
    body = copy.deepcopy(data.draw(st.sampled_from(OBJECTS)))
    resource, version = resource_of(body)
    schema = definitions.schema(resource.group, version, resource.kind)
    assert schema is not None
    container, key = data.draw(
        st.sampled_from([place for place in places(body) if place[1] not in ("apiVersion", "kind")])
    )
    container[key] = data.draw(st.sampled_from(JUNK))
    try:
        new = decode_fields(body, schema, kind=resource.kind, version=version).value
    except BadRequest:
        return
    new.setdefault("metadata", {}).update(name="x", uid="u")
    old = copy.deepcopy(new)
    fill_defaults(new)
    prepare_for_create(new)
    create_causes(resource, version, new, definitions)
    update_causes(resource, version, new, old, definitions)
    update_causes(resource, version, old, new, definitions)
    warnings_for(new)
    tables.table(tables.convertor_of(resource, version), [old, new], now=0.0)


def test_annotations_take_at_most_a_quarter_of_a_mebibyte(definitions: Definitions) -> None:
    body = prepared(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"annotations": {"a": "x" * 262144}}},
        definitions,
    )
    assert lines(create_causes(*resource_of(body), body, definitions)) == [
        "metadata.annotations: Too long: may not be more than 262144 bytes"
    ]


def test_a_config_map_takes_at_most_a_mebibyte(definitions: Definitions) -> None:
    body = prepared({"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "x" * (MAX_DATA + 1)}}, definitions)
    assert lines(create_causes(*resource_of(body), body, definitions)) == [
        "[]: Too long: may not be more than 1048576 bytes"
    ]


def test_a_custom_object_is_judged_by_its_structural_schema(definitions: Definitions) -> None:
    schema = structural_schema(
        {
            "type": "object",
            "required": ["spec"],
            "properties": {
                "spec": {
                    "type": "object",
                    "required": ["size"],
                    "properties": {
                        "size": {"type": "integer"},
                        "mode": {"type": "string", "enum": ["a", "b"]},
                        "port": {"x-kubernetes-int-or-string": True},
                        "maybe": {"type": "string", "nullable": True},
                        "map": {"type": "object", "additionalProperties": {"type": "boolean"}},
                    },
                }
            },
        },
        definitions,
    )
    custom = Resource(
        group="x.io",
        kind="X",
        plural="xs",
        singular="x",
        list_kind="XList",
        namespaced=True,
        versions=(Version(name="v1", schema=schema),),
        custom=True,
    )
    metadata = {"name": "x", "namespace": "n"}
    assert (
        create_causes(
            custom,
            "v1",
            {"metadata": metadata, "spec": {"size": 1, "port": "http", "maybe": None}},
            definitions,
        )
        == []
    )
    assert lines(create_causes(custom, "v1", {"metadata": metadata}, definitions)) == ["spec: Required value"]
    bad = {"mode": "c", "port": 1.5, "map": {"k": "v"}, "size": None}
    assert lines(create_causes(custom, "v1", {"metadata": metadata, "spec": bad}, definitions)) == [
        'spec.mode: Unsupported value: "c": supported values: "a", "b"',
        'spec.port: Invalid value: "number": spec.port in body must be of type integer,string: "number"',
        'spec.map.k: Invalid value: "string": spec.map.k in body must be of type boolean: "string"',
        'spec.size: Invalid value: "null": spec.size in body must be of type integer: "null"',
    ]


def test_the_answer_names_the_kind_the_object_and_every_cause() -> None:
    one = invalid_object("apps", "Deployment", "web", [required("spec.selector")])
    assert one.message == 'Deployment.apps "web" is invalid: spec.selector: Required value'
    two = invalid_object("", "Pod", "p", [required("spec.a"), forbidden("spec.b", "no")])
    assert two.message == 'Pod "p" is invalid: [spec.a: Required value, spec.b: Forbidden: no]'
    assert two.as_status() == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": two.message,
        "reason": "Invalid",
        "details": {
            "name": "p",
            "kind": "Pod",
            "causes": [
                {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.a"},
                {"reason": "FieldValueForbidden", "message": "Forbidden: no", "field": "spec.b"},
            ],
        },
        "code": 422,
    }
