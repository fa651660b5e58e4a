"""A workspace that is marked inactive is closed, and comes back as it was (KC4)."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.gateway.callers import Caller, config_map
from tests.gateway.conftest import Server, tenant_named
from tests.gateway.organization import TENANCY, bound, made, ready
from tests.story.product import eventually

CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"
MAPS = "/api/v1/namespaces/default/configmaps"
INACTIVE = {"metadata": {"annotations": {"core.kcp.io/inactive": "true"}}}
ACTIVE = {"metadata": {"annotations": {"core.kcp.io/inactive": None}}}


@pytest.fixture(scope="module")
def tenant(server: Server) -> str:
    return tenant_named(server, f"quiet-{uuid4().hex[:6]}")


@pytest.fixture(scope="module")
def olga(server: Server, tenant: str) -> Caller:
    """The owner."""
    return server.user(tenant, "olga", "tenantry:owner")


@pytest.fixture
def team(olga: Caller, tenant: str) -> str:
    """The path of a workspace with a ConfigMap in it, and a workspace below."""
    name = f"w-{uuid4().hex[:6]}"
    ready(olga, f"/clusters/root:{tenant}", name)
    path = f"/clusters/root:{tenant}:{name}"
    ready(olga, path, "below")
    made(olga.post(path + MAPS, config_map("kept")))
    return path


def shown(olga: Caller, team: str) -> tuple[str, str]:
    """The phase, from within and from above."""
    parent, _, name = team.rpartition(":")
    above = olga.get(f"{parent}{TENANCY}/workspaces/{name}").body["status"]["phase"]
    return olga.get(team + CLUSTER).body["status"]["phase"], above


def test_it_is_closed_but_for_what_says_so(olga: Caller, team: str) -> None:
    assert olga.patch(team + CLUSTER, INACTIVE).status == 200
    assert shown(olga, team) == ("Inactive", "Inactive")
    for path in ("/api", "/version", "/api/v1/namespaces", f"{MAPS}/kept", f"{TENANCY}/workspaces"):
        refused = olga.get(team + path)
        assert (refused.status, "the logical cluster is marked inactive" in refused.body["message"]) == (403, True)
    assert olga.post(team + MAPS, config_map("late")).status == 403
    assert olga.get(f"{team}/openapi/v3").status == 200
    assert olga.get(team + CLUSTER.rpartition("/")[0]).status == 200
    assert olga.get(f"{team}:below{MAPS}").status == 200, "what is below has a mark of its own"
    assert olga.patch(team + CLUSTER, ACTIVE).status == 200
    assert shown(olga, team) == ("Ready", "Ready")
    assert olga.get(f"{team}{MAPS}/kept").status == 200
    assert olga.get(f"{team}{MAPS}/late").status == 404


def test_what_is_open_ends(olga: Caller, team: str) -> None:
    with olga.watch(team + MAPS) as watch:
        assert olga.patch(team + CLUSTER, INACTIVE).status == 200
        eventually(lambda: watch.ended)
    assert olga.patch(team + CLUSTER, {"metadata": {"annotations": {"core.kcp.io/inactive": "no"}}}).status == 200
    assert olga.get(team + MAPS).status == 200


def test_it_is_marked_from_above_alone(server: Server, olga: Caller, tenant: str, team: str) -> None:
    bound(olga, team, "cluster-admin", "User", "carl")
    carl = server.user(tenant, "carl")
    assert carl.patch(team + CLUSTER, INACTIVE).status == 403
    assert carl.patch(team + CLUSTER, {"metadata": {"labels": {"a": "b"}}}).status == 200
    assert olga.patch(team + CLUSTER, INACTIVE).status == 200
    assert carl.patch(team + CLUSTER, ACTIVE).status == 403
    assert carl.get(team + MAPS).status == 403


def test_a_tenants_space_and_a_workspace_that_is_not_ready_are_none_of_it(olga: Caller, tenant: str) -> None:
    refused = olga.patch(f"/clusters/root:{tenant}{CLUSTER}", INACTIVE)
    assert refused.status == 403
    assert "closed by suspending the tenant" in refused.body["message"]
    kind = {"apiVersion": "tenancy.kcp.io/v1alpha1", "kind": "WorkspaceType", "metadata": {"name": "slow"}}
    made(olga.post(f"/clusters/root:{tenant}{TENANCY}/workspacetypes", {**kind, "spec": {"initializer": True}}))
    ready(olga, f"/clusters/root:{tenant}", "waiting", "slow", until="Initializing")
    waiting = f"/clusters/root:{tenant}:waiting"
    assert olga.patch(waiting + CLUSTER, INACTIVE).status == 200
    assert shown(olga, waiting) == ("Initializing", "Initializing")
    assert olga.patch(f"{waiting}{CLUSTER}/status", {"status": {"initializers": []}}).status == 200
    eventually(lambda: shown(olga, waiting) == ("Inactive", "Inactive"))


def test_it_can_be_deleted(olga: Caller, tenant: str, team: str) -> None:
    assert olga.patch(team + CLUSTER, INACTIVE).status == 200
    parent, _, name = team.rpartition(":")
    assert olga.delete(f"{parent}{TENANCY}/workspaces/{name}").status == 200
    eventually(lambda: olga.get(f"{parent}{TENANCY}/workspaces/{name}").status == 404)
