"""What no pod of a tenant gets on a real cluster (GW10): the fences by attempts, each dry."""

from __future__ import annotations

import base64
import json
import uuid
from itertools import product
from typing import Any

import pytest

from kube.policies.violations import violations
from tenants.policies import policy_of_workspace
from tests.story.product import eventually
from tests.tenants.fences.bodies import (
    SAFE,
    container,
    node_affinity,
    pod,
    pod_affinity,
    projected,
    volume,
)

TOLERATION = ("key", "operator", "value", "effect")

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


def _hosts(*names: str, operator: str = "In") -> dict[str, Any]:
    key = "kubernetes.io/hostname"
    return node_affinity(
        matchExpressions=[{"key": key, "operator": operator, **({"values": [*names]} if names else {})}]
    )


ROLE = "node-role.kubernetes.io"
CHOICES: list[dict[str, Any]] = [
    {"nodeName": "node-1"},
    {"nodeName": "node-2"},
    {"nodeSelector": {"kubernetes.io/hostname": "node-1"}},
    {"nodeSelector": {"kubernetes.io/hostname": "node-2"}},
    {"nodeSelector": {f"{ROLE}/gpu": "a"}},
    {"nodeSelector": {f"{ROLE}/control-plane": ""}},
    {"nodeSelector": {f"{ROLE}/gpu": "", "kubernetes.io/hostname": "node-2"}},
    _hosts("node-1"),
    _hosts("node-1", "node-2"),
    _hosts("node-1", operator="NotIn"),
    _hosts(operator="Exists"),
    node_affinity(matchExpressions=[{"key": f"{ROLE}/gpu", "operator": "Exists"}]),
    node_affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]),
    *(
        pod_affinity(kind, weight=weight, **others)
        for kind in ("podAffinity", "podAntiAffinity")
        for weight in (0, 1)
        for others in ({"namespaceSelector": {}}, {"namespaces": ["shared"]}, {"namespaces": ["shared", "kube-system"]})
    ),
    *(
        {"tolerations": [{name: value for name, value in zip(TOLERATION, each, strict=True) if value is not None}]}
        for each in product(
            ("spot", "gpu", "batch", "old", "other", None),
            (None, "Exists", "Equal"),
            (None, "yes", "1"),
            (None, "NoSchedule", "NoExecute"),
        )
    ),
    {"tolerations": [{"key": "spot", "operator": "Exists"}, {"key": "other", "operator": "Exists"}]},
]
"""What pods may ask of nodes, of each other and of taints."""


@pytest.mark.parametrize("which", ["house", "opened", "boundless"])
def test_the_fence_opens_what_the_rules_of_the_workspace_open(which, request):
    """AD5: a pod that the door lets through comes to be, and no other does, whoever makes it."""
    house = request.getfixturevalue(which)
    policy, wrong = policy_of_workspace(house.workspace), []
    for spec in CHOICES:
        answer = house.create("pods", pod(**spec))
        is_fenced = "tenantry-pod-fence" in str(answer.body)
        if answer.status == 201 or is_fenced:
            found = violations(policy, "", "Pod", None, pod(**spec))
            # Labels of nodes that all of them may have are the door's alone.
            if is_fenced != bool(found):
                wrong.append((spec, answer.status, found))
    assert not wrong


def test_a_pod_keeps_what_it_bears_when_a_rule_becomes_stricter(opened):
    """What ends a Job changes its pods; nothing is added on the way."""
    path, spot = opened.path("pods"), {"key": "spot", "operator": "Exists"}
    body = {**pod(tolerations=[spot]), "metadata": {"name": "bearing", "finalizers": ["example.org/wait"]}}
    assert opened.server.send("POST", path, body).status == 201
    place, media = f"/api/v1/namespaces/{opened.name}", "application/merge-patch+json"

    def tell(borne: str) -> None:
        said = {"metadata": {"annotations": {"tenantry.io/tolerations": borne}}}
        assert opened.server.send("PATCH", place, said, media=media).status == 200

    before = opened.server.send("GET", place)["metadata"]["annotations"]["tenantry.io/tolerations"]
    tell("")
    try:
        assert_eventually_fenced(opened, pod(tolerations=[spot]))
        kept = [
            *opened.server.send("GET", f"{path}/bearing")["spec"]["tolerations"],
            {"key": "gpu", "operator": "Exists"},
        ]
        change = {"spec": {"tolerations": kept}}
        assert "tenantry-pod-fence" in str(opened.send("PATCH", f"{path}/bearing", change, media=media).body)
        change = {"metadata": {"finalizers": None, "labels": {"a": "b"}}}
        assert opened.send("PATCH", f"{path}/bearing", change, media=media).status == 200
    finally:
        tell(before)


def assert_eventually_fenced(house, body):
    """The cluster's fences learn of a changed namespace in their own time."""
    eventually(lambda: "tenantry-pod-fence" in str(house.create("pods", body).body))


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
