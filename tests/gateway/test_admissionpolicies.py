"""The operators' admission policies and webhooks: where they count, for whom, and that they lock nobody out (TS15, AZ11).

What they mean is compared with a real server in ``tests/conformance``.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server, another

API = "/apis/admissionregistration.k8s.io/v1"
MAPS = "/api/v1/namespaces/default/configmaps"


def rules(*resources: str, group: str = "", operations: tuple[str, ...] = ("CREATE",)) -> list[dict[str, Any]]:
    return [{"apiGroups": [group], "apiVersions": ["*"], "resources": list(resources), "operations": list(operations)}]


@contextmanager
def policy(
    caller: Caller, name: str, about: list[dict[str, Any]], expression: str, *actions: str, **spec: Any
) -> Iterator[None]:
    """A policy that is in force as long as this lasts."""
    validations = [{"expression": expression, "message": f"{name} says no"}]
    constraints = {"matchConstraints": {"resourceRules": about}}
    made = caller.post(
        f"{API}/validatingadmissionpolicies",
        {"metadata": {"name": name}, "spec": {"validations": validations, **constraints, **spec}},
    )
    assert made.status == 201, made.body
    assert not made.headers.get("warning")
    bound = {"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": list(actions or ("Deny",))}}
    try:
        assert caller.post(f"{API}/validatingadmissionpolicybindings", bound).status == 201
        yield
    finally:
        assert caller.delete(f"{API}/validatingadmissionpolicybindings/{name}").status in (200, 404)
        assert caller.delete(f"{API}/validatingadmissionpolicies/{name}").status == 200


@contextmanager
def webhooks(caller: Caller, plural: str, *hooks: dict[str, Any]) -> Iterator[None]:
    made = caller.post(f"{API}/{plural}", {"metadata": {"name": "asked"}, "webhooks": list(hooks)})
    assert made.status == 201, made.body
    try:
        yield
    finally:
        assert caller.delete(f"{API}/{plural}/asked").status == 200


def webhook(url: str, **further: Any) -> dict[str, Any]:
    return {
        "name": "asked.example.org",
        "clientConfig": {"url": url},
        "rules": rules("configmaps"),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        "timeoutSeconds": 1,
        **further,
    }


def config_map(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"a": "b"}}


def test_a_policy_counts_in_the_system_space_alone_and_at_every_server(
    server: Server, alice: Caller, tmp_path: Path
) -> None:
    with another(server, tmp_path / "data") as second:
        assert second.admin.post(MAPS, config_map("seen"), dryRun="All").status == 201
        with policy(server.admin, "no-maps", rules("configmaps"), "object.metadata.name != 'refused'"):
            refused = server.admin.post(MAPS, config_map("refused"), dryRun="All")
            assert refused.status == 422
            assert "'no-maps' with binding 'no-maps' denied request: no-maps says no" in refused.body["message"]
            assert eventually(lambda: second.admin.post(MAPS, config_map("refused"), dryRun="All").status == 422)
            assert server.admin.post(MAPS, config_map("allowed"), dryRun="All").status == 201
            assert alice.post(MAPS, config_map("refused"), dryRun="All").status == 201
        assert server.admin.post(MAPS, config_map("refused"), dryRun="All").status == 201


def test_a_policy_says_what_the_kinds_that_it_is_about_have_against_it(server: Server) -> None:
    """TS15: of built-in kinds and custom ones, anew when it says something else, and nothing is refused for it."""
    path = f"{API}/validatingadmissionpolicies/typed"
    group = "typed.example.org"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"size": {"type": "integer"}}}}}
    definition = {
        "metadata": {"name": f"sails.{group}"},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {"kind": "Sail", "plural": "sails"},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}],
        },
    }
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    assert server.admin.post(crds, definition).status == 201

    def status() -> dict[str, Any]:
        return dict(server.admin.get(path).body.get("status") or {})

    about = [{**rules("deployments", group="apps")[0], "apiVersions": ["v1"]}]
    about += [{**rules("sails", group=group)[0], "apiVersions": ["v1"]}]
    try:
        with policy(server.admin, "typed", about, "object.spec.size > 1"):
            assert eventually(lambda: status().get("observedGeneration") == 1)
            said = "apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'size'\n | object.spec.size > 1\n | ...........^\n"
            assert status()["typeChecking"] == {
                "expressionWarnings": [{"fieldRef": "spec.validations[0].expression", "warning": said}]
            }
            change = [{"op": "replace", "path": "/spec/validations/0/expression", "value": "object.spec.size > 'a'"}]
            assert server.admin.patch(path, change, "json").status == 200
            assert eventually(lambda: status().get("observedGeneration") == 2)
            warning = status()["typeChecking"]["expressionWarnings"][0]["warning"]
            assert "typed.example.org/v1, Kind=Sail: ERROR: <input>:1:18: found no matching overload" in warning
            change[0]["value"] = "object.metadata.name != 'x'"
            assert server.admin.patch(path, change, "json").status == 200
            assert eventually(lambda: status() == {"observedGeneration": 3, "typeChecking": {}})
            # Who writes the status itself is believed, until the policy says something else.
            written = server.admin.patch(f"{path}/status", {"status": {"observedGeneration": 9}})
            assert written.status == 200 and status()["observedGeneration"] == 9
    finally:
        assert server.admin.delete(f"{crds}/sails.{group}").status == 200


def test_a_policy_that_refuses_everything_can_be_taken_back(server: Server) -> None:
    everything = rules("*", "*/*", group="*", operations=("*",))
    with policy(server.admin, "nothing", everything, "false"):
        assert server.admin.post(MAPS, config_map("refused"), dryRun="All").status == 422
        about_itself = server.admin.patch(
            f"{API}/validatingadmissionpolicies/nothing", {"metadata": {"labels": {"changed": "yes"}}}
        )
        assert about_itself.status == 200
    assert server.admin.post(MAPS, config_map("refused"), dryRun="All").status == 201


def test_who_switches_the_plugin_off_is_not_refused(server: Server, tmp_path: Path) -> None:
    flag = "--disable-admission-plugins=ValidatingAdmissionPolicy"
    with (
        another(server, tmp_path / "data", flag) as second,
        policy(server.admin, "no-maps", rules("configmaps"), "false"),
    ):
        assert server.admin.post(MAPS, config_map("refused"), dryRun="All").status == 422
        assert second.admin.post(MAPS, config_map("refused"), dryRun="All").status == 201


def test_tokens_evictions_and_bindings_are_judged_by_what_is_sent(server: Server) -> None:
    pods = "/api/v1/namespaces/default/pods"
    body = {"metadata": {"name": "judged"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert server.admin.post(pods, body).status == 201
    token = "/api/v1/namespaces/default/serviceaccounts/default/token"
    posted = rules("serviceaccounts/token", "pods/eviction", "pods/binding")
    kinds = "!(object.kind in ['TokenRequest', 'Eviction', 'Binding']) || request.kind.kind != object.kind"
    with policy(server.admin, "no-parts", posted, kinds):
        for path, sent in (
            (token, {"spec": {}}),
            (f"{pods}/judged/eviction", {"metadata": {"name": "judged"}}),
            (f"{pods}/judged/binding", {"metadata": {"name": "judged"}, "target": {"kind": "Node", "name": "n"}}),
        ):
            refused = server.admin.post(path, sent)
            assert refused.status == 422, refused.body
            assert "no-parts says no" in refused.body["message"]
        # What an eviction comes to is no deletion that somebody has asked for.
        with policy(server.admin, "no-deletions", rules("pods", operations=("DELETE",)), "false"):
            assert server.admin.delete(f"{pods}/judged").status == 422
    assert server.admin.post(f"{pods}/judged/eviction", {"metadata": {"name": "judged"}}).status == 201
    assert server.admin.post(token, {"spec": {}}).status == 201


def test_options_of_a_deletion_are_judged_however_they_come(server: Server) -> None:
    assert server.admin.post(MAPS, config_map("optional")).status == 201
    options = {"propagationPolicy": "Orphan", "gracePeriodSeconds": 5}
    told = "request.options.propagationPolicy != 'Orphan' || request.options.gracePeriodSeconds != 5"
    one = f"{MAPS}/optional"
    with policy(server.admin, "no-orphans", rules("configmaps", operations=("DELETE",)), told):
        for refused in (
            server.admin.delete(one, options),
            server.admin.delete(one, **options),
            server.admin.delete(MAPS, fieldSelector="metadata.name=optional", **options),
            server.admin.call("DELETE", one, json.dumps(options).encode(), {"Content-Type": "application/yaml"}),
        ):
            assert refused.status == 422, refused.body
            assert "no-orphans says no" in refused.body["message"]
    assert server.admin.delete(one).status == 200
    pods = "/api/v1/namespaces/default/pods"
    body = {"metadata": {"name": "evicted"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert server.admin.post(pods, body).status == 201
    evicted = {"metadata": {"name": "evicted"}, "deleteOptions": {"gracePeriodSeconds": 0}}
    made = "request.options.kind != 'CreateOptions' || has(request.options.deleteOptions)"
    with policy(server.admin, "no-creation", rules("pods/eviction"), made):
        assert "no-creation says no" in server.admin.post(f"{pods}/evicted/eviction", evicted).body["message"]
    assert server.admin.post(f"{pods}/evicted/eviction", evicted).status == 201


def test_of_a_connection_what_it_asks_for_is_judged(server: Server) -> None:
    """A command is words, whatever they look like; ports are numbers."""
    pods = "/api/v1/namespaces/default/pods"
    body = {"metadata": {"name": "entered"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    assert server.admin.post(pods, body).status == 201
    about = rules("pods/exec", "pods/portforward", operations=("CONNECT",))
    allowed = "has(object.ports) ? object.ports == [8080] : object.command == ['sleep', '5']"
    with policy(server.admin, "only-sleep", about, allowed):
        for query, code in (
            ("exec?command=sleep&command=5", 400),
            ("exec?command=sleep&command=6", 422),
            ("portforward?ports=8080", 400),
            ("portforward?ports=8081", 422),
            (f"portforward?ports={'9' * 5000}", 400),
            ("portforward?ports=many", 400),
        ):
            answer = server.admin.post(f"{pods}/entered/{query}", {})
            assert (answer.status, "only-sleep" in str(answer.body)) == (code, code == 422), (query[:40], answer.body)
    assert server.admin.delete(f"{pods}/entered").status == 200


def test_what_costs_too_much_is_refused_or_let_through_by_the_failure_policy(server: Server) -> None:
    data = {f"key-{number}": "x" for number in range(400)}
    large = {**config_map("large"), "data": data}
    costly = "object.data.all(a, object.data.all(b, object.data.exists(c, c == a || c == b)))"
    with policy(server.admin, "costly", rules("configmaps"), costly):
        refused = server.admin.post(MAPS, large, dryRun="All")
        assert refused.status == 422
        assert "running out of cost budget" in refused.body["message"]
        assert server.admin.post(MAPS, config_map("small"), dryRun="All").status == 201
    with policy(server.admin, "costly", rules("configmaps"), costly, failurePolicy="Ignore"):
        assert server.admin.post(MAPS, large, dryRun="All").status == 201


def test_the_audit_tells_what_a_policy_would_have_refused(server: Server) -> None:
    with policy(server.admin, "noted", rules("configmaps"), "false", "Audit"):
        made = server.admin.post(MAPS, config_map("noted"))
        assert made.status == 201
    server.admin.delete(f"{MAPS}/noted")

    def told() -> bool:
        with psycopg.connect(server.database) as connection:
            rows = connection.execute(
                "SELECT trace::text FROM api_requests WHERE path LIKE '%configmaps%' AND code = 201"
            ).fetchall()
        return any("noted says no" in row[0] and "validation_failure" in row[0] for row in rows if row[0])

    assert eventually(told)


def test_a_webhook_that_does_not_answer_is_waited_for_as_long_as_it_says(server: Server) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}/x"
        with webhooks(server.admin, "validatingwebhookconfigurations", webhook(url)):
            refused = server.admin.post(MAPS, config_map("refused"), dryRun="All")
            assert (refused.status, refused.reason) == (500, "InternalError")
            assert "context deadline exceeded" in refused.body["message"]
        with webhooks(server.admin, "validatingwebhookconfigurations", webhook(url, failurePolicy="Ignore")):
            assert server.admin.post(MAPS, config_map("allowed"), dryRun="All").status == 201


def test_a_webhook_is_trusted_by_its_own_authorities_alone(server: Server) -> None:
    with webhooks(server.admin, "mutatingwebhookconfigurations", webhook(server.url.rstrip("/") + "/x")):
        refused = server.admin.post(MAPS, config_map("refused"), dryRun="All")
        assert (refused.status, refused.reason) == (500, "InternalError")
        assert "failed to call webhook" in refused.body["message"]


def test_a_webhook_with_effects_is_not_asked_about_a_dry_run(server: Server) -> None:
    url = "https://127.0.0.1:1/x"
    hook = webhook(url, sideEffects="NoneOnDryRun", failurePolicy="Ignore")
    with webhooks(server.admin, "validatingwebhookconfigurations", hook):
        assert server.admin.post(MAPS, config_map("allowed"), dryRun="All").status == 201
