"""Subresources, connections, reviews and limits."""

from __future__ import annotations

from functools import partial
from typing import Any

from tests.conformance.conversation import Conversation
from tests.conformance.script.kinds import example
from tests.conformance.script.media import JSON_PATCH, MERGE, STRATEGIC, TABLE


def parts(say: Conversation) -> None:
    """status, scale, binding, token: what they take and what they refuse."""
    say.set_up()
    deployments = f"/apis/apps/v1/namespaces/{say.namespace}/deployments"
    good = example(say, "Deployment")
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
    for named in ({"name": "q"}, {}):
        say.say("POST", f"{pods}/p/binding", {**bind, "metadata": named})
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


def connecting(say: Conversation) -> None:
    """Logs and commands of pods that no node runs."""
    say.set_up()
    one = {"containers": [{"name": "a", "image": "i"}]}
    two = {
        "initContainers": [{"name": "i", "image": "i"}],
        "containers": [*one["containers"], {"name": "b", "image": "i"}],
    }
    for name, spec in (("one", one), ("two", two)):
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
        say.speaker.send("POST", f"{say.core}/pods", pod)
    for name in ("one", "two", "three"):
        for part in (
            "log",
            "log?container=a",
            "log?container=i",
            "log?container=c",
            "log?tailLines=-1&limitBytes=0&sinceSeconds=0",
            "log?tailLines=x",
            "log?previous=true&timestamps=true",
            "exec",
            "exec?command=ls&container=a",
            "exec?command=ls&container=c",
            "attach",
            "attach?container=b",
            "portforward",
            "portforward?ports=80",
            "proxy",
            "proxy/a/b?c=d",
        ):
            say.say("GET", f"{say.core}/pods/{name}/{part}")
    say.say("POST", f"{say.core}/pods/one/exec?command=ls")
    say.say("POST", f"{say.core}/pods/one/proxy/a", {})
    say.say("GET", f"{say.core}/pods/http:one:80/proxy/")
    say.say("GET", f"{say.core}/services/none/proxy/")
    say.speaker.send("POST", f"{say.core}/services", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}})
    say.say("GET", f"{say.core}/services/s:81/proxy/")
    for method in ("HEAD", "OPTIONS"):
        for path in ("pods/one/proxy/a", "pods/none/proxy/", "services/s:81/proxy/", "pods/one/log", "services/s"):
            say.say(method, f"{say.core}/{path}")


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


def counts(say: Conversation) -> None:
    """Quotas count quotas, themselves among them."""
    say.set_up()
    at = f"{say.core}/resourcequotas"
    say.speaker.send("POST", at, {"metadata": {"name": "a"}, "spec": {"hard": {"resourcequotas": "2"}}})

    def used(number: str) -> bool:
        status = say.speaker.send("GET", f"{at}/a").body.get("status", {})
        return bool(status.get("used", {}).get("resourcequotas") == number)

    say.until(lambda: used("1"))
    second = {"metadata": {"name": "b"}, "spec": {"hard": {"pods": "1"}}}
    assert say.speaker.send("POST", at, second).status == 201
    say.until(lambda: used("2"))
    say.say("POST", at, {"metadata": {"name": "c"}, "spec": {"hard": {"pods": "1"}}})
    say.say("POST", f"{at}?dryRun=All", {"metadata": {"name": "d"}, "spec": {"hard": {"count/secrets": "1"}}})
    say.speaker.send("DELETE", f"{at}/b")
    say.until(lambda: used("1"))
    say.speaker.send("DELETE", f"{at}/a")
    say.speaker.send("POST", at, {"metadata": {"name": "e"}, "spec": {"hard": {"count/resourcequotas": "1"}}})
    say.until(lambda: _used(say, "e").get("count/resourcequotas") == "1")
    say.say("POST", at, {"metadata": {"name": "f"}, "spec": {"hard": {"pods": "1"}}})
    say.speaker.send("DELETE", f"{at}/e")


def devices(say: Conversation) -> None:
    """Quotas count the devices that claims ask for, by their class."""
    say.set_up()
    claims = f"/apis/resource.k8s.io/v1/namespaces/{say.namespace}/resourceclaims"
    bound = {"gpu.deviceclass.resource.k8s.io/devices": "40", "count/resourceclaims.resource.k8s.io": "9"}
    hard = bound | {"requests.deviceclass.resource.kubernetes.io/gpu": "41"}
    say.speaker.send("POST", f"{say.core}/resourcequotas", {"metadata": {"name": "q"}, "spec": {"hard": hard}})
    say.until(lambda: bool(_used(say, "q")))
    gpu = {"deviceClassName": "gpu"}
    asked = {
        "few": [{"name": "a", "exactly": {**gpu, "count": 2}}, {"name": "b", "exactly": gpu}],
        "all": [{"name": "a", "exactly": {**gpu, "allocationMode": "All"}}],
        "either": [
            {"name": "a", "firstAvailable": [{"name": "x", **gpu, "count": 4}, {"name": "y", **gpu}]},
            {"name": "b", "firstAvailable": [{"name": "x", "deviceClassName": "fpga"}]},
        ],
        "again": [{"name": "a", "exactly": {**gpu, "count": 2}}],
        "other": [{"name": "a", "exactly": {"deviceClassName": "fpga", "count": 9}}],
        "last": [{"name": "a", "exactly": gpu}],
        "over": [{"name": "a", "exactly": gpu}],
    }
    for name, requests in asked.items():
        body = {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}}
        say.verdict("POST", claims, body)
        say.note(f"{say.core}/resourcequotas/q?after={name}", lambda answer: answer["status"]["used"])
    for number, wanted in enumerate(("2", "1")):
        resources = {"requests": {"deviceclass.resource.kubernetes.io/gpu": wanted}}
        resources["limits"] = resources["requests"]
        containers = [{"name": "c", "image": "i", "resources": resources}]
        spec = {"automountServiceAccountToken": False, "containers": containers}
        say.verdict("POST", f"{say.core}/pods", {"metadata": {"name": f"p{number}"}, "spec": spec})
        say.note(f"{say.core}/resourcequotas/q?pod={number}", lambda answer: answer["status"]["used"])


def resizes(say: Conversation) -> None:
    """A pod that is resized holds the largest of what it asks for, was given and has."""
    say.set_up()
    pod, quota = f"{say.core}/pods/p", f"{say.core}/resourcequotas/q"
    resources = {"requests": {"cpu": "500m", "memory": "64Mi"}, "limits": {"cpu": "2", "memory": "64Mi"}}
    spec = {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "i", "resources": resources}]}
    hard = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "1", "limits.cpu": "4"}}}
    say.speaker.send("POST", quota.rpartition("/")[0], hard)
    say.until(lambda: "requests.cpu" in _used(say, "q"))
    say.until(
        lambda: (
            say.speaker.send("POST", f"{say.core}/pods", {"metadata": {"name": "p"}, "spec": spec}).status in (201, 409)
        )
    )
    say.until(lambda: _asked_for(say) == ("500m", "2"))
    for number, (allocated, actual) in enumerate((("800m", "700m"), ("600m", "900m"), ("100m", "100m"))):
        given = {"allocatedResources": {"cpu": allocated, "memory": "64Mi"}}
        has = {"resources": {"requests": {"cpu": actual, "memory": "64Mi"}, "limits": {"cpu": "3", "memory": "64Mi"}}}
        running = {"name": "c", "image": "i", "imageID": "", "ready": True, "restartCount": 0, **given, **has}
        status = {"phase": "Running", "containerStatuses": [running]}
        before = _asked_for(say)
        assert say.speaker.send("PATCH", f"{pod}/status", {"status": status}, MERGE).status == 200
        say.until(partial(_counted_anew, say, quota, before))
        say.note(f"{quota}?step={number}", lambda answer: answer["status"]["used"])
        for cpu in ("600m", "800m", "900m", "1", "1001m"):
            change = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}}
            say.verdict("PATCH", f"{pod}/resize?dryRun=All&step={number}", change, STRATEGIC)


def _used(say: Conversation, quota: str) -> dict[str, str]:
    return _counted(say, quota).get("used") or {}


def _asked_for(say: Conversation) -> tuple[str | None, str | None]:
    used = _used(say, "q")
    return used.get("requests.cpu"), used.get("limits.cpu")


def _counted_anew(say: Conversation, quota: str, before: tuple[str | None, str | None]) -> bool:
    """The real server counts anew when the quota changes, and may not have heard of the pod's status by then."""
    most = str(int((_counted(say, "q").get("hard") or {}).get("pods", "2")) + 1)
    say.speaker.send("PATCH", quota, {"spec": {"hard": {"pods": most}}}, MERGE)
    return _asked_for(say) != before


def _counted(say: Conversation, quota: str) -> dict[str, dict[str, str]]:
    return say.speaker.send("GET", f"{say.core}/resourcequotas/{quota}").body.get("status") or {}
