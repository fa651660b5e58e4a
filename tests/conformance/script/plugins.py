"""What the admission plug-ins of Kubernetes do that are on by default, and that no other section asks about."""

from __future__ import annotations

from typing import Any

from kube.objects.patches import deep_copy
from tests.conformance.conversation import Conversation
from tests.conformance.script.kinds import example, home
from tests.conformance.script.media import MERGE

BETA = {
    "PersistentVolumeClaim": "volume.beta.kubernetes.io/storage-class",
    "Ingress": "kubernetes.io/ingress.class",
}


def plugins(say: Conversation) -> None:
    """Classes that are given to claims and ingresses without one: the default, the newest of several, none."""
    say.set_up()
    _given(say, "PersistentVolumeClaim", "StorageClass", "storageClassName", "storageclass.kubernetes.io")
    _given(say, "PersistentVolumeClaim", "StorageClass", "storageClassName", "storageclass.beta.kubernetes.io")
    _given(say, "Ingress", "IngressClass", "ingressClassName", "ingressclass.kubernetes.io")


def binding(say: Conversation) -> None:
    """What a pod gets from its node and from its binding, and when it is not bound."""
    say.set_up()
    labels = {f"topology.kubernetes.io/{name}": name for name in ("zone", "region")}
    say.speaker.send("POST", "/api/v1/nodes", {"metadata": {"name": "eq-zone", "labels": labels | {"other": "x"}}})
    pods = f"{say.core}/pods"
    good = example(say, "Pod")
    account = {"serviceAccountName": "default", "automountServiceAccountToken": False}
    free = {**good["spec"], **account, "terminationGracePeriodSeconds": 0}

    def seen() -> bool:
        """A server may take a moment to see a node."""
        pod = {**good, "spec": {**free, "nodeName": "eq-zone"}, "metadata": {"name": "probe"}}
        made = say.speaker.send("POST", f"{pods}?dryRun=All", pod)
        return bool(made["metadata"].get("labels"))

    say.until(seen)
    for name, spec in (
        ("placed", {"nodeName": "eq-zone"}),
        ("elsewhere", {"nodeName": "eq-none"}),
        ("free", {}),
        ("gated", {"schedulingGates": [{"name": "example.org/wait"}]}),
    ):
        metadata = {"name": name, "labels": {"topology.kubernetes.io/zone": "said"}, "finalizers": ["example.org/held"]}
        say.say("POST", pods, {**good, "spec": {**free, **spec}, "metadata": metadata})
    target = {"kind": "Node", "name": "eq-zone"}
    for name, metadata in (
        ("gated", {}),
        ("free", {"resourceVersion": "1"}),
        ("free", {"uid": "00000000-0000-0000-0000-000000000000"}),
        ("free", {"labels": {"from": "binding"}, "annotations": {"from": "binding"}, "finalizers": ["example.org/x"]}),
        ("free", {}),
    ):
        bound = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name, **metadata}, "target": target}
        ask = say.say if "uid" not in metadata and "resourceVersion" not in metadata else say.refused
        ask("POST", f"{pods}/{name}/binding", bound)
        say.say("GET", f"{pods}/{name}")
    say.speaker.send("DELETE", f"{pods}/gated")
    bound = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "gated"}, "target": target}
    say.say("POST", f"{pods}/gated/binding", bound)
    for name in ("placed", "elsewhere", "free", "gated"):
        say.speaker.send("PATCH", f"{pods}/{name}", {"metadata": {"finalizers": None}}, MERGE)
    say.speaker.send("DELETE", "/api/v1/nodes/eq-zone")


def _given(say: Conversation, kind: str, of: str, field: str, domain: str) -> None:
    good, chosen = example(say, kind), example(say, of)
    at, classes = home(say, good), home(say, chosen)
    # A claim goes when its protection is taken off.
    good["metadata"]["name"] = domain

    def make(name: str, value: str) -> None:
        annotations = {f"{domain}/is-default-class": value}
        say.speaker.send("POST", classes, {**chosen, "metadata": {"name": name, "annotations": annotations}})

    def ask(**metadata: Any) -> Any:
        return say.say("POST", f"{at}?dryRun=All", {**good, "metadata": {**good["metadata"], **metadata}})

    def settled(name: str | None) -> None:
        """A server may take a moment to see a class."""
        probe = {**good, "metadata": {"name": "probe"}}
        say.until(lambda: say.speaker.send("POST", f"{at}?dryRun=All", probe)["spec"].get(field) == name)

    make("eq-plain", "false")
    ask()
    for name in ("eq-first", "eq-second"):
        make(name, "true")
    # Both may be of one second: then the first of their names counts.
    say.speaker.send("PATCH", f"{classes}/eq-second", {"metadata": {"annotations": None}}, MERGE)
    settled("eq-first")
    ask()
    ask(annotations={BETA[kind]: "other"})
    named = deep_copy(good)
    named["spec"][field] = "eq-plain"
    say.say("POST", f"{at}?dryRun=All", named)
    say.say("POST", at, good)
    say.say("PATCH", f"{at}/{domain}", {"metadata": {"labels": {"changed": "yes"}}}, MERGE)
    say.speaker.send("DELETE", f"{at}/{domain}")
    for name in ("eq-plain", "eq-first", "eq-second"):
        say.speaker.send("DELETE", f"{classes}/{name}")
    settled(None)
