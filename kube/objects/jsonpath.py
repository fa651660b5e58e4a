"""The JSON paths of CRDs' printer columns and selectable fields: fields, indexes, ``[*]`` and one-step filters.

Paths are parsed once into steps; evaluation visits every value at most once per step, so its cost is bounded by
the object's size.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

MAX_LENGTH: Final = 1024
"""A path is a line in a CRD, not a program."""

_FIELD: Final = re.compile(r"\.((?:[A-Za-z0-9_/-]|\\.)+)", re.ASCII)
_QUOTED: Final = re.compile(r"""\[(?:'([^']+)'|"([^"]+)")\]""")
_INDEX: Final = re.compile(r"\[(-?[0-9]{1,9})\]", re.ASCII)
_EVERY: Final = re.compile(r"\[\*\]|\.\*")
_FILTER: Final = re.compile(
    r"""\[\?\(\s*@\.((?:[A-Za-z0-9_/-]|\\.)+)\s*(==|!=)\s*(?:'([^']*)'|"([^"]*)"|(true|false|-?[0-9]{1,18}))\s*\)\]""",
    re.ASCII,
)


@dataclass(frozen=True, slots=True)
class _Filter:
    field: str
    equal: bool
    value: Any


@dataclass(frozen=True, slots=True)
class JSONPath:
    """A parsed path."""

    steps: tuple[str | int | _Filter | None, ...]

    def find(self, value: Any) -> Iterator[Any]:
        """The values at the path, in order, each looked for when it is asked for."""
        ways = [iter((value,))]
        while ways:
            for node in ways[-1]:
                if len(ways) > len(self.steps):
                    yield node
                    continue
                ways.append(_children(node, self.steps[len(ways) - 1]))
                break
            else:
                ways.pop()


def parse(text: str) -> JSONPath:
    """Read ``.spec.items[0].name``, with or without braces. Raises ``ValueError`` for anything else."""
    if len(text) > MAX_LENGTH:
        raise ValueError("JSON path is too long")
    rest = text.strip()
    if rest.startswith("{") and rest.endswith("}"):
        rest = rest[1:-1].strip()
    rest = rest.removeprefix("$")
    steps: list[str | int | _Filter | None] = []
    position = 0
    while position < len(rest):
        if found := _EVERY.match(rest, position):
            steps.append(None)
        elif found := _FIELD.match(rest, position):
            steps.append(_unescape(found[1]))
        elif found := _QUOTED.match(rest, position):
            steps.append(found[1] or found[2])
        elif found := _INDEX.match(rest, position):
            steps.append(int(found[1]))
        elif found := _FILTER.match(rest, position):
            steps.append(_Filter(_unescape(found[1]), found[2] == "==", _literal(found)))
        elif rest == ".":
            break
        else:
            raise ValueError(f"unsupported JSON path: {text}")
        position = found.end()
    if not rest:
        raise ValueError("empty JSON path")
    return JSONPath(tuple(steps))


def _unescape(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _literal(found: re.Match[str]) -> Any:
    if found[5] is None:
        return found[3] if found[3] is not None else found[4]
    return found[5] == "true" if found[5] in ("true", "false") else int(found[5])


def _children(node: Any, step: str | int | _Filter | None) -> Iterator[Any]:
    if type(node) is dict:
        if isinstance(step, str):
            return iter((node[step],) if step in node else ())
        return iter(node.values() if step is None else ())
    if type(node) is list:
        if step is None:
            return iter(node)
        if isinstance(step, int):
            return iter((node[step],) if -len(node) <= step < len(node) else ())
        if isinstance(step, _Filter):
            return (item for item in node if _matches(item, step))
    return iter(())


def _matches(item: Any, condition: _Filter) -> bool:
    if type(item) is not dict or condition.field not in item:
        return False
    value = item[condition.field]
    same = type(value) is type(condition.value) and value == condition.value
    return same is condition.equal
