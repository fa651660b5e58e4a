"""Strategic merge patches and server-side apply answer as a real kube-apiserver does (TS15)."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from kube.objects.managedfields import Write, apply, update
from kube.objects.patches import json_patch, merge_patch
from kube.objects.strategicmerge import strategic_merge
from kube.requests.status import StatusError
from tests.kube.kinds import structure
from tests.speaking import Speaker, without_server_fields

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
NOW = "2026-01-01T00:00:00Z"


def _subset(random: Random, names: str) -> list[str]:
    return [name for name in names if random.random() < 0.5]


def _shuffled(random: Random, items: list[Any]) -> list[Any]:
    return random.sample(items, len(items))


def _env(random: Random) -> list[dict[str, Any]]:
    return [{"name": name, "value": str(random.randrange(3))} for name in _shuffled(random, _subset(random, "ABCDE"))]


def _container(random: Random, name: str) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": name,
        "image": f"image:{random.randrange(3)}",
        "imagePullPolicy": "Always",
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "resources": {},
    }
    if random.random() < 0.7:
        container["env"] = _env(random)
    if random.random() < 0.5:
        ports = [80, 81, 82]
        container["ports"] = [
            {"containerPort": port, "protocol": random.choice(["TCP", "UDP"])}
            for port in ports
            if random.random() < 0.6
        ]
    if random.random() < 0.5:
        container["args"] = _subset(random, "xyz")
    return container


def _deployment(random: Random, name: str) -> dict[str, Any]:
    names = _subset(random, "abcd") or ["a"]
    volumes = [{"name": volume, "emptyDir": {}} for volume in _shuffled(random, _subset(random, "uvw"))]
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "labels": dict.fromkeys(_subset(random, "abc"), "1"),
            "finalizers": [f"example.com/{item}" for item in _shuffled(random, _subset(random, "pqrs"))],
        },
        "spec": {
            "replicas": random.randrange(3),
            "selector": {"matchLabels": {"app": "x"}},
            "template": {
                "metadata": {"labels": {"app": "x"}},
                "spec": {
                    "containers": [_container(random, item) for item in _shuffled(random, names)],
                    "volumes": volumes,
                },
            },
        },
    }


def _patched_list(random: Random, live: list[dict[str, Any]], key: str, fresh: list[dict[str, Any]]) -> dict[str, Any]:
    """A patch of a keyed list with some of: changed items, new items, deletions, replacement, an element order."""
    items: list[dict[str, Any]] = []
    for item in _shuffled(random, live):
        what = random.random()
        if what < 0.2:
            items.append({key: item[key], "$patch": "delete"})
        elif what < 0.4:
            items.append(next((new for new in fresh if new[key] == item[key]), item))
    items.extend(new for new in fresh if random.random() < 0.4 and all(new[key] != item.get(key) for item in items))
    random.shuffle(items)
    if random.random() < 0.1:
        items.append({"$patch": "replace"})
    return {"items": items}


def _patch(random: Random, live: dict[str, Any]) -> dict[str, Any]:
    template = live["spec"]["template"]["spec"]
    fresh = [_container(random, name) for name in "abcdef"]
    containers = _patched_list(random, template["containers"], "name", fresh)["items"]
    for container in containers:
        own = (
            next((item for item in template["containers"] if item["name"] == container["name"]), None)
            if "name" in container
            else None
        )
        if own and "$patch" not in container and random.random() < 0.7:
            env = _env(random)
            if random.random() < 0.5:
                container["$setElementOrder/env"] = [{"name": name} for name in _shuffled(random, list("ABCDEF"))]
                order = [entry["name"] for entry in container["$setElementOrder/env"]]
                env.sort(key=lambda entry: order.index(entry["name"]))
            container["env"] = env
    pod: dict[str, Any] = {"containers": containers}
    if random.random() < 0.5:
        names = [item["name"] for item in containers if "name" in item and "$patch" not in item]
        others = [
            item["name"] for item in template["containers"] if item["name"] not in names and random.random() < 0.5
        ]
        for other in others:
            names.insert(random.randrange(len(names) + 1), other)
        pod["$setElementOrder/containers"] = [{"name": name} for name in names]
    if random.random() < 0.3:
        pod["volumes"] = [{"name": "u", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/x", "type": ""}}]
    patch: dict[str, Any] = {"metadata": {}, "spec": {"template": {"spec": pod}}}
    if random.random() < 0.5:
        patch["metadata"]["finalizers"] = [
            f"example.com/{item}" for item in _shuffled(random, _subset(random, "pqrst"))
        ]
    if random.random() < 0.5:
        # The real server deletes before or after it adds, at random: never both for one item.
        added = patch["metadata"].get("finalizers", [])
        unwanted = [f"example.com/{item}" for item in _subset(random, "pqrs")]
        patch["metadata"]["$deleteFromPrimitiveList/finalizers"] = [item for item in unwanted if item not in added]
    if random.random() < 0.3 and "finalizers" not in patch["metadata"]:
        patch["metadata"]["$setElementOrder/finalizers"] = [
            f"example.com/{x}" for x in _shuffled(random, list("pqrst"))
        ]
    if random.random() < 0.5:
        patch["metadata"]["labels"] = {key: random.choice([None, "2"]) for key in _subset(random, "abcd")}
    if random.random() < 0.2:
        patch["metadata"]["labels"] = {"z": "1", "$patch": random.choice(["replace", "delete"])}
    if random.random() < 0.3:
        patch["spec"]["strategy"] = {"$retainKeys": ["type"], "type": "Recreate"}
    return patch


def _clean(value: Any) -> Any:
    """Without nulls and without empty maps and lists, which Go's types do not tell from absent ones."""
    if isinstance(value, dict):
        cleaned = {name: _clean(member) for name, member in value.items()}
        return {
            name: member for name, member in cleaned.items() if member not in (None, {}, []) and member is not False
        }
    return [_clean(item) for item in value] if isinstance(value, list) else value


def _created(server: Speaker, path: str, body: dict[str, Any]) -> dict[str, Any]:
    status, live = server.request("POST", path, body)
    assert status == 201, live
    return live


def _owners(document: dict[str, Any]) -> list[dict[str, Any]]:
    entries = document["metadata"].get("managedFields", [])
    return sorted(
        ({name: value for name, value in entry.items() if name != "time"} for entry in entries),
        key=lambda entry: (entry["manager"], entry["operation"], entry["apiVersion"]),
    )


def test_generated_strategic_merge_patches_give_what_the_real_server_gives(server: Speaker) -> None:
    kind = structure("apps", "v1", "Deployment")
    compared = refused = 0
    for seed in range(300):
        random = Random(seed)
        live = _created(server, DEPLOYMENTS, _deployment(random, f"s{seed}"))
        patch = _patch(random, live)
        status, expected = server.request(
            "PATCH",
            f"{DEPLOYMENTS}/s{seed}?dryRun=All",
            patch,
            "application/strategic-merge-patch+json",
        )
        try:
            ours = strategic_merge(kind, live, patch)
        except StatusError as error:
            assert status >= 400, (patch, error.message)
            assert error.message == expected["message"]
            refused += 1
            continue
        if status == 422 and expected["details"].get("causes"):
            continue
        assert status == 200, (expected["message"], patch)
        assert _clean(without_server_fields(ours)) == _clean(without_server_fields(expected)), (seed, patch)
        compared += 1
    assert compared > 150
    assert refused > 0


def test_generated_json_and_merge_patches_give_what_the_real_server_gives(server: Speaker) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    live = _created(
        server, path, {"metadata": {"name": "patched", "annotations": {"c/d": "3"}}, "data": {"a": "1", "b": "2"}}
    )
    compared = 0
    for seed in range(150):
        random = Random(seed)
        places = [
            "/data/a",
            "/data/b",
            "/metadata/annotations/c~1d",
            "/data/z",
            "/metadata/labels",
            "/metadata/labels/x",
        ]
        operations = []
        for _ in range(random.randrange(1, 4)):
            verb = random.choice(["add", "remove", "replace", "move", "copy", "test"])
            place = random.choice(places)
            value: Any = {"x": "y"} if place.endswith("labels") else str(random.randrange(3))
            operations.append({"op": verb, "path": place, "value": value, "from": random.choice(places[:4])})
        status, expected = server.request(
            "PATCH", f"{path}/patched?dryRun=All", operations, "application/json-patch+json"
        )
        try:
            ours = json_patch(live, operations)
        except StatusError as error:
            # The one difference: RFC 6902 refuses a copy from nowhere, which the real server takes for a null.
            if status != 200 or all(operation["op"] != "copy" for operation in operations):
                assert (status, expected.get("message")) == (error.code, error.message), operations
            continue
        if status == 422 and expected["details"].get("causes"):
            continue
        if status == 400:
            continue  # Go's decoder refuses what validation refuses here: a label map where a string belongs.
        assert status == 200, (operations, expected)
        assert _clean(without_server_fields(ours)) == _clean(without_server_fields(expected)), operations
        compared += 1
    assert compared > 20
    patch = {"data": {"a": None, "n": "1", "q": None}, "metadata": {"labels": {"k": "v"}}}
    _, expected = server.request("PATCH", f"{path}/patched?dryRun=All", patch, "application/merge-patch+json")
    assert _clean(without_server_fields(merge_patch(live, patch))) == _clean(without_server_fields(expected))


def _applied(random: Random, name: str) -> dict[str, Any]:
    """A partial configuration: few fields, so that several managers meet on some and miss each other on others."""
    containers = []
    for item in _shuffled(random, _subset(random, "abc")):
        whole = _container(random, item)
        container = {key: value for key, value in whole.items() if key == "name" or random.random() < 0.5}
        containers.append(container)
    spec: dict[str, Any] = {}
    if random.random() < 0.5:
        spec["replicas"] = random.randrange(2)
    if random.random() < 0.3:
        spec["paused"] = random.random() < 0.5
    pod: dict[str, Any] = {}
    if containers:
        pod["containers"] = containers
    if random.random() < 0.4:
        pod["volumes"] = [{"name": volume, "emptyDir": {}} for volume in _subset(random, "uvw")]
    if random.random() < 0.2:
        pod["nodeSelector"] = dict.fromkeys(_subset(random, "mn"), "1")
    if pod:
        spec["template"] = {"spec": pod}
    metadata: dict[str, Any] = {"name": name}
    if random.random() < 0.5:
        metadata["labels"] = {key: str(random.randrange(2)) for key in _subset(random, "abc")}
    if random.random() < 0.3:
        metadata["finalizers"] = [f"example.com/{item}" for item in _shuffled(random, _subset(random, "pqr"))]
    applied: dict[str, Any] = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata}
    if spec or random.random() < 0.5:
        applied["spec"] = spec
    return applied


def test_generated_applies_and_updates_give_the_fields_and_the_owners_that_the_real_server_gives(
    server: Speaker,
) -> None:
    kind = structure("apps", "v1", "Deployment")
    compared = conflicts = 0
    for seed in range(60):
        random = Random(seed)
        path = f"{DEPLOYMENTS}/a{seed}"
        live = _created(server, f"{DEPLOYMENTS}?fieldManager=creator", _deployment(random, f"a{seed}"))
        for _ in range(7):
            manager = random.choice(["one", "two", "three"])
            write = Write(manager=manager, version="apps/v1", now=NOW, reset={"f:status": {}})
            if random.random() < 0.25:
                body = _patch(random, live)
                status, expected = server.request(
                    "PATCH", f"{path}?fieldManager={manager}", body, "application/strategic-merge-patch+json"
                )
                if status == 200:
                    bare = {**expected, "metadata": {**expected["metadata"], "managedFields": _kept(live)}}
                    ours = update(kind, live, bare, write)
                    assert _owners(ours) == _owners(expected), (seed, body)
                    live = expected
                    compared += 1
                continue
            applied, force = _applied(random, f"a{seed}"), random.random() < 0.6
            flags = f"?fieldManager={manager}&force={str(force).lower()}"
            status, expected = server.request("PATCH", path + flags, applied, "application/apply-patch+yaml")
            try:
                ours = apply(kind, live, applied, write, force=force)
            except StatusError as error:
                assert (status, expected["message"]) == (error.code, error.message), (seed, applied)
                causes = error.details()["causes"]
                assert sorted(map(str, causes)) == sorted(map(str, expected["details"]["causes"]))
                conflicts += 1
                continue
            if status == 422:
                continue
            assert status == 200, (seed, applied, expected)
            assert _owners(ours) == _owners(expected), (seed, applied)
            assert _clean(_undefaulted(ours)) == _clean(_undefaulted(expected)), (seed, applied)
            live = expected
            compared += 1
    assert compared > 100
    assert conflicts > 20


CREATED: list[tuple[str, str, dict[str, Any]]] = [
    ("", "configmaps", {"kind": "ConfigMap", "data": {"a": "1"}}),
    ("", "secrets", {"kind": "Secret", "data": {"a": "MQ=="}}),
    ("", "services", {"kind": "Service", "spec": {"ports": [{"port": 80}], "selector": {"a": "b"}}}),
    (
        "",
        "serviceaccounts",
        {"kind": "ServiceAccount", "secrets": [{"name": "b"}], "imagePullSecrets": [{"name": "c"}]},
    ),
    ("", "resourcequotas", {"kind": "ResourceQuota", "spec": {"hard": {"pods": "1"}}}),
    ("", "limitranges", {"kind": "LimitRange", "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]}}),
    (
        "",
        "persistentvolumeclaims",
        {
            "kind": "PersistentVolumeClaim",
            "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
        },
    ),
    (
        "rbac.authorization.k8s.io",
        "roles",
        {"kind": "Role", "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    ),
    (
        "networking.k8s.io",
        "ingresses",
        {"kind": "Ingress", "spec": {"defaultBackend": {"service": {"name": "a", "port": {"number": 80}}}}},
    ),
    (
        "networking.k8s.io",
        "networkpolicies",
        {"kind": "NetworkPolicy", "spec": {"podSelector": {"matchLabels": {"a": "b"}}}},
    ),
    (
        "policy",
        "poddisruptionbudgets",
        {"kind": "PodDisruptionBudget", "spec": {"minAvailable": 1, "selector": {"matchLabels": {"a": "b"}}}},
    ),
    ("coordination.k8s.io", "leases", {"kind": "Lease", "spec": {"holderIdentity": "a"}}),
    ("apps", "deployments", {"kind": "Deployment", "spec": _deployment(Random(7), "x")["spec"]}),
]


@pytest.mark.parametrize(("group", "plural", "body"), CREATED, ids=[plural for _, plural, _ in CREATED])
def test_a_created_object_has_the_owners_that_the_real_server_gives(
    server: Speaker, group: str, plural: str, body: dict[str, Any]
) -> None:
    version = f"{group}/v1" if group else "v1"
    root = f"/apis/{version}" if group else "/api/v1"
    metadata = {"name": "created", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["example.com/x"]}
    expected = _created(server, f"{root}/namespaces/default/{plural}", {**body, "metadata": metadata})
    write = Write(manager="conformance", version=version, now=NOW, reset={"f:status": {}})
    ours = update(structure(group, "v1", body["kind"]), None, _without_owners(expected), write)
    assert _owners(ours) == _owners(expected)


def _without_owners(document: dict[str, Any]) -> dict[str, Any]:
    """The object as it was when owners were recorded: before the server allocated addresses and protection."""
    allocated = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
    metadata = {name: value for name, value in document["metadata"].items() if name != "managedFields"}
    metadata["finalizers"] = ["example.com/x"]
    result = {**document, "metadata": metadata}
    if document["kind"] == "Service":
        result["spec"] = {name: value for name, value in document["spec"].items() if name not in allocated}
    return result


def _kept(live: dict[str, Any]) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = live["metadata"].get("managedFields", [])
    return entries


def _undefaulted(document: dict[str, Any]) -> dict[str, Any]:
    """Without status and without the fields of containers that the server fills in after applying."""
    filled = ("imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy", "resources")
    result = without_server_fields(document)
    result.pop("status", None)
    result["spec"] = dict(result["spec"])
    for name in ("replicas", "progressDeadlineSeconds", "revisionHistoryLimit", "strategy"):
        result["spec"].pop(name, None)
    pod = dict(result["spec"]["template"]["spec"])
    pod["containers"] = [
        {name: value for name, value in container.items() if name not in filled} for container in pod["containers"]
    ]
    result["spec"]["template"] = {**result["spec"]["template"], "spec": pod}
    return result
