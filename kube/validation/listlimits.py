"""How many members a list of a built-in kind may have: each rule that looks at them costs time for every one."""

from __future__ import annotations

from typing import Any, Final

from kube.requests.fielderrors import CAUSES_MAX, too_many
from kube.requests.status import Cause

MEMBERS_MAX: Final = 5_000
"""Members of a list that has no bound of its own."""

BOUNDS: Final = {
    "annotations": 1_000,
    "containers": 500,
    "env": 2_000,
    "ephemeralContainers": 500,
    "finalizers": 500,
    "initContainers": 500,
    "labels": 1_000,
    "matchLabels": 1_000,
    "ownerReferences": 500,
    "rules": 2_000,
    "volumes": 2_000,
}
"""Field → members at most, wherever in an object the field stands."""


def length_causes(body: dict[str, Any]) -> list[Cause]:
    """The lists that are too long."""
    causes: list[Cause] = []
    waiting: list[tuple[str, Any]] = [("", body)]
    while waiting and len(causes) < CAUSES_MAX:
        path, value = waiting.pop()
        if isinstance(value, dict):
            for name, member in value.items():
                if not isinstance(member, dict | list):
                    continue
                here = f"{path}.{name}" if path else name
                bound = BOUNDS.get(name, MEMBERS_MAX if isinstance(member, list) else len(member))
                if len(member) > bound:
                    causes.append(too_many(here, len(member), bound))
                else:
                    waiting.append((here, member))
        else:
            waiting += [(f"{path}[{at}]", item) for at, item in enumerate(value) if isinstance(item, dict | list)]
    return causes
