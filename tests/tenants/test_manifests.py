"""What is shipped for real clusters says the same as what the product's own API server has built in (GW10)."""

from __future__ import annotations

from kube import bootstrap
from tenants import manifests


def test_roles_of_workspaces_are_the_same_on_every_cluster() -> None:
    shipped = {role["metadata"]["name"]: role["rules"] for role in manifests.load("tenant-roles.yaml")}
    built_in = {role["metadata"]["name"]: role["rules"] for role in bootstrap.CLUSTER_ROLES}
    assert set(shipped) == {bootstrap.TENANT_ADMIN, bootstrap.TENANT_EDIT, bootstrap.TENANT_VIEW}
    for name, rules in shipped.items():
        assert rules == built_in[name]


def test_no_workspace_role_makes_credentials_or_bindings() -> None:
    """A tenant that could do either would outlive its two hours, or its suspension."""
    for role in manifests.load("tenant-roles.yaml"):
        for rule in role["rules"]:
            assert "serviceaccounts/token" not in rule["resources"]
            assert "*" not in (*rule["resources"], *rule["verbs"], *rule["apiGroups"])
            assert not {"bind", "escalate", "impersonate"} & set(rule["verbs"])
            if {"roles", "rolebindings", "serviceaccounts", "resourcequotas", "limitranges"} & set(rule["resources"]):
                assert set(rule["verbs"]) <= {"get", "list", "watch"}
