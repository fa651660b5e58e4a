"""The same random roles, bindings and questions put to a real kube-apiserver and to a tenant's space (AZ2)."""

from __future__ import annotations

import base64
import json
import os
import random
import ssl
import tempfile
from functools import partial
from http.client import HTTPSConnection
from typing import Any

import yaml

from tests.access.authorization.apiservers import Client, Server
from tests.access.authorization.test_revoking import until
from tests.kubeapiserver import KubeApiserver

CASES = int(os.environ.get("AUTHORIZATION_CASES", "1000"))
SEED = int(os.environ.get("AUTHORIZATION_SEED", "1"))
RBAC = "rbac.authorization.k8s.io"

VERBS = ["get", "list", "watch", "create", "update", "delete", "deletecollection", "impersonate", "bind", "*"]
GROUPS = ["", "apps", "batch", "x.example.org", "*"]
RESOURCES = ["pods", "pods/log", "pods/*", "*/scale", "deployments", "deployments/scale", "secrets", "widgets", "*"]
NAMES = ["a", "b", "a-b"]
URLS = ["/metrics", "/metrics/*", "/logs/*", "/log*", "*", "/x/y"]
USERS = ["ann", "ben", "cid", "system:serviceaccount:one:sa", "system:serviceaccount:two:sa"]
TEAMS = ["red", "blue", "system:authenticated", "system:serviceaccounts:one", "system:unauthenticated"]
NAMESPACES = ["one", "two"]
BOOTSTRAP = ["view", "edit", "admin", "cluster-admin", "system:basic-user", "missing"]


class Real:
    """The administrator of the real one."""

    def __init__(self, server: KubeApiserver) -> None:
        user = yaml.safe_load((server.folder / "admin.kubeconfig").read_text())["users"][0]["user"]
        context = ssl._create_unverified_context()
        with tempfile.NamedTemporaryFile() as pair:
            for field in ("client-certificate-data", "client-key-data"):
                pair.write(base64.b64decode(user[field]) + b"\n")
            pair.flush()
            context.load_cert_chain(pair.name)
        self._connection = HTTPSConnection(server.url.removeprefix("https://"), context=context, timeout=300)

    def ok(self, method: str, path: str, body: Any) -> Any:
        self._connection.request(method, path, json.dumps(body), {"Content-Type": "application/json"})
        answer = self._connection.getresponse()
        found = json.loads(answer.read())
        assert answer.status < 300, found
        return found


def some(chance: random.Random, values: list[str], most: int = 3) -> list[str]:
    return chance.sample(values, chance.randint(1, min(most, len(values))))


def rules(chance: random.Random, *, urls: bool) -> list[dict[str, Any]]:
    found = []
    for _ in range(chance.randint(1, 3)):
        if urls and chance.random() < 0.3:
            found.append({"verbs": some(chance, VERBS), "nonResourceURLs": some(chance, URLS)})
            continue
        rule = {"verbs": some(chance, VERBS), "apiGroups": some(chance, GROUPS), "resources": some(chance, RESOURCES)}
        if chance.random() < 0.3:
            rule["resourceNames"] = some(chance, NAMES)
        found.append(rule)
    return found


def subjects(chance: random.Random) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for _ in range(chance.randint(1, 2)):
        kind = chance.choice(["User", "User", "Group", "ServiceAccount"])
        if kind == "ServiceAccount":
            found.append({"kind": kind, "name": "sa", "namespace": chance.choice(NAMESPACES)})
        else:
            name = chance.choice(USERS if kind == "User" else TEAMS)
            found.append({"kind": kind, "apiGroup": RBAC, "name": name})
    return found


def policy(chance: random.Random) -> list[tuple[str, dict[str, Any]]]:
    """Collections with what is created in them."""
    found = []
    base = f"/apis/{RBAC}/v1"
    for number in range(12):
        body = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": f"c{number}"}}
        found.append((f"{base}/clusterroles", {**body, "rules": rules(chance, urls=True)}))
    for namespace in NAMESPACES:
        for number in range(6):
            metadata = {"name": f"r{number}", "namespace": namespace}
            body = {"apiVersion": f"{RBAC}/v1", "kind": "Role", "metadata": metadata}
            found.append((f"{base}/namespaces/{namespace}/roles", {**body, "rules": rules(chance, urls=False)}))
    for number in range(8):
        role = chance.choice([f"c{chance.randrange(12)}", chance.choice(BOOTSTRAP)])
        body = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": f"cb{number}"}}
        body["roleRef"] = {"apiGroup": RBAC, "kind": "ClusterRole", "name": role}
        found.append((f"{base}/clusterrolebindings", {**body, "subjects": subjects(chance)[:1]}))
    for namespace in NAMESPACES:
        for number in range(8):
            kind = chance.choice(["Role", "ClusterRole"])
            name = (
                f"r{chance.randrange(7)}" if kind == "Role" else chance.choice([f"c{chance.randrange(12)}", *BOOTSTRAP])
            )
            metadata = {"name": f"b{number}", "namespace": namespace}
            body = {"apiVersion": f"{RBAC}/v1", "kind": "RoleBinding", "metadata": metadata}
            body["roleRef"] = {"apiGroup": RBAC, "kind": kind, "name": name}
            found.append((f"{base}/namespaces/{namespace}/rolebindings", {**body, "subjects": subjects(chance)}))
    return found


def _last() -> list[tuple[str, dict[str, Any]]]:
    """One more object of each kind, by which nobody else is given anything: when both rights count, all before it do.

    A kube-apiserver reads each kind by a watch of its own.
    """
    found = []
    for kind, base in (("ClusterRole", f"/apis/{RBAC}/v1"), ("Role", f"/apis/{RBAC}/v1/namespaces/{NAMESPACES[0]}")):
        rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["lasts"]}
        role = {"apiVersion": f"{RBAC}/v1", "kind": kind, "metadata": {"name": "last"}, "rules": [rule]}
        binding = {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": {"name": "last"},
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": "last"},
            "subjects": [{"kind": "User", "apiGroup": RBAC, "name": "last" if kind == "ClusterRole" else "latest"}],
        }
        found += [(f"{base}/{kind.lower()}s", role), (f"{base}/{kind.lower()}bindings", binding)]
    return found


def question(chance: random.Random) -> dict[str, Any]:
    spec: dict[str, Any] = {"user": chance.choice([*USERS, "nobody"])}
    spec["groups"] = chance.sample(TEAMS, chance.randint(0, 2))
    verb = chance.choice([*VERBS[:-1], "frobnicate"])
    if chance.random() < 0.15:
        path = chance.choice(["/metrics", "/metrics/a", "/logs/x", "/log", "/x/y", "/x", "/", "/api", "/version"])
        return spec | {"nonResourceAttributes": {"verb": verb, "path": path}}
    resource, _, part = chance.choice(["pods", "pods/log", "pods/exec", "deployments", "deployments/scale", "secrets",
                                       "widgets", "users"]).partition("/")  # fmt: skip
    fields = {"verb": verb, "group": chance.choice(GROUPS[:-1]), "resource": resource, "subresource": part}
    fields["namespace"] = chance.choice([*NAMESPACES, "three", ""])
    fields["name"] = chance.choice([*NAMES, ""])
    return spec | {"resourceAttributes": {key: value for key, value in fields.items() if value}}


def test_a_space_decides_as_a_real_cluster_does(
    kube_apiserver: KubeApiserver, world: Client, servers: list[Server]
) -> None:
    """AZ2: AUTHORIZATION_CASES questions, 1,000 unless it says otherwise."""
    chance = random.Random(SEED)
    real = Real(kube_apiserver)
    world.ok("POST", "/api/v1/tenants", {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": "twin"}})
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    here = "/clusters/root:twin"
    for namespace in NAMESPACES:
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
        real.ok("POST", "/api/v1/namespaces", body)
        world.ok("POST", f"{here}/api/v1/namespaces", body)
    for path, body in policy(chance):
        real.ok("POST", path, body)
        world.ok("POST", f"{here}{path}", body)
    for path, body in _last():
        real.ok("POST", path, body)

    def ask(client: Any, path: str, spec: dict[str, Any]) -> bool:
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        return bool(client.ok("POST", path, body)["status"]["allowed"])

    for name, place in (("last", {}), ("latest", {"namespace": NAMESPACES[0]})):
        marker = {"user": name, "resourceAttributes": {"verb": "get", "resource": "lasts", **place}}
        until(partial(ask, real, reviews, marker), True)
    answers = {True: 0, False: 0}
    for number in range(CASES):
        spec = question(chance)
        theirs = ask(real, reviews, spec)
        ours = ask(world, f"{here}{reviews}", {**spec, "extra": {"multi-tenancy.k8s.io/tenant": ["twin"]}})
        assert ours == theirs, f"case {number} of seed {SEED}: the real one says {theirs} about {spec}"
        answers[ours] += 1
    assert min(answers.values()) > CASES // 20, f"the questions are one-sided: {answers}"
