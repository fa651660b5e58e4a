"""The operators' mutating policies: where they count, whom they refuse, and that nothing loses its name by one (TS15, AD7)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.callers import Caller
from tests.gateway.conftest import Server, another
from tests.gateway.test_admissionpolicies import API, MAPS, config_map, policy, rules


def applying(expression: str) -> dict[str, Any]:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patching(expression: str) -> dict[str, Any]:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


@contextmanager
def mutating(
    caller: Caller, name: str, about: list[dict[str, Any]], *mutations: dict[str, Any], **spec: Any
) -> Iterator[None]:
    """A policy that is in force as long as this lasts."""
    body = {
        "metadata": {"name": name},
        "spec": {
            "reinvocationPolicy": "Never",
            "matchConstraints": {"resourceRules": about},
            "mutations": list(mutations),
            **spec,
        },
    }
    made = caller.post(f"{API}/mutatingadmissionpolicies", body)
    assert made.status == 201, made.body
    assert not made.headers.get("warning")
    try:
        bound = {"metadata": {"name": name}, "spec": {"policyName": name}}
        assert caller.post(f"{API}/mutatingadmissionpolicybindings", bound).status == 201
        yield
    finally:
        assert caller.delete(f"{API}/mutatingadmissionpolicybindings/{name}").status in (200, 404)
        assert caller.delete(f"{API}/mutatingadmissionpolicies/{name}").status == 200


LABEL = applying("Object{metadata: Object.metadata{labels: {'team': 'ops'}}}")


def test_a_policy_changes_what_is_written_to_the_system_space_alone(server: Server, alice: Caller) -> None:
    with mutating(server.admin, "labels", rules("configmaps"), LABEL):
        # What a policy has made is what the validating ones judge.
        with policy(server.admin, "labelled", rules("configmaps"), "object.metadata.labels['team'] == 'ops'"):
            made = server.admin.post(MAPS, config_map("labelled"))
        assert (made.status, made.body["metadata"]["labels"]) == (201, {"team": "ops"})
        assert server.admin.delete(f"{MAPS}/labelled").status == 200
        assert "labels" not in alice.post(MAPS, config_map("mine"), dryRun="All").body["metadata"]
    assert "labels" not in server.admin.post(MAPS, config_map("later"), dryRun="All").body["metadata"]


def test_a_policy_that_breaks_everything_can_be_taken_back(server: Server) -> None:
    everything = rules("*", "*/*", group="*", operations=("*",))
    with mutating(server.admin, "breaks", everything, applying("Object{data: {'a': object.nothing}}")):
        refused = server.admin.post(MAPS, config_map("refused"), dryRun="All")
        assert (refused.status, refused.reason) == (403, "Invalid")
        assert "no such key: nothing" in refused.body["message"]
    assert server.admin.post(MAPS, config_map("allowed"), dryRun="All").status == 201


def test_who_switches_the_plugin_off_gets_what_was_sent(server: Server, tmp_path: Path) -> None:
    flag = "--disable-admission-plugins=MutatingAdmissionPolicy"
    with (
        another(server, tmp_path / "data", flag) as second,
        mutating(server.admin, "labels", rules("configmaps"), LABEL),
    ):
        assert "labels" in server.admin.post(MAPS, config_map("labelled"), dryRun="All").body["metadata"]
        assert "labels" not in second.admin.post(MAPS, config_map("plain"), dryRun="All").body["metadata"]


@pytest.mark.parametrize(
    ("mutation", "said"),
    [
        (applying("Object{metadata: Object.metadata{name: 'other'}}"), "attempted to change the name"),
        (patching("[JSONPatch{op: 'replace', path: '/metadata/namespace', value: 'other'}]"), "the namespace"),
        (patching("[JSONPatch{op: 'replace', path: '/kind', value: 'Secret'}]"), "attempted to change the kind"),
        (patching("[JSONPatch{op: 'replace', path: '/metadata', value: 'x'}]"), "cannot unmarshal string"),
    ],
)
def test_an_object_is_kept_by_the_name_that_was_asked_about(
    server: Server, mutation: dict[str, Any], said: str
) -> None:
    with mutating(server.admin, "renames", rules("configmaps"), mutation, failurePolicy="Ignore"):
        refused = server.admin.post(MAPS, config_map("named"))
    assert (refused.status, refused.reason) == (500, "InternalError")
    assert said in refused.body["message"]
    assert server.admin.get(f"{MAPS}/named").status == 404


def test_what_the_server_gives_an_object_no_policy_takes(server: Server) -> None:
    strip = patching(
        "[JSONPatch{op: 'replace', path: '/metadata', value: Object.metadata{name: object.metadata.name}}]"
    )
    with mutating(server.admin, "strips", rules("configmaps"), strip):
        made = server.admin.post(MAPS, config_map("stripped"))
    assert made.status == 201, made.body
    metadata = server.admin.get(f"{MAPS}/stripped").body["metadata"]
    assert {"uid", "creationTimestamp", "namespace", "selfLink"} <= metadata.keys()
    assert server.admin.delete(f"{MAPS}/stripped").status == 200


def test_what_is_sent_to_a_part_of_an_object_is_not_changed(server: Server) -> None:
    token = "/api/v1/namespaces/default/serviceaccounts/default/token"
    shorter = patching("[JSONPatch{op: 'replace', path: '/spec/expirationSeconds', value: 3600}]")
    with mutating(server.admin, "shorter", rules("serviceaccounts/token"), shorter):
        refused = server.admin.post(token, {"spec": {"expirationSeconds": 7200}})
        assert (refused.status, refused.reason) == (500, "InternalError")
        assert "attempted to modify a part of the object" in refused.body["message"]
        assert server.admin.post(token, {"spec": {"expirationSeconds": 3600}}).status == 201


def test_what_costs_too_much_is_refused_or_left_as_it_is_by_the_failure_policy(server: Server) -> None:
    large = {**config_map("large"), "data": {f"key-{number}": "x" for number in range(400)}}
    costly = "object.data.all(a, object.data.all(b, object.data.exists(c, c == a || c == b)))"
    mutation = applying(f"Object{{data: {{'costly': string({costly})}}}}")
    with mutating(server.admin, "costly", rules("configmaps"), mutation):
        refused = server.admin.post(MAPS, large, dryRun="All")
        assert refused.status == 403
        assert "running out of cost budget" in refused.body["message"]
        assert server.admin.post(MAPS, config_map("small"), dryRun="All").body["data"]["costly"] == "true"
    with mutating(server.admin, "costly", rules("configmaps"), mutation, failurePolicy="Ignore"):
        assert "costly" not in server.admin.post(MAPS, large, dryRun="All").body["data"]


def test_managed_fields_that_a_policy_breaks_stay_as_they_were(server: Server) -> None:
    """TS15: whoever breaks them, the owners of fields are not forgotten; and the client is told."""
    entry = "JSONPatch{op: 'add', path: '/metadata/managedFields/0/%s', value: '%s'}"
    whole = (
        "[" + entry % ("operation", "Replace") + ", JSONPatch{op: 'add', path: '/metadata/labels', value: {'a': 'b'}}]"
    )
    with mutating(server.admin, "breaks-fields", rules("configmaps"), patching(whole)):
        made = server.admin.post(MAPS, config_map("owned"), dryRun="All")
    assert (made.status, made.body["metadata"]["labels"]) == (201, {"a": "b"})
    assert [entry["operation"] for entry in made.body["metadata"]["managedFields"]] == ["Update"]
    assert ".metadata.managedFields was in an invalid state after admission" in made.headers["warning"]
    with mutating(server.admin, "renames-owner", rules("configmaps"), patching(f"[{entry % ('manager', 'other')}]")):
        made = server.admin.post(MAPS, config_map("owned"), dryRun="All")
    assert [entry["manager"] for entry in made.body["metadata"]["managedFields"]] == ["other"]
    assert "warning" not in made.headers
