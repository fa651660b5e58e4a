"""Creating, patching and applying."""

from __future__ import annotations

import json

from kube.objects.patches import deep_copy
from tests.conformance.conversation import Conversation
from tests.conformance.script.definitions import CRDS, GROUP, definition, serve
from tests.conformance.script.definitions import home as custom_home
from tests.conformance.script.kinds import example
from tests.conformance.script.media import APPLY, JSON_PATCH, MERGE, STRATEGIC


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
        [{"op": "test", "path": "/data/none", "value": None}],
        [{"op": "test", "path": "/none/a", "value": None}],
        [{"op": "test", "path": "/data/none"}],
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
    good = example(say, "Deployment")
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
    good = example(say, "Deployment")
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


_RULE = {"apiGroups": ["equal.example.org"], "resources": ["things"], "verbs": ["get"]}


def revisions(say: Conversation) -> None:
    """``resourceVersion`` in what is written: none, ``"0"``, another's, and what is no number."""
    say.set_up()
    serve(say, definition("Guarded"))
    group = f"{GROUP}/v1"
    for at, body in (
        (f"{say.core}/configmaps", {"apiVersion": "v1", "kind": "ConfigMap"}),
        (f"{custom_home(say)}/guardeds", {"apiVersion": group, "kind": "Guarded"}),
        (
            f"/apis/coordination.k8s.io/v1/namespaces/{say.namespace}/leases",
            {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {}},
        ),
        (
            f"{say.core}/services",
            {"apiVersion": "v1", "kind": "Service", "spec": {"type": "ExternalName", "externalName": "x"}},
        ),
        (
            "/apis/rbac.authorization.k8s.io/v1/clusterroles",
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": [_RULE]},
        ),
    ):
        for version in ("0", "00", "5", "x", "-1"):
            new = {**body, "metadata": {"name": f"v{version.strip('-')}", "resourceVersion": version}}
            say.say("POST", f"{at}?dryRun=All", new)
            say.say("POST", at, new)
        made = {**body, "metadata": {"name": "x"}}
        say.speaker.send("POST", at, made)
        one = f"{at}/x"
        for number, version in enumerate(("0", "00", "5", "x", "-1", "", None)):
            changed = {"name": "x", "labels": {"change": str(number)}, "resourceVersion": version}
            say.say("PUT", one, {**body, "metadata": changed})
            say.say("PUT", f"{at}/missing?dryRun=All", {**body, "metadata": {**changed, "name": "missing"}})
            patch = {"metadata": {"labels": {"patch": str(number)}, "resourceVersion": version}}
            for media in (MERGE, STRATEGIC):
                say.say("PATCH", one, patch, media)
            operation = {"op": "replace", "path": "/metadata/resourceVersion", "value": version}
            say.say(
                "PATCH",
                one,
                [operation, {"op": "add", "path": "/metadata/labels/json", "value": str(number)}],
                JSON_PATCH,
            )
            if version is not None:
                applied = {**body, "metadata": {**changed, "labels": {"applied": str(number)}}}
                say.say("PATCH", f"{one}?fieldManager=m", applied, APPLY)
        for version in ("00", "5", "x", "-1", ""):
            say.say("DELETE", one, {"dryRun": ["All"], "preconditions": {"resourceVersion": version}})
        say.say("DELETE", one, {"preconditions": {"resourceVersion": "0"}})
        for name in ("v0", "v00", "x"):
            say.speaker.send("DELETE", f"{at}/{name}")
    deployment = example(say, "Deployment")
    one = f"/apis/apps/v1/namespaces/{say.namespace}/deployments"
    say.speaker.send("POST", one, deployment)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "spec": {"replicas": 2}}
    for version in ("0", "00", "5", "x", ""):
        metadata = {"name": "x", "namespace": say.namespace, "resourceVersion": version}
        for part, body in (("status", {**deployment, "status": {}}), ("scale", scale)):
            say.say("PUT", f"{one}/x/{part}?dryRun=All", {**body, "metadata": metadata})
            say.say("PATCH", f"{one}/x/{part}?dryRun=All", {"metadata": {"resourceVersion": version}}, MERGE)
    say.speaker.send("DELETE", f"{CRDS}/guardeds.{GROUP}")
