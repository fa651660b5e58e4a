"""How much it takes to judge a custom object: its size times what its schema says of each value (DOS-03).

Neither of the two is much by itself: a small object and a small schema of many alternatives can hold a server for
seconds. So it is counted before anything is judged, as a bound that is found in one walk over the object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from kube.kinds.patterns import WORK_OF_UNIT, is_small, work_per_character
from kube.kinds.schemas import MISSING, Schema
from kube.requests.decoding import HEAVY

LIGHT: Final = 2_000
"""What is judged on the event loop at most. One is a value compared with one schema or choice, 7 µs at most."""

MOST: Final = 100_000
"""What is judged at all."""

_TEXT: Final = 512
"""Characters of a text that take as long as a value."""

_PATTERN: Final = 20
"""For the compiling of a pattern."""

_LARGE_PATTERN: Final = 600
"""For the compiling of one that is too large to be kept for long, and for the learning how large it is."""

_SCHEMA: Final = 2
_DEFINED_PATTERN: Final = 40
_RULE: Final = 100
"""Values of other objects that take as long as what a definition has: a value, a pattern, a rule. So does a letter of one."""

_PATH: Final = 1_024
"""Characters of a path, which is written anew for every value below it."""

_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")


def alternatives(source: Mapping[str, Any]) -> int:
    """With how many schemas a value, and each of those in it, is compared beside its own: those of its junctors."""
    return sum(map(_part, _parts(source)))


def _patterns_of(source: Mapping[str, Any]) -> Iterator[str]:
    """The patterns in the schemas of its junctors: a text may be compared with each."""
    for part in _parts(source):
        yield from _patterns(part)


def _parts(source: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = [part for name in _JUNCTORS for part in source.get(name) or ()]
    return [*parts, source["not"]] if source.get("not") is not None else parts


def _children(source: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    children = [*(source.get("properties") or {}).values(), source.get("items"), source.get("additionalProperties")]
    return (child for child in children if isinstance(child, Mapping))


def _patterns(source: Mapping[str, Any]) -> Iterator[str]:
    if source.get("pattern"):
        yield source["pattern"]
    for child in _children(source):
        yield from _patterns(child)
    yield from _patterns_of(source)


def _part(source: Mapping[str, Any]) -> int:
    below = sum(map(_part, _children(source)))
    own = 1 + len(source.get("enum") or ()) + (_PATTERN if source.get("pattern") else 0)
    return own + below + alternatives(source)


def judging_cost(schema: Schema, value: Any, most: int = MOST) -> int:
    """What it takes to judge ``value`` by a structural schema, at most; beyond ``most`` any number above it."""
    return _Walk(most).value(schema, value, 0)[2]


def reading_cost(definition: Any) -> int:
    """What it takes to judge a definition of a kind: how many values of another object take as long, at most.

    It is asked with what was decoded: a body can say ``pattern`` in many ways.
    """
    cost, waiting = 0, [definition]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, Mapping):
            waiting += node.values()
            cost += sum(
                _text_cost(name, node[name], cost) for name in ("pattern", "rule", "messageExpression") if name in node
            )
        cost += _SCHEMA
    return cost


def _text_cost(name: str, text: Any, before: int) -> int:
    if not isinstance(text, str):
        return 0
    if name != "pattern":
        return len(text) + (_RULE if name == "rule" else 0)
    # To see how large it is takes long as well: what is known to be heavy needs no more.
    return _DEFINED_PATTERN if before > HEAVY or is_small(text) else _LARGE_PATTERN


def defaults_cost(schema: Schema) -> int:
    """What it takes to judge the defaults in a structural schema, at most."""
    own = 0 if schema.default is MISSING else judging_cost(schema, schema.default)
    children = [*schema.properties.values(), schema.items, schema.additional]
    return own + sum(defaults_cost(child) for child in children if child is not None)


class _Walk:
    def __init__(self, most: int) -> None:
        self._most = most
        self._work: dict[int, int] = {}
        self._spent = 0

    def value(self, schema: Schema | None, value: Any, path: int) -> tuple[int, int, int]:
        """How much there is of it, how many characters of that are texts, and what it costs.

        ``path`` is the length of where it stands.
        """
        size, texts, cost = 1, 0, 1 + path // _PATH
        if isinstance(value, str):
            texts = len(value)
            size += texts // _TEXT
        elif isinstance(value, dict):
            for name, member in value.items():
                child = schema and (schema.properties.get(name) or schema.additional)
                below, within, more = self.value(child, member, path + len(name))
                size, texts, cost = size + below + len(name) // _TEXT, texts + within, cost + more
        elif isinstance(value, list):
            for member in value:
                below, within, more = self.value(schema and schema.items, member, path)
                size, texts, cost = size + below, texts + within, cost + more
        if schema is None:
            return size, texts, cost
        cost += size * schema.alternatives + len(schema.enum)
        if "pattern" in schema.rules:
            cost += size
        elif not schema.alternatives or cost > self._most:
            return size, texts, cost
        work = self._work.get(id(schema))
        if work is None:
            own = [schema.rules["pattern"]] if "pattern" in schema.rules else []
            cost += _PATTERN * len(own)
            work = 0
            for pattern in (*own, *_patterns_of(schema.rules)):
                if self._spent > self._most:
                    break
                each = work_per_character(pattern)
                compiling = 0 if is_small(pattern) else _LARGE_PATTERN
                self._spent, cost, work = self._spent + compiling, cost + compiling, work + each
            self._work[id(schema)] = work
        return size, texts, cost + texts * work // WORK_OF_UNIT
