"""Rights end when what gives them ends: at once here, soon in every other process (AZ2, AZ6, AZ7; AZ-23, AZ-32)."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from access.authorization.build import check_options
from access.authorization.options import AuthorizationOptions
from tests.access.authorization.apiservers import Client, Server

RBAC = "/clusters/root:acme/apis/rbac.authorization.k8s.io/v1"
POLICIES = "/clusters/root:acme/apis/abac.authorization.kubernetes.io/v1beta1/policies"
ABAC = "abac.authorization.kubernetes.io/v1beta1"
TEMP = {"name": "temp", "tenant": "acme", "groups": ["system:authenticated"]}
PODS = {"verb": "list", "resource": "pods", "namespace": "team"}


def binding(name: str) -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name, "namespace": "team"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "temp"}],
    }


def policy(name: str, **spec: Any) -> dict[str, Any]:
    return {"apiVersion": ABAC, "kind": "Policy", "metadata": {"name": name}, "spec": spec}


def until(look: Any, expected: bool) -> None:
    """Wait until ``look`` says so. After a minute a test gives up: how fast it is, ``bench authorization`` measures."""
    end = time.monotonic() + 300
    while look() is not expected:
        assert time.monotonic() < end, f"never {expected}"


def test_a_deleted_binding_counts_at_once_here_and_soon_elsewhere(world: Client, servers: list[Server]) -> None:
    """AZ-32: here with the very next question; that notifications bring it, test_lost_notifications compares."""
    other = servers[1].client()
    for number in range(30):
        world.ok("POST", f"{RBAC}/namespaces/team/rolebindings", binding(f"temp-{number}"))
        assert world.review(TEMP, "root:acme", PODS)["allowed"]
        until(lambda: other.review(TEMP, "root:acme", PODS)["allowed"], True)
        world.ok("DELETE", f"{RBAC}/namespaces/team/rolebindings/temp-{number}")
        assert not world.review(TEMP, "root:acme", PODS)["allowed"]
        until(lambda: other.review(TEMP, "root:acme", PODS)["allowed"], False)


def test_a_policy_ends_with_its_object(world: Client, servers: list[Server]) -> None:
    """AZ7, AZ-23."""
    guest = {"name": "guest", "tenant": "globex", "groups": ["system:authenticated"]}
    world.ok("POST", POLICIES, policy("guests", tenant="globex", user="guest", namespace="team", resource="pods"))
    assert world.review(guest, "root:acme", PODS)["allowed"]
    assert world.request("GET", "/clusters/root:acme/api/v1/namespaces/team/pods", who=guest)[0] == 200
    other = servers[1].client()
    until(lambda: other.review(guest, "root:acme", PODS)["allowed"], True)
    world.ok("DELETE", f"{POLICIES}/guests")
    assert not world.review(guest, "root:acme", PODS)["allowed"]
    assert world.request("GET", "/clusters/root:acme/api/v1/namespaces/team/pods", who=guest)[0] == 403
    until(lambda: other.review(guest, "root:acme", PODS)["allowed"], False)


def test_a_grant_ends_with_the_tenant_of_whom_it_lets_in(world: Client) -> None:
    """AZ7."""
    world.ok("POST", "/api/v1/tenants", {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": "short"}})
    world.ok("POST", POLICIES, policy("shorts", tenant="short", user="*", namespace="team", resource="pods"))
    guest = {"name": "guest", "tenant": "short", "groups": ["system:authenticated"]}
    assert world.review(guest, "root:acme", PODS)["allowed"]
    world.ok("DELETE", "/api/v1/tenants/short")
    until(lambda: world.review(guest, "root:acme", PODS)["allowed"], False)


@pytest.mark.parametrize(
    ("who", "spec", "status"),
    [
        ("boss", {"tenant": "globex", "user": "x", "namespace": "*", "resource": "*", "apiGroup": "*"}, 201),
        ("boss", {"tenant": "globex", "user": "x", "nonResourcePath": "/metrics"}, 201),
        ("pol", {"tenant": "globex", "user": "x", "namespace": "*", "resource": "pods", "readonly": True}, 201),
        ("pol", {"tenant": "globex", "user": "x", "namespace": "*", "resource": "pods"}, 403),
        ("pol", {"tenant": "globex", "user": "x", "namespace": "*", "resource": "*", "apiGroup": "apps", "readonly": True}, 403),
        ("pol", {"tenant": "globex", "user": "x", "nonResourcePath": "/metrics", "readonly": True}, 403),
        ("bob", {"tenant": "globex", "user": "x", "namespace": "team", "resource": "pods"}, 403),
        ("boss", {"user": "x", "namespace": "*", "resource": "pods"}, 422),
        ("boss", {"tenant": "globex", "namespace": "*", "resource": "pods"}, 422),
        ("boss", {"tenant": "globex", "user": "x"}, 422),
        ("boss", {"tenant": "no/such", "user": "x", "resource": "pods"}, 422),
        ("boss", {"tenant": "globex", "user": "x", "resource": "pods", "readonly": "yes"}, 400),
    ],
)  # fmt: skip
def test_nobody_lets_others_do_more_than_it_may(world: Client, who: str, spec: dict[str, Any], status: int) -> None:
    """AZ7: the same check as for roles."""
    author = {"name": who, "tenant": "acme"}
    found, answer = world.request("POST", f"{POLICIES}?dryRun=All", policy("try", **spec), who=author)
    assert found == status, answer


def test_a_change_of_a_policy_is_checked_too(world: Client) -> None:
    """AZ7."""
    small = policy("grown", tenant="globex", user="x", namespace="*", resource="pods", readonly=True)
    author = {"name": "pol", "tenant": "acme"}
    world.ok("POST", POLICIES, small, who=author)
    patch = {"spec": {"readonly": False}}
    media = "application/merge-patch+json"
    assert world.request("PATCH", f"{POLICIES}/grown", patch, who=author, media=media)[0] == 403
    labels = {"metadata": {"labels": {"a": "b"}}}
    assert world.request("PATCH", f"{POLICIES}/grown", labels, who=author, media=media)[0] == 200
    world.ok("DELETE", f"{POLICIES}/grown")


def test_the_policy_file_is_read_again_and_the_last_good_one_stays(world: Client, policy_file: Path) -> None:
    """AZ3."""
    late = {"name": "late", "tenant": "acme", "groups": ["system:authenticated"]}
    before = policy_file.read_text()
    spec = {"tenant": "acme", "space": "acme", "user": "late", "namespace": "*", "resource": "pods"}
    line = json.dumps({"apiVersion": ABAC, "kind": "Policy", "spec": spec})

    def write(text: str) -> None:
        """At once: a server that reads half of it would keep that as the last good one."""
        beside = policy_file.with_suffix(".new")
        beside.write_text(text)
        beside.replace(policy_file)

    def allowed() -> bool:
        return bool(world.review(late, "root:acme", PODS)["allowed"])

    assert not allowed()
    write(f"{before}{line}\n")
    until(allowed, True)
    write(f"{before}not a line\n")
    time.sleep(1.5)
    assert allowed(), "what was read last stays in force"
    write(before)
    until(allowed, False)


def test_lines_that_cross_tenants_are_named_at_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """AZ6: by file and line, with what they open to whom."""
    path = tmp_path / "policies.jsonl"
    lines: list[dict[str, object]] = [
        {"user": "x"},
        {"user": "x", "tenant": "acme", "space": "acme"},
        {"user": "x", "tenant": "acme", "space": "system", "crossTenant": True},
        {"user": "x", "tenant": "*", "space": "*", "crossTenant": True},
    ]
    path.write_text("".join(json.dumps({"apiVersion": ABAC, "kind": "Policy", "spec": spec}) + "\n" for spec in lines))
    check_options(AuthorizationOptions(mode=("ABAC", "RBAC"), policy_file=path))
    assert [record.getMessage() for record in caplog.records] == [
        f"{path}, line 3: opens the system space to users of tenant 'acme'",
        f"{path}, line 4: opens every space to users of any tenant",
    ]


def test_a_bad_line_names_its_number_and_stops_the_start(tmp_path: Path) -> None:
    """AZ3."""
    from django.core.management import CommandError, call_command

    path = tmp_path / "policies.jsonl"
    path.write_text(
        f"# first\n{json.dumps({'apiVersion': ABAC, 'kind': 'Policy', 'spec': {'user': 'x', 'verb': 'get'}})}\n"
    )
    with pytest.raises(CommandError, match="line 2"):
        call_command("apiserver", "--authorization-mode=ABAC", f"--authorization-policy-file={path}")
    with pytest.raises(CommandError, match="go together"):
        call_command("apiserver", "--authorization-mode=RBAC", f"--authorization-policy-file={path}")
    with pytest.raises(CommandError, match="go together"):
        call_command("apiserver", "--authorization-mode=RBAC,Webhook")


def test_a_kubelet_registers_itself_and_no_other(world: Client) -> None:
    """AZ4."""
    kubelet = {"name": "system:node:n1", "tenant": "system", "groups": ["system:nodes"]}

    def node(name: str, **labels: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}

    assert world.request("POST", "/api/v1/nodes", node("n2"), who=kubelet)[0] == 403
    reserved = {"node-restriction.kubernetes.io/zone": "a"}
    assert world.request("POST", "/api/v1/nodes", node("n1", **reserved), who=kubelet)[0] == 403
    assert world.request("POST", "/api/v1/nodes", node("n1"), who=kubelet)[0] == 201
    media = "application/merge-patch+json"
    taint = {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    assert world.request("PATCH", "/api/v1/nodes/n1", taint, who=kubelet, media=media)[0] == 403
    ready = {"status": {"phase": "Running"}}
    assert world.request("PATCH", "/api/v1/nodes/n1/status", ready, who=kubelet, media=media)[0] == 200
    assert world.request("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn1", who=kubelet)[0] == 200
    assert world.request("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Dn2", who=kubelet)[0] == 403
    assert world.request("GET", "/api/v1/pods", who=kubelet)[0] == 403

    def pod(name: str, node: str) -> dict[str, Any]:
        volume = {"name": "v", "secret": {"secretName": "borrowed"}}
        containers = [{"name": "c", "image": "i"}]
        spec = {"nodeName": node, "serviceAccountName": "runner", "containers": containers, "volumes": [volume]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}

    inside = "/api/v1/namespaces/ops"
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "borrowed"}}
    world.ok("POST", f"{inside}/secrets", secret)
    world.ok("POST", f"{inside}/pods", pod("elsewhere", "n2"))
    assert world.request("GET", f"{inside}/secrets/borrowed", who=kubelet)[0] == 403
    world.ok("POST", f"{inside}/pods", pod("here", "n1"))
    assert world.request("GET", f"{inside}/secrets/borrowed", who=kubelet)[0] == 200
    assert world.request("GET", f"{inside}/secrets/unwanted", who=kubelet)[0] == 403

    tokens = f"{inside}/serviceaccounts/runner/token"
    of_secret = {"kind": "Secret", "apiVersion": "v1", "name": "borrowed"}
    for bound, status in ((None, 403), (of_secret, 403), ("elsewhere", 403), ("missing", 404), ("here", 201)):
        reference = {"kind": "Pod", "apiVersion": "v1", "name": bound} if isinstance(bound, str) else bound
        spec = {"spec": {"boundObjectRef": reference} if reference else {}}
        assert (bound, world.request("POST", tokens, spec, who=kubelet)[0]) == (bound, status)
    assert world.request("POST", tokens, {"spec": {}})[0] == 201, "operators are no nodes"
    for name in ("elsewhere", "here"):
        world.ok("DELETE", f"{inside}/pods/{name}?gracePeriodSeconds=0")
    assert world.request("GET", f"{inside}/secrets/borrowed", who=kubelet)[0] == 403
