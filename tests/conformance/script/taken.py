"""What of an object a write through one of its subresources can change: everything is changed in one request."""

from __future__ import annotations

from typing import Any

from kube.objects.patches import deep_copy, merge_patch
from tests.conformance.conversation import Conversation
from tests.conformance.script.kinds import example, home
from tests.conformance.script.media import APPLY, MERGE, STRATEGIC
from tests.speaking import Answer

SIZED = {"requests": {"cpu": "100m", "memory": "32Mi"}, "limits": {"cpu": "200m", "memory": "64Mi"}}
MARKED: dict[str, Any] = {
    "labels": {"taken": "label"},
    "annotations": {"taken": "annotation"},
    "finalizers": ["example.com/taken"],
}
"""Metadata that every writer of an object sets."""

OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "x", "uid": "taken"}
HOSTILE: dict[str, Any] = {
    "hostNetwork": True,
    "nodeName": "n1",
    "serviceAccountName": "other",
    "volumes": [{"name": "v", "hostPath": {"path": "/"}}],
    "tolerations": [{"operator": "Exists"}],
    "activeDeadlineSeconds": 5,
}
EVIL: dict[str, Any] = {"image": "evil/x", "command": ["sh"], "securityContext": {"privileged": True}}


def _pod(name: str, **spec: Any) -> dict[str, Any]:
    containers = [{"name": "c", "image": "i", "resources": SIZED}, {"name": "d", "image": "i"}]
    steps = [{"name": "s", "image": "i", "restartPolicy": "Always", "resources": SIZED}, {"name": "t", "image": "i"}]
    given = {"automountServiceAccountToken": False, "containers": containers, "initContainers": steps}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"team": "a"}},
        "spec": given | spec,
    }


def _unowned(answer: Answer) -> Any:
    """An object without its fields' owners: the real server counts what it drops, too, as changed."""
    metadata = {name: value for name, value in answer["metadata"].items() if name != "managedFields"}
    return {**answer.body, "metadata": metadata}


def _larger(amounts: dict[str, Any]) -> dict[str, Any]:
    return merge_patch(SIZED, amounts)  # type: ignore[no-any-return]


def podparts(say: Conversation) -> None:
    """Ephemeral containers, sizes and status of pods: each by its part alone, and nothing else by it."""
    say.set_up()
    pods = f"{say.core}/pods"
    one = f"{pods}/p"
    made = say.speaker.send("POST", pods, _pod("p")).body

    def changed(**spec: Any) -> dict[str, Any]:
        body = deep_copy(made)
        body["metadata"] = {"name": "p", "namespace": say.namespace, **MARKED, "ownerReferences": [OWNER]}
        body["spec"] |= HOSTILE | spec
        body["status"] = {"phase": "Running", "podIP": "192.0.2.7"}
        return body

    more = _larger({"requests": {"cpu": "150m"}})
    containers = [{"name": "c", **EVIL, "resources": more}, {"name": "d", **EVIL}]
    steps = [{"name": "s", **EVIL, "restartPolicy": "Always", "resources": more}, {"name": "t", **EVIL}]
    hostile = {"containers": containers, "initContainers": steps}
    for number, (method, media) in enumerate((("PUT", "application/json"), ("PATCH", MERGE), ("PATCH", STRATEGIC))):
        more["requests"]["cpu"] = f"15{number}m"
        say.verdict(method, f"{one}/resize", changed(**hostile), media)
        say.note(one, _unowned)
    for spec in (
        {"containers": [*made["spec"]["containers"], {"name": "e", **EVIL}]},
        {"containers": made["spec"]["containers"][:1]},
        {"containers": made["spec"]["containers"][::-1]},
        {"initContainers": made["spec"]["initContainers"][::-1]},
        {"initContainers": []},
        {"containers": [{"name": "c", "image": "i"}, {"name": "d", "image": "i"}]},
        {"containers": [{"name": "c", "image": "i", "resources": _larger({"requests": {"cpu": None}})}, containers[1]]},
        {
            "containers": [
                {"name": "c", "image": "i", "resources": _larger({"limits": {"ephemeral-storage": "1Gi"}})},
                {"name": "d", "image": "i"},
            ]
        },
        {
            "initContainers": [
                {"name": "s", "image": "i", "restartPolicy": "Always", "resources": SIZED},
                {"name": "t", "image": "i", "resources": more},
            ]
        },
        {"resources": {"requests": {"cpu": "1"}}},
        {"resources": {"limits": {"hugepages-2Mi": "2Mi"}}},
    ):
        say.verdict("PUT", f"{one}/resize?dryRun=All", changed(**{**hostile, **spec}))
    first, second = {"name": "e", "image": "i"}, {"name": "f", "image": "i"}
    say.verdict("PUT", f"{one}/ephemeralcontainers", changed(**hostile, ephemeralContainers=[first]))
    say.note(one, _unowned)
    live = say.speaker.send("GET", one).body["spec"]["ephemeralContainers"]
    say.verdict("PUT", f"{one}/ephemeralcontainers", changed(**hostile, ephemeralContainers=[*live, second]))
    for ephemeral in ([], [second], [{**live[0], **EVIL}, second]):
        say.verdict("PUT", f"{one}/ephemeralcontainers", changed(**hostile, ephemeralContainers=ephemeral))
        say.verdict("PATCH", one, {"spec": {"ephemeralContainers": ephemeral}}, MERGE)
    say.verdict("PUT", f"{one}/status", changed(**hostile))
    say.note(one, _unowned)
    static = _pod("static")
    static["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "x"}
    if say.speaker.send("POST", pods, static).status == 201:
        for part in ("resize", "ephemeralcontainers"):
            say.verdict("PATCH", f"{pods}/static/{part}", {"metadata": {"labels": {"a": "b"}}}, MERGE)


def taken(say: Conversation) -> None:
    """Status, approval and finalizers of other kinds, by replacement and by apply."""
    say.set_up()
    for kind in (
        "Deployment",
        "Service",
        "Ingress",
        "PersistentVolumeClaim",
        "PersistentVolume",
        "PodDisruptionBudget",
    ):
        body = example(say, kind)
        body["metadata"]["name"] = f"taken-{kind.lower()}"
        _change_all(say, home(say, body), body, "status")
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "eq-taken-status"}}
    _change_all(say, "/api/v1/namespaces", body, "status")
    _change_all(say, "/api/v1/namespaces", {**body, "metadata": {"name": "eq-taken-finalize"}}, "finalize")


def _change_all(say: Conversation, at: str, body: dict[str, Any], part: str) -> None:
    one = f"{at}/{body['metadata']['name']}"
    say.speaker.send("POST", at, body)

    def current() -> dict[str, Any]:
        return say.speaker.send("GET", one).body

    live = current()
    wanted = {**live, "metadata": {**live["metadata"], **MARKED}, "spec": _other(live["spec"])}
    wanted["metadata"].pop("resourceVersion")
    say.verdict("PUT", f"{one}/{part}", wanted)
    say.note(one, _unowned)
    applied = {"apiVersion": live["apiVersion"], "kind": live["kind"], "metadata": {"labels": {"taken": "by-apply"}}}
    if part != "finalize":
        say.verdict("PATCH", f"{one}/{part}?fieldManager=applier&force=true", applied, APPLY)
        say.note(one, _unowned)
    say.speaker.send("PATCH", one, {"metadata": {"finalizers": None}}, MERGE)
    say.speaker.send("DELETE", one)


def _other(spec: dict[str, Any]) -> dict[str, Any]:
    """The same with every number and choice another, as far as it still reads."""
    changed = deep_copy(spec)
    for name, value in spec.items():
        if isinstance(value, int) and not isinstance(value, bool):
            changed[name] = value + 1
        elif isinstance(value, str):
            changed[name] = f"{value}x"
        elif isinstance(value, dict):
            changed[name] = {}
    if "finalizers" in spec:
        changed["finalizers"] = [*spec["finalizers"], "example.com/other"]
    return changed
