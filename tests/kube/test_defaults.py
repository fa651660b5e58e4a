"""The defaults that clients rely on, as the real server sets them."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.kinds.builtins import BUILTINS
from kube.kinds.schemas import Definitions
from kube.objects.defaults import fill_defaults
from kube.objects.fieldvalidation import decode_fields
from kube.objects.poddefaults import pull_policy
from kube.objects.strategies import prepare_for_create

CASES = yaml.safe_load((Path(__file__).parent / "defaults.yaml").read_text())


def contains(actual: Any, expected: Any, path: str = "") -> None:
    """Every expected value is there; a key that is expected as ``absent`` is not."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            if value == "absent":
                assert key not in actual, f"{path}.{key}"
            else:
                assert key in actual, f"{path}.{key}"
                contains(actual[key], value, f"{path}.{key}")
    elif isinstance(expected, list):
        assert len(actual) == len(expected), path
        for index, value in enumerate(expected):
            contains(actual[index], value, f"{path}[{index}]")
    else:
        assert actual == expected, path


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_defaults_are_the_real_servers(case: dict[str, Any], definitions: Definitions) -> None:
    """TS15; every default is a known field of its kind, and filling twice changes nothing."""
    body = copy.deepcopy(case["object"])
    fill_defaults(body)
    if case.get("created"):
        body.setdefault("metadata", {}).setdefault("name", "x")
        body["metadata"]["uid"] = "u"
        prepare_for_create(body)
    contains(body, case["gets"])
    again = copy.deepcopy(body)
    fill_defaults(again)
    assert again == body
    group, _, version = body["apiVersion"].rpartition("/")
    schema = definitions.schema(group, version, body["kind"])
    if schema is not None:
        decoded = decode_fields(body, schema, kind=body["kind"], version=version)
        assert decoded.unknown == ()


def test_every_kind_can_be_defaulted_when_it_is_empty() -> None:
    for resource in BUILTINS:
        for version in resource.versions:
            group = f"{resource.group}/{version.name}" if resource.group else version.name
            body = {"apiVersion": group, "kind": resource.kind, "metadata": {"name": "x", "uid": "u"}}
            fill_defaults(body)
            prepare_for_create(body)
            assert body["metadata"]["name"] == "x"


@pytest.mark.parametrize(
    ("image", "policy"),
    [
        ("nginx", "Always"),
        ("nginx:latest", "Always"),
        ("nginx:1", "IfNotPresent"),
        ("host:5000/nginx", "Always"),
        ("host:5000/nginx:1", "IfNotPresent"),
        ("nginx@sha256:abc", "IfNotPresent"),
        ("nginx:latest@sha256:abc", "IfNotPresent"),
        (f"nginx:latest@sha256:{'a' * 64}", "Always"),
        (f"nginx@sha256:{'a' * 64}", "IfNotPresent"),
        ("HOST/nginx", "Always"),
        ("[::1]:5000/nginx", "Always"),
        ("nginx:a:b", "IfNotPresent"),
        ("Nginx", "IfNotPresent"),
        ("a" * 64, "IfNotPresent"),
        ("x" * 248, "IfNotPresent"),
        (f"host:1/{'x' * 248}", "Always"),
    ],
)
def test_the_pull_policy_follows_the_tag(image: str, policy: str) -> None:
    assert pull_policy(image) == policy


@pytest.mark.parametrize("api_version", ["", "a/b/c", "unknown/v1"])
def test_an_unknown_kind_is_left_alone(api_version: str) -> None:
    body = {"apiVersion": api_version, "kind": "Pod"}
    fill_defaults(body)
    assert body == {"apiVersion": api_version, "kind": "Pod"}
