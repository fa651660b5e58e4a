"""A hostile tenant on a real cluster, and what a chart needs there (GW10): the fences by attempts, each dry."""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import pytest

from tenants import manifests
from tenants.clusters import objects
from tenants.models import Cluster, Tenant, Tier, Workspace
from tenants.services.tiers import DEFAULTS
from tests.speaking import Answer, Speaker

RBAC = "/apis/rbac.authorization.k8s.io/v1"
NETWORKING = "/apis/networking.k8s.io/v1"
EVENTS, LEASES = "/apis/events.k8s.io/v1", "/apis/coordination.k8s.io/v1"


@dataclass
class House:
    """A workspace on the cluster, as its admin reaches it."""

    workspace: Workspace
    server: Speaker

    @property
    def name(self) -> str:
        return str(self.workspace.k8s_namespace)

    def path(self, resource: str, api: str = "/api/v1") -> str:
        return f"{api}/namespaces/{self.name}/{resource}"

    def send(
        self, method: str, path: str, body: Any = None, *, account: str = "sa-tenant-admin", **more: str
    ) -> Answer:
        me = f"system:serviceaccount:{self.name}:{account}"
        return self.server.send(method, path, body, **{"Impersonate_User": me, **more})

    def create(self, resource: str, body: dict[str, Any], api: str = "/api/v1") -> Answer:
        """A dry run: admission decides, nothing is kept."""
        return self.send("POST", self.path(resource, api) + "?dryRun=All", body)


def made(server: Speaker, tenant: str, *, security: str = "baseline") -> House:
    identifier = uuid.uuid4()
    workspace = Workspace(
        id=identifier,
        tenant=Tenant(name=tenant),
        name="web",
        tier=Tier(**DEFAULTS[0], pod_security=security),
        cluster=Cluster(name="c", kind="external", ingress_domain="apps.example.org", storage_classes=["standard"]),
        k8s_namespace=f"tenant-{identifier.hex[:8]}",
    )
    house = House(workspace, server)
    bodies = [
        ("/api/v1/namespaces", objects.namespace(workspace)),
        (house.path("networkpolicies", NETWORKING), objects.network_policy(workspace)),
        (house.path("resourcequotas"), objects.resource_quota(workspace)),
        (house.path("limitranges"), objects.limit_range(workspace)),
        *((house.path("serviceaccounts"), objects.service_account(workspace, n)) for n in objects.ACCOUNTS.values()),
        *((house.path("rolebindings", RBAC), body) for body in objects.role_bindings(workspace).values()),
        (house.path("secrets"), secret("tenantry-anchor-1", "tenantry.io/token-anchor")),
        (house.path("serviceaccounts"), {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "app"}}),
    ]
    for path, body in bodies:
        answer = server.send("POST", path, deepcopy(body))
        assert answer.status == 201, answer.body
    end = time.monotonic() + 60
    quota, account = house.path("resourcequotas/tenantry-quota"), house.path("serviceaccounts/default")
    while (
        "hard" not in (server.send("GET", quota).body.get("status") or {}) or server.send("GET", account).status != 200
    ):
        assert time.monotonic() < end, "the controllers do not come to it"
        time.sleep(0.1)
    return house


@pytest.fixture(scope="module")
def houses(cluster_kube_apiserver) -> Iterator[tuple[House, House]]:
    server = cluster_kube_apiserver.real.admin
    found = made(server, "acme"), made(server, "globex", security="restricted")
    yield found
    for house in found:
        server.send("DELETE", f"/api/v1/namespaces/{house.name}")


@pytest.fixture(scope="module")
def house(houses) -> House:
    return houses[0]


def pod(**spec: Any) -> dict[str, Any]:
    containers = spec.pop("containers", [{"name": "c", "image": "example.org/x"}])
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": containers, **spec}}


def node_affinity(**term: Any) -> dict[str, Any]:
    selector = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": selector}}


def volume(**source: Any) -> dict[str, Any]:
    return {"volumes": [{"name": "v", **source}]}


def projected(seconds: int) -> dict[str, Any]:
    token = {"serviceAccountToken": {"path": "t", "expirationSeconds": seconds}}
    return volume(projected={"sources": [token]})


def pod_affinity(kind: str, *, weight: int = 0, **term: Any) -> dict[str, Any]:
    full = {"topologyKey": "topology.kubernetes.io/zone", "labelSelector": {}, **term}
    if weight:
        preferred = [{"weight": weight, "podAffinityTerm": full}]
        return {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [full]}}}


def container(**fields: Any) -> dict[str, Any]:
    return {"containers": [{"name": "c", "image": "example.org/x", **fields}]}


def service(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}], **spec}}


def ingress(*hosts: str, annotations: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    backend = {"service": {"name": "s", "port": {"number": 80}}}
    paths = {"http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}
    rules = [{**({"host": host} if host else {}), **paths} for host in hosts]
    metadata = {"name": "i", **({"annotations": annotations} if annotations else {})}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": metadata,
        "spec": {**({"rules": rules} if rules else {}), **spec},
    }


def claim(**spec: Any) -> dict[str, Any]:
    fields = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, **spec}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "d"}, "spec": fields}


def binding(name: str, subject: dict[str, str], role: str = "tenantry-tenant-view") -> dict[str, Any]:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [subject],
    }


def secret(name: str, kind: str = "Opaque", **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, **metadata}, "type": kind}


def user(name: str) -> dict[str, str]:
    return {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}


def group(name: str) -> dict[str, str]:
    return {**user(name), "kind": "Group"}


def account(name: str, namespace: str) -> dict[str, str]:
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


HOSTILE_PODS = {
    "node-critical": pod(priorityClassName="system-node-critical"),
    "cluster-critical": pod(priorityClassName="system-cluster-critical"),
    "node-name": pod(nodeName="node-1"),
    "node-selector": pod(nodeSelector={"kubernetes.io/hostname": "node-1"}),
    "control-plane-selector": pod(nodeSelector={"node-role.kubernetes.io/control-plane": ""}),
    "node-field": pod(**node_affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["node-1"]}])),
    "node-affinity": pod(
        **node_affinity(matchExpressions=[{"key": "kubernetes.io/hostname", "operator": "In", "values": ["n"]}])
    ),
    "all-taints": pod(tolerations=[{"operator": "Exists"}]),
    "control-plane-taint": pod(tolerations=[{"key": "node-role.kubernetes.io/control-plane", "operator": "Exists"}]),
    **{
        f"{kind}-{weight}-{'-'.join(others)}": pod(**pod_affinity(kind, weight=weight, **others))
        for kind in ("podAffinity", "podAntiAffinity")
        for weight in (0, 1)
        for others in ({"namespaceSelector": {}}, {"namespaces": ["kube-system"]})
    },
    "inline-driver": pod(
        **volume(csi={"driver": "nfs.csi.k8s.io", "volumeAttributes": {"server": "10.0.0.1", "share": "/"}})
    ),
    "host-path": pod(**volume(hostPath={"path": "/"})),
    "nfs": pod(**volume(nfs={"server": "10.0.0.1", "path": "/"})),
    "iscsi": pod(**volume(iscsi={"targetPortal": "10.0.0.1", "iqn": "iqn.2001-04.com.example:x", "lun": 0})),
    "token-of-a-day": pod(**projected(86400)),
    "token-of-a-year": pod(**projected(31536000)),
    "our-account": pod(serviceAccountName="sa-tenant-admin"),
    "privileged": pod(**container(securityContext={"privileged": True})),
    "capability": pod(**container(securityContext={"capabilities": {"add": ["SYS_ADMIN"]}})),
    "host-network": pod(hostNetwork=True),
    "host-pid": pod(hostPID=True),
    "host-ipc": pod(hostIPC=True),
    "host-port": pod(**container(ports=[{"containerPort": 80, "hostPort": 80}])),
    "sysctl": pod(securityContext={"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}),
    "unmasked-proc": pod(**container(securityContext={"procMount": "Unmasked"})),
    "too-much-memory": pod(**container(resources={"limits": {"memory": "64Gi"}})),
    "too-much-scratch": pod(**container(resources={"limits": {"ephemeral-storage": "1Ti"}})),
}
"""Benchmark: privileged containers, capabilities, host namespaces, host ports, bind mounts; and this list's own."""


@pytest.mark.parametrize("case", HOSTILE_PODS)
def test_a_hostile_pod_is_refused(house, case):
    answer = house.create("pods", HOSTILE_PODS[case])
    assert answer.status in {403, 422}, answer.body


def test_a_hostile_template_is_refused_as_a_pod_of_the_clusters_controller(house):
    """What is fenced is the pod, whoever makes it: the same attempts as the ReplicaSet controller's."""
    for case, body in HOSTILE_PODS.items():
        me = "system:serviceaccount:kube-system:replicaset-controller"
        answer = house.server.send("POST", house.path("pods") + "?dryRun=All", body, Impersonate_User=me)
        assert answer.status in {403, 422}, (case, answer.body)


RESTRICTED = {
    "escalation": pod(**container(securityContext={"allowPrivilegeEscalation": True})),
    "root": pod(**container(securityContext={"runAsUser": 0})),
    "no-seccomp": pod(**container(securityContext={"runAsNonRoot": True, "allowPrivilegeEscalation": False})),
}


@pytest.mark.parametrize("case", RESTRICTED)
def test_a_restricted_tier_refuses_root_and_escalation(houses, case):
    """Benchmark: privilege escalation, containers as root."""
    answer = houses[1].create("pods", RESTRICTED[case])
    assert answer.status == 403, answer.body
    assert "PodSecurity" in answer["message"]


SAFE = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def test_a_restricted_tier_pulls_images_anew(houses):
    """Benchmark: imagePullPolicy Always."""
    first = [{"name": "i", "image": "example.org/y", "imagePullPolicy": "Never", "securityContext": SAFE}]
    body = pod(**container(imagePullPolicy="IfNotPresent", securityContext=SAFE), initContainers=first)
    answer = houses[1].create("pods", body)
    assert answer.status == 201, answer.body
    every = [*answer["spec"]["containers"], *answer["spec"]["initContainers"]]
    assert {each["imagePullPolicy"] for each in every} == {"Always"}


def test_a_debuggers_image_is_pulled_anew_too(houses):
    house = houses[1]
    made = {**pod(**container(securityContext=SAFE)), "metadata": {"name": "debugged"}}
    assert house.server.send("POST", house.path("pods"), made).status == 201
    debuggers: list[dict[str, Any]] = []
    for name in ("first", "second"):
        debuggers.append({"name": name, "image": "example.org/x", "imagePullPolicy": "Never", "securityContext": SAFE})
        answer = house.send(
            "PATCH",
            house.path("pods/debugged/ephemeralcontainers"),
            {"spec": {"ephemeralContainers": debuggers[-1:]}},
            media="application/strategic-merge-patch+json",
        )
        assert answer.status == 200, answer.body
    assert [each["imagePullPolicy"] for each in answer["spec"]["ephemeralContainers"]] == ["Always", "Always"]


@pytest.mark.parametrize(
    "spec",
    [
        {"nodeSelector": {"kubernetes.io/hostname": "node-1"}},
        node_affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]),
    ],
    ids=["selector", "affinity"],
)
def test_a_gated_pod_is_not_sent_to_a_node_later(house, spec):
    """Where a pod goes may be narrowed as long as a scheduling gate holds it."""
    name = f"gated-{uuid.uuid4().hex[:8]}"
    gated = {**pod(schedulingGates=[{"name": "example.org/wait"}]), "metadata": {"name": name}}
    assert house.server.send("POST", house.path("pods"), gated).status == 201
    path, media = house.path(f"pods/{name}"), "application/merge-patch+json"
    answer = house.send("PATCH", path, {"spec": spec}, media=media)
    assert answer.status == 422, answer.body
    assert "tenantry-pod-fence" in answer["message"]
    zone = {"spec": {"nodeSelector": {"topology.kubernetes.io/zone": "a"}}}
    assert house.send("PATCH", path, zone, media=media).status == 200


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


def test_debugging_a_pod_brings_no_privileges(house):
    """``kubectl debug`` adds a container; a privileged one is refused as any other."""
    assert house.server.send("POST", house.path("pods"), pod()).status == 201
    for context, status in (({}, 200), ({"privileged": True}, 403)):
        debugger = {"name": f"d{status}", "image": "example.org/x", "securityContext": context}
        change = {"spec": {"ephemeralContainers": [debugger]}}
        path = house.path("pods/p/ephemeralcontainers")
        answer = house.send("PATCH", path, change, media="application/strategic-merge-patch+json")
        assert answer.status == status, answer.body


def test_a_pods_token_lives_an_hour_and_no_year(house):
    """The API server would make a year of the kubelet's 3607 s."""
    house.server.send("POST", house.path("pods"), {**pod(), "metadata": {"name": "reader"}})
    uid = house.server.send("GET", house.path("pods/reader"))["metadata"]["uid"]
    bound = {"apiVersion": "v1", "kind": "Pod", "name": "reader", "uid": uid}
    body = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": 3607, "boundObjectRef": bound},
    }
    answer = house.server.send("POST", house.path("serviceaccounts/default/token"), body)
    payload = answer["status"]["token"].split(".")[1]
    claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    assert claims["exp"] - claims["iat"] <= 7200
    body["spec"]["expirationSeconds"] = 86400
    assert house.server.send("POST", house.path("serviceaccounts/default/token"), body).status == 422


def test_kinds_of_opened_crds_come_with_an_aggregated_role(house):
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"open-{house.name}", "labels": {"tenantry.io/aggregate-to-edit": "true"}},
        "rules": [{"apiGroups": ["example.org"], "resources": ["lamps"], "verbs": ["get", "list", "create"]}],
    }
    assert house.server.send("POST", f"{RBAC}/clusterroles", role).status == 201
    end = time.monotonic() + 60
    while house.send("GET", house.path("lamps", "/apis/example.org/v1")).status != 404:
        assert time.monotonic() < end
        time.sleep(0.1)
    view = house.send("GET", house.path("lamps", "/apis/example.org/v1"), account="sa-tenant-view")
    assert view.status == 403
    assert house.server.send("DELETE", f"{RBAC}/clusterroles/open-{house.name}").status == 200


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


def test_notes_of_several_lines_are_text(house):
    body = binding("chart:leader", account("app", house.name))
    body["metadata"]["annotations"] = {"note": "one\n\ttwo\r\nthree \u00e4"}
    answer = house.create("rolebindings", body, RBAC)
    assert answer.status == 201, answer.body
