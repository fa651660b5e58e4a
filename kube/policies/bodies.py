"""Parts of objects as they come, of whatever shape."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kube.policies.policy import Names

Body = Mapping[str, Any]

Finding = tuple[str, str, str, str]
"""The rule, the field's path, what is there, and what to change."""


def mapping(value: Any) -> Body:
    """An object; empty for anything else."""
    return value if isinstance(value, dict) else {}


def members(value: Any) -> list[Any]:
    """A list; empty for anything else."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """A text; empty for anything else."""
    return value if isinstance(value, str) else ""


def only(allowed: Names) -> str:
    """What may stand in place of what is refused."""
    return f"allowed: {', '.join(allowed)}" if allowed else "none is allowed"


def missing_labels(wanted: tuple[str, ...], body: Body, at: str = "") -> Iterator[Finding]:
    """The labels that an object must carry and does not; values count only where ``wanted`` names some."""
    labels = mapping(mapping(body.get("metadata")).get("labels"))
    choices: dict[str, list[str]] = {}
    for entry in wanted:
        key, stated, value = entry.partition("=")
        choices.setdefault(key, []).extend([value] if stated else [])
    for key, values in choices.items():
        value = text(labels.get(key))
        if key in labels and (not values or value in values):
            continue
        said = f"the label {key} is required" + (f": one of {', '.join(values)}" if values else "")
        yield "required_labels", f"{at}metadata.labels[{key}]", f"{key}={value}" if key in labels else key, said
