"""kubectl's own questions about rights (AZ10)."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.access.authorization.apiservers import Client, Server

KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")

RECONCILED = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reconciled}
rules: [{verbs: [get], apiGroups: [""], resources: [pods]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: reconciled}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: reconciled}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: rec}]
"""


def kubectl(server: Server, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    at = f"https://127.0.0.1:{server.port}/clusters/root:acme"
    command = [str(KUBECTL), "--kubeconfig", str(server.kubeconfig), "--server", at, *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, check=False)


def test_auth_reconcile_and_can_i(world: Client, servers: list[Server]) -> None:
    """AZ10."""
    server = servers[0]
    done = kubectl(server, "auth", "reconcile", "-f", "-", stdin=RECONCILED)
    assert done.returncode == 0, done.stderr
    more = RECONCILED.replace("[get]", "[list]")
    assert kubectl(server, "auth", "reconcile", "-f", "-", stdin=more).returncode == 0
    role = world.ok("GET", "/clusters/root:acme/apis/rbac.authorization.k8s.io/v1/clusterroles/reconciled")
    assert {verb for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list"}
    whoami = kubectl(server, "auth", "whoami")
    assert "admin" in whoami.stdout, whoami.stderr
    listed = kubectl(server, "auth", "can-i", "--list")
    assert listed.returncode == 0, listed.stderr
    assert "*.*" in listed.stdout
    assert kubectl(server, "auth", "can-i", "get", "pods").stdout.strip() == "yes"
    created = kubectl(server, "create", "-f", "-", stdin=POLICY)
    assert created.returncode == 0, created.stderr
    assert "kpartners" in kubectl(server, "get", "policies.abac.authorization.kubernetes.io").stdout
    assert kubectl(server, "delete", "policies.abac.authorization.kubernetes.io", "kpartners").returncode == 0


POLICY = """
apiVersion: abac.authorization.kubernetes.io/v1beta1
kind: Policy
metadata: {name: kpartners}
spec: {tenant: globex, user: "*", namespace: team, resource: services, readonly: true}
"""
