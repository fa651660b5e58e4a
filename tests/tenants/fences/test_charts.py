"""What a chart needs on a real cluster works between the fences (GW10)."""

from __future__ import annotations

import time

import pytest

from tests.tenants.fences.bodies import (
    NETWORKING,
    RBAC,
    account,
    binding,
    claim,
    ingress,
    node_affinity,
    pod,
    pod_affinity,
    projected,
    service,
    volume,
)

CHART = {
    "account": ("serviceaccounts", "/api/v1", {"kind": "ServiceAccount", "metadata": {"name": "chart"}}),
    "role": (
        "roles",
        RBAC,
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "leader"},
            "rules": [
                {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
                {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
                {"apiGroups": [""], "resources": ["configmaps", "secrets"], "verbs": ["get", "list", "watch"]},
            ],
        },
    ),
    "pod": ("pods", "/api/v1", pod(serviceAccountName="app", **projected(3600))),
    "ephemeral-volume": (
        "pods",
        "/api/v1",
        pod(**volume(ephemeral={"volumeClaimTemplate": {"spec": claim(storageClassName="standard")["spec"]}})),
    ),
    "zones": (
        "pods",
        "/api/v1",
        pod(
            **node_affinity(
                matchExpressions=[{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]
            )
        ),
    ),
    "spread": ("pods", "/api/v1", pod(**pod_affinity("podAntiAffinity"))),
    "spread-if-possible": ("pods", "/api/v1", pod(**pod_affinity("podAntiAffinity", weight=1))),
    "service": ("services", "/api/v1", service()),
    "ingress": (
        "ingresses",
        NETWORKING,
        ingress("www.acme.apps.example.org", tls=[{"hosts": ["www.acme.apps.example.org"], "secretName": "t"}]),
    ),
    "apex-ingress": ("ingresses", NETWORKING, ingress("acme.apps.example.org")),
    "claim": ("persistentvolumeclaims", "/api/v1", claim(storageClassName="standard")),
    "policy": (
        "networkpolicies",
        NETWORKING,
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "mine"},
            "spec": {"podSelector": {"matchLabels": {"a": "b"}}, "policyTypes": ["Ingress"]},
        },
    ),
}


@pytest.mark.parametrize("case", CHART)
def test_what_a_chart_needs_works(house, case):
    """Benchmark: self-service of roles, bindings and network policies, beside everyday objects."""
    resource, api, body = CHART[case]
    answer = house.create(resource, body, api)
    assert answer.status == 201, answer.body


def test_a_chart_binds_its_own_account(house):
    for role in ("tenantry-tenant-view", "tenantry-tenant-admin"):
        answer = house.create("rolebindings", binding("chart", account("app", house.name), role), RBAC)
        assert answer.status == 201, answer.body


@pytest.mark.parametrize(
    "path", ["/apis/storage.k8s.io/v1/storageclasses", "/apis/networking.k8s.io/v1/ingressclasses"]
)
def test_classes_can_be_read_and_not_changed(house, path):
    assert house.send("GET", path).status == 200
    assert house.send("DELETE", f"{path}/x").status == 403


@pytest.mark.parametrize(
    ("verb", "api", "resource"),
    [("list", "metrics.k8s.io", "pods"), ("patch", "", "pods/ephemeralcontainers"), ("update", "", "pods/eviction")],
)
def test_top_and_debug_are_allowed(house, verb, api, resource):
    name, _, sub = resource.partition("/")
    spec = {"namespace": house.name, "verb": verb, "group": api, "resource": name, "subresource": sub}
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": spec},
    }
    answer = house.send("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", body)
    assert answer["status"]["allowed"] is True


def test_kinds_of_opened_crds_come_with_an_aggregated_role(house):
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"open-{house.name}", "labels": {"tenantry.io/aggregate-to-edit": "true"}},
        "rules": [{"apiGroups": ["example.org"], "resources": ["lamps"], "verbs": ["get", "list", "create"]}],
    }
    assert house.server.send("POST", f"{RBAC}/clusterroles", role).status == 201
    end = time.monotonic() + 300
    while house.send("GET", house.path("lamps", "/apis/example.org/v1")).status != 404:
        assert time.monotonic() < end
        time.sleep(0.1)
    view = house.send("GET", house.path("lamps", "/apis/example.org/v1"), account="sa-tenant-view")
    assert view.status == 403
    assert house.server.send("DELETE", f"{RBAC}/clusterroles/open-{house.name}").status == 200


def test_notes_of_several_lines_are_text(house):
    body = binding("chart:leader", account("app", house.name))
    body["metadata"]["annotations"] = {"note": "one\n\ttwo\r\nthree \u00e4"}
    answer = house.create("rolebindings", body, RBAC)
    assert answer.status == 201, answer.body
