"""Updates, deletions and namespaces."""

from __future__ import annotations

from typing import Any

from tests.conformance.conversation import Conversation
from tests.conformance.script.kinds import example, home
from tests.conformance.script.media import MERGE, TABLE


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
        good = example(say, kind)
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
    say.say("DELETE", f"{at}?labelSelector=set%3Dc&limit=1")
    say.say("GET", f"{at}?labelSelector=set%3Dc")
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
    for named in ({"name": "q"}, {}):
        say.say("POST", f"{pods}/p/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": named})
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


def namespaces(say: Conversation) -> None:
    """The life of a namespace."""
    at = "/api/v1/namespaces"
    name = "eq-life"
    say.say("POST", at, {"metadata": {"name": name, "labels": {"a": "b"}}})
    say.until_complete(name)
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
