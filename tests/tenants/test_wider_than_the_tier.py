"""What a tenant could add to what its tier opens, on a real cluster: by policies that add up, by volumes that lie about."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tenants.models import Cluster, Phase, Workspace
from tenants.services import cluster_check, cluster_register, workspace_init
from tests import kubeapiserver
from tests.clusters import TestCluster, prepared
from tests.speaking import Answer
from tests.story.product import eventually
from tests.tenants.conftest import OPERATOR, actor_of, make_tenant, make_user

pytestmark = pytest.mark.django_db
VOLUMES = "/api/v1/persistentvolumes"
MERGE = "application/merge-patch+json"


@pytest.fixture
def ready(cluster: TestCluster, workspace: Workspace) -> Workspace:
    return cluster.settle(workspace, Phase.READY)


def reaching(cluster: TestCluster, workspace: Workspace, *egress: dict[str, Any], **more: str) -> Answer:
    """What the cluster answers to a NetworkPolicy of the tenant's admin."""
    body = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "own"},
        "spec": {"podSelector": {}, "policyTypes": ["Egress"], "egress": list(egress)},
    }
    path = f"/apis/networking.k8s.io/v1/namespaces/{workspace.k8s_namespace}/networkpolicies?dryRun=All"
    me = f"system:serviceaccount:{workspace.k8s_namespace}:sa-tenant-admin"
    return cluster.real.admin.send("POST", path, body, **({"Impersonate_User": me} | more))


def to(**peer: Any) -> dict[str, Any]:
    return {"to": [peer]}


def labelled(**labels: str) -> dict[str, Any]:
    return {"matchLabels": {name.replace("__", "/").replace("_", "."): value for name, value in labels.items()}}


WIDER = {
    "everything": {},
    "every port of everything": {"ports": [{"port": 443}]},
    "every address": to(ipBlock={"cidr": "0.0.0.0/0"}),
    "a private address": to(ipBlock={"cidr": "10.0.0.1/32"}),
    "every namespace": to(namespaceSelector={}),
    "another tenant": to(namespaceSelector=labelled(tenantry_io__tenant="globex")),
    "namespaces by an expression": to(
        namespaceSelector={"matchExpressions": [{"key": "tenantry.io/tenant", "operator": "Exists"}]}
    ),
    "the cluster's own": to(namespaceSelector=labelled(kubernetes_io__metadata_name="kube-system")),
    "its own, and another": {
        "to": [{"podSelector": {}}, {"namespaceSelector": labelled(tenantry_io__tenant="globex")}]
    },
}
WITHIN = {
    "pods of its namespace": to(podSelector={}),
    "its own tenant": to(namespaceSelector=labelled(tenantry_io__tenant="acme")),
    "fewer of its own": to(
        podSelector=labelled(app="db"),
        namespaceSelector={
            **labelled(tenantry_io__tenant="acme"),
            "matchExpressions": [{"key": "x", "operator": "Exists"}],
        },
    ),
}


def test_a_tenants_own_network_policy_reaches_no_further_than_its_tier(cluster, ready):
    """GW10: policies add up, so what a tier shuts is shut by what tenants may not write."""
    found = {name: reaching(cluster, ready, rule).status for name, rule in {**WIDER, **WITHIN}.items()}
    assert found == {**dict.fromkeys(WIDER, 422), **dict.fromkeys(WITHIN, 201)}
    assert reaching(cluster, ready).status == 201, "less than the tier opens is theirs to choose"
    refused = reaching(cluster, ready, {})
    assert "for its tier to say" in refused["message"]
    everything = {name: reaching(cluster, ready, rule, Impersonate_User="root", Impersonate_Group="system:masters").status
                  for name, rule in WIDER.items()}  # fmt: skip
    assert set(everything.values()) == {201}, "the cluster's administrators stand above it"
    cluster.kubectl("annotate", "--overwrite", "namespace", ready.k8s_namespace, "tenantry.io/network=open")
    opened = dict.fromkeys(WIDER, 201)
    # A cluster reads a namespace for its policies from what it has heard so far.
    eventually(lambda: {name: reaching(cluster, ready, rule).status for name, rule in WIDER.items()} == opened)


@pytest.fixture
def volume(cluster: TestCluster) -> Iterator[str]:
    """One that lies about, of a class that is open to workspaces."""
    body = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "lies-about"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "standard",
            "hostPath": {"path": "/srv"},
        },
    }
    assert cluster.real.admin.send("POST", VOLUMES, body).status == 201
    yield f"{VOLUMES}/lies-about"
    cluster.real.admin.send("PATCH", f"{VOLUMES}/lies-about", {"metadata": {"finalizers": None}}, MERGE)
    cluster.real.admin.send("DELETE", f"{VOLUMES}/lies-about")


BINDERS = ["system:serviceaccount:kube-system:persistent-volume-binder", "system:kube-scheduler"]
"""Who gives volumes to claims: at once, or when the first pod asks."""


def given(cluster: TestCluster, volume: str, binder: str, **claim: str) -> Answer:
    """What the cluster answers to whoever gives the volume to a claim."""
    body = cluster.real.admin.send("GET", volume).body
    body["spec"]["claimRef"] = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "c", **claim}
    return cluster.real.admin.send("PUT", volume, body, Impersonate_User=binder)


@pytest.mark.parametrize("binder", BINDERS)
def test_a_volume_that_lies_about_is_given_to_no_claim_of_a_workspace(cluster, ready, volume, binder):
    """Whatever its class: the controller takes any that fits, and no fence sees the volume when the claim is made."""
    refused = given(cluster, volume, binder, namespace=ready.k8s_namespace, uid="u")
    assert (refused.status, "was there before" in refused["message"]) == (422, True)
    assert cluster.real.admin.send("GET", volume)["spec"].get("claimRef") is None
    # One that an administrator has set aside for the claim, or that was made for it, is only told the claim's uid.
    aside = {"spec": {"claimRef": {"name": "c", "namespace": ready.k8s_namespace}}}
    assert cluster.real.admin.send("PATCH", volume, aside, MERGE).status == 200
    assert given(cluster, volume, binder, namespace=ready.k8s_namespace, uid="u").status == 200


@pytest.mark.parametrize("binder", BINDERS)
def test_volumes_elsewhere_are_nobodys_business(cluster, ready, volume, binder):
    assert given(cluster, volume, binder, namespace="default", uid="u").status == 200


LIMITS = {
    "apiVersion": "apiserver.config.k8s.io/v1",
    "kind": "AdmissionConfiguration",
    "plugins": [
        {
            "name": "EventRateLimit",
            "configuration": {
                "apiVersion": "eventratelimit.admission.k8s.io/v1alpha1",
                "kind": "Configuration",
                "limits": [{"type": "Namespace", "qps": 5, "burst": 50, "cacheSize": 4096}],
            },
        }
    ],
}
"""docs/operators/operations.md."""


def looked_at(cluster: TestCluster) -> dict[str, str]:
    cluster_check(actor=OPERATOR, name=cluster.kind)
    return {row["name"]: row["state"] for row in Cluster.objects.get().checks}


def test_a_limit_of_events_that_is_said_and_not_there_is_found(cluster, ready):
    assert "EventRateLimit" not in looked_at(cluster)
    Cluster.objects.update(limits_events=True)
    cluster.settle(ready, Phase.READY)
    cluster.kubectl("annotate", "--overwrite", "namespace", ready.k8s_namespace, "tenantry.io/events=limited")
    assert looked_at(cluster)["EventRateLimit"] == "failed"
    assert "EventRateLimit" in Cluster.objects.get().checks[-1]["remedy"]


@pytest.fixture
def limiting(db: None, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[TestCluster]:
    """A kube-apiserver that is started as docs/operators/operations.md says."""
    if not kubeapiserver.PRESENT:
        pytest.skip(kubeapiserver.REASON)
    monkeypatch.setattr("store.synchronous.HOLD_SECONDS", 0)
    (tmp_path / "admission.yaml").write_text(yaml.safe_dump(LIMITS))
    flags = [
        "--enable-admission-plugins=EventRateLimit",
        f"--admission-control-config-file={tmp_path / 'admission.yaml'}",
    ]
    with kubeapiserver.running(controllers=True, flags=flags) as server, prepared(server) as found:
        kubeconfig = found.gateway_kubeconfig
        cluster_register(
            actor=OPERATOR, name=found.kind, kubeconfig=kubeconfig, kind="external", is_default=True, limits_events=True
        )
        yield found


def test_a_limit_of_events_that_is_there_is_proved(limiting, tiers):
    owner = make_user()
    make_tenant("acme", owner)
    workspace = workspace_init(actor=actor_of(owner), user=owner, tier="basic", name="web")
    limiting.settle(workspace, Phase.READY)
    assert looked_at(limiting)["EventRateLimit"] == "ok"
