"""What is accepted and warned of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kube.objects.patches import deep_copy
from tests.conformance.conversation import Conversation
from tests.conformance.script.kinds import example, home
from tests.conformance.script.media import MERGE

CASES: dict[str, list[dict[str, Any]]] = yaml.safe_load((Path(__file__).parents[1] / "unwise.yaml").read_text())


def unwise(say: Conversation) -> None:
    """Each object is the good one of its kind with a field changed; then the good one is changed into it."""
    say.set_up()
    for kind, changes in CASES.items():
        good = example(say, kind)
        good["metadata"]["name"] = "unwise"
        at = home(say, good)
        say.speaker.send("POST", at, good)
        for change in changes:
            fields = {"metadata": {}, **{name: change[name] for name in change if name not in ("new", "part")}}
            if "part" not in change:
                say.verdict("POST", f"{at}?dryRun=All", _merged(good, fields))
            if "new" not in change:
                say.verdict("PATCH", f"{at}/unwise{change.get('part', '')}?dryRun=All", fields, MERGE)
        say.speaker.send("DELETE", f"{at}/unwise", {"gracePeriodSeconds": 0})


def _merged(good: dict[str, Any], change: dict[str, Any]) -> dict[str, Any]:
    """The good object with these fields, and a name of its own."""
    merged = deep_copy(good)
    merged["metadata"] |= {"name": change["metadata"].get("name", "new")}
    for name, value in change.items():
        if name == "metadata":
            merged[name] |= value
        elif isinstance(value, dict):
            merged[name] = {**merged.get(name, {}), **value}
        else:
            merged[name] = value
    return merged
