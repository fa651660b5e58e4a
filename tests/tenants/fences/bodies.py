"""A workspace on the cluster as its admin reaches it, and the objects that tenants write."""

from __future__ import annotations

import time
import uuid
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from tenants.clusters import objects
from tenants.models import Cluster, Tenant, Tier, Workspace
from tenants.services.tiers import DEFAULTS
from tests.speaking import Answer, Speaker

RBAC = "/apis/rbac.authorization.k8s.io/v1"
NETWORKING = "/apis/networking.k8s.io/v1"
EVENTS, LEASES = "/apis/events.k8s.io/v1", "/apis/coordination.k8s.io/v1"

SAFE = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


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


def made(server: Speaker, tenant: str, *, security: str = "baseline", **policies: list[str] | None) -> House:
    identifier = uuid.uuid4()
    workspace = Workspace(
        id=identifier,
        tenant=Tenant(name=tenant),
        name="web",
        tier=Tier(**{**DEFAULTS[0], "pod_security": security, "policies": policies}),
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
    end = time.monotonic() + 300
    quota, account = house.path("resourcequotas/tenantry-quota"), house.path("serviceaccounts/default")
    while (
        "hard" not in (server.send("GET", quota).body.get("status") or {}) or server.send("GET", account).status != 200
    ):
        assert time.monotonic() < end, "the controllers do not come to it"
        time.sleep(0.1)
    # Of several policies the cluster takes one in before the other.
    critical = pod(**container(securityContext=SAFE), priorityClassName="system-node-critical")
    while "tenantry-pod-fence" not in str(house.create("pods", critical).body):
        assert time.monotonic() < end, "the fences do not hold"
        time.sleep(0.1)
    return house


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


def annotated_claim(annotations: dict[str, str]) -> dict[str, Any]:
    """One of an allowed class, by its field."""
    body = claim(storageClassName="standard")
    return {**body, "metadata": {**body["metadata"], "annotations": annotations}}


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
