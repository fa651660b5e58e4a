"""What a column and a row are, and what the rows of many kinds have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kube.requests.durations import age

Cells = Callable[[dict[str, Any], float], Sequence[Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column's definition. ``priority`` 1 is shown by ``-o wide`` alone."""

    name: str
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def as_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "name": self.name,
            "type": self.type,
            "format": self.format,
            "description": self.description,
            "priority": self.priority,
        }


@dataclass(frozen=True, slots=True)
class TableConvertor:
    """How the objects of a kind become rows: the columns, and the function that fills a row of them at ``now``."""

    columns: tuple[Column, ...]
    cells: Cells


def convertor(columns: str, cells: Cells) -> TableConvertor:
    """``columns``: names parted by ``|``; in front ``#``: an integer, ``?``: a boolean, ``@``: a name, ``+``: wide only."""
    return TableConvertor(tuple(_column(name) for name in columns.split("|")), cells)


def _column(name: str) -> Column:
    priority = 1 if name.startswith("+") else 0
    name = name.removeprefix("+")
    type_ = {"#": "integer", "?": "boolean"}.get(name[0], "string")
    format_ = "name" if name == "Name" or name.startswith("@") else ""
    return Column(name.lstrip("#?@"), type_, format_, priority)


def at(item: Any, *path: str, default: Any = None) -> Any:
    """The value at a path of field names, or ``default`` when it is absent or ``null``."""
    for name in path:
        item = item.get(name) if isinstance(item, dict) else None
    return default if item is None else item


def name_of(item: dict[str, Any]) -> str:
    """The object's name."""
    return str(at(item, "metadata", "name", default=""))


def age_of(item: dict[str, Any], now: float) -> str:
    """The time since the object was made."""
    return age(at(item, "metadata", "creationTimestamp"), now)


def simple(*paths: str) -> Cells:
    """Name, the values at these paths (``path=default``; ``len:path`` counts; ``join:path`` lists), age."""
    steps = [_step(path) for path in paths]

    def cells(item: dict[str, Any], now: float) -> list[Any]:
        return [name_of(item), *(step(item) for step in steps), age_of(item, now)]

    return cells


def _step(text: str) -> Callable[[dict[str, Any]], Any]:
    how, _, rest = text.rpartition(":")
    path, _, default = rest.partition("=")
    names = path.split(".")
    if how == "len":
        return lambda item: len(at(item, *names, default=()))
    if how == "join":
        return lambda item: ",".join(map(str, at(item, *names, default=()))) or default
    if how == "int":
        return lambda item: at(item, *names, default=0)
    if how == "bool":
        return lambda item: bool(at(item, *names, default=default == "true"))
    return lambda item: str(at(item, *names, default=default))


def containers_of(spec: Any) -> tuple[str, str]:
    """The names and the images of a pod spec's containers."""
    containers = at(spec, "containers", default=())
    return (
        ",".join(str(at(c, "name", default="")) for c in containers),
        ",".join(str(at(c, "image", default="")) for c in containers),
    )


def format_selector(selector: Any, empty: str = "<none>") -> str:
    """A ``LabelSelector`` as text: ``app=web,tier in (a,b),!old``, sorted by key."""
    parts = [(key, f"{key}={value}") for key, value in at(selector, "matchLabels", default={}).items()]
    for wanted in at(selector, "matchExpressions", default=()):
        key, values = str(at(wanted, "key", default="")), ",".join(sorted(at(wanted, "values", default=())))
        operator = at(wanted, "operator")
        text = {"In": f"{key} in ({values})", "NotIn": f"{key} notin ({values})", "Exists": key}.get(
            operator, f"!{key}"
        )
        parts.append((key, text))
    return ",".join(text for _, text in sorted(parts, key=lambda part: part[0])) or empty


def labels_text(labels: Mapping[str, str] | None) -> str:
    """Labels as text, sorted; ``<none>`` when there are none."""
    return ",".join(f"{key}={value}" for key, value in sorted((labels or {}).items())) or "<none>"


def limited(values: Sequence[str], limit: int = 3, separator: str = ",") -> str:
    """The first values and how many more there are."""
    shown = separator.join(values[:limit])
    return f"{shown} + {len(values) - limit} more..." if len(values) > limit else shown


def condition_of(item: Any, type_: str) -> Any:
    """The condition of that type in the status, or ``None``."""
    return next((c for c in at(item, "status", "conditions", default=()) if at(c, "type") == type_), None)


def is_default(item: dict[str, Any], *keys: str) -> bool:
    """Whether one of these annotations says ``true``."""
    annotations = at(item, "metadata", "annotations", default={})
    return any(annotations.get(key) == "true" for key in keys)
