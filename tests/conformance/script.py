"""The script that is put to both servers, by sections. Every section has a namespace of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from kube.builtins import BUILTINS
from kube.patches import deep_copy
from tests.conformance.conversation import Conversation

HERE = Path(__file__).parent
OBJECTS: list[dict[str, Any]] = yaml.safe_load((HERE / "objects.yaml").read_text())
INVALID: dict[str, list[dict[str, Any]]] = yaml.safe_load((HERE / "invalid.yaml").read_text())
JSON_PATCH, MERGE, STRATEGIC, APPLY = (
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
)
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"
PARTIALS = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io,application/json"


def home(say: Conversation, body: dict[str, Any]) -> str:
    """The collection that an object belongs to."""
    group, _, version = body["apiVersion"].rpartition("/")
    resource = next(r for r in BUILTINS if r.group == group and r.kind == body["kind"])
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return (
        f"{root}/namespaces/{say.namespace}/{resource.plural}" if resource.namespaced else f"{root}/{resource.plural}"
    )


def placed(say: Conversation, body: dict[str, Any]) -> dict[str, Any]:
    """A copy of an object of the table, in the section's namespace."""
    text = json.dumps({name: value for name, value in body.items() if name != "system"})
    result: dict[str, Any] = json.loads(text.replace("NAMESPACE", say.namespace))
    return result


def kind_section(body: dict[str, Any]) -> Callable[[Conversation], None]:
    """The life of one object: made, read in every form, changed in every way, deleted."""

    def section(say: Conversation) -> None:
        say.set_up()
        made = placed(say, body)
        name, at = made["metadata"]["name"], home(say, made)
        one = f"{at}/{name}"
        say.say("GET", one)
        say.say("POST", f"{at}?dryRun=All", made)
        say.say("GET", one)
        live = say.say("POST", at, made)
        if live.status != 201:
            return
        say.say("POST", at, made)
        say.say("GET", one, Accept=TABLE)
        say.say("GET", one, Accept=PARTIAL)
        alone = f"fieldSelector=metadata.name={name}"
        say.say("GET", f"{at}?{alone}")
        say.say("GET", f"{at}?{alone}", Accept=TABLE)
        say.say("GET", f"{at}?{alone}", Accept=PARTIALS)
        say.say("PUT", one, {**live.body, "metadata": {**live["metadata"], "labels": {"step": "put"}}})
        say.say("PUT", one, {**live.body, "metadata": {**live["metadata"], "labels": {"step": "stale"}}})
        say.say("PATCH", one, [{"op": "add", "path": "/metadata/annotations", "value": {"a": "json"}}], JSON_PATCH)
        say.say("PATCH", one, {"metadata": {"annotations": {"b": "merge"}}}, MERGE)
        say.say("PATCH", one, {"metadata": {"annotations": {"a": None, "c": "strategic"}}}, STRATEGIC)
        applied = {"apiVersion": made["apiVersion"], "kind": made["kind"], "metadata": {"labels": {"step": "apply"}}}
        say.say("PATCH", f"{one}?fieldManager=applier", applied, APPLY)
        say.say("PATCH", f"{one}?fieldManager=applier&force=true", applied, APPLY)
        say.say("GET", f"{one}/status")
        say.say("PATCH", f"{one}/status", {"metadata": {"labels": {"sub": "status"}}}, MERGE)
        say.say("GET", f"{one}/scale")
        say.say("PATCH", f"{one}/scale", {"spec": {"replicas": 3}}, MERGE)
        say.say("PATCH", f"{one}/nothing", {}, MERGE)
        say.say("DELETE", f"{one}?dryRun=All")
        say.say("DELETE", one)

    return section


def invalid_section(kind: str, changes: list[dict[str, Any]]) -> Callable[[Conversation], None]:
    """Bad objects of one kind, refused with every cause; by fieldValidation where it may matter."""

    def section(say: Conversation) -> None:
        say.set_up()
        good = placed(say, next(body for body in OBJECTS if body["kind"] == kind))
        at = home(say, good)
        for change in changes:
            bad = deep_copy(good)
            for path, value in change.items():
                _set(bad, path, value)
            answer = say.say("POST", f"{at}?dryRun=All&fieldValidation=Strict", bad)
            if answer.status == 400:
                say.say("POST", f"{at}?dryRun=All", bad)
                say.say("POST", f"{at}?dryRun=All&fieldValidation=Ignore", bad)

    return section


def _set(body: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".") if not path.startswith("metadata.annotations") else ["metadata", "annotations"]
    node = body
    for parent in parents:
        node = node.setdefault(parent, {})
    if value is None:
        node.pop(last, None)
    else:
        node[last] = value


def bodies(say: Conversation) -> None:
    """Bodies that are no objects, and media types that nobody speaks."""
    say.set_up()
    at = f"{say.core}/configmaps"
    good = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    for body in (
        "",
        "{",
        "[]",
        "5",
        '"x"',
        "null",
        "{}",
        '{"kind":"ConfigMap"}',
        '{"apiVersion":"v1"}',
        '{"metadata":{"name":"n"}}',
        '{"apiVersion":"v1","kind":"Secret","metadata":{"name":"x"}}',
        '{"apiVersion":"v2","kind":"ConfigMap","metadata":{"name":"x"}}',
        '{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"x"}}',
        '{"apiVersion":"a/b/c","kind":"ConfigMap","metadata":{"name":"x"}}',
        '{"apiVersion":5,"kind":"ConfigMap"}',
        '{"apiVersion":"v1","kind":"Nothing"}',
        '{"apiVersion":"v1","kind":"ConfigMap","metadata":null}',
        '{"apiVersion":"v1","kind":"ConfigMap","metadata":5}',
        '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}} trailing',
        '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","name":"y"}}',
        '{"APIVERSION":"v1","Kind":"ConfigMap","metadata":{"name":"x"}}',
        '{"apiVersion":"v1","kind":"ConfigMap","Metadata":{"name":"x"}}',
        '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","creationTimestamp":"yesterday"}}',
        '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","uid":"mine","resourceVersion":"","generation":7,"selfLink":"/x","creationTimestamp":"2020-01-01T00:00:00Z","deletionTimestamp":"2020-01-01T00:00:00Z"}}',
        '{"apiVersion":"v1","kind":"ConfigMapList","items":[]}',
        '{"apiVersion":"v1","kind":"List","items":[]}',
        '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"},"data":{"a":"\\ud800"}}',
    ):
        say.say("POST", f"{at}?dryRun=All", body)
    for media in (
        "text/plain",
        "application/xml",
        "application/json; charset=utf-8",
        "application/yaml",
        "",
        JSON_PATCH,
        "bad",
        "application/*",
    ):
        say.say("POST", f"{at}?dryRun=All", json.dumps(good), media)
    for text in (
        "a: b",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {a: b}\n",
        "- a",
        "{",
        "a: &a [*a]",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\nmetadata: {name: y}\n",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\nbogus: 1\n",
    ):
        say.say("POST", f"{at}?dryRun=All&fieldValidation=Strict", text, "application/yaml")
    for accept in (
        "text/html",
        "application/yaml",
        "application/vnd.kubernetes.protobuf,application/json",
        "*/*",
        "application/json;as=Table;v=v9;g=meta.k8s.io",
        "application/json;as=Nothing;v=v1;g=meta.k8s.io,application/json",
        "",
        "application/json;q=0.1, text/html",
    ):
        say.say("GET", f"{at}/nothing", Accept=accept)
        say.say("POST", f"{at}?dryRun=All", good, Accept=accept)
    say.say("POST", f"{at}?dryRun=All", {**good, "data": {"a": "x" * 1_100_000}})
    say.say("POST", f"{at}?dryRun=All", {**good, "metadata": {"name": "x", "annotations": {"a": "x" * 262_145}}})
    say.say("POST", f"{at}?dryRun=All", "x" * 3_200_000)
    for query in (
        "dryRun=Some",
        "dryRun=All&dryRun=All",
        "fieldValidation=Bad",
        "fieldManager=" + "x" * 129,
        "fieldManager=a%07b",
        "pretty=true",
        "unknown=1",
        "dryRun=",
    ):
        say.say("POST", f"{at}?{query}", good)
    say.say("POST", f"{say.core}/configmaps/x", good)
    say.say("PUT", at, good)
    say.say("POST", "/api/v1/configmaps", good)
    say.say("POST", "/api/v1/configmaps", {**good, "metadata": {"name": "x", "namespace": say.namespace}})
    say.say("POST", "/api/v1/namespaces/eq-missing/configmaps", good)
    say.say("PUT", f"{at}/y", good)
    say.say("PUT", f"{at}/y", {**good, "metadata": {}})
    say.say("PUT", f"{at}/y", {**good, "metadata": {"name": "y"}})
    say.say("PUT", f"{at}/y", {**good, "metadata": {"name": "y", "resourceVersion": "1"}})
    say.say("PUT", f"{at}/y", {**good, "metadata": {"name": "y", "namespace": "other"}})
    say.say("PUT", f"{at}/x", {**good, "metadata": {"name": "x", "resourceVersion": "bad"}})
    say.say("PUT", f"{at}/x", {**good, "metadata": {"name": "x", "uid": "00000000-0000-0000-0000-000000000000"}})
    say.say("PUT", f"{at}/x", {**good, "metadata": {"name": "x", "resourceVersion": "1"}})
    say.say("PUT", f"{at}/x?dryRun=All", {**good, "data": {"a": "b"}})
    say.say("PUT", f"{at}/x", {**good, "kind": "Secret"})
    say.say("PUT", f"{at}/x", "")
    say.say("GET", f"{at}/x")


def fields(say: Conversation) -> None:
    """Field validation and duplicate fields, and what is generated."""
    say.set_up()
    at, deployments = f"{say.core}/configmaps", f"/apis/apps/v1/namespaces/{say.namespace}/deployments"
    double = '{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","labels":{"a":"1","a":"2"}},"data":{"a":"1","a":"2"},"bogus":1,"bogus":2}'
    for mode in ("Strict", "Warn", "Ignore", ""):
        say.say("POST", f"{at}?dryRun=All&fieldValidation={mode}", double)
        say.say(
            "POST",
            f"{deployments}?dryRun=All&fieldValidation={mode}",
            {
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": {"name": "d", "bad": 1},
                "spec": {
                    "bad": 1,
                    "selector": {"matchLabels": {"a": "b"}},
                    "template": {
                        "metadata": {"labels": {"a": "b"}},
                        "spec": {
                            "containers": [{"name": "c", "image": "i", "bad": 1, "env": [{"name": "A", "valu": "x"}]}]
                        },
                    },
                },
            },
        )
    say.say("POST", at, {"metadata": {"generateName": "made-"}, "data": {"a": "b"}})
    say.say("POST", at, {"metadata": {"generateName": "x" * 70}, "data": {"a": "b"}})
    say.say("POST", at, {"metadata": {"generateName": "made-", "name": "both"}, "data": {"a": "b"}})
    say.say("POST", f"{at}?dryRun=All", {"metadata": {"generateName": "dry-"}, "data": {"a": "b"}})
    for mode in ("Strict", "Warn", "Ignore"):
        say.say("PATCH", f"{at}/both?dryRun=All&fieldValidation={mode}", {"bogus": 1}, MERGE)
        say.say("PATCH", f"{at}/both?dryRun=All&fieldValidation={mode}", {"bogus": 1}, STRATEGIC)
        say.say(
            "PATCH",
            f"{at}/both?dryRun=All&fieldValidation={mode}",
            [{"op": "add", "path": "/bogus", "value": 1}],
            JSON_PATCH,
        )
        say.say(
            "PATCH",
            f"{at}/both?dryRun=All&fieldManager=m&fieldValidation={mode}",
            {"apiVersion": "v1", "kind": "ConfigMap", "bogus": 1},
            APPLY,
        )
        say.say("PUT", f"{at}/both?dryRun=All&fieldValidation={mode}", {"metadata": {"name": "both"}, "bogus": 1})
    say.say("PATCH", f"{at}/both?fieldValidation=Strict", '{"data":{"a":"1","a":"2"}}', MERGE)
    say.say(
        "PATCH",
        f"{at}/both?fieldManager=m&fieldValidation=Strict",
        "apiVersion: v1\nkind: ConfigMap\ndata: {q: a, q: b}\n",
        APPLY,
    )


def patches(say: Conversation) -> None:
    """Patches that go wrong, and some that are odd."""
    say.set_up()
    at = f"{say.core}/configmaps"
    one = f"{at}/x"
    say.speaker.send("POST", at, {"metadata": {"name": "x", "labels": {"l": "1"}}, "data": {"a": "1"}})
    for media in (JSON_PATCH, MERGE, STRATEGIC, f"{APPLY}"):
        for body in (
            "",
            "{",
            "[]",
            "5",
            "null",
            "{}",
            '{"metadata":{"name":"other"}}',
            '{"metadata":5}',
            '{"kind":"Secret"}',
            '{"apiVersion":"v9"}',
            '{"metadata":{"namespace":"other"}}',
            '{"data":{"a":5}}',
            '{"metadata":{"labels":{"bad key":"x"}}}',
            '{"metadata":{"resourceVersion":"1"}}',
            '{"metadata":{"uid":"other"}}',
        ):
            say.say("PATCH", f"{one}?dryRun=All" + ("&fieldManager=m" if media == APPLY else ""), body, media)
    for operations in (
        [{"op": "bad", "path": "/data/a"}],
        [{"op": "add"}],
        [{"op": "add", "path": "data/a", "value": "1"}],
        [{"op": "remove", "path": "/data/missing"}],
        [{"op": "replace", "path": "/data/missing", "value": "1"}],
        [{"op": "test", "path": "/data/a", "value": "2"}],
        [{"op": "test", "path": "/data/a", "value": "1"}],
        [{"op": "add", "path": "/x/y/z", "value": 1}],
        [{"op": "add", "path": "/metadata/finalizers/-", "value": "a/b"}],
        [{"op": "move", "from": "/data/a", "path": "/data/b"}],
        [{"op": "copy", "from": "/data/a", "path": "/data/b"}],
        [{"op": "remove", "path": "/metadata/name"}],
        [{"op": "replace", "path": "/kind", "value": "Secret"}],
        [{"op": "add", "path": "/data/a~1b", "value": "x"}],
        [{"op": "add", "path": "/data/~01", "value": "x"}],
    ):
        say.say("PATCH", f"{one}?dryRun=All", operations, JSON_PATCH)
    say.say("PATCH", f"{at}/missing", {}, MERGE)
    say.say("PATCH", f"{at}/missing", {}, STRATEGIC)
    say.say("PATCH", f"{at}/missing", [], JSON_PATCH)
    say.say("PATCH", one, {}, "application/json")
    say.say("PATCH", one, {}, "text/plain")
    say.say("PATCH", at, {}, MERGE)
    say.say("PATCH", f"{one}?force=true", {"data": {"a": "2"}}, MERGE)
    say.say("PATCH", f"{one}?dryRun=Bad", {}, MERGE)
    say.say("PATCH", f"{one}?fieldManager=" + "m" * 200, {}, MERGE)
    deployments = f"/apis/apps/v1/namespaces/{say.namespace}/deployments"
    good = placed(say, next(body for body in OBJECTS if body["kind"] == "Deployment"))
    say.speaker.send("POST", deployments, good)
    for patch in (
        {"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "j"}, {"name": "d", "image": "k"}]}}}},
        {"spec": {"template": {"spec": {"containers": [{"image": "no-key"}]}}}},
        {"spec": {"template": {"spec": {"containers": [{"name": "c", "$patch": "delete"}]}}}},
        {
            "spec": {
                "template": {
                    "spec": {
                        "$setElementOrder/containers": [{"name": "x"}],
                        "containers": [{"name": "c", "image": "j"}],
                    }
                }
            }
        },
        {"spec": {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}}},
        {"$patch": "bad"},
        {"spec": {"template": {"spec": {"containers": [{"$patch": "replace"}, {"name": "n", "image": "i"}]}}}},
        {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/b"]}},
        {"spec": {"selector": {"matchLabels": {"new": "x"}}}},
        {"spec": {"replicas": "five"}},
        {"spec": {"replicas": None}},
        {"spec": None},
    ):
        say.say("PATCH", f"{deployments}/x?dryRun=All", patch, STRATEGIC)
        say.say("PATCH", f"{deployments}/x?dryRun=All", patch, MERGE)


def applying(say: Conversation) -> None:
    """Server-side apply: owners, conflicts, force, giving up fields."""
    say.set_up()
    deployments = f"/apis/apps/v1/namespaces/{say.namespace}/deployments"
    good = placed(say, next(body for body in OBJECTS if body["kind"] == "Deployment"))
    one = f"{deployments}/x"
    say.say("PATCH", one, good, APPLY)
    say.say("PATCH", f"{one}?fieldManager=", good, APPLY)
    say.say("PATCH", f"{one}?fieldManager=first&dryRun=All", good, APPLY)
    say.say("PATCH", f"{one}?fieldManager=first", good, APPLY)
    say.say("PATCH", f"{one}?fieldManager=first", good, APPLY)
    other = deep_copy(good)
    other["spec"]["replicas"] = 4
    other["spec"]["template"]["spec"]["containers"][0]["image"] = "other"
    say.say("PATCH", f"{one}?fieldManager=second", other, APPLY)
    say.say("PATCH", f"{one}?fieldManager=second&force=true", other, APPLY)
    say.say("PATCH", f"{one}?fieldManager=first", good, APPLY)
    bare = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "x"}}
    say.say("PATCH", f"{one}?fieldManager=second", {**bare, "spec": {"replicas": 4}}, APPLY)
    say.say("PATCH", f"{one}?fieldManager=first", bare, APPLY)
    say.say("PATCH", f"{one}?fieldManager=third", {**bare, "metadata": {"name": "x", "resourceVersion": "1"}}, APPLY)
    say.say(
        "PATCH",
        f"{one}?fieldManager=third",
        {**bare, "metadata": {"name": "x", "managedFields": [{"manager": "m"}]}},
        APPLY,
    )
    say.say("PATCH", f"{one}?fieldManager=third", {**bare, "metadata": {"name": "y"}}, APPLY)
    say.say("PATCH", f"{one}?fieldManager=third", {**bare, "apiVersion": "apps/v2"}, APPLY)
    say.say("PATCH", f"{one}?fieldManager=third", {"metadata": {"name": "x"}}, APPLY)
    say.say(
        "PATCH",
        f"{one}?fieldManager=third",
        {**bare, "spec": {"template": {"spec": {"containers": [{"image": "no-name"}]}}}},
        APPLY,
    )
    say.say(
        "PATCH",
        f"{one}?fieldManager=third",
        {**bare, "spec": {"template": {"spec": {"containers": [{"name": "c"}, {"name": "c"}]}}}},
        APPLY,
    )
    say.say("PATCH", f"{one}?fieldManager=third", {**bare, "spec": {"replicas": "many"}}, APPLY)
    say.say(
        "PATCH", f"{one}/status?fieldManager=third", {**bare, "status": {"replicas": 1, "observedGeneration": 1}}, APPLY
    )
    say.say(
        "PATCH",
        f"{one}/scale?fieldManager=third",
        {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": "x", "namespace": say.namespace},
            "spec": {"replicas": 7},
        },
        APPLY,
    )
    say.say(
        "PUT",
        f"{one}?fieldManager=putter",
        {
            **say.speaker.send("GET", one).body,
            "metadata": {**say.speaker.send("GET", one)["metadata"], "managedFields": []},
        },
    )
    say.say(
        "PATCH",
        f"{one}?fieldManager=third",
        [{"op": "replace", "path": "/metadata/managedFields", "value": [{}]}],
        JSON_PATCH,
    )
    say.say(
        "PATCH",
        f"{deployments}/new?fieldManager=maker",
        {**bare, "metadata": {"name": "new", "uid": "00000000-0000-0000-0000-000000000000"}},
        APPLY,
    )
    say.say("PATCH", f"{deployments}/new/status?fieldManager=maker", {**bare, "metadata": {"name": "new"}}, APPLY)


def lists(say: Conversation) -> None:
    """Selectors, chunks, revisions."""
    say.set_up()
    at = f"{say.core}/secrets"
    for number in range(5):
        say.speaker.send(
            "POST",
            at,
            {
                "metadata": {"name": f"s{number}", "labels": {"n": str(number), "even": str(number % 2 == 0)}},
                "type": "t" if number else "Opaque",
            },
        )
    first = say.say("GET", f"{at}?limit=2")
    token = first["metadata"]["continue"]
    say.say("GET", f"{at}?limit=2&continue={token}")
    say.say("GET", f"{at}?continue={token}")
    say.say("GET", f"{at}?limit=2&continue={token}&resourceVersion=5")
    say.say("GET", f"{at}?limit=2&continue={token}&resourceVersion=0")
    say.say("GET", f"{at}?limit=2&continue={token}&resourceVersionMatch=Exact&resourceVersion=5")
    queries = (
        "limit=0",
        "limit=-1",
        "limit=bad",
        "limit=5",
        "limit=500",
        "continue=bad",
        "limit=1&continue=bad",
        "resourceVersion=0",
        "resourceVersion=bad",
        "resourceVersion=-1",
        f"resourceVersion={first.revision}",
        f"resourceVersion={first.revision}&resourceVersionMatch=Exact",
        f"resourceVersion={first.revision}&resourceVersionMatch=NotOlderThan",
        "resourceVersion=99999999",
        "resourceVersionMatch=Exact",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersion=0&resourceVersionMatch=Exact",
        "resourceVersion=0&resourceVersionMatch=NotOlderThan",
        "resourceVersion=5&resourceVersionMatch=Bad",
        "resourceVersion=0&limit=2",
        "sendInitialEvents=true",
        "timeoutSeconds=1",
        "timeoutSeconds=bad",
        "watch=bad&timeoutSeconds=1",
        "allowWatchBookmarks=bad",
    )
    say.hear(
        *((f"{at}?{query}", {}) for query in queries),
        *((f"{at}/s1?resourceVersion={revision}", {}) for revision in ("0", "bad", "99999999", "1")),
    )
    for selector in (
        "n=1",
        "n==1",
        "n!=1",
        "n in (1,2)",
        "n notin (1,2)",
        "n",
        "!n",
        "n>2",
        "n<2",
        "n in (1),even=False",
        "n=1,",
        ",",
        "n=",
        "=",
        "n in",
        "n in ()",
        "n in (1",
        "n>x",
        "bad key=1",
        "n=bad value",
        "a/b/c=1",
        "-a=1",
        "n=-",
        "n in (1,,2)",
        "!",
        "n=1,n=2",
        " n = 1 ",
        "x" * 64 + "=1",
        "n=" + "x" * 64,
        "n gt 1",
        "(n)",
    ):
        say.say("GET", f"{at}?labelSelector={_quoted(selector)}")
    for selector in (
        "metadata.name=s1",
        "metadata.name!=s1",
        "metadata.name==s1",
        f"metadata.namespace={say.namespace}",
        "metadata.namespace=other",
        "type=t",
        "type!=t",
        "type=",
        "metadata.name=s1,type=t",
        "bad",
        "bad=1",
        "metadata.labels.n=1",
        "spec.x=1",
        "metadata.name",
        "=",
        "metadata.name=a b",
        "metadata.name=s1,",
        "metadata.name=s1\\,x",
        "metadata.name in (s1)",
        "metadata.uid=x",
    ):
        say.say("GET", f"{at}?fieldSelector={_quoted(selector)}")
    say.say("GET", f"{at}?labelSelector=even%3DTrue&limit=2")
    for name, where in (
        ("pods", say.core),
        ("services", say.core),
        ("events", say.core),
        ("jobs", f"/apis/batch/v1/namespaces/{say.namespace}"),
        ("replicasets", f"/apis/apps/v1/namespaces/{say.namespace}"),
        ("events", f"/apis/events.k8s.io/v1/namespaces/{say.namespace}"),
    ):
        for field in (
            "status.phase=Running",
            "spec.nodeName=n",
            "spec.clusterIP=None",
            "spec.type=ClusterIP",
            "reason=x",
            "involvedObject.name=x",
            "regarding.name=x",
            "status.successful=1",
            "status.replicas=1",
            "spec.serviceAccountName=x",
            "status.podIP=",
            "status.podIPs=1",
            "spec.hostNetwork=false",
            "reportingController=x",
            "source=x",
        ):
            say.say("GET", f"{where}/{name}?fieldSelector={field}")
    say.say("GET", "/api/v1/namespaces?fieldSelector=status.phase%3DTerminating")
    say.say("GET", f"/api/v1/namespaces?fieldSelector=metadata.name%3D{say.namespace}")
    say.say("GET", "/api/v1/namespaces/eq-missing/secrets")
    say.say("GET", f"/api/v1/secrets?fieldSelector=metadata.namespace%3D{say.namespace},type%3DOpaque")
    for include in ("None", "Metadata", "Object", "Bad", ""):
        say.say("GET", f"{at}?includeObject={include}&limit=1", Accept=TABLE)
        say.say("GET", f"{at}/s1?includeObject={include}", Accept=TABLE)


def _quoted(text: str) -> str:
    from urllib.parse import quote

    return quote(text)


def deletes(say: Conversation) -> None:
    """Options, preconditions, finalizers, propagation, collections."""
    say.set_up()
    at = f"{say.core}/configmaps"

    def make(name: str, **metadata: Any) -> Any:
        return say.speaker.send("POST", at, {"metadata": {"name": name, **metadata}, "data": {"a": "b"}})

    make("x")
    one = f"{at}/x"
    for body in (
        "{",
        "[]",
        "5",
        '{"kind":"Secret","apiVersion":"v1"}',
        '{"kind":"DeleteOptions","apiVersion":"v9"}',
        '{"propagationPolicy":"Bad"}',
        '{"gracePeriodSeconds":"x"}',
        '{"gracePeriodSeconds":-1}',
        '{"dryRun":["Bad"]}',
        '{"dryRun":"All"}',
        '{"preconditions":5}',
        '{"preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}',
        '{"preconditions":{"resourceVersion":"1"}}',
        '{"preconditions":{"uid":""}}',
        '{"orphanDependents":true,"propagationPolicy":"Orphan"}',
        '{"orphanDependents":"x"}',
        '{"bogus":1}',
        '{"kind":"DeleteOptions","apiVersion":"v1","dryRun":["All"]}',
        '{"kind":"DeleteOptions","apiVersion":"meta.k8s.io/v1","dryRun":["All"]}',
        '{"kind":"DeleteOptions","apiVersion":"apps/v1","dryRun":["All"]}',
    ):
        # The real server reads no query when there is a body: what is not a dry run deletes.
        make("x")
        say.say("DELETE", one, body)
    make("x")
    for query in (
        "dryRun=Bad",
        "dryRun=All&propagationPolicy=Bad",
        "dryRun=All&gracePeriodSeconds=x",
        "dryRun=All&gracePeriodSeconds=0",
        "dryRun=All&orphanDependents=bad",
        "dryRun=All&orphanDependents=true",
        "dryRun=All&propagationPolicy=Foreground",
        "dryRun=All&propagationPolicy=Orphan",
        "dryRun=All&propagationPolicy=Background&orphanDependents=true",
    ):
        say.say("DELETE", f"{one}?{query}")
    say.say("DELETE", f"{at}/missing")
    say.say("DELETE", one, "", "text/plain")
    say.say("DELETE", one, "{}", "text/plain")
    say.say("DELETE", one, "propagationPolicy: Background", "application/yaml")
    say.say("DELETE", one)
    make("held", finalizers=["example.org/hold"])
    held = f"{at}/held"
    say.say("DELETE", held)
    say.say("DELETE", held)
    say.say("GET", held)
    say.say("PATCH", held, {"metadata": {"finalizers": ["example.org/hold", "example.org/more"]}}, MERGE)
    say.say("PATCH", held, {"metadata": {"labels": {"still": "writable"}}}, MERGE)
    say.say("PATCH", held, {"metadata": {"finalizers": None}}, MERGE)
    say.say("GET", held)
    owner = make("owner")
    make(
        "child",
        ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}],
    )
    say.say("DELETE", f"{at}/owner", {"propagationPolicy": "Background"})
    say.until(lambda: say.speaker.send("GET", f"{at}/child").status == 404)
    owner = make("owner")
    make(
        "child",
        ownerReferences=[
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "name": "owner",
                "uid": owner["metadata"]["uid"],
                "blockOwnerDeletion": True,
            }
        ],
    )
    say.say("DELETE", f"{at}/owner", {"propagationPolicy": "Foreground"})
    say.until(lambda: say.speaker.send("GET", f"{at}/owner").status == 404)
    say.say("GET", f"{at}/child")
    owner = make("owner")
    make(
        "child",
        ownerReferences=[{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}],
    )
    say.say("DELETE", f"{at}/owner", {"propagationPolicy": "Orphan"})
    say.until(lambda: say.speaker.send("GET", f"{at}/owner").status == 404)
    say.say("GET", f"{at}/child")
    for number in range(3):
        make(f"c{number}", labels={"set": "c"})
    say.say("DELETE", f"{at}?labelSelector=set%3Dc&dryRun=All")
    say.say("DELETE", f"{at}?labelSelector=bad+key")
    say.say("DELETE", f"{at}?fieldSelector=bad%3D1")
    say.say("DELETE", f"{at}?labelSelector=set%3Dc", {"propagationPolicy": "Bad"})
    say.say("DELETE", f"{at}?labelSelector=set%3Dc")
    say.say("GET", f"{at}?labelSelector=set%3Dc")
    say.say("DELETE", "/api/v1/namespaces")
    say.say("DELETE", f"{say.core}/services?labelSelector=a%3Db")
    pods = f"{say.core}/pods"
    pod = {
        "metadata": {"name": "p"},
        "spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]},
    }
    say.speaker.send("POST", pods, pod)
    say.say("DELETE", f"{pods}/p?dryRun=All")
    say.say("DELETE", f"{pods}/p", {"gracePeriodSeconds": 5})
    say.speaker.send("POST", pods, pod)
    say.say("POST", f"{pods}/p/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "q"}})
    say.say(
        "POST",
        f"{pods}/missing/eviction",
        {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "missing"}},
    )
    say.say(
        "POST",
        f"{pods}/p/eviction",
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "p"},
            "deleteOptions": {"dryRun": ["All"]},
        },
    )
    say.say("POST", f"{pods}/p/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "p"}})
    say.say("GET", f"{pods}/p")


def parts(say: Conversation) -> None:
    """status, scale, binding, token: what they take and what they refuse."""
    say.set_up()
    deployments = f"/apis/apps/v1/namespaces/{say.namespace}/deployments"
    good = placed(say, next(body for body in OBJECTS if body["kind"] == "Deployment"))
    live = say.speaker.send("POST", deployments, {**good, "status": {"replicas": 9}})
    one = f"{deployments}/x"
    say.say(
        "PUT",
        f"{one}/status",
        {**live.body, "status": {"replicas": 2, "observedGeneration": 1}, "spec": {**live["spec"], "replicas": 9}},
    )
    say.say("PATCH", f"{one}/status", {"status": {"replicas": -1}}, MERGE)
    say.say("PATCH", f"{one}/status", {"status": {"conditions": [{"type": "Available", "status": "True"}]}}, STRATEGIC)
    say.say("PATCH", one, {"status": {"replicas": 5}}, MERGE)
    say.say("PATCH", one, {"spec": {"replicas": 2}}, MERGE)
    say.say("POST", f"{one}/status", {})
    say.say("DELETE", f"{one}/status")
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "x", "namespace": say.namespace},
        "spec": {"replicas": 4},
    }
    say.say("PUT", f"{one}/scale", scale)
    say.say("PUT", f"{one}/scale?dryRun=All", {**scale, "spec": {"replicas": 5}})
    say.say("PUT", f"{one}/scale", {**scale, "spec": {"replicas": -1}})
    say.say("PUT", f"{one}/scale", {**scale, "metadata": {"name": "y"}})
    say.say(
        "PUT", f"{one}/scale", {**scale, "metadata": {"name": "x", "namespace": say.namespace, "resourceVersion": "1"}}
    )
    say.say("PUT", f"{one}/scale", {**scale, "kind": "Bad"})
    say.say("PATCH", f"{one}/scale", {"spec": {"replicas": 6}}, MERGE)
    say.say("PATCH", f"{one}/scale", {"spec": {"replicas": "x"}}, MERGE)
    say.say("PATCH", f"{one}/scale", [{"op": "replace", "path": "/spec/replicas", "value": 1}], JSON_PATCH)
    say.say("GET", f"{deployments}/missing/scale")
    say.say(
        "PUT", f"{deployments}/missing/scale", {**scale, "metadata": {"name": "missing", "namespace": say.namespace}}
    )
    say.say("GET", f"{one}/scale", Accept=TABLE)
    pods = f"{say.core}/pods"
    say.speaker.send(
        "POST",
        pods,
        {
            "metadata": {"name": "p"},
            "spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]},
        },
    )
    bind = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n"}}
    say.say("POST", f"{pods}/p/binding", {**bind, "target": {"kind": "Pod", "name": ""}})
    say.say("POST", f"{pods}/missing/binding", {**bind, "metadata": {"name": "missing"}})
    say.say("POST", f"{pods}/p/binding", bind)
    say.say("POST", f"{pods}/p/binding", bind)
    say.say("GET", f"{pods}/p")
    say.say("PATCH", f"{pods}/p", {"spec": {"containers": [{"name": "c", "image": "changed"}]}}, STRATEGIC)
    say.say("PATCH", f"{pods}/p", {"spec": {"containers": [{"name": "c", "command": ["changed"]}]}}, STRATEGIC)
    say.say("PATCH", f"{pods}/p", {"spec": {"nodeName": "other"}}, MERGE)
    say.say("PATCH", f"{pods}/p", {"spec": {"activeDeadlineSeconds": 5}}, MERGE)
    say.say("PATCH", f"{pods}/p", {"spec": {"activeDeadlineSeconds": 9}}, MERGE)
    say.say("PATCH", f"{pods}/p/status", {"status": {"phase": "Running", "podIP": "192.0.2.7"}}, MERGE)
    say.say("GET", f"{pods}?fieldSelector=status.phase%3DRunning", Accept=TABLE)
    say.say(
        "PATCH",
        f"{pods}/p/ephemeralcontainers",
        {"spec": {"ephemeralContainers": [{"name": "e", "image": "i"}]}},
        STRATEGIC,
    )
    say.say("GET", f"{pods}/p/ephemeralcontainers")
    say.say(
        "PATCH",
        f"{pods}/p/resize",
        {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}},
        STRATEGIC,
    )
    accounts = f"{say.core}/serviceaccounts"
    token = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    say.say("POST", f"{accounts}/missing/token", token)
    say.say("POST", f"{accounts}/default/token", token)
    say.say("POST", f"{accounts}/default/token", {**token, "spec": {}})
    say.say("POST", f"{accounts}/default/token", {**token, "spec": {"expirationSeconds": 10}})
    say.say("POST", f"{accounts}/default/token", {**token, "spec": {"expirationSeconds": 2**40}})
    say.say("POST", f"{accounts}/default/token", {**token, "spec": {"audiences": ["a"]}})
    say.say(
        "POST", f"{accounts}/default/token", {**token, "spec": {"boundObjectRef": {"kind": "Pod", "name": "missing"}}}
    )
    say.say(
        "POST",
        f"{accounts}/default/token",
        {**token, "spec": {"boundObjectRef": {"kind": "Bad", "name": "x", "apiVersion": "v1"}}},
    )
    say.say("POST", f"{accounts}/default/token", {**token, "metadata": {"name": "other"}})
    say.say("POST", f"{accounts}/default/token", {**token, "metadata": {"namespace": "other"}})
    say.say("POST", f"{accounts}/default/token", {**token, "kind": "Bad"})
    say.say("POST", f"{accounts}/default/token?dryRun=All", token)
    say.say("GET", f"{accounts}/default/token")


def namespaces(say: Conversation) -> None:
    """The life of a namespace."""
    at = "/api/v1/namespaces"
    name = "eq-life"
    say.say("POST", at, {"metadata": {"name": name, "labels": {"a": "b"}}})
    say.until(lambda: say.speaker.send("GET", f"{at}/{name}/serviceaccounts/default").status == 200)
    say.say("GET", f"{at}/{name}")
    say.say("GET", f"{at}/{name}", Accept=TABLE)
    say.say("PATCH", f"{at}/{name}", {"spec": {"finalizers": []}}, MERGE)
    say.say("PATCH", f"{at}/{name}", {"metadata": {"labels": {"kubernetes.io/metadata.name": "lie"}}}, MERGE)
    say.say("PATCH", f"{at}/{name}/status", {"status": {"phase": "Bad"}}, MERGE)
    say.say("POST", f"{at}/{name}/configmaps", {"metadata": {"name": "held", "finalizers": ["example.org/hold"]}})
    say.say("DELETE", f"{at}/{name}?dryRun=All")
    say.say("DELETE", f"{at}/{name}")
    say.say("POST", f"{at}/{name}/configmaps", {"metadata": {"name": "late"}})
    say.say("POST", at, {"metadata": {"name": name}})
    say.until(lambda: "deletionTimestamp" in say.speaker.send("GET", f"{at}/{name}/configmaps/held")["metadata"])
    say.say("GET", f"{at}/{name}/configmaps/held")
    say.say("PATCH", f"{at}/{name}/configmaps/held", {"metadata": {"finalizers": []}}, MERGE)
    say.until(lambda: say.speaker.send("GET", f"{at}/{name}").status == 404)
    say.say("DELETE", f"{at}/{name}")
    for name in ("default", "kube-system", "kube-public"):
        say.say("DELETE", f"{at}/{name}?dryRun=All")
    say.say("POST", at, {"metadata": {"generateName": "eq-made-"}})
    say.say("POST", at, {"metadata": {"name": "eq-n", "namespace": "other"}})
    say.say("PUT", f"{at}/eq-nothing/finalize", {"metadata": {"name": "eq-nothing"}})


def paths(say: Conversation) -> None:
    """Discovery, unknown paths, methods that do not fit."""
    for path in (
        "/api",
        "/api/",
        "/api/v2",
        "/api/v1/nothing",
        "/api/v1/namespaces/default/nothing",
        "/api/v1/namespaces/default/nothing/x",
        "/api/v1/namespaces/default/configmaps/x/y",
        "/api/v1/namespaces/default/configmaps/x/y/z",
        "/apis/nothing",
        "/apis/apps/v2",
        "/apis/apps/v1/nothing",
        "/apis/apps/v1/namespaces/default/nothing",
        "/nothing",
        "/apis/apps/v1/deployments/x",
        "/api/v1/nodes/x/y",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/namespaces/default/namespaces",
        "/api/v1/watch/namespaces/default/configmaps/x/y/z",
        "/apis/apps",
        "/apis/batch",
        "/apis/autoscaling",
        "/apis/events.k8s.io",
        "/apis/authorization.k8s.io/v1",
        "/apis/authentication.k8s.io/v1",
        "/apis/apps/v1",
        "/apis/batch/v1",
        "/apis/autoscaling/v2",
        "/apis/autoscaling/v1",
        "/apis/policy/v1",
        "/apis/networking.k8s.io/v1",
        "/apis/rbac.authorization.k8s.io/v1",
        "/apis/coordination.k8s.io/v1",
        "/apis/discovery.k8s.io/v1",
        "/apis/events.k8s.io/v1",
        "/apis/storage.k8s.io/v1",
        "/apis/certificates.k8s.io/v1",
        "/api/v1",
        "/apis/apiextensions.k8s.io/v1",
        "/apis/scheduling.k8s.io/v1",
        "/apis/node.k8s.io/v1",
        "/version",
        "/healthz",
        "/livez",
        "/readyz",
        "/healthz/ping",
        "/livez?verbose",
        "/openapi/v9",
        "/openapi/v3/nothing",
        "/",
    ):
        say.say("GET", path)
    for method, path in (
        ("POST", "/api"),
        ("PUT", "/api/v1"),
        ("DELETE", "/apis"),
        ("POST", "/version"),
        ("PATCH", "/api/v1/namespaces"),
        ("PUT", "/api/v1/namespaces/default/configmaps"),
        ("DELETE", "/api/v1/namespaces"),
        ("POST", "/api/v1/namespaces/default/configmaps/x"),
        ("GET", "/api/v1/namespaces/default/bindings"),
        ("GET", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("DELETE", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
        ("HEAD", "/api/v1/namespaces/default"),
        ("OPTIONS", "/api/v1/namespaces/default"),
        ("TRACE", "/api/v1/namespaces/default"),
        ("FOO", "/api/v1/namespaces/default"),
        ("DELETE", "/api/v1/componentstatuses"),
        ("PUT", "/api/v1/namespaces/default/pods/x/binding"),
        ("PUT", "/api/v1/namespaces/default/pods/x/log"),
    ):
        say.say(method, path)


def reviews(say: Conversation) -> None:
    """Who may do what, asked by reviews."""
    say.set_up()
    group = "/apis/authorization.k8s.io/v1"
    say.speaker.send(
        "POST",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{say.namespace}/roles",
        {
            "metadata": {"name": "r"},
            "rules": [
                {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get"]},
                {"apiGroups": ["apps"], "resources": ["*"], "resourceNames": ["x"], "verbs": ["*"]},
            ],
        },
    )
    say.speaker.send(
        "POST",
        f"/apis/rbac.authorization.k8s.io/v1/namespaces/{say.namespace}/rolebindings",
        {
            "metadata": {"name": "b"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "User", "name": "eq-jane"}],
        },
    )
    where = {"namespace": say.namespace, "verb": "get", "resource": "pods"}

    def ask(kind: str, spec: Any, at: str = group, **more: Any) -> None:
        plural = kind.lower() + "s"
        say.say("POST", f"{at}/{plural}", {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec, **more})

    jane = {"user": "eq-jane"}
    say.until(
        lambda: say.speaker.send(
            "POST",
            f"{group}/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {**jane, "resourceAttributes": where},
            },
        )["status"]["allowed"]
    )
    for spec in (
        {},
        jane,
        {"resourceAttributes": where},
        {**jane, "resourceAttributes": where},
        {**jane, "resourceAttributes": {**where, "verb": "list"}},
        {**jane, "resourceAttributes": {**where, "subresource": "log"}},
        {**jane, "resourceAttributes": {**where, "namespace": "other"}},
        {**jane, "resourceAttributes": {**where, "group": "apps", "resource": "deployments", "name": "x"}},
        {**jane, "resourceAttributes": {**where, "group": "apps", "resource": "deployments", "name": "y"}},
        {**jane, "nonResourceAttributes": {"path": "/healthz", "verb": "get"}},
        {**jane, "nonResourceAttributes": {"path": "/healthz", "verb": "get"}, "resourceAttributes": where},
        {"groups": ["system:masters"], "resourceAttributes": where},
        {"user": "x", "groups": ["system:authenticated"], "nonResourceAttributes": {"path": "/version", "verb": "get"}},
        {**jane, "resourceAttributes": {}},
        {**jane, "nonResourceAttributes": {}},
        {**jane, "resourceAttributes": {**where, "labelSelector": {"rawSelector": "a=b"}}},
    ):
        ask("SubjectAccessReview", spec)
        ask("SelfSubjectAccessReview", spec)
        ask("LocalSubjectAccessReview", spec, f"{group}/namespaces/{say.namespace}")
    ask("SelfSubjectRulesReview", {"namespace": ""})
    ask("SelfSubjectRulesReview", {})
    ask("SelfSubjectAccessReview", {"resourceAttributes": where}, metadata={"name": "x"})
    ask("SubjectAccessReview", {**jane, "resourceAttributes": where}, metadata={"namespace": "x"})
    say.say("POST", f"{group}/selfsubjectaccessreviews", {})
    say.say("POST", f"{group}/selfsubjectaccessreviews", {"kind": "Bad", "apiVersion": "v1"})
    say.say("POST", f"{group}/selfsubjectaccessreviews", "")
    authn = "/apis/authentication.k8s.io/v1"
    say.say(
        "POST", f"{authn}/selfsubjectreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    )
    say.say(
        "POST", f"{authn}/tokenreviews", {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}}
    )
    say.say(
        "POST",
        f"{authn}/tokenreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "bad"}},
    )


def limits(say: Conversation) -> None:
    """Quotas and limit ranges at work."""
    say.set_up()
    pod = {
        "metadata": {"name": "p"},
        "spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i"}]},
    }
    say.say(
        "POST",
        f"{say.core}/limitranges",
        {
            "metadata": {"name": "l"},
            "spec": {
                "limits": [
                    {
                        "type": "Container",
                        "max": {"cpu": "2"},
                        "min": {"cpu": "100m"},
                        "default": {"cpu": "1"},
                        "defaultRequest": {"cpu": "500m"},
                    }
                ]
            },
        },
    )
    say.until(
        lambda: (
            "limits"
            in str(say.speaker.send("POST", f"{say.core}/pods?dryRun=All", pod)["spec"]["containers"][0]["resources"])
        )
    )
    say.say("POST", f"{say.core}/pods?dryRun=All", pod)
    for resources in (
        {"limits": {"cpu": "3"}},
        {"requests": {"cpu": "50m"}},
        {"requests": {"cpu": "1500m"}},
        {"limits": {"memory": "1Gi"}},
    ):
        say.say(
            "POST",
            f"{say.core}/pods?dryRun=All",
            {
                **pod,
                "spec": {
                    "automountServiceAccountToken": False,
                    "containers": [{"name": "c", "image": "i", "resources": resources}],
                },
            },
        )
    say.say(
        "POST",
        f"{say.core}/resourcequotas",
        {
            "metadata": {"name": "q"},
            "spec": {"hard": {"count/configmaps": "3", "pods": "1", "requests.cpu": "600m", "services.nodeports": "0"}},
        },
    )
    say.until(lambda: "used" in say.speaker.send("GET", f"{say.core}/resourcequotas/q").body.get("status", {}))
    say.say("GET", f"{say.core}/resourcequotas/q")
    say.say("POST", f"{say.core}/pods", pod)
    say.say("POST", f"{say.core}/pods", {**pod, "metadata": {"name": "second"}})
    say.say(
        "POST",
        f"{say.core}/services",
        {"metadata": {"name": "s"}, "spec": {"type": "NodePort", "ports": [{"port": 80}]}},
    )
    for number in range(4):
        say.say("POST", f"{say.core}/configmaps", {"metadata": {"name": f"c{number}"}})
    say.say("GET", f"{say.core}/resourcequotas/q")
    say.say("GET", f"{say.core}/resourcequotas/q", Accept=TABLE)


def watching(say: Conversation) -> None:
    """Watches that end by themselves: what comes, in which form; and the parameters that are refused."""
    say.set_up()
    at = f"{say.core}/endpoints"

    def make(name: str, **labels: str) -> None:
        say.speaker.send("POST", at, {"metadata": {"name": name, "labels": labels}})

    make("a", l="1")
    start = say.speaker.send("GET", at).revision
    make("b", l="2")
    say.speaker.send("PATCH", f"{at}/a", {"metadata": {"labels": {"l": "2"}}}, MERGE)
    say.speaker.send("DELETE", f"{at}/b")
    short = "watch=1&timeoutSeconds=1"
    since = f"{at}?{short}&resourceVersion={start}"
    refused = (
        "resourceVersion=bad",
        "sendInitialEvents=true",
        "sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
        "sendInitialEvents=false",
        "resourceVersionMatch=NotOlderThan",
        "resourceVersionMatch=Exact&resourceVersion=1",
        "sendInitialEvents=true&resourceVersionMatch=Exact&allowWatchBookmarks=true",
        "labelSelector=bad+key",
        "fieldSelector=bad%3D1",
        "limit=1&continue=x",
    )
    say.hear(
        (f"{at}?{short}", {}),
        (f"{at}?{short}&resourceVersion=0", {}),
        (since, {}),
        (f"{since}&labelSelector=l%3D1", {}),
        (f"{since}&labelSelector=l%3D2", {}),
        (f"{since}&fieldSelector=metadata.name%3Db", {}),
        (since, {"Accept": TABLE}),
        (since, {"Accept": PARTIAL}),
        (f"{at}?{short}&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true", {}),
        (f"/api/v1/watch/namespaces/{say.namespace}/endpoints/a?timeoutSeconds=1&resourceVersion={start}", {}),
        *((f"{at}?{short}&{query}", {}) for query in refused),
    )


def updates(say: Conversation) -> None:
    """Fields that never change again."""
    say.set_up()
    for kind, plural, changes in (
        (
            "Deployment",
            "",
            (
                {"spec": {"selector": {"matchLabels": {"a": "c"}}}},
                {"spec": {"template": {"metadata": {"labels": {"a": "c"}}}}},
            ),
        ),
        (
            "StatefulSet",
            "",
            (
                {"spec": {"serviceName": "t"}},
                {"spec": {"podManagementPolicy": "Parallel"}},
                {"spec": {"volumeClaimTemplates": []}},
                {"spec": {"replicas": 2}},
            ),
        ),
        ("DaemonSet", "", ({"spec": {"selector": {"matchLabels": {"x": "y"}}}},)),
        ("ReplicaSet", "", ({"spec": {"selector": {"matchLabels": {"x": "y"}}}},)),
        (
            "Job",
            "",
            (
                {"spec": {"completions": 5}},
                {"spec": {"parallelism": 2}},
                {"spec": {"template": {"spec": {"restartPolicy": "OnFailure"}}}},
                {"spec": {"selector": None}},
                {"spec": {"suspend": True}},
            ),
        ),
        (
            "Service",
            "",
            (
                {"spec": {"clusterIP": "10.0.0.77"}},
                {"spec": {"clusterIP": ""}},
                {"spec": {"type": "ExternalName"}},
                {"spec": {"type": "NodePort"}},
                {"spec": {"ports": None}},
            ),
        ),
        (
            "PersistentVolumeClaim",
            "",
            (
                {"spec": {"resources": {"requests": {"storage": "2Gi"}}}},
                {"spec": {"storageClassName": "other"}},
                {"spec": {"accessModes": ["ReadWriteMany"]}},
            ),
        ),
        (
            "Secret",
            "",
            (
                {"type": "other"},
                {"immutable": True},
                {"data": {"b": "YQ=="}},
                {"immutable": False},
                {"metadata": {"labels": {"a": "b"}}},
            ),
        ),
        ("ConfigMap", "", ({"immutable": True}, {"data": {"b": "x"}}, {"metadata": {"labels": {"a": "b"}}})),
        ("RoleBinding", "", ({"roleRef": {"name": "other"}}, {"subjects": None})),
        (
            "StorageClass",
            "",
            (
                {"provisioner": "other"},
                {"parameters": {"a": "b"}},
                {"reclaimPolicy": "Retain"},
                {"allowVolumeExpansion": True},
            ),
        ),
        ("Ingress", "", ({"spec": {"rules": None}}, {"spec": {"ingressClassName": "c"}})),
        ("NetworkPolicy", "", ({"spec": {"podSelector": {"matchLabels": {"a": "b"}}}},)),
        ("EndpointSlice", "", ({"addressType": "IPv6"},)),
        ("ControllerRevision", "", ({"data": {"a": "c"}}, {"revision": 2})),
        (
            "PodDisruptionBudget",
            "",
            ({"spec": {"selector": {"matchLabels": {"a": "c"}}}}, {"spec": {"minAvailable": 2}}),
        ),
        ("IngressClass", "", ({"spec": {"controller": "other.org/c"}},)),
    ):
        del plural
        good = placed(say, next(body for body in OBJECTS if body["kind"] == kind))
        good["metadata"]["name"] = "eq-update"
        at = home(say, good)
        say.speaker.send("POST", at, good)
        for change in changes:
            say.say("PATCH", f"{at}/eq-update", change, MERGE)
        for field, value in (
            ("name", "other"),
            ("uid", "00000000-0000-0000-0000-000000000000"),
            ("creationTimestamp", "2020-01-01T00:00:00Z"),
            ("generation", 99),
            ("deletionTimestamp", "2020-01-01T00:00:00Z"),
            ("generateName", "x-"),
            ("selfLink", "/x"),
        ):
            if kind == "ConfigMap":
                say.say("PATCH", f"{at}/eq-update", {"metadata": {field: value}}, MERGE)
        say.speaker.send("DELETE", f"{at}/eq-update", {"propagationPolicy": "Background"})


def sections() -> Iterator[tuple[str, Callable[[Conversation], None], bool]]:
    """Every section: its name, what it says, and whether only the system space serves what it is about."""
    for number, body in enumerate(OBJECTS):
        group = body["apiVersion"].split("/")[0].split(".")[0]
        name = (
            f"kind-{body['kind'].lower()}-{group}-{number}"
            if group != "v1"
            else f"kind-{body['kind'].lower()}-{number}"
        )
        yield name, kind_section(body), body.get("system", False)
    for kind, changes in INVALID.items():
        yield f"invalid-{kind.lower()}", invalid_section(kind, changes), False
    for section in (
        bodies,
        fields,
        patches,
        applying,
        lists,
        deletes,
        parts,
        namespaces,
        paths,
        reviews,
        limits,
        watching,
        updates,
    ):
        yield section.__name__, section, False
