"""Every kind: a good object through its life, and many that are wrong."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from kube.kinds.builtins import BUILTINS
from kube.objects.patches import deep_copy
from tests.conformance.conversation import Conversation
from tests.conformance.script.media import APPLY, JSON_PATCH, MERGE, PARTIAL, PARTIALS, STRATEGIC, TABLE

OBJECTS: list[dict[str, Any]] = yaml.safe_load((Path(__file__).parents[1] / "objects.yaml").read_text())


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


def example(say: Conversation, kind: str) -> dict[str, Any]:
    """The table's first object of a kind, in the section's namespace."""
    return placed(say, next(body for body in OBJECTS if body["kind"] == kind))


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
        let_go(say, one)

    return section


def let_go(say: Conversation, one: str) -> None:
    """What was deleted is gone, though no controller runs that would say so: other sections have its name too."""
    say.speaker.send("PATCH", one, {"metadata": {"finalizers": None}}, MERGE)


def invalid_section(kind: str, changes: list[dict[str, Any]]) -> Callable[[Conversation], None]:
    """Bad objects of one kind, refused with every cause; by fieldValidation where it may matter."""

    def section(say: Conversation) -> None:
        say.set_up()
        good = example(say, kind)
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
