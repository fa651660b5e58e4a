"""What kubelets may: the same objects and requests put to a real kube-apiserver and to the system space (AZ4)."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest

from tests import kubeapiserver
from tests.access.authorization.apiservers import TENANT, Client
from tests.access.authorization.test_equality import Real
from tests.access.authorization.test_revoking import until

N1, N2 = ({"name": f"system:node:{name}", "tenant": "system", "groups": ["system:nodes"]} for name in ("k1", "k2"))
SPACE = "/api/v1/namespaces/kubelets"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
MIRROR = {"kubernetes.io/config.mirror": "x"}
MERGE = "application/merge-patch+json"

Ask = Callable[..., tuple[int, Any]]


def meta(name: str, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **more}}


def pod(name: str, node: str, **spec: Any) -> dict[str, Any]:
    return {**meta(name), "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}], **spec}}


def attachment(name: str, node: str) -> dict[str, Any]:
    return {**meta(name), "spec": {"attacher": "x.io", "nodeName": node, "source": {"persistentVolumeName": "v"}}}


def device_slice(name: str, node: str) -> dict[str, Any]:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    return {**meta(name), "spec": {"driver": "x.io", "nodeName": node, "pool": pool, "devices": []}}


OBJECTS = [
    ("/api/v1/namespaces", meta("kubelets")),
    ("/api/v1/nodes", meta("k1")),
    ("/api/v1/nodes", meta("k2")),
    *((f"{SPACE}/serviceaccounts", meta(name)) for name in ("runner", "other")),
    *((f"{SPACE}/{kind}", meta(name)) for kind in ("secrets", "configmaps") for name in ("needed", "unneeded")),
    (
        f"{SPACE}/pods",
        pod(
            "here",
            "k1",
            serviceAccountName="runner",
            automountServiceAccountToken=False,
            volumes=[
                {"name": "s", "secret": {"secretName": "needed"}},
                {"name": "c", "configMap": {"name": "needed"}},
                {"name": "p", "persistentVolumeClaim": {"claimName": "needed"}},
            ],
        ),
    ),
    (f"{SPACE}/pods", pod("there", "k2", serviceAccountName="other", automountServiceAccountToken=False)),
    *(
        ("/apis/storage.k8s.io/v1/volumeattachments", attachment(name, node))
        for name, node in (("here", "k1"), ("there", "k2"))
    ),
    *((SLICES, device_slice(name, node)) for name, node in (("here", "k1"), ("there", "k2"))),
]


@pytest.fixture(scope="module")
def asking(world: Client, request: pytest.FixtureRequest) -> dict[str, Ask]:
    """Both servers, with the same objects; the real one where there is one."""
    found: dict[str, Ask] = {"ours": world.request}
    if kubeapiserver.PRESENT:
        real = Real(request.getfixturevalue("kube_apiserver"))

        def ask(
            method: str, path: str, body: Any = None, *, who: Any = None, media: str = "application/json"
        ) -> tuple[int, Any]:
            headers = {"Content-Type": media}
            if who is not None:
                # http.client sends a header twice only when it is told to: one group, the other comes by itself.
                headers |= {"Impersonate-User": who["name"], "Impersonate-Group": who["groups"][0]}
            data = json.dumps(body) if body is not None else None
            real._connection.request(method, path, data, headers)
            answer = real._connection.getresponse()
            return answer.status, json.loads(answer.read())

        found["real"] = ask
    for ask_ in found.values():
        for path, body in OBJECTS:
            status, answer = ask_("POST", path, body)
            assert status in (201, 409), answer
    if "real" in found:
        until(lambda: _has_heard(found["real"]), True)
    return found


def _has_heard(real: Ask) -> bool:
    """Whether its informers, one a kind, have brought the last object of each: a kubelet's rights are made of them."""
    last = [
        {
            "verb": "create",
            "resource": "serviceaccounts",
            "subresource": "token",
            "namespace": "kubelets",
            "name": "other",
        },
        {"verb": "get", "group": "storage.k8s.io", "resource": "volumeattachments", "name": "there"},
        {"verb": "get", "group": "resource.k8s.io", "resource": "resourceslices", "name": "there"},
    ]
    for attributes in last:
        spec = {"user": N2["name"], "groups": N2["groups"], "resourceAttributes": attributes}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        status, answer = real("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
        assert status == 201, answer
        if not answer["status"]["allowed"]:
            return False
    uid = real("GET", "/api/v1/nodes/k2")[1]["metadata"]["uid"]
    status, answer = real("POST", f"{SPACE}/pods?dryRun=All", mirror("m", uid, "k2"), who=N2)
    assert status in (201, 403, 404), answer
    return status == 201


RESOURCES = {
    **{("", kind): ("needed", "unneeded", "") for kind in ("secrets", "configmaps", "persistentvolumeclaims")},
    ("", "serviceaccounts"): ("runner", "other", ""),
    ("", "pods"): ("here", "there", ""),
    ("", "nodes"): ("k1", "k2", ""),
    ("", "persistentvolumes"): ("v", ""),
    ("", "services"): ("s", ""),
    ("", "endpoints"): ("s", ""),
    ("", "events"): ("e", ""),
    ("coordination.k8s.io", "leases"): ("k1", "k2", ""),
    ("storage.k8s.io", "csinodes"): ("k1", "k2", ""),
    ("storage.k8s.io", "csidrivers"): ("d", ""),
    ("storage.k8s.io", "volumeattachments"): ("here", "there", ""),
    ("resource.k8s.io", "resourceslices"): ("here", "there", ""),
    ("resource.k8s.io", "resourceclaims"): ("c", ""),
    ("certificates.k8s.io", "certificatesigningrequests"): ("c", ""),
    ("node.k8s.io", "runtimeclasses"): ("r", ""),
    ("authentication.k8s.io", "tokenreviews"): ("",),
    ("authorization.k8s.io", "subjectaccessreviews"): ("",),
}
CLUSTERED = {"nodes", "persistentvolumes", "csinodes", "csidrivers", "volumeattachments", "resourceslices"} | {
    "certificatesigningrequests",
    "runtimeclasses",
    "tokenreviews",
    "subjectaccessreviews",
}
PARTS = {
    "pods": ("", "status", "eviction", "exec", "binding"),
    "nodes": ("", "status"),
    "serviceaccounts": ("", "token"),
    "persistentvolumeclaims": ("", "status"),
}
VERBS = ("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection")

NARROWER = {"pods", "nodes", "leases", "csinodes"}
"""Where Kubernetes says yes and NodeRestriction then no, reviews here say no at once."""


def questions() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for (group, resource), names in RESOURCES.items():
        for name, part, verb in itertools.product(names, PARTS.get(resource, ("",)), VERBS):
            asked = {"group": group, "resource": resource, "subresource": part, "verb": verb, "name": name}
            spaces = ("",) if resource in CLUSTERED else ("kubelets", "kube-node-lease")
            for namespace in spaces[: 1 + (resource == "leases")]:
                found.append(asked | {"namespace": namespace})
            if resource in ("pods", "resourceslices") and not name and not part:
                for node in ("k1", "k2"):
                    requirement = {"key": "spec.nodeName", "operator": "In", "values": [node]}
                    found.append(asked | {"fieldSelector": {"requirements": [requirement]}})
    return found


def test_the_same_questions_have_the_same_answers(asking: dict[str, Ask]) -> None:
    """AZ4: no opinion where Kubernetes has none, and never more than Kubernetes."""
    wrong = []
    for who, asked in itertools.product((N1, N2), questions()):
        answers = {}
        for name, ask in asking.items():
            extra = {TENANT: ["system"]} if name == "ours" else {}
            spec = {"user": who["name"], "groups": [*who["groups"], "system:authenticated"], "extra": extra}
            body = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {**spec, "resourceAttributes": asked},
            }
            status, answer = ask("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", body)
            assert status == 201, answer
            answers[name] = answer["status"]
        ours = answers["ours"]
        if ours.get("denied"):
            wrong.append(f"denied: {who['name']} {asked}: {ours}")
        same = "real" not in answers or ours["allowed"] is answers["real"]["allowed"]
        if not same and (ours["allowed"] or asked["resource"] not in NARROWER):
            wrong.append(f"{who['name']} {asked}: {ours}, real {answers['real']}")
    assert not wrong, "\n".join(wrong[:40])


def mirror(name: str, uid: str, node: str = "k1", **spec: Any) -> dict[str, Any]:
    owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": uid, "controller": True}
    body = pod(name, node, **spec)
    body["metadata"] |= {"annotations": MIRROR, "ownerReferences": [owner]}
    return body


REQUESTS: dict[str, tuple[int, str, str, Any]] = {
    "a mirror pod": (201, "POST", f"{SPACE}/pods", lambda uid: mirror("m", uid)),
    "a pod": (403, "POST", f"{SPACE}/pods", lambda uid: pod("m", "k1")),
    "a mirror pod elsewhere": (403, "POST", f"{SPACE}/pods", lambda uid: mirror("m", uid, "k2")),
    "a mirror pod of another node of the name": (403, "POST", f"{SPACE}/pods", lambda uid: mirror("m", "x")),
    **{
        f"a mirror pod with {word}": (403, "POST", f"{SPACE}/pods", lambda uid, spec=spec: mirror("m", uid, **spec))
        for word, spec in {
            "an account": {"serviceAccountName": "runner"},
            "a pull secret": {"imagePullSecrets": [{"name": "s"}]},
            "a secret": {"volumes": [{"name": "v", "secret": {"secretName": "s"}}]},
            "a config map": {"volumes": [{"name": "v", "configMap": {"name": "s"}}]},
            "a claim": {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "s"}}]},
            "a token": {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            "its environment": {"containers": [{"name": "c", "image": "i", "envFrom": [{"secretRef": {"name": "s"}}]}]},
        }.items()
    },
    "a mirror pod with a folder": (
        201,
        "POST",
        f"{SPACE}/pods",
        lambda uid: mirror(
            "m", uid, volumes=[{"name": "v", "hostPath": {"path": "/x"}}, {"name": "e", "emptyDir": {}}]
        ),
    ),
    "the state of its pod": (200, "PATCH", f"{SPACE}/pods/here/status", {"status": {"message": "m"}}),
    "the state of another's pod": (403, "PATCH", f"{SPACE}/pods/there/status", {"status": {"message": "m"}}),
    "labels by the state": (403, "PATCH", f"{SPACE}/pods/here/status", {"metadata": {"labels": {"a": "b"}}}),
    "its pod": (403, "PATCH", f"{SPACE}/pods/here", {"metadata": {"labels": {"a": "b"}}}),
    "the end of its pod": (200, "DELETE", f"{SPACE}/pods/here", None),
    "the end of another's pod": (403, "DELETE", f"{SPACE}/pods/there", None),
    "reading its pod by name": (200, "GET", f"{SPACE}/pods?fieldSelector=metadata.name%3Dhere", None),
    "reading another's pod by name": (403, "GET", f"{SPACE}/pods?fieldSelector=metadata.name%3Dthere", None),
    "reading a secret by name": (200, "GET", f"{SPACE}/secrets?fieldSelector=metadata.name%3Dneeded", None),
    "reading another secret by name": (403, "GET", f"{SPACE}/secrets?fieldSelector=metadata.name%3Dunneeded", None),
    "reading itself by name": (200, "GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dk1", None),
    "reading another node by name": (403, "GET", "/api/v1/nodes?fieldSelector=metadata.name%3Dk2", None),
    "a label": (200, "PATCH", "/api/v1/nodes/k1", {"metadata": {"labels": {"team": "a"}}}),
    "a kubelet's label": (200, "PATCH", "/api/v1/nodes/k1", {"metadata": {"labels": {"node.kubernetes.io/x": "a"}}}),
    "Kubernetes' label": (403, "PATCH", "/api/v1/nodes/k1", {"metadata": {"labels": {"x.kubernetes.io/y": "a"}}}),
    "a role": (403, "PATCH", "/api/v1/nodes/k1", {"metadata": {"labels": {"node-role.kubernetes.io/master": "a"}}}),
    "an owner": (
        403,
        "PATCH",
        "/api/v1/nodes/k1",
        {"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "b"}]}},
    ),
    "another node's label": (403, "PATCH", "/api/v1/nodes/k2", {"metadata": {"labels": {"team": "a"}}}),
    "its slice": (201, "POST", SLICES, device_slice("more", "k1")),
    "another's slice": (403, "POST", SLICES, device_slice("more", "k2")),
    "its slices": (200, "GET", f"{SLICES}?fieldSelector=spec.nodeName%3Dk1", None),
    "another's slices": (403, "GET", f"{SLICES}?fieldSelector=spec.nodeName%3Dk2", None),
    "all slices": (403, "GET", SLICES, None),
    "its slice by name": (200, "GET", f"{SLICES}/here", None),
    "another's slice by name": (403, "GET", f"{SLICES}/there", None),
    "the end of its slices": (200, "DELETE", f"{SLICES}?fieldSelector=spec.nodeName%3Dk1", None),
    "its attachment": (200, "GET", "/apis/storage.k8s.io/v1/volumeattachments/here", None),
    "another's attachment": (403, "GET", "/apis/storage.k8s.io/v1/volumeattachments/there", None),
}


@pytest.mark.parametrize("what", REQUESTS)
def test_a_kubelet_writes_what_is_its_own(asking: dict[str, Ask], what: str) -> None:
    """AZ4: mirror pods, states, labels, slices and reads by name; as a dry run."""
    expected, method, path, body = REQUESTS[what]
    for name, ask in asking.items():
        uid = ask("GET", "/api/v1/nodes/k1")[1]["metadata"]["uid"]
        sent = body(uid) if callable(body) else body
        path_ = path if method == "GET" else f"{path}{'&' if '?' in path else '?'}dryRun=All"
        media = MERGE if method == "PATCH" else "application/json"
        status, answer = ask(method, path_, sent, who=N1, media=media)
        assert status == expected, (name, answer)


def test_no_role_widens_what_a_kubelet_may_write(asking: dict[str, Ask]) -> None:
    """AZ4: rights that RBAC gives to nodes end at what is a node's own."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    group = {"apiGroup": "rbac.authorization.k8s.io"}
    everything = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
    for name, ask in asking.items():
        role = {**meta("generous"), "rules": everything}
        binding = {
            **meta("generous"),
            "roleRef": {**group, "kind": "ClusterRole", "name": "generous"},
            "subjects": [{**group, "kind": "User", "name": N2["name"]}],
        }
        for kind, body in (("clusterroles", role), ("clusterrolebindings", binding)):
            assert ask("POST", f"{rbac}/{kind}", body)[0] == 201
        try:
            if name == "real":
                until(lambda ask=ask: ask("GET", f"{SPACE}/secrets/unneeded", who=N2)[0] == 200, True)
            for what, (expected, method, path, body) in REQUESTS.items():
                if expected != 403 or method == "GET" or "k2" in path:
                    continue
                uid = ask("GET", "/api/v1/nodes/k2")[1]["metadata"]["uid"]
                sent = body(uid) if callable(body) else body
                if "POST" in method or "/there" in path:
                    # What is another's to k1 is k2's own.
                    continue
                media = MERGE if method == "PATCH" else "application/json"
                status, answer = ask(method, f"{path}?dryRun=All", sent, who=N2, media=media)
                assert status == 403, (name, what, answer)
            assert ask("DELETE", f"{SPACE}/pods/here?dryRun=All", who=N2)[0] == 403
            assert ask("DELETE", f"{SLICES}/here?dryRun=All", who=N2)[0] == 403
            assert ask("GET", f"{SPACE}/secrets/unneeded", who=N2)[0] == 200, "reading is what was given"
        finally:
            for kind in ("clusterroles", "clusterrolebindings"):
                ask("DELETE", f"{rbac}/{kind}/generous")
