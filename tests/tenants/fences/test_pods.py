"""What no pod of a tenant gets on a real cluster (GW10): the fences by attempts, each dry."""

from __future__ import annotations

import base64
import json
import uuid
from typing import Any

import pytest

from tests.tenants.fences.bodies import (
    container,
    node_affinity,
    pod,
    pod_affinity,
    projected,
    volume,
)

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
