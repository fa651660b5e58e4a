"""What the store keeps of placed namespaces, to decide by, no provider meets: not by naming none, nor across consumers (KC6, GW18)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from tests.gateway.apiexports import APIS, binds, export, schema
from tests.gateway.callers import Caller
from tests.gateway.conftest import Server, tenant_named
from tests.gateway.organization import RBAC, made, ready

GROUP = "rbac.authorization.k8s.io"
KEPT = {"roles": {"rules": []}, "rolebindings": {"roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": "view"}}}
VERBS = ["get", "list", "watch", "delete", "deletecollection"]


def names(answer: Any) -> set[tuple[str, str]]:
    assert answer.status == 200, answer.body
    return {(each["metadata"]["namespace"], each["metadata"]["name"]) for each in answer.body["items"]}


@pytest.fixture
def tenant(server: Server) -> str:
    return tenant_named(server, f"r{uuid4().hex[:8]}")


@pytest.fixture
def owner(server: Server, tenant: str) -> Caller:
    return server.user(tenant, "olga", "tenantry:owner")


@pytest.mark.parametrize("plural", KEPT)
def test_a_claim_does_not_reach_what_is_kept_of_placed_namespaces(
    server: Server, tenant: str, owner: Caller, plural: str
) -> None:
    space = f"/clusters/root:{tenant}"
    ready(owner, space, "provider")
    provider = f"{space}:provider"
    made(owner.post(f"{provider}{APIS}/apiresourceschemas", schema("Widget", scope="Cluster")))
    claim = {"group": GROUP, "resource": plural, "all": True, "verbs": VERBS}
    offered = export("widgets", "v1.widgets.example.org", permissionClaims=[claim])
    made(owner.post(f"{provider}{APIS}/apiexports", offered))
    accepted = [{**claim, "state": "Accepted"}]
    binds(owner, space, "widgets", f"root:{tenant}:provider:widgets", permissionClaims=accepted)

    away = f"{tenant}-away"
    made(owner.post("/api/v1/namespaces", {"metadata": {"name": away}}))
    body = {"metadata": {"name": "one"}, **KEPT[plural]}
    kept = made(owner.post(f"{RBAC}/namespaces/{away}/{plural}", body))
    labels = {"tenantry.io/cluster": "far", "tenantry.io/workspace": "4f0e"}
    marked = f"{space}/api/v1/namespaces/{away}"
    assert server.admin.patch(marked, {"metadata": {"labels": labels}}).status == 200
    made(owner.post(f"{RBAC}/namespaces/default/{plural}", body))

    view = f"/services/apiexport/root:{tenant}:provider/widgets/clusters/root:{tenant}{RBAC}/{plural}"
    everywhere = view.replace(f"clusters/root:{tenant}", "clusters/*")
    for path in (view, everywhere):
        seen = names(owner.get(path))
        assert ("default", "one") in seen
        assert away not in {namespace for namespace, _ in seen}
        since = str(int(kept["metadata"]["resourceVersion"]) - 1)
        with owner.watch(path, resourceVersion=since) as watch:
            told = watch.take(1)[0]["object"]["metadata"]
            assert (told["namespace"], told["name"]) == ("default", "one")
    assert owner.delete(view).status == 200
    assert ("default", "one") not in names(owner.get(view))
    assert server.admin.patch(marked, {"metadata": {"labels": dict.fromkeys(labels)}}).status == 200
    assert owner.get(f"{RBAC}/namespaces/{away}/{plural}/one").status == 200
