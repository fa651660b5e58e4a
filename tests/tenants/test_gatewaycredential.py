"""A stolen credential of the gateway, and a tenant who would outlive the kill switch, on a cluster (GW10, P6)."""

from __future__ import annotations

import json

import pytest

from tenants.clusters import objects
from tenants.models import Phase
from tests.clusters import TestCluster

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("verb", "thing"),
    [
        ("get", "secrets"),
        ("list", "secrets"),
        ("watch", "secrets"),
        ("deletecollection", "secrets"),
        ("get", "pods"),
        ("list", "pods"),
        ("create", "pods"),
        ("get", "deployments.apps"),
        ("list", "deployments.apps"),
        ("create", "pods --subresource=exec"),
        ("create", "clusterrolebindings"),
        ("update", "namespaces"),
        ("impersonate", "users"),
        ("create", "serviceaccounts --subresource=token"),
        ("bind", "clusterroles"),
        ("escalate", "clusterroles"),
    ],
)
def test_the_gateway_may_not(cluster, verb, thing):
    """GW10."""
    assert cluster.kubectl("auth", "can-i", verb, *thing.split(), "-A", "--as=tenantry-gateway").strip().endswith("no")


def as_gateway(cluster: TestCluster, body: dict, *arguments: str) -> str:
    return cluster.kubectl("create", "-f", "-", "--as=tenantry-gateway", *arguments, stdin=json.dumps(body))


def test_a_stolen_gateway_credential_stays_inside_the_fence(cluster, workspace):
    """P6."""
    workspace = cluster.settle(workspace, Phase.READY)
    ns = workspace.k8s_namespace
    cluster.kubectl("create", "namespace", "tenant-00000000")
    cluster.kubectl("create", "serviceaccount", "sa-tenant-admin", "-n", "tenant-00000000")
    binding = objects.role_bindings(workspace)["tenantry-admin"]

    def changed(**fields: object) -> dict:
        body = json.loads(json.dumps(binding))
        body["metadata"]["name"] = "stolen"
        return {**body, **fields}

    me = [{"kind": "User", "name": "tenantry-gateway", "apiGroup": objects.RBAC}]
    elsewhere = changed()
    elsewhere["metadata"]["namespace"] = "tenant-00000000"
    secret = objects.anchor(workspace, "x", "sa-tenant-admin", "u")
    attempts = [
        changed(subjects=me),
        changed(roleRef={**binding["roleRef"], "name": "cluster-admin"}),
        elsewhere,
        {**objects.namespace(workspace), "metadata": {"name": "kube-evil"}},
        {**secret, "type": "Opaque"},
        {**secret, "stringData": {"a": "b"}},
    ]
    for body in attempts:
        assert "denied" in (out := as_gateway(cluster, body)) or "forbidden" in out, out
    mint = ("create", "token", "sa-tenant-admin", "--as=tenantry-gateway")
    assert "two hours" in cluster.kubectl(*mint, "-n", ns, "--duration=3h")
    assert "only in namespaces of workspaces" in cluster.kubectl(*mint, "-n", "tenant-00000000", "--duration=1h")
    assert "forbidden" in cluster.kubectl("create", "token", "default", "-n", ns, "--as=tenantry-gateway")
    assert "denied" in cluster.kubectl("delete", "namespace", "tenant-00000000", "--as=tenantry-gateway")
    cluster.kubectl("delete", "namespace", "tenant-00000000", "--wait=false")


def test_a_hostile_tenant_cannot_outlive_its_two_hours(cluster, workspace):
    workspace = cluster.settle(workspace, Phase.READY)
    ns = workspace.k8s_namespace
    me = f"--as=system:serviceaccount:{ns}:sa-tenant-admin"
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "ever", "namespace": ns, "annotations": {"kubernetes.io/service-account.name": "default"}},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": ns},
        "spec": {"serviceAccountName": "sa-tenant-admin", "containers": [{"name": "c", "image": "x"}]},
    }
    for body in (secret, pod):
        assert "denied" in cluster.kubectl("create", me, "-f", "-", stdin=json.dumps(body))
    assert "forbidden" in cluster.kubectl("create", "token", "sa-tenant-admin", "-n", ns, me)
    assert "denied" in cluster.kubectl(
        "create", "rolebinding", "x", "--clusterrole=tenantry-tenant-view", "--user=x", "-n", ns, me
    )
