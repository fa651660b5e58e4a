"""What is unknown, mistyped or dropped when a body is read as its kind."""

from __future__ import annotations

import copy
from typing import Any

import orjson
import pytest

from kube.customresources.schemas import structural_schema, with_defaults
from kube.kinds.builtins import BUILTINS, OWN
from kube.kinds.schemas import Definitions
from kube.objects.fieldvalidation import decode_fields, problems, prune, strict_decoding_error
from kube.requests.decoding import decode_json, duplicate_fields
from kube.requests.status import BadRequest

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web", "labels": {"app": "web"}},
    "spec": {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {
                        "name": "web",
                        "image": "nginx",
                        "ports": [{"containerPort": 80}],
                        "resources": {"limits": {"cpu": 1, "memory": "1Gi"}},
                        "readinessProbe": {"httpGet": {"path": "/", "port": 80}},
                    }
                ]
            },
        },
    },
}


def decode(definitions: Definitions, body: dict[str, Any]) -> Any:
    group, _, version = body["apiVersion"].rpartition("/")
    schema = definitions.schema(group, version, body["kind"])
    assert schema is not None
    return decode_fields(body, schema, kind=body["kind"], version=version)


def changed(path: list[Any], value: Any) -> dict[str, Any]:
    body = copy.deepcopy(DEPLOYMENT)
    node: Any = body
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return body


def test_every_builtin_kind_has_a_schema(definitions: Definitions) -> None:
    missing = [
        resource.kind
        for resource in (*BUILTINS, *OWN)
        for version in resource.versions
        if definitions.schema(resource.group, version.name, resource.kind) is None
    ]
    assert missing == []


def test_a_correct_object_is_kept_and_quantities_become_text(definitions: Definitions) -> None:
    before = copy.deepcopy(DEPLOYMENT)
    decoded = decode(definitions, DEPLOYMENT)
    assert decoded.unknown == ()
    container = decoded.value["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"cpu": "1", "memory": "1Gi"}
    assert before == DEPLOYMENT


CONTAINER = ["spec", "template", "spec", "containers", 0]


@pytest.mark.parametrize(
    ("path", "named"),
    [
        (["foo"], "foo"),
        (["spec", "foo"], "spec.foo"),
        (["metadata", "foo"], "metadata.foo"),
        ([*CONTAINER, "foo"], "spec.template.spec.containers[0].foo"),
        ([*CONTAINER, "ports", 0, "foo"], "spec.template.spec.containers[0].ports[0].foo"),
        ([*CONTAINER, "resources", "foo"], "spec.template.spec.containers[0].resources.foo"),
    ],
)
def test_an_unknown_field_is_named_and_dropped(definitions: Definitions, path: list[Any], named: str) -> None:
    """TS15, field validation."""
    decoded = decode(definitions, changed(path, {"x": 1}))
    assert decoded.unknown == (named,)
    assert decoded.value == decode(definitions, DEPLOYMENT).value


def test_several_problems_are_one_strict_error(definitions: Definitions) -> None:
    body = b'{"apiVersion":"v1","kind":"ConfigMap","data":{"a":"1","a":"2"},"x":1,"metadata":{"y":2}}'
    decoded = decode(definitions, decode_json(body))
    texts = problems(
        decoded.unknown, [f'duplicate field "{path}"' for path in duplicate_fields(body, decode_json(body))]
    )
    assert strict_decoding_error(texts) == (
        'strict decoding error: duplicate field "data.a", unknown field "x", unknown field "metadata.y"'
    )


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (
            ["spec", "replicas"],
            "two",
            "json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            ["spec", "replicas"],
            1.5,
            "json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            ["spec", "replicas"],
            2**31,
            "json: cannot unmarshal number 2147483648 into Go struct field DeploymentSpec.spec.replicas of type int32",
        ),
        (
            ["metadata", "labels"],
            {"app": 1},
            "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string",
        ),
        (
            [*CONTAINER, "image"],
            True,
            (
                "json: cannot unmarshal bool into Go struct field "
                "Container.spec.template.spec.containers.image of type string"
            ),
        ),
        (
            ["spec", "template", "spec", "containers"],
            {},
            (
                "json: cannot unmarshal object into Go struct field "
                "PodSpec.spec.template.spec.containers of type []v1.Container"
            ),
        ),
        (
            ["spec"],
            [],
            "json: cannot unmarshal array into Go struct field Deployment.spec of type v1.DeploymentSpec",
        ),
        (
            [*CONTAINER, "resources", "limits", "cpu"],
            "1 Gi",
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        ),
        (
            ["metadata", "creationTimestamp"],
            "now",
            'parsing time "now" as "2006-01-02T15:04:05Z07:00": cannot parse "now" as "2006"',
        ),
    ],
)
def test_a_wrong_type_is_a_bad_request_in_the_real_servers_words(
    definitions: Definitions, path: list[Any], value: Any, problem: str
) -> None:
    with pytest.raises(BadRequest) as caught:
        decode(definitions, changed(path, value))
    assert caught.value.message == (f'Deployment in version "v1" cannot be handled as a Deployment: {problem}')


@pytest.mark.parametrize(
    ("data", "byte"),
    [("aGk", 0), ("a-k=", 1), ("aGk=aGk=", 3), ("é", 0), ("aGVsbG8", 4), ("=", 0), ("aaaa====", 4)],
)
def test_secret_data_must_be_base64(definitions: Definitions, data: str, byte: int) -> None:
    with pytest.raises(BadRequest, match=f"illegal base64 data at input byte {byte}$"):
        decode(definitions, {"apiVersion": "v1", "kind": "Secret", "data": {"k": data}})


def test_null_fields_are_as_if_absent(definitions: Definitions) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x", "labels": None},
        "data": {"a": None},
    }
    assert decode(definitions, body).value == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "x"},
        "data": {"a": ""},
    }


def test_a_null_quantity_in_a_map_is_zero(definitions: Definitions) -> None:
    body = {"apiVersion": "v1", "kind": "ResourceQuota", "spec": {"hard": {"pods": None, "cpu": 0.5}}}
    assert decode(definitions, body).value["spec"]["hard"] == {"pods": "0", "cpu": "500m"}


def test_free_form_parts_are_kept_as_they_are(definitions: Definitions) -> None:
    body = {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "revision": 1,
        "data": {"any": {"thing": None}},
    }
    assert decode(definitions, body).value is body


CRD = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "size": {"type": "integer", "default": 3},
                "port": {"x-kubernetes-int-or-string": True},
                "free": {
                    "type": "object",
                    "x-kubernetes-preserve-unknown-fields": True,
                    "properties": {"known": {"type": "object", "properties": {"a": {"type": "string"}}}},
                },
                "child": {
                    "type": "object",
                    "x-kubernetes-embedded-resource": True,
                    "properties": {"spec": {"type": "object"}},
                },
                "list": {
                    "type": "array",
                    "items": {"type": "object", "properties": {"x": {"type": "string", "default": "d"}}},
                },
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {}}},
                "mode": {"type": "string", "default": "m"},
            },
        }
    },
}


def test_custom_objects_are_pruned_by_their_structural_schema(definitions: Definitions) -> None:
    """TS10."""
    schema = structural_schema(CRD, definitions)
    body = {
        "apiVersion": "x.io/v1",
        "kind": "X",
        "metadata": {"name": "x", "nonsense": 1},
        "extra": 1,
        "spec": {
            "port": "http",
            "free": {"anything": {"at": "all"}, "known": {"a": "1", "b": "2"}},
            "child": {
                "apiVersion": "v1",
                "kind": "Y",
                "metadata": {"name": "y", "nonsense": 1},
                "spec": {"z": 1},
                "more": 1,
            },
            "list": [{"x": "1"}, {"y": "2"}],
            "map": {"k": {"gone": 1}},
        },
    }
    before = orjson.dumps(body)
    decoded = prune(body, schema)
    assert decoded.unknown == (
        "metadata.nonsense",
        "extra",
        "spec.child.more",
        "spec.child.spec.z",
        "spec.free.known.b",
        "spec.list[1].y",
        "spec.map.k.gone",
        "spec.child.metadata.nonsense",
    )
    assert decoded.value["spec"] == {
        "port": "http",
        "free": {"anything": {"at": "all"}, "known": {"a": "1"}},
        "child": {"apiVersion": "v1", "kind": "Y", "metadata": {"name": "y"}, "spec": {}},
        "list": [{"x": "1"}, {}],
        "map": {"k": {}},
    }
    assert orjson.dumps(body) == before


def test_custom_objects_get_their_schemas_defaults(definitions: Definitions) -> None:
    schema = structural_schema(CRD, definitions)
    body = {"spec": {"size": None, "list": [{}, {"x": "1"}]}}
    assert with_defaults(body, schema) == {"spec": {"size": 3, "list": [{"x": "d"}, {"x": "1"}], "mode": "m"}}
    assert body == {"spec": {"size": None, "list": [{}, {"x": "1"}]}}
    assert with_defaults({"metadata": {}}, schema) == {"metadata": {}}
