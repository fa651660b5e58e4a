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


def _of_things(answer: Answer) -> dict[str, Any]:
    """The rules of a role that are about the section's kind, with what chooses them."""
    rules = [rule for rule in answer.body.get("rules") or () if rule.get("apiGroups") == ["eq.example.org"]]
    return {"rules": rules, "aggregationRule": answer.body.get("aggregationRule")}
