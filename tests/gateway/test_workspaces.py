"""Workspaces over HTTP: who may enter them, how they come and how they go (KC1 to KC4, KC7 to KC10, KC12, KC13)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.databases import migrated
from tests.gateway.callers import Caller, config_map, eventually
from tests.gateway.conftest import Server, another, start, stop, tenant_named
from tests.gateway.organization import (
    ORG,
    TENANCY,
    bound,
    inside,
    made,
    organization,
    phase,
    ready,
    role,
    rule,
    workspace,
)

TABLE = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text())
WORKSPACES = f"{ORG}{TENANCY}/workspaces"
CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"


@pytest.fixture(scope="module")
def people(server: Server, gina: Caller) -> dict[str, Caller]:
    return organization(server, gina)


@pytest.fixture(scope="module")
def olga(people: dict[str, Caller]) -> Caller:
    return people["olga"]


@pytest.mark.parametrize("case", TABLE, ids=lambda case: f"{case['is']} {case['who']} {case['do']}"[:90])
def test_decision_table(people: dict[str, Caller], case: dict[str, Any]) -> None:
    """KC1 to KC4, KC7 to KC10, KC12, KC13."""
    method, path = case["do"].split()
    body: dict[str, Any] | None = None
    if "named" in case:
        kind = "Namespace" if path.endswith("namespaces") else "Workspace"
        body = workspace(case["named"], case.get("type", ""))
        if kind == "Namespace":
            body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": case["named"]}}
    answer = people[case["who"]].call(method, path, body)
    assert answer.status == case["gives"], answer.body


def test_workspace_passes_through_its_phases_and_says_where_it_is(olga: Caller, server: Server) -> None:
    """KC13."""
    since = olga.get(WORKSPACES).body["metadata"]["resourceVersion"]
    with olga.watch(WORKSPACES, resourceVersion=since) as watch:
        made(olga.post(WORKSPACES, workspace("phases")))
        seen: list[str] = []
        while len(seen) < 3:
            # Those of earlier tests may still be on their way.
            (event,) = watch.take(1)
            if event["object"]["metadata"]["name"] == "phases":
                seen.append(event["object"]["status"]["phase"])
    assert seen == ["Scheduling", "Initializing", "Ready"]
    body = olga.get(f"{WORKSPACES}/phases").body
    assert body["spec"]["cluster"] == "root:umbrella:phases"
    assert body["spec"]["URL"] == f"{server.url}/clusters/root:umbrella:phases"
    assert body["spec"]["type"] == {"path": "root", "name": "universal"}
    within = olga.get(inside("phases") + CLUSTER).body
    assert within["status"]["phase"] == "Ready"
    assert within["spec"]["owner"]["uid"] == body["metadata"]["uid"]
    table = olga.get(WORKSPACES, {"Accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}).body
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Type", "Phase", "URL", "Age"]


def test_deletion_takes_everything_below_and_the_name_is_free_again(olga: Caller, server: Server) -> None:
    """KC13."""
    for path, name in (("", "gone"), ("gone", "a"), ("gone:a", "b"), ("gone:a:b", "c")):
        ready(olga, inside(path), name)
    stuck = config_map("stuck", finalizers=["example.com/never"])
    made(olga.post(f"{inside('gone:a:b')}/api/v1/namespaces/default/configmaps", stuck))
    assert olga.delete(f"{WORKSPACES}/gone").status == 200
    assert eventually(lambda: olga.get(f"{WORKSPACES}/gone").status == 404)
    for path in ("gone", "gone:a", "gone:a:b", "gone:a:b:c"):
        assert olga.get(f"{inside(path)}/api").status == 403
        for kind in ("/api/v1/namespaces", "/api/v1/configmaps", f"{TENANCY}/workspaces", CLUSTER.rpartition("/")[0]):
            assert server.admin.get(f"{inside(path)}{kind}").body["items"] == []
    ready(olga, ORG, "gone")
    left = {item["metadata"]["name"] for item in olga.get(f"{inside('gone')}/api/v1/configmaps").body["items"]}
    assert left <= {"kube-root-ca.crt"}


def test_the_door_closes_with_the_deletion(olga: Caller) -> None:
    """KC13: whoever is told that a workspace is deleted finds it closed, and everything below it, however full it is."""
    names = [f"door{number}" for number in range(4)]
    for name in names:
        ready(olga, ORG, name)
        ready(olga, inside(name), "below")
        for path in (name, f"{name}:below"):
            made(olga.post(f"{inside(path)}/api/v1/namespaces/default/configmaps", config_map("a")))
    for name in names:
        assert olga.delete(f"{WORKSPACES}/{name}").status == 200
        for path in (name, f"{name}:below"):
            at = f"{inside(path)}/api/v1/namespaces/default/configmaps"
            assert olga.patch(f"{at}/a", {"data": {"a": "b"}}).status == 403
            assert olga.post(at, config_map("b")).status == 403
            assert olga.get(at).status == 403


def test_workspaces_nest_to_the_configured_depth(olga: Caller) -> None:
    """KC13."""
    path = ""
    for level in range(5):
        ready(olga, inside(path), f"l{level}")
        path = f"{path}:l{level}".lstrip(":")
    refused = olga.post(f"{inside(path)}{TENANCY}/workspaces", workspace("l5"))
    assert refused.status == 403
    assert "nest at most 5 deep" in refused.body["message"]
    assert olga.delete(f"{WORKSPACES}/l0").status == 200


def test_what_is_the_servers_cannot_be_chosen(olga: Caller) -> None:
    """KC10, KC13."""
    for change in (
        {"spec": {"cluster": "root:globex:x"}},
        {"spec": {"URL": "https://evil.example"}},
        {"metadata": {"name": "bad", "annotations": {"experimental.tenancy.kcp.io/owner": "{}"}}},
        {"metadata": {"name": "bad", "annotations": {"internal.tenancy.kcp.io/type": "root:organization"}}},
        {"metadata": {"name": "bad", "annotations": {"authorization.kcp.io/required-groups": "x"}}},
        {"metadata": {"name": "Bad"}},
        {"spec": {"type": {"name": "a/b"}}},
    ):
        assert olga.post(WORKSPACES, {**workspace("bad"), **change}).status == 422, change
    one = f"{WORKSPACES}/team"
    assert olga.patch(one, {"spec": {"type": {"name": "private"}}}).status == 422
    assert olga.patch(one, {"metadata": {"finalizers": None}}).body["metadata"]["finalizers"] == [
        "core.kcp.io/logicalcluster"
    ]
    owner = olga.get(one).body["metadata"]["annotations"]["experimental.tenancy.kcp.io/owner"]
    assert json.loads(owner) == {"username": "olga", "uid": "", "tenant": "umbrella"}
    assert olga.patch(one, {"metadata": {"annotations": None}}).body["metadata"]["annotations"]
    assert olga.patch(f"{one}/status", {"status": {"phase": "Initializing"}}).status == 403


def test_initializers_are_taken_off_by_those_who_administer_the_parent(olga: Caller, people: dict[str, Caller]) -> None:
    """KC4."""
    ready(olga, ORG, "slower", "slow", until="Initializing")
    cluster = inside("slower") + CLUSTER
    assert olga.get(cluster).body["status"]["initializers"] == ["root:umbrella:slow"]
    assert people["ina"].get(cluster).status == 403
    assert olga.patch(f"{cluster}/status", {"status": {"phase": "Ready"}}).status == 422
    assert olga.patch(f"{cluster}/status", {"status": {"initializers": ["root:umbrella:other"]}}).status == 422
    assert olga.patch(f"{cluster}/status", {"status": {"initializers": []}}).status == 200
    assert eventually(lambda: phase(olga, ORG, "slower") == "Ready")
    assert olga.patch(f"{cluster}/status", {"status": {"initializers": ["root:umbrella:slow"]}}).status == 422


def test_required_groups_are_set_from_above_alone(people: dict[str, Caller]) -> None:
    """KC3: an administrator of the workspace cannot take them off."""
    cluster = inside("guarded") + CLUSTER
    greta, key = people["greta with g3"], "authorization.kcp.io/required-groups"
    assert greta.patch(cluster, {"metadata": {"annotations": {key: None}}}).status == 403
    assert greta.patch(cluster, {"metadata": {"labels": {"a": "b"}}}).status == 200
    assert greta.get(cluster).body["metadata"]["annotations"][key] == "g1;g2,g3"
    below = greta.get(inside("guarded:below") + CLUSTER).body
    assert below["metadata"]["annotations"][key] == "g1;g2,g3"
    assert greta.patch(inside("guarded:below") + CLUSTER, {"metadata": {"annotations": {key: "g1,,g2"}}}).status == 422


def test_the_organisation_has_a_logical_cluster_whose_required_groups_its_workspaces_inherit(
    server: Server, people: dict[str, Caller]
) -> None:
    """KC3, KC13: they are asked for below, not at the organisation's own door."""
    tenant_named(server, "guild")
    owner, key = server.user("guild", "gwen", "tenantry:owner"), "authorization.kcp.io/required-groups"
    at = "/clusters/root:guild"
    assert eventually(lambda: owner.get(f"{at}{CLUSTER}").status == 200)
    body = owner.get(f"{at}{CLUSTER}").body
    assert body["status"]["phase"] == "Ready"
    assert body["status"]["URL"].endswith(at)
    owned = {"apiVersion": "v1", "resource": "tenants", "name": "guild", "cluster": "root"}
    uid = server.admin.get("/api/v1/tenants/guild").body["metadata"]["uid"]
    assert body["spec"]["owner"] == {**owned, "uid": uid}
    assert owner.patch(f"{at}{CLUSTER}", {"metadata": {"annotations": {key: "a,,b"}}}).status == 422
    assert (
        server.user("guild", "ned", "tenantry:editor")
        .patch(f"{at}{CLUSTER}", {"metadata": {"annotations": {key: "a"}}})
        .status
        == 403
    )
    assert owner.patch(f"{at}{CLUSTER}", {"metadata": {"annotations": {key: "masons"}}}).status == 200
    assert owner.delete(f"{at}{CLUSTER}").status == 403
    assert owner.patch(f"{at}{CLUSTER}", {"status": {"phase": "Deleting"}}).body["status"]["phase"] == "Ready"
    made(owner.post(f"{at}{TENANCY}/workspaces", workspace("lodge")))
    mason = server.user("guild", "gwen", "tenantry:owner", "masons")
    below = f"{at}:lodge"
    assert eventually(lambda: mason.get(f"{below}{CLUSTER}").status == 200)
    assert mason.get(f"{below}{CLUSTER}").body["metadata"]["annotations"][key] == "masons"
    assert owner.get(f"{below}/api/v1/namespaces").status == 403
    assert owner.get(f"{at}/api/v1/namespaces").status == 200


def test_the_dialect_of_required_groups_can_be_switched(
    server: Server, people: dict[str, Caller], tmp_path: Path
) -> None:
    """KC3: ``g1;g2,g3`` is g1 or (g2 and g3) in kcp's later reading."""
    shutil.copytree(server.folder, tmp_path / "data")
    with another(server, tmp_path / "data", "--required-groups-dialect", "kcp") as switched:
        path = f"{inside('guarded')}/api"
        assert switched.user("umbrella", "greta", "g1").get(path).status == 200
        assert switched.user("umbrella", "greta", "g3").get(path).status == 403
        assert switched.user("umbrella", "greta", "g2", "g3").get(path).status == 200


def test_what_an_operator_or_an_account_makes_belongs_to_the_owners(
    server: Server, olga: Caller, people: dict[str, Caller]
) -> None:
    """KC9: the maker's name may be another's in the new workspace."""
    ready(server.admin, ORG, "given")
    assert server.user("umbrella", "admin").get(f"{inside('given')}/api").status == 403
    ready(people["account of umbrella"], ORG, "robot")
    for name in ("given", "robot"):
        assert olga.get(f"{inside(name)}/api/v1/secrets").status == 200


def test_a_type_gives_its_children_theirs_and_limits_them(olga: Caller) -> None:
    """KC10."""
    spec = {
        "defaultChildWorkspaceType": {"path": "root:umbrella", "name": "leaf"},
        "limitAllowedChildren": {"types": [{"path": "root:umbrella", "name": "leaf"}]},
    }
    for name, spec_ in (("tree", spec), ("leaf", {"limitAllowedChildren": {"none": True}})):
        body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": name}}
        made(olga.post(f"{ORG}{TENANCY}/workspacetypes", {**body, "spec": spec_}))
    ready(olga, ORG, "oak", "tree")
    ready(olga, inside("oak"), "twig")
    assert olga.get(f"{inside('oak')}{TENANCY}/workspaces/twig").body["spec"]["type"]["name"] == "leaf"
    assert olga.post(f"{inside('oak')}{TENANCY}/workspaces", workspace("other", "root:universal")).status == 403
    assert olga.post(f"{inside('oak:twig')}{TENANCY}/workspaces", workspace("other", "root:universal")).status == 403


def test_extended_types_need_use_as_well(server: Server, olga: Caller, people: dict[str, Caller]) -> None:
    """KC10."""
    body = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "extending"}}
    made(olga.post(f"{ORG}{TENANCY}/workspacetypes", {**body, "spec": {"extend": {"with": [{"name": "private"}]}}}))
    role(olga, ORG, "use-extending", rule("use", "tenancy.kcp.io", "workspacetypes", "extending"))
    bound(olga, ORG, "use-extending", "User", "emil")
    refused = people["emil"].post(WORKSPACES, workspace("ext", "extending"))
    assert refused.status == 403
    assert '"root:umbrella:private"' in refused.body["message"]
    role(olga, ORG, "use-private", rule("use", "tenancy.kcp.io", "workspacetypes", "private"))
    bound(olga, ORG, "use-private", "User", "emil")
    assert people["emil"].post(WORKSPACES, workspace("ext", "extending")).status == 201


def test_rights_end_with_access_at_the_next_request(olga: Caller, server: Server) -> None:
    """KC2."""
    ready(olga, ORG, "shared")
    path = inside("shared")
    bound(olga, path, "cluster-admin", "User", "tim")
    tim = server.user("umbrella", "tim")
    assert tim.get(f"{path}/api/v1/secrets").status == 200
    assert olga.delete(f"{path}/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/tim-cluster-admin").status == 200
    assert tim.get(f"{path}/api/v1/secrets").status == 403


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_kubectl_makes_enters_nests_and_deletes_workspaces(server: Server, olga: Caller, tmp_path: Path) -> None:
    """KC13."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server.url, "certificate-authority": str(olga.ca)}}],
        "users": [{"name": "u", "user": {"client-certificate": str(olga.certificate), "client-key": str(olga.key)}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    (tmp_path / "config").write_text(json.dumps(config))
    environment = {**os.environ, "KUBECONFIG": str(tmp_path / "config"), "KUBECACHEDIR": str(tmp_path / "cache")}

    def kubectl(*words: str, given: Any = None) -> str:
        done = subprocess.run(
            ["kubectl", *words],
            input=json.dumps(given) if given else None,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    within = ("--server", f"{server.url}/clusters/root:umbrella:cli")
    kubectl("apply", "-f", "-", given=workspace("cli"))
    kubectl("wait", "--for=jsonpath={.status.phase}=Ready", "workspace/cli", "--timeout=240s")
    assert "Ready" in kubectl("get", "ws")
    kubectl(*within, "create", "configmap", "here", "--from-literal=a=1")
    assert "configmap/here\n" in kubectl(*within, "get", "configmaps", "-o", "name")
    assert "here" not in kubectl("get", "configmaps", "-o", "name")
    kubectl(*within, "apply", "-f", "-", given=workspace("inner"))
    kubectl(*within, "wait", "--for=jsonpath={.status.phase}=Ready", "ws/inner", "--timeout=240s")
    nested = ("--server", f"{server.url}/clusters/root:umbrella:cli:inner")
    assert kubectl(*nested, "auth", "can-i", "create", "namespaces") == "yes\n"
    kubectl("delete", "workspace", "cli", "--timeout=240s")
    assert "cli" not in kubectl("get", "ws", "-o", "name")


def test_deletion_goes_on_where_a_killed_server_stopped(tmp_path: Path) -> None:
    """KC13: the workspace is closed, half empty and without its logical cluster when the next one takes over."""
    with migrated("gateway") as database:
        first = start(tmp_path / "data", database)
        tenant_named(first, "umbrella")
        boss = first.user("umbrella", "olga", "tenantry:owner")
        ready(boss, ORG, "half")
        ready(boss, inside("half"), "below")
        made(boss.post(f"{inside('half:below')}/api/v1/namespaces/default/configmaps", config_map("left")))
        first.process.kill()
        first.process.wait()
        marked = """UPDATE store_object SET data = convert_to(jsonb_set(convert_from(data, 'UTF8')::jsonb,
            '{metadata,deletionTimestamp}', '"2026-01-01T00:00:00Z"')::text, 'UTF8')
            WHERE space = 'root:umbrella' AND resource = 'workspaces'"""
        first.sql(marked)
        first.sql("DELETE FROM store_object WHERE space = 'root:umbrella:half' AND resource = 'logicalclusters'")
        second = start(tmp_path / "data", database)
        boss = second.user("umbrella", "olga", "tenantry:owner")
        assert eventually(lambda: boss.get(f"{WORKSPACES}/half").status == 404)
        for path in ("half", "half:below"):
            assert second.admin.get(f"{inside(path)}/api/v1/configmaps").body["items"] == []
        stop(second)
