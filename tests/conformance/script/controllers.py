"""What the servers' own workers make and put right."""

from __future__ import annotations

from typing import Any

from tests.conformance.conversation import Conversation
from tests.conformance.script.media import MERGE
from tests.speaking import Answer


def aggregation(say: Conversation) -> None:
    """Aggregated cluster roles are read back with the rules of those that they choose."""
    at = "/apis/rbac.authorization.k8s.io/v1/clusterroles"
    chosen = {"clusterRoleSelectors": [{"matchLabels": {"eq.example.org/to": "all"}}]}

    def rule(*verbs: str) -> dict[str, Any]:
        return {"apiGroups": ["eq.example.org"], "resources": ["things"], "verbs": list(verbs)}

    def make(name: str, *rules: dict[str, Any], **labels: str) -> None:
        say.speaker.send("POST", at, {"metadata": {"name": name, "labels": labels}, "rules": list(rules)})

    def read(name: str, count: int) -> None:
        path = f"{at}/{name}"
        say.until(lambda: len(_of_things(say.speaker.send("GET", path))["rules"]) == count)
        say.note(path, _of_things)

    whole = {"metadata": {"name": "eq-all"}, "aggregationRule": chosen, "rules": [rule("delete")]}
    say.speaker.send("POST", at, whole)
    read("eq-all", 1)
    to_all = {"eq.example.org/to": "all"}
    make("eq-b", rule("get"), rule("list"), **to_all)
    read("eq-all", 2)
    make("eq-a", rule("watch"), rule("list"), **to_all)
    read("eq-all", 3)
    say.speaker.send("PATCH", f"{at}/eq-a", {"rules": [rule("get")]}, MERGE)
    read("eq-all", 2)
    say.speaker.send("PATCH", f"{at}/eq-all", {"rules": [rule("create")] * 5}, MERGE)
    read("eq-all", 2)
    say.speaker.send("DELETE", f"{at}/eq-b")
    read("eq-all", 1)
    say.speaker.send("DELETE", f"{at}/eq-a")
    read("eq-all", 0)
    make("eq-view", rule("get"), **{"rbac.authorization.k8s.io/aggregate-to-view": "true"})
    for name in ("view", "edit", "admin"):
        read(name, 1)
    for name in ("eq-view", "eq-all"):
        say.speaker.send("DELETE", f"{at}/{name}")
    for name in ("view", "edit", "admin"):
        read(name, 0)
    either = {"key": "eq.example.org/kind", "operator": "In", "values": ["one", "other"]}
    fits = {"key": "eq.example.org/left-out", "operator": "DoesNotExist"}
    choices = [{"matchExpressions": [either, fits]}, {"matchLabels": {"eq.example.org/more": "yes"}}]
    gathered = {"clusterRoleSelectors": choices}
    labels = {"eq.example.org/kind": "one"}
    say.speaker.send("POST", at, {"metadata": {"name": "eq-several", "labels": labels}, "aggregationRule": gathered})
    make("eq-z", rule("get"), **labels)
    make("eq-y", rule("list"), **{"eq.example.org/more": "yes"})
    make("eq-x", rule("watch"), **labels, **{"eq.example.org/left-out": ""})
    read("eq-several", 2)
    chained = {"metadata": {"name": "eq-chain", "labels": {"eq.example.org/kind": "other"}}}
    say.speaker.send("POST", at, {**chained, "aggregationRule": {"clusterRoleSelectors": choices[1:]}})
    make("eq-w", rule("patch"), **{"eq.example.org/more": "yes"})
    read("eq-chain", 2)
    # Until the chained one is written, the same rules come in another order.
    say.until(lambda: _of_things(say.speaker.send("GET", f"{at}/eq-several"))["rules"][0]["verbs"] == ["patch"])
    read("eq-several", 3)
    say.speaker.send("PATCH", f"{at}/eq-several", {"aggregationRule": None, "rules": [rule("update")]}, MERGE)
    say.note(f"{at}/eq-several", _of_things)
    for name in ("several", "chain", "w", "x", "y", "z"):
        say.speaker.send("DELETE", f"{at}/eq-{name}")
    for number, wrong in enumerate(
        ({}, {"clusterRoleSelectors": []}, {"clusterRoleSelectors": [{"matchLabels": {"a b": "c"}}]})
    ):
        body = {"metadata": {"name": "eq-wrong"}, "aggregationRule": wrong, "rules": [rule("get")]}
        say.say("POST", f"{at}?dryRun=All&wrong={number}", body)


def kubesystem(say: Conversation) -> None:
    """What a server tells programs of itself in ``kube-system``, and puts into the secrets of service accounts."""
    say.set_up()
    for name in ("extension-apiserver-authentication", "kube-apiserver-legacy-service-account-token-tracking"):
        say.note(f"/api/v1/namespaces/kube-system/configmaps/{name}", _entries)
    token = {
        "metadata": {"name": "token", "annotations": {"kubernetes.io/service-account.name": "default"}},
        "type": "kubernetes.io/service-account-token",
    }
    say.say("POST", f"{say.core}/secrets", token)
    say.note("/api/v1/namespaces/default/services/kubernetes", _ports)


def nodes(say: Conversation) -> None:
    """A node begins with what its kubelet says of it."""
    at = "/api/v1/nodes"
    status = {"capacity": {"cpu": "2", "memory": "1Gi"}, "addresses": [{"type": "InternalIP", "address": "10.1.1.1"}]}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    say.say("POST", at, {"metadata": {"name": "eq-told"}, "status": {**status, "conditions": [ready]}})
    say.say("POST", at, {"metadata": {"name": "eq-some"}, "status": {**status, "allocatable": {"cpu": "1"}}})
    say.say("PUT", f"{at}/eq-some", {"metadata": {"name": "eq-some"}, "status": {"capacity": {"cpu": "4"}}})
    for text in ("10.0.0.0/24", "10.0.0.00/24", "010.0.0.0/24", "10.0.0.0/024", "10.0.0.1/24", "2001:db8::/064"):
        spec = {"podCIDR": text, "podCIDRs": [text]}
        say.verdict("POST", f"{at}?dryRun=All", {"metadata": {"name": "eq-net"}, "spec": spec})
    for name in ("eq-told", "eq-some"):
        say.say("GET", f"{at}/{name}")
        say.speaker.send("DELETE", f"{at}/{name}")


def _entries(answer: Answer) -> dict[str, Any]:
    """Under which names something is said, whatever it is."""
    return {"data": sorted(answer.body.get("data") or ()), "message": answer.body.get("message")}


def _ports(answer: Answer) -> dict[str, Any]:
    """The ports of a Service, without those of the server itself."""
    ports = (answer.body.get("spec") or {}).get("ports") or ()
    return {"ports": [each["port"] for each in ports], "message": answer.body.get("message")}


def _of_things(answer: Answer) -> dict[str, Any]:
    """The rules of a role that are about the section's kind, with what chooses them."""
    rules = [rule for rule in answer.body.get("rules") or () if rule.get("apiGroups") == ["eq.example.org"]]
    return {"rules": rules, "aggregationRule": answer.body.get("aggregationRule")}


def contents(say: Conversation) -> None:
    """What every namespace holds, and holds again whatever is done to it."""
    say.set_up()
    collections = (f"{say.core}/configmaps", f"{say.core}/serviceaccounts")
    certificates, account = f"{collections[0]}/kube-root-ca.crt", f"{collections[1]}/default"
    bundle = say.speaker.send("GET", certificates)["data"]

    def identity(path: str) -> str:
        return str(say.speaker.send("GET", path).body["metadata"].get("uid", ""))

    def again(path: str, before: str) -> None:
        say.until(lambda: identity(path) not in ("", before))
        say.say("GET", path)

    def is_right() -> bool:
        body = say.speaker.send("GET", certificates).body
        described = (body["metadata"].get("annotations") or {}).get("kubernetes.io/description")
        return bool(described) and body.get("data") == bundle

    for path in (*collections, certificates, account):
        say.say("GET", path)
    for path in (certificates, account):
        before = identity(path)
        say.say("DELETE", path)
        again(path, before)
    for changed in (
        {"metadata": {"labels": {"mine": "yes"}}},
        {"data": {"ca.crt": "mine"}},
        {"data": {"more": "than this"}, "metadata": {"annotations": {"mine": "yes"}}},
        {"data": None, "binaryData": {"b": "Yg=="}},
        {"metadata": {"annotations": None}},
        {"metadata": {"annotations": {"kubernetes.io/description": "others"}}},
        {"metadata": {"annotations": {"kubernetes.io/description": ""}}},
    ):
        say.speaker.send("PATCH", certificates, changed, MERGE)
        say.until(is_right)
        say.say("GET", certificates)
    say.speaker.send("PATCH", certificates, {"immutable": True, "data": {"ca.crt": "mine"}}, MERGE)
    for collection, path in zip(collections, (certificates, account), strict=True):
        before = identity(path)
        say.speaker.send("DELETE", collection)
        again(path, before)
