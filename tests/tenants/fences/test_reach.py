"""A hostile tenant on a real cluster (GW10): what reaches beyond the workspace, by attempts, each dry."""

from __future__ import annotations

from typing import Any

import pytest

from tenants import manifests
from tenants.clusters import objects
from tenants.models import Workspace
from tenants.services.tiers import DEFAULTS
from tests.tenants.fences.bodies import (
    EVENTS,
    LEASES,
    NETWORKING,
    RBAC,
    House,
    account,
    annotated_claim,
    binding,
    claim,
    group,
    ingress,
    pod,
    secret,
    service,
    user,
)

CLASS = "volume.beta.kubernetes.io/storage-class"
NODE = "volume.kubernetes.io/selected-node"
HOSTILE_ANNOTATIONS = {
    "nginx.ingress.kubernetes.io/server-alias": "bank.example.org",
    "haproxy-ingress.github.io/server-alias-regex": ".*",
    "konghq.com/host-aliases": "bank.example.org",
    "haproxy-ingress.github.io/config-backend": "http-request deny",
    "external-dns.alpha.kubernetes.io/hostname": "a.acme.apps.example.org,bank.example.org",
    "external-dns.alpha.kubernetes.io/internal-hostname": "bank.example.org",
    "metallb.io/loadBalancerIPs": "192.0.2.1",
    "metallb.universe.tf/allow-shared-ip": "shared",
    "kube-vip.io/loadbalancerIPs": "192.0.2.1",
    "lbipam.cilium.io/ips": "192.0.2.1",
    "io.cilium/lb-ipam-ips": "192.0.2.1",
    "service.beta.kubernetes.io/azure-load-balancer-ipv4": "192.0.2.1",
    "kubernetes.io/ingress.global-static-ip-name": "theirs",
    "nginx.ingress.kubernetes.io/auth-tls-secret": "kube-system/theirs",
}
PLAIN_ANNOTATIONS = {
    "nginx.ingress.kubernetes.io/rewrite-target": "/",
    "nginx.ingress.kubernetes.io/auth-secret": "mine",
    "cert-manager.io/cluster-issuer": "letsencrypt",
    "external-dns.alpha.kubernetes.io/hostname": "a.acme.apps.example.org,acme.apps.example.org",
    "service.beta.kubernetes.io/aws-load-balancer-ip-address-type": "ipv4",
}


@pytest.mark.parametrize("kind", ["services", "ingresses"])
def test_annotations_go_around_no_fence(house, kind):
    """Controllers read host names, addresses, secrets and whole configurations from annotations."""
    api, body = ("/api/v1", service()) if kind == "services" else (NETWORKING, ingress("a.acme.apps.example.org"))
    for expected, given in ((422, HOSTILE_ANNOTATIONS), (201, PLAIN_ANNOTATIONS)):
        for name, value in given.items():
            annotated = {**body, "metadata": {**body["metadata"], "annotations": {name: value}}}
            answer = house.create(kind, annotated, api)
            assert answer.status == expected, (name, answer.body)


def hostile(house: House) -> dict[str, tuple[str, str, dict[str, Any]]]:
    """Resource, API and body of what no tenant may make."""
    elsewhere = "kube-system"
    return {
        "external-ips": ("services", "/api/v1", service(externalIPs=["192.0.2.1"])),
        "node-port": ("services", "/api/v1", service(type="NodePort")),
        "load-balancer": ("services", "/api/v1", service(type="LoadBalancer")),
        "load-balancer-address": ("services", "/api/v1", service(type="LoadBalancer", loadBalancerIP="192.0.2.1")),
        "external-name": ("services", "/api/v1", service(type="ExternalName", externalName="db.tenant-b.svc")),
        "foreign-host": ("ingresses", NETWORKING, ingress("bank.example.org")),
        "neighbours-host": ("ingresses", NETWORKING, ingress("www.globex.apps.example.org")),
        "look-alike-host": ("ingresses", NETWORKING, ingress("evilacme.apps.example.org")),
        "wildcard-host": ("ingresses", NETWORKING, ingress("*.apps.example.org")),
        "no-host": ("ingresses", NETWORKING, ingress("")),
        "default-backend": (
            "ingresses",
            NETWORKING,
            ingress("a.acme.apps.example.org", defaultBackend={"service": {"name": "s", "port": {"number": 1}}}),
        ),
        "tls-host": (
            "ingresses",
            NETWORKING,
            ingress("a.acme.apps.example.org", tls=[{"hosts": ["bank.example.org"], "secretName": "t"}]),
        ),
        "snippet": (
            "ingresses",
            NETWORKING,
            ingress(
                "a.acme.apps.example.org",
                annotations={"nginx.ingress.kubernetes.io/configuration-snippet": "return 200;"},
            ),
        ),
        "dns-record": (
            "ingresses",
            NETWORKING,
            ingress(
                "a.acme.apps.example.org",
                annotations={"external-dns.alpha.kubernetes.io/hostname": "bank.example.org"},
            ),
        ),
        "named-volume": ("persistentvolumeclaims", "/api/v1", claim(storageClassName="standard", volumeName="pv-1")),
        "selected-volume": (
            "persistentvolumeclaims",
            "/api/v1",
            claim(storageClassName="standard", selector={"matchLabels": {"a": "b"}}),
        ),
        "classless-volume": ("persistentvolumeclaims", "/api/v1", claim(storageClassName="")),
        "any-volume": ("persistentvolumeclaims", "/api/v1", claim()),
        "static-class": ("persistentvolumeclaims", "/api/v1", claim(storageClassName="manual")),
        "static-class-by-annotation": ("persistentvolumeclaims", "/api/v1", annotated_claim({CLASS: "manual"})),
        "classless-volume-by-annotation": ("persistentvolumeclaims", "/api/v1", annotated_claim({CLASS: ""})),
        "chosen-node": ("persistentvolumeclaims", "/api/v1", annotated_claim({NODE: "node-1"})),
        "too-much-storage": (
            "persistentvolumeclaims",
            "/api/v1",
            claim(storageClassName="standard", resources={"requests": {"storage": "100Ti"}}),
        ),
        "endless-token": (
            "secrets",
            "/api/v1",
            secret(
                "t",
                "kubernetes.io/service-account-token",
                annotations={"kubernetes.io/service-account.name": "default"},
            ),
        ),
        "anchor-by-type": ("secrets", "/api/v1", secret("x", "tenantry.io/token-anchor")),
        "anchor-by-name": ("secrets", "/api/v1", secret("tenantry-anchor-2")),
        "our-label": ("secrets", "/api/v1", secret("y", labels={"tenantry.io/workspace": "x"})),
        "our-account": (
            "serviceaccounts",
            "/api/v1",
            {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "sa-tenant-edit"}},
        ),
        "our-binding": ("rolebindings", RBAC, binding("tenantry-admin", account("app", house.name))),
        "bound-user": ("rolebindings", RBAC, binding("b", user("mallory"))),
        "bound-group": ("rolebindings", RBAC, binding("b", group("system:serviceaccounts"))),
        "bound-account-elsewhere": ("rolebindings", RBAC, binding("b", account("default", elsewhere))),
        "bound-account-of-ours": ("rolebindings", RBAC, binding("b", account("sa-tenant-view", house.name))),
        "more-than-held": ("rolebindings", RBAC, binding("b", account("app", house.name), "cluster-admin")),
        "held-binding": (
            "rolebindings",
            RBAC,
            {
                **binding("b", account("app", house.name)),
                "metadata": {"name": "b", "finalizers": ["example.org/held"]},
            },
        ),
        "role-beyond": (
            "roles",
            RBAC,
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": {"name": "r"},
                "rules": [{"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"]}],
            },
        ),
        "our-policy": (
            "networkpolicies",
            NETWORKING,
            {
                "apiVersion": "networking.k8s.io/v1",
                "kind": "NetworkPolicy",
                "metadata": {"name": "tenantry-default"},
                "spec": {"podSelector": {}, "ingress": [{}]},
            },
        ),
        "quota": (
            "resourcequotas",
            "/api/v1",
            {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "q"}, "spec": {"hard": {"pods": "1"}}},
        ),
        "event": (
            "events",
            "/api/v1",
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": "e"},
                "involvedObject": {"kind": "Pod", "name": "p", "namespace": house.name},
                "message": "x" * 250_000,
            },
        ),
        "event-of-the-new-kind": (
            "events",
            EVENTS,
            {
                "apiVersion": "events.k8s.io/v1",
                "kind": "Event",
                "metadata": {"name": "e"},
                "eventTime": "2026-01-01T00:00:00.000000Z",
                "reportingController": "example.org/x",
                "reportingInstance": "x",
                "action": "A",
                "reason": "R",
                "type": "Normal",
                "regarding": {"kind": "Pod", "name": "p", "namespace": house.name},
            },
        ),
        "fat-lease": (
            "leases",
            LEASES,
            {
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {"name": "l", "annotations": {"a": "x" * 200_000}},
            },
        ),
        "daemon-set": (
            "daemonsets",
            "/apis/apps/v1",
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "metadata": {"name": "d"},
                "spec": {
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {"metadata": {"labels": {"a": "b"}}, "spec": pod()["spec"]},
                },
            },
        ),
    }


HOSTILE = tuple(hostile(House(Workspace(k8s_namespace="x"), None)))  # type: ignore[arg-type]


@pytest.mark.parametrize("case", HOSTILE)
def test_what_would_reach_beyond_the_workspace_is_refused(house, case):
    resource, api, body = hostile(house)[case]
    answer = house.create(resource, body, api)
    assert answer.status in {403, 422}, answer.body


def test_the_scheduler_alone_says_where_the_volume_of_a_claim_is_made(house, opened, boundless):
    """GW10, AD5: a tenant would choose its pods' node by it; in a template of claims, the cluster's controller writes it."""
    controller = "system:serviceaccount:kube-system:statefulset-controller"
    group, merge = "system:serviceaccounts:kube-system", "application/merge-patch+json"
    chosen = annotated_claim({NODE: "node-1"})
    path = house.path("persistentvolumeclaims")
    dry = f"{path}?dryRun=All"
    made = house.server.send("POST", dry, chosen, Impersonate_User=controller, Impersonate_Group="system:masters")
    assert made.status == 201, "whoever may change the fences stands above them"
    assert house.server.send("POST", dry, chosen, Impersonate_User=controller, Impersonate_Group=group).status == 422
    kept = {**claim(storageClassName="standard"), "metadata": {"name": "kept"}}
    assert house.send("POST", path, kept).status == 201
    change = {"metadata": {"annotations": {NODE: "node-1"}}}
    assert house.send("PATCH", f"{path}/kept", change, media=merge).status == 422
    scheduler = {"Impersonate_User": "system:kube-scheduler"}
    assert house.server.send("PATCH", f"{path}/kept", change, media=merge, **scheduler).status == 200
    labelled = house.send("PATCH", f"{path}/kept", {"metadata": {"labels": {"a": "b"}}}, media=merge)
    assert labelled.status == 200, labelled.body
    assert house.server.send("DELETE", f"{path}/kept").status == 200
    # No controller takes its protection off here.
    house.server.send("PATCH", f"{path}/kept", {"metadata": {"finalizers": None}}, media=merge)
    for other, node, status in ((opened, "node-1", 201), (opened, "node-2", 422), (boundless, "node-2", 201)):
        assert other.create("persistentvolumeclaims", annotated_claim({NODE: node})).status == status


OWNED = {
    "secrets": ("/api/v1", "tenantry-anchor-1"),
    "serviceaccounts": ("/api/v1", "sa-tenant-admin"),
    "rolebindings": (RBAC, "tenantry-admin"),
    "resourcequotas": ("/api/v1", "tenantry-quota"),
    "limitranges": ("/api/v1", "tenantry-limits"),
    "networkpolicies": (NETWORKING, "tenantry-default"),
}
CHANGES = {
    "label-off": {"metadata": {"labels": {"app.kubernetes.io/managed-by": None, "tenantry.io/workspace": None}}},
    "finalizer": {"metadata": {"finalizers": ["example.org/held"]}},
    "annotation": {"metadata": {"annotations": {"a": "b"}}},
    "owner": {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "u"}]}},
}


@pytest.mark.parametrize("resource", OWNED)
@pytest.mark.parametrize("change", ["delete", "deletecollection", *CHANGES])
def test_what_the_workspace_owns_is_nobodys_to_change(house, resource, change):
    """By name and by type: the label may be off already. Generated: each kind that is ours, each way to touch it."""
    api, name = OWNED[resource]
    path = house.path(f"{resource}/{name}", api)
    before = house.server.send("GET", path)
    assert before.status == 200
    if change == "delete":
        answer = house.send("DELETE", path)
    elif change == "deletecollection":
        answer = house.send("DELETE", house.path(resource, api) + f"?fieldSelector=metadata.name={name}")
    else:
        answer = house.send("PATCH", path, CHANGES[change], media="application/merge-patch+json")
    assert answer.status in {403, 422}, answer.body
    assert house.server.send("GET", path).revision == before.revision or resource == "resourcequotas"


def test_an_anchor_without_its_label_is_an_anchor_still(house):
    body = secret("tenantry-anchor-3", "tenantry.io/token-anchor")
    assert house.server.send("POST", house.path("secrets"), body).status == 201
    path = house.path("secrets/tenantry-anchor-3")
    assert house.send("DELETE", path).status == 422
    change = {"metadata": {"finalizers": ["example.org/held"]}}
    assert house.send("PATCH", path, change, media="application/merge-patch+json").status == 422


CLUSTER_SCOPED = [
    ("/api/v1", "nodes"),
    ("/api/v1", "namespaces"),
    ("/api/v1", "persistentvolumes"),
    (RBAC, "clusterroles"),
    (RBAC, "clusterrolebindings"),
    ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions"),
    ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies"),
    ("/apis/admissionregistration.k8s.io/v1", "mutatingwebhookconfigurations"),
    ("/apis/apiregistration.k8s.io/v1", "apiservices"),
    ("/apis/certificates.k8s.io/v1", "certificatesigningrequests"),
    ("/apis/storage.k8s.io/v1", "csidrivers"),
]


@pytest.mark.parametrize(("api", "resource"), CLUSTER_SCOPED)
def test_what_belongs_to_the_cluster_is_out_of_reach(house, api, resource):
    """Benchmark: cluster resources."""
    assert house.send("GET", f"{api}/{resource}").status == 403
    assert house.send("DELETE", f"{api}/{resource}/x").status == 403
    assert house.send("POST", f"{api}/{resource}", {"metadata": {"name": "x"}}).status == 403


@pytest.mark.parametrize("resource", ["pods", "secrets", "configmaps", "services", "serviceaccounts"])
def test_other_tenants_namespaces_are_out_of_reach(houses, resource):
    """Benchmark: other tenants' resources."""
    mine, theirs = houses
    assert mine.send("GET", theirs.path(resource)).status == 403
    assert mine.send("DELETE", theirs.path(f"{resource}/x")).status == 403
    assert mine.send("GET", f"/api/v1/{resource}").status == 403


def test_nobody_else_can_be_impersonated(house):
    admin = f"system:serviceaccount:{house.name}:sa-tenant-admin"
    review = {"verb": "impersonate", "resource": "users", "namespace": house.name}
    for resource in ("users", "groups", "serviceaccounts"):
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
        body["spec"] = {"user": admin, "resourceAttributes": {**review, "resource": resource}}
        answer = house.server.send("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        assert answer["status"]["allowed"] is False


def test_whatever_a_tenant_may_create_is_counted(house):
    """The class: every kind of the admin's role has a limit in every default tier."""
    plain = {"services", "pods", "persistentvolumeclaims"}
    uncounted = {"localsubjectaccessreviews"}
    for tier in DEFAULTS:
        for role in manifests.load("tenant-roles.yaml"):
            if role["kind"] != "ClusterRole" or not role["metadata"]["name"].startswith("tenantry-aggregate"):
                continue
            for rule in role["rules"]:
                if "create" not in rule["verbs"]:
                    continue
                suffix = f".{rule['apiGroups'][0]}" if rule["apiGroups"][0] else ""
                for resource in rule["resources"]:
                    if "/" in resource or resource in uncounted or suffix == ".events.k8s.io":
                        continue
                    names = {f"count/{resource}{suffix}"} | ({resource} & plain)
                    assert names & set(tier["quota"]), (tier["name"], resource)


@pytest.mark.parametrize("tier", DEFAULTS[:2], ids=lambda tier: tier["name"])
def test_small_tiers_have_no_node_ports_and_no_load_balancers(tier):
    assert tier["quota"]["services.nodeports"] == tier["quota"]["services.loadbalancers"] == "0"


def test_leases_are_counted(house):
    """The 51st is one too many; kept ones are cleared with the namespace."""
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}
    answers = [
        house.send("POST", house.path("leases", LEASES), {**body, "metadata": {"name": f"l{n}"}}) for n in range(52)
    ]
    assert [answer.status for answer in answers].count(201) <= 50
    assert "exceeded quota" in answers[-1]["message"]


def test_the_policies_are_understood_by_the_cluster(house):
    """The API server checks their types: a misspelt field would be found by nobody else."""
    listed = house.server.send("GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")
    seen = 0
    for policy in listed["items"]:
        rules = policy["spec"]["matchConstraints"]["resourceRules"]
        if len(rules) == 1 and len(rules[0]["resources"]) == 1 and "*" not in rules[0]["resources"][0]:
            # One kind: a field that it does not have is a mistake.
            warnings = ((policy.get("status") or {}).get("typeChecking") or {}).get("expressionWarnings")
            assert not warnings, (policy["metadata"]["name"], warnings)
            seen += 1
    assert seen == 2


GATEWAYS = {
    "foreign-namespace": ({"metadata": {"labels": {"a": "b"}}}, "default"),
    "lower-pod-security": ({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}}, ""),
    "no-pod-security": ({"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}, ""),
    "another-tenant": ({"metadata": {"labels": {"tenantry.io/tenant": "globex"}}}, ""),
    "another-workspace": ({"metadata": {"labels": {"tenantry.io/workspace": "x"}}}, ""),
    "another-tenant-by-annotation": ({"metadata": {"annotations": {"tenantry.io/tenant": "globex"}}}, ""),
}


@pytest.mark.parametrize("case", GATEWAYS)
def test_a_stolen_gateway_credential_weakens_no_namespace(house, case):
    change, namespace = GATEWAYS[case]
    path = f"/api/v1/namespaces/{namespace or house.name}?dryRun=All"
    media = "application/merge-patch+json"
    answer = house.server.send("PATCH", path, change, media=media, Impersonate_User="tenantry-gateway")
    assert answer.status == 422, answer.body
    restored = {"metadata": {"labels": objects.namespace(house.workspace)["metadata"]["labels"]}}
    answer = house.server.send(
        "PATCH",
        f"/api/v1/namespaces/{house.name}?dryRun=All",
        restored,
        media=media,
        Impersonate_User="tenantry-gateway",
    )
    assert answer.status == 200, answer.body


ROLES = {
    "nul": ("a\0b", {}, 1),
    "escape": ("a\x1b[2Jb", {}, 1),
    "long": ("a" * 254, {}, 1),
    "note": ("plain", {"note": "x\0y"}, 1),
    "crowd": ("plain", {}, 1001),
}


@pytest.mark.parametrize("case", ROLES)
def test_what_nobody_could_list_or_delete_is_not_made(house, case):
    name, notes, subjects = ROLES[case]
    body = binding(name, account("app", house.name))
    body["metadata"]["annotations"] = notes
    body["subjects"] *= subjects
    assert house.create("rolebindings", body, RBAC).status == 422
    role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": []}
    assert house.create("roles", role, RBAC).status == (201 if name == "plain" else 422)
