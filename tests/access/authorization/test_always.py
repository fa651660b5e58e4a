"""``AlwaysAllow`` and ``AlwaysDeny``: modes that look at nothing, behind gates that still stand (AZ1, AZ10, AZ11)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from tests.access.authorization.apiservers import TENANT, Client, Server
from tests.databases import migrated

ANN = {"name": "ann", "groups": ["system:authenticated"], "tenant": "acme"}
OPS = {"name": "ops", "groups": ["system:authenticated"], "tenant": "system"}
MAPS = "api/v1/namespaces/default/configmaps"


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("always") as url:
        yield url


@pytest.fixture
def served(database: str, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Client]:
    server = Server(database, tmp_path, f"--authorization-mode={request.param}")
    try:
        server.wait()
        client = server.client()
        for name in ("acme", "globex"):
            status, _ = client.request("POST", "/api/v1/tenants", {"metadata": {"name": name}})
            assert status in (201, 409)
        yield client
    finally:
        server.stop()


def question(verb: str = "create") -> dict[str, Any]:
    return {"spec": {"resourceAttributes": {"verb": verb, "resource": "configmaps", "namespace": "default"}}}


@pytest.mark.parametrize("served", ["RBAC,AlwaysAllow"], indirect=True)
def test_whom_the_gates_let_through_may_do_everything_and_nobody_else(served: Client) -> None:
    made = served.request("POST", f"/clusters/root:acme/{MAPS}", {"metadata": {"generateName": "a-"}}, who=ANN)
    assert made[0] == 201
    for cluster in ("root", "root:globex", "system:admin"):
        assert served.request("GET", f"/clusters/{cluster}/{MAPS}", who=ANN)[0] == 403
    assert served.request("GET", "/api/v1/nodes", who=ANN)[0] == 403
    for cluster in ("root", "root:globex"):
        assert served.request("GET", f"/clusters/{cluster}/{MAPS}", who=OPS)[0] == 200
    assert served.request("GET", "/api/v1/nodes", who=OPS)[0] == 200
    assert served.request("GET", f"/clusters/system:admin/{MAPS}", who=OPS)[0] == 403


@pytest.mark.parametrize("served", ["RBAC,AlwaysAllow"], indirect=True)
def test_its_answers_name_it_and_list_everything(served: Client) -> None:
    at = "/clusters/root:acme/apis/authorization.k8s.io/v1"
    asked = {**question(), "spec": {**question()["spec"], "user": "ann", "extra": {TENANT: ["acme"]}}}
    status = served.ok("POST", f"{at}/subjectaccessreviews", asked)["status"]
    assert (status["allowed"], status["reason"].split(":")[0]) == (True, "AlwaysAllow")
    rules = served.ok("POST", f"{at}/selfsubjectrulesreviews", {"spec": {"namespace": "default"}}, who=ANN)["status"]
    assert {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]} in rules["resourceRules"]
    assert {"verbs": ["*"], "nonResourceURLs": ["*"]} in rules["nonResourceRules"]
    assert not rules["incomplete"]


@pytest.mark.parametrize("served", ["AlwaysDeny,RBAC"], indirect=True)
def test_always_deny_gives_nothing_and_takes_nothing(served: Client) -> None:
    """kube-apiserver's has no opinion either: what a later mode allows is allowed."""
    assert served.request("GET", f"/clusters/root:acme/{MAPS}", who=ANN)[0] == 403
    named = {"metadata": {"name": "ann-reads"}, "subjects": [{"kind": "User", "name": "ann"}]}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
    path = "/clusters/root:acme/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    served.ok("POST", path, {**named, "roleRef": role})
    assert served.request("GET", f"/clusters/root:acme/{MAPS}", who=ANN)[0] == 200


def test_nobody_is_let_in_without_a_name_to_do_everything() -> None:
    """As kube-apiserver, which takes anonymous requests back where this mode stands."""
    with pytest.raises(CommandError, match="exclude each other"):
        call_command("apiserver", "--authorization-mode=RBAC,AlwaysAllow", "--anonymous-auth")
