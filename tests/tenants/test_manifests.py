"""What is shipped for real clusters says the same as what the product's own API server has built in (GW10)."""

from __future__ import annotations

from typing import Any

from kube.authorization import bootstrappolicy
from tenants import manifests


def test_roles_of_workspaces_are_the_same_on_every_cluster() -> None:
    roles = [body for body in manifests.load("tenant-roles.yaml") if body["kind"] == "ClusterRole"]
    shipped = {role["metadata"]["name"]: _gathered(role, roles) for role in roles if "aggregationRule" in role}
    built_in = {role["metadata"]["name"]: role["rules"] for role in bootstrappolicy.CLUSTER_ROLES}
    assert set(shipped) == {bootstrappolicy.TENANT_ADMIN, bootstrappolicy.TENANT_EDIT, bootstrappolicy.TENANT_VIEW}
    for name, rules in shipped.items():
        assert rules == built_in[name]


def _gathered(role: dict[str, Any], roles: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the cluster's controller fills in."""
    wanted = [selector["matchLabels"].items() for selector in role["aggregationRule"]["clusterRoleSelectors"]]
    found = [other for labels in wanted for other in roles if labels <= other["metadata"]["labels"].items()]
    return [rule for other in found for rule in other["rules"]]


def test_no_workspace_role_makes_credentials_or_limits() -> None:
    """A tenant that could do either would outlive its two hours, or its tier."""
    for role in manifests.load("tenant-roles.yaml"):
        for rule in role.get("rules", []):
            assert "serviceaccounts/token" not in rule["resources"]
            assert "*" not in (*rule["resources"], *rule["apiGroups"])
            # Of a connection every method, and the one that clusters have no verb for; a proxy keeps no object.
            assert "*" not in rule["verbs"] or rule["resources"] == ["pods/proxy", "services/proxy"]
            assert not {"bind", "escalate", "impersonate"} & set(rule["verbs"])
            if {"resourcequotas", "limitranges"} & set(rule["resources"]):
                assert set(rule["verbs"]) <= {"get", "list", "watch"}
