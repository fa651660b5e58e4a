"""Label selectors, as text and as objects, with the grammar and the words of ``k8s.io/apimachinery/pkg/labels``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from kube.requests.fielderrors import CAUSES_MAX
from kube.requests.names import label_value, qualified_name, wrong_label_values
from kube.requests.status import BadRequest

LENGTH_MAX: Final = 65536
REQUIREMENTS_MAX: Final = 500

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_INT64: Final = 2**63

Values = AbstractSet[str] | Sequence[str]


class Operator(StrEnum):
    """What a requirement asks of a label."""

    IN = "in"
    NOT_IN = "notin"
    EQUALS = "="
    DOUBLE_EQUALS = "=="
    NOT_EQUALS = "!="
    GREATER = "gt"
    LESS = "lt"
    EXISTS = "exists"
    ABSENT = "!"


_BINARY: Final = (
    Operator.IN,
    Operator.NOT_IN,
    Operator.EQUALS,
    Operator.DOUBLE_EQUALS,
    Operator.NOT_EQUALS,
    Operator.GREATER,
    Operator.LESS,
)
_POSITIVE: Final = frozenset({Operator.IN, Operator.EQUALS, Operator.DOUBLE_EQUALS})
_NEGATIVE: Final = frozenset({Operator.NOT_IN, Operator.NOT_EQUALS})
_NUMERIC: Final = frozenset({Operator.GREATER, Operator.LESS})
_NEEDING: Final = _POSITIVE | _NUMERIC | {Operator.EXISTS}


def _integer(text: str) -> int | None:
    """Go's ``ParseInt``: 64 bits, ASCII digits."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def __str__(self) -> str:
        operator, values = self.operator, ",".join(sorted(self.values))
        if operator is Operator.EXISTS:
            return self.key
        if operator is Operator.ABSENT:
            return f"!{self.key}"
        if operator in {Operator.IN, Operator.NOT_IN}:
            return f"{self.key} {operator} ({values or ','})"
        symbol = {Operator.GREATER: ">", Operator.LESS: "<"}.get(operator, operator)
        return f"{self.key}{symbol}{values}"


class _Label:
    """All that a selector asks of one label, however many requirements and values it asks it with."""

    __slots__ = ("_above", "_among", "_below", "_others")

    def __init__(self) -> None:
        self._among: frozenset[str] | None = None
        self._others: set[str] = set()
        self._above: int | None = None
        self._below: int | None = None

    def add(self, operator: Operator, values: frozenset[str]) -> None:
        """Ask this as well."""
        if operator in _POSITIVE:
            self._among = values if self._among is None else self._among & values
        elif operator in _NEGATIVE:
            self._others.update(values)
        elif operator is Operator.ABSENT:
            self._among = frozenset()
        elif operator in _NUMERIC:
            bound = int(next(iter(values)))
            if operator is Operator.GREATER:
                self._above = bound if self._above is None else max(self._above, bound)
            else:
                self._below = bound if self._below is None else min(self._below, bound)

    def allows(self, value: str) -> bool:
        """Whether a label with this value is one that is asked for."""
        if (self._among is not None and value not in self._among) or value in self._others:
            return False
        if self._above is None and self._below is None:
            return True
        number = _integer(value)
        if number is None:
            return False
        return (self._above is None or number > self._above) and (self._below is None or number < self._below)


@dataclass(frozen=True, slots=True)
class Selector:
    """A conjunction of requirements, sorted by key; without any it selects everything, with ``never`` nothing.

    An object is held against what is asked of the labels that it has: that takes no longer, whatever else is asked.
    """

    requirements: tuple[Requirement, ...] = ()
    never: bool = False
    _asked: Mapping[str, _Label] = field(init=False, repr=False, compare=False)
    _needed: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        asked: dict[str, _Label] = {}
        for each in self.requirements:
            asked.setdefault(each.key, _Label()).add(each.operator, each.values)
        needed = frozenset(each.key for each in self.requirements if each.operator in _NEEDING)
        object.__setattr__(self, "_asked", asked)
        object.__setattr__(self, "_needed", needed)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        if self.never or not labels.keys() >= self._needed:
            return False
        return all(self._asked[key].allows(labels[key]) for key in labels.keys() & self._asked.keys())

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))

    def __bool__(self) -> bool:
        """Whether the selector leaves anything out."""
        return self.never or bool(self.requirements)


EVERYTHING: Final = Selector()
NOTHING: Final = Selector(never=True)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _check_key(key: str, field: str) -> None:
    reasons = [reason.replace("a qualified name", "a valid label key") for reason in qualified_name(key)]
    if reasons:
        raise BadRequest(f"{field}: Invalid value: {_quoted(key)}: {'; '.join(reasons)}")


def requirement(key: str, operator: Operator, values: Values = ()) -> Requirement:
    """A checked requirement. Raises ``BadRequest`` with its reasons, in Kubernetes' words; the values of a set in order."""
    key_reasons = qualified_name(key)
    reasons = [f"key: Invalid value: {_quoted(key)}: {'; '.join(key_reasons)}"] if key_reasons else []
    return _requirement(key, operator, values, reasons)


def _requirement(key: str, operator: Operator, values: Values, reasons: list[str]) -> Requirement:
    """One whose key has been looked at. Raises as ``requirement``, with the ``reasons`` that there are already."""
    if misfit := _misfit(operator, values):
        reasons.append(misfit)
    if operator in _NUMERIC or wrong_label_values(values):
        reasons += _value_reasons(key, operator, values)
    if reasons:
        raise BadRequest(reasons[0] if len(reasons) == 1 else f"[{', '.join(reasons)}]")
    return Requirement(key, operator, frozenset(values))


def _misfit(operator: Operator, values: Values) -> str:
    """Why an operator cannot have so many values, empty where it can."""
    if operator in {Operator.IN, Operator.NOT_IN}:
        return "" if values else "values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"
    if len(values) == (0 if operator in {Operator.EXISTS, Operator.ABSENT} else 1):
        return ""
    shown = f"values: Invalid value: [{','.join(map(_quoted, values))}]"
    if operator in {Operator.EXISTS, Operator.ABSENT}:
        return f"{shown}: values set must be empty for exists and does not exist"
    if operator in _NUMERIC:
        return f"{shown}: for 'Gt', 'Lt' operators, exactly one value is required"
    return f"{shown}: exact-match compatibility requires one single value"


def _value_reasons(key: str, operator: Operator, values: Values) -> list[str]:
    """Why values cannot be compared with; of many, the first few."""
    ordered = sorted(values) if isinstance(values, AbstractSet) else values
    reasons = []
    if operator in _NUMERIC:
        reasons += [
            f"values[{index}]: Invalid value: {_quoted(value)}: for 'Gt', 'Lt' operators, the value must be an integer"
            for index, value in enumerate(ordered[:CAUSES_MAX])
            if _integer(value) is None
        ]
    for index in wrong_label_values(ordered)[:CAUSES_MAX]:
        why = "; ".join(label_value(ordered[index]))
        reasons.append(f"values[{index}][{key}]: Invalid value: {_quoted(ordered[index])}: {why}")
    return reasons


_BLANKS: Final = " \t\r\n"
_TOKEN: Final = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^ \t\r\n=!(),<>]+|\Z)")
_LIST: Final = re.compile(r"[^=!()<>]*")
_SPACE: Final = re.compile(r"[ \t\r\n]+")
_SECOND_WORD: Final = re.compile(r"[^ \t\r\n,][ \t\r\n]+([^ \t\r\n,]+)")
_END: Final = ""
_SYMBOLS: Final = frozenset({"==", "!=", "=", "!", "(", ")", ",", "<", ">"})
_OPERATORS: Final = {
    "in": Operator.IN,
    "notin": Operator.NOT_IN,
    "=": Operator.EQUALS,
    "==": Operator.DOUBLE_EQUALS,
    "!=": Operator.NOT_EQUALS,
    ">": Operator.GREATER,
    "<": Operator.LESS,
}


class _Parser:
    """Recursive descent over the tokens of one selector; ``in`` and ``notin`` are words wherever a word may stand."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._go(0)

    def _go(self, position: int) -> None:
        """Look at the word that begins there; behind the last one is ``_END``."""
        found = _TOKEN.match(self._text, position)
        assert found is not None, "every character begins a token"  # noqa: S101
        self.word, self._behind = found[1], found.end()

    def take(self) -> str:
        word = self.word
        self._go(self._behind)
        return word

    @staticmethod
    def is_word(word: str) -> bool:
        return word != _END and word not in _SYMBOLS

    def selector(self) -> list[Requirement]:
        found: list[Requirement] = []
        while (word := self.word) != _END:
            if word != "!" and not self.is_word(word):
                raise BadRequest(f"found '{word}', expected: !, identifier, or 'end of string'")
            try:
                found.append(self._requirement())
            except BadRequest as error:
                raise BadRequest(f"unable to parse requirement: {error.message}") from None
            if len(found) > REQUIREMENTS_MAX:
                raise BadRequest("the label selector has too many requirements")
            word = self.take()
            if word == _END:
                break
            if word != ",":
                raise BadRequest(f"found '{word}', expected: ',' or 'end of string'")
            word = self.word
            if word != "!" and not self.is_word(word):
                raise BadRequest(f"found '{word}', expected: identifier after ','")
        return found

    def _requirement(self) -> Requirement:
        key = self.take()
        absent = key == "!"
        if absent:
            key = self.take()
        if not self.is_word(key):
            raise BadRequest(f"found '{key}', expected: identifier")
        _check_key(key, "<nil>")
        if absent:
            return _requirement(key, Operator.ABSENT, (), [])
        if self.word in {_END, ","}:
            return _requirement(key, Operator.EXISTS, (), [])
        word = self.take()
        operator = _OPERATORS.get(word)
        if operator is None:
            raise BadRequest(f"found '{word}', expected: {', '.join(_BINARY)}")
        values = self._values() if operator in {Operator.IN, Operator.NOT_IN} else self._value()
        return _requirement(key, operator, values, [])

    def _value(self) -> set[str]:
        if self.word in {_END, ","}:
            return {""}
        word = self.take()
        if not self.is_word(word):
            raise BadRequest(f"found '{word}', expected: identifier")
        return {word}

    def _values(self) -> set[str]:
        if self.word != "(":
            raise BadRequest(f"found '{self.word}' expected: '('")
        # What stands between the brackets is taken apart at once: there may be thousands.
        found = _LIST.match(self._text, self._behind)
        assert found is not None, "it may be empty"  # noqa: S101
        listed = found[0].strip(_BLANKS)
        if second := _SECOND_WORD.search(listed):
            raise BadRequest(f"found '{second[1]}', expected: ',' or ')'")
        self._go(found.end())
        word = self.take()
        if word != ")":
            expected = "',', ')' or identifier"
            if listed:
                expected = "',', or identifier" if listed.endswith(",") else "',' or ')'"
            raise BadRequest(f"found '{word}', expected: {expected}")
        return set(_SPACE.sub("", listed).split(","))


def parse_labels(text: str) -> Selector:
    """Read ``a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2``.

    Raises ``BadRequest`` in Kubernetes' words for one that cannot be understood, or that is too long.
    """
    if not text:
        return EVERYTHING
    if len(text) > LENGTH_MAX or "\x00" in text:
        raise BadRequest("the label selector is too long or contains NUL")
    found = _Parser(text).selector()
    return Selector(tuple(sorted(found, key=lambda each: each.key)))


_OBJECT_OPERATORS: Final = {
    "In": Operator.IN,
    "NotIn": Operator.NOT_IN,
    "Exists": Operator.EXISTS,
    "DoesNotExist": Operator.ABSENT,
}


def expression(given: Any) -> Requirement:
    """Read a ``LabelSelectorRequirement`` object. Raises ``BadRequest`` for one that is not valid."""
    if not isinstance(given, Mapping):
        raise BadRequest("matchExpressions must be objects")
    key, name, values = given.get("key"), given.get("operator"), given.get("values") or ()
    operator = _OBJECT_OPERATORS.get(name) if isinstance(name, str) else None
    if operator is None:
        raise BadRequest(f'"{name}" is not a valid label selector operator')
    if not isinstance(key, str) or not isinstance(values, list | tuple):
        raise BadRequest("a match expression has a key, a string, and values, a list of strings")
    if not all(isinstance(value, str) for value in values):
        raise BadRequest("a match expression has a key, a string, and values, a list of strings")
    return requirement(key, operator, values)


def from_object(selector: Mapping[str, Any] | None) -> Selector:
    """Read a ``LabelSelector`` object: ``matchLabels`` and ``matchExpressions``, all of which must hold.

    ``None`` selects nothing, an empty object everything. Raises ``BadRequest`` for one that is not valid.
    """
    if selector is None:
        return NOTHING
    if not isinstance(selector, Mapping):
        raise BadRequest("a label selector must be an object")
    labels = selector.get("matchLabels") or {}
    expressions = selector.get("matchExpressions") or ()
    if not isinstance(labels, Mapping) or not isinstance(expressions, Sequence) or isinstance(expressions, str):
        raise BadRequest("a label selector has matchLabels, an object, and matchExpressions, a list")
    if len(labels) + len(expressions) > REQUIREMENTS_MAX:
        raise BadRequest("the label selector has too many requirements")
    found = []
    for key, value in labels.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise BadRequest("matchLabels must map strings to strings")
        found.append(requirement(key, Operator.EQUALS, (value,)))
    found += map(expression, expressions)
    return Selector(tuple(sorted(found, key=lambda each: each.key)))
