"""Workspaces of a type begin with the APIs that its author may bind, and with no others (KC10, KC11)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.gateway.apiexports import APIS, WIDGETS, export, schema, widget
from tests.gateway.callers import Caller, config_map
from tests.gateway.conftest import Server, tenant_named
from tests.gateway.organization import TENANCY, bound, made, phase, ready, role, rule, workspace, workspace_type
from tests.story.product import eventually

CLUSTER = "/apis/core.kcp.io/v1alpha1/logicalclusters/cluster"


@pytest.fixture(scope="module")
def tenant(server: Server) -> str:
    return tenant_named(server, f"kit-{uuid4().hex[:6]}")


@pytest.fixture(scope="module")
def org(tenant: str) -> str:
    return f"/clusters/root:{tenant}"


@pytest.fixture(scope="module")
def olga(server: Server, tenant: str, org: str) -> Caller:
    """The owner, whose workspace ``provider`` exports widgets and claims ConfigMaps."""
    olga = server.user(tenant, "olga", "tenantry:owner")
    ready(olga, org, "provider")
    made(olga.post(f"{org}:provider{APIS}/apiresourceschemas", schema("Widget")))
    exports(olga, org, "widgets")
    return olga


def exports(olga: Caller, org: str, name: str) -> str:
    """Export the widgets under a name; the identity of it."""
    claim = {"permissionClaims": [{"group": "", "resource": "configmaps", "all": True, "verbs": ["list"]}]}
    body = made(olga.post(f"{org}:provider{APIS}/apiexports", export(name, "v1.widgets.example.org", **claim)))
    return str(body["status"]["identityHash"])


def beginning(tenant: str, *exports: str, **spec: Any) -> dict[str, Any]:
    """The spec of a type whose workspaces begin with exports of the provider."""
    return {"defaultAPIBindings": [{"path": f"root:{tenant}:provider", "export": each} for each in exports], **spec}


def typed(caller: Caller, org: str, name: str, **spec: Any) -> dict[str, Any]:
    return made(caller.post(f"{org}{TENANCY}/workspacetypes", workspace_type(name, **spec)))


def bindings(caller: Caller, at: str) -> list[dict[str, Any]]:
    return list(caller.get(f"{at}{APIS}/apibindings").body["items"])


def test_a_workspace_is_ready_when_what_it_begins_with_is_served(olga: Caller, org: str, tenant: str) -> None:
    typed(olga, org, "kit", **beginning(tenant, "widgets"))
    ready(olga, org, "one", "kit")
    (found,) = bindings(olga, f"{org}:one")
    assert found["metadata"]["name"].startswith("widgets-")
    assert found["status"]["phase"] == "Bound"
    (claim,) = found["spec"]["permissionClaims"]
    assert (claim["resource"], claim["state"]) == ("configmaps", "Accepted")
    made(olga.post(f"{org}:one{WIDGETS}", widget("w")))
    view = f"/services/apiexport/root:{tenant}:provider/widgets/clusters/root:{tenant}:one"
    made(olga.post(f"{org}:one/api/v1/namespaces/default/configmaps", config_map("seen")))
    assert olga.get(f"{view}{WIDGETS}/w").status == 200
    maps = olga.get(f"{view}/api/v1/namespaces/default/configmaps").body["items"]
    assert "seen" in [item["metadata"]["name"] for item in maps]
    status = olga.get(f"{org}:one{CLUSTER}").body["status"]
    assert "initializers" not in status
    (told,) = status["conditions"]
    assert (told["type"], told["status"]) == ("APIBindingsInitialized", "True")
    # It is the workspace's own to give back.
    assert olga.delete(f"{org}:one{APIS}/apibindings/{found['metadata']['name']}").status == 200
    eventually(lambda: bindings(olga, f"{org}:one") == [])


def test_types_hand_on_what_they_begin_with(olga: Caller, org: str, tenant: str) -> None:
    exports(olga, org, "more")
    typed(olga, org, "base", **beginning(tenant, "widgets"))
    typed(olga, org, "wider", **beginning(tenant, "widgets"), extend={"with": [{"name": "base"}]})
    ready(olga, org, "two", "wider")
    assert len(bindings(olga, f"{org}:two")) == 1, "each export once"


def test_without_a_path_it_is_of_the_types_own_workspace(olga: Caller, org: str, tenant: str) -> None:
    kind = typed(olga, f"{org}:provider", "here", defaultAPIBindings=[{"export": "widgets"}])
    assert kind["status"]["defaultAPIBindings"][0]["path"] == f"root:{tenant}:provider"
    ready(olga, org, "three", f"root:{tenant}:provider:here")
    assert len(bindings(olga, f"{org}:three")) == 1


def test_its_author_must_be_allowed_to_bind(server: Server, olga: Caller, org: str, tenant: str) -> None:
    role(olga, org, "author", rule("create update get", "tenancy.kcp.io", "workspacetypes"))
    bound(olga, org, "author", "User", "arno")
    arno = server.user(tenant, "arno")
    answers = []
    for name, missing in (("widgets", "nothing"), ("nothing", "widgets")):
        refused = arno.post(f"{org}{TENANCY}/workspacetypes", workspace_type("arnos", **beginning(tenant, name)))
        assert refused.status == 403
        answers.append(refused.body["message"].replace(name, "x").replace(missing, "x"))
    assert answers[0] == answers[1], "nobody finds out by asking what there is"
    role(olga, f"{org}:provider", "binding", rule("bind", "apis.kcp.io", "apiexports", "widgets"))
    bound(olga, f"{org}:provider", "binding", "User", "arno")
    made(arno.post(f"{org}{TENANCY}/workspacetypes", workspace_type("arnos", **beginning(tenant, "widgets"))))
    # Who makes the workspace needs no such right, only the use of the type.
    bound(olga, org, "edit", "User", "eda")
    role(olga, org, "use-arnos", rule("use", "tenancy.kcp.io", "workspacetypes", "arnos"))
    bound(olga, org, "use-arnos", "User", "eda")
    eda = server.user(tenant, "eda")
    ready(eda, org, "four", "arnos")
    assert len(bindings(eda, f"{org}:four")) == 1


def test_what_has_taken_the_name_since_is_not_bound(olga: Caller, org: str, tenant: str) -> None:
    first = exports(olga, org, "fleeting")
    typed(olga, org, "fleet", **beginning(tenant, "fleeting"))
    assert olga.delete(f"{org}:provider{APIS}/apiexports/fleeting").status == 200
    assert exports(olga, org, "fleeting") != first
    made(olga.post(f"{org}{TENANCY}/workspaces", workspace("five", "fleet")))
    at = f"{org}{TENANCY}/workspaces/five"

    def waits() -> bool:
        conditions = olga.get(at).body["status"].get("conditions") or []
        return any(one["reason"] == "WaitingOnAPIBindings" for one in conditions)

    eventually(waits)
    assert phase(olga, org, "five") == "Initializing"
    (found,) = bindings(olga, f"{org}:five")
    assert "permissionClaims" not in found["spec"]
    eventually(
        lambda: (
            "IdentityMismatch"
            in {one["reason"] for one in bindings(olga, f"{org}:five")[0]["status"].get("conditions") or ()}
        )
    )
    # Who administers it from above goes on without.
    assert olga.delete(f"{org}:five{APIS}/apibindings/{found['metadata']['name']}").status == 200
    eventually(lambda: phase(olga, org, "five") == "Ready")


def test_claims_of_another_tenants_api_are_for_the_workspace_to_answer(
    server: Server, olga: Caller, org: str, tenant: str
) -> None:
    borrower = tenant_named(server, f"borrow-{uuid4().hex[:6]}")
    bea = server.user(borrower, "bea", "tenantry:owner")
    typed(olga, org, "lent", **beginning(tenant, "widgets"))
    role(olga, org, "lend", rule("use", "tenancy.kcp.io", "workspacetypes", "lent"))
    bound(olga, org, "lend", "Group", f"system:cluster:root:{borrower}")
    ready(bea, f"/clusters/root:{borrower}", "six", f"root:{tenant}:lent")
    (found,) = bindings(bea, f"/clusters/root:{borrower}:six")
    assert "permissionClaims" not in found["spec"]
    view = f"/services/apiexport/root:{tenant}:provider/widgets/clusters/root:{borrower}:six"
    assert olga.get(f"{view}{WIDGETS}").status == 200
    assert olga.get(f"{view}/api/v1/namespaces/default/configmaps").status == 404
    # Nor does anybody hand on what a third lets him bind.
    theirs = beginning(tenant, "widgets")
    refused = bea.post(f"/clusters/root:{borrower}{TENANCY}/workspacetypes", workspace_type("onward", **theirs))
    assert (refused.status, "of the tenant whose type it is" in refused.body["message"]) == (422, True)


@pytest.mark.parametrize(
    "spec",
    [
        {"defaultAPIBindings": [{"path": "root"}]},
        {"defaultAPIBindings": [{"path": "a b", "export": "x"}]},
        {"defaultAPIBindings": [{"export": f"x{number}"} for number in range(17)]},
        {"defaultAPIBindings": [], "defaultAPIBindingLifecycle": "Maintain"},
    ],
)
def test_what_cannot_be_meant_is_refused(olga: Caller, org: str, spec: dict[str, Any]) -> None:
    assert olga.post(f"{org}{TENANCY}/workspacetypes", workspace_type("bad", **spec)).status == 422


def test_the_identities_are_the_servers(server: Server, olga: Caller, org: str, tenant: str) -> None:
    forged = {
        "defaultAPIBindings": [{"path": f"root:{tenant}:provider", "export": "widgets", "identityHash": "0" * 64}]
    }
    kind = made(
        olga.post(
            f"{org}{TENANCY}/workspacetypes",
            {**workspace_type("honest", **beginning(tenant, "widgets")), "status": forged},
        )
    )
    one = f"{org}{TENANCY}/workspacetypes/honest"
    kept = kind["status"]["defaultAPIBindings"]
    assert kept[0]["identityHash"] != "0" * 64
    assert (
        olga.patch(one, {"metadata": {"labels": {"a": "b"}}, "status": forged}).body["status"]["defaultAPIBindings"]
        == kept
    )
    assert olga.patch(f"{one}/status", {"status": forged}).status == 403
    assert server.admin.patch(one, {"spec": {"defaultAPIBindings": None}}).body.get("status") in (None, {})
