"""Label selectors, as text and as objects, with the grammar and the words of ``k8s.io/apimachinery/pkg/labels``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from kube.requests.names import label_value, qualified_name
from kube.requests.status import BadRequest

LENGTH_MAX: Final = 65536
REQUIREMENTS_MAX: Final = 500

_INTEGER: Final = re.compile(r"[+-]?[0-9]{1,19}")
_INT64: Final = 2**63


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


def _integer(text: str) -> int | None:
    """Go's ``ParseInt``: 64 bits, ASCII digits."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_INT64 <= number < _INT64 else None


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label; ``values`` are sorted."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet the condition."""
        operator = self.operator
        value = labels.get(self.key)
        if operator in _POSITIVE:
            return value is not None and value in self.values
        if operator in _NEGATIVE:
            return value is None or value not in self.values
        if operator is Operator.EXISTS:
            return value is not None
        if operator is Operator.ABSENT:
            return value is None
        actual = None if value is None else _integer(value)
        bound = _integer(self.values[0])
        if actual is None or bound is None:
            return False
        return actual > bound if operator is Operator.GREATER else actual < bound

    def __str__(self) -> str:
        operator, values = self.operator, ",".join(self.values)
        if operator is Operator.EXISTS:
            return self.key
        if operator is Operator.ABSENT:
            return f"!{self.key}"
        if operator in {Operator.IN, Operator.NOT_IN}:
            return f"{self.key} {operator} ({values or ','})"
        symbol = {Operator.GREATER: ">", Operator.LESS: "<"}.get(operator, operator)
        return f"{self.key}{symbol}{values}"


@dataclass(frozen=True, slots=True)
class Selector:
    """A conjunction of requirements, sorted by key; without any it selects everything, with ``never`` nothing."""

    requirements: tuple[Requirement, ...] = ()
    never: bool = False

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is selected."""
        return not self.never and all(requirement.matches(labels) for requirement in self.requirements)

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


def requirement(key: str, operator: Operator, values: Sequence[str] = ()) -> Requirement:
    """A checked requirement. Raises ``BadRequest`` with every reason, in Kubernetes' words."""
    reasons = []
    shown = "[" + ",".join(map(_quoted, values)) + "]"
    key_reasons = qualified_name(key)
    if key_reasons:
        reasons.append(f"key: Invalid value: {_quoted(key)}: {'; '.join(key_reasons)}")
    if operator in {Operator.IN, Operator.NOT_IN}:
        if not values:
            reasons.append("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty")
    elif operator in {Operator.EXISTS, Operator.ABSENT}:
        if values:
            reasons.append(f"values: Invalid value: {shown}: values set must be empty for exists and does not exist")
    elif operator in {Operator.GREATER, Operator.LESS}:
        if len(values) != 1:
            reasons.append(f"values: Invalid value: {shown}: for 'Gt', 'Lt' operators, exactly one value is required")
        reasons += [
            f"values[{index}]: Invalid value: {_quoted(value)}: for 'Gt', 'Lt' operators, the value must be an integer"
            for index, value in enumerate(values)
            if _integer(value) is None
        ]
    elif len(values) != 1:
        reasons.append(f"values: Invalid value: {shown}: exact-match compatibility requires one single value")
    for index, value in enumerate(values):
        value_reasons = label_value(value)
        if value_reasons:
            reasons.append(f"values[{index}][{key}]: Invalid value: {_quoted(value)}: {'; '.join(value_reasons)}")
    if reasons:
        raise BadRequest(reasons[0] if len(reasons) == 1 else f"[{', '.join(reasons)}]")
    return Requirement(key, operator, tuple(sorted(set(values))))


_TOKEN: Final = re.compile(r"[ \t\r\n]*(==|!=|[=!(),<>]|[^ \t\r\n=!(),<>]+)")
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
        self._tokens: list[str] = _TOKEN.findall(text)
        self._tokens.append(_END)
        self._position = 0

    def peek(self) -> str:
        return self._tokens[self._position]

    def take(self) -> str:
        word = self._tokens[self._position]
        if word != _END:
            self._position += 1
        return word

    @staticmethod
    def is_word(word: str) -> bool:
        return word != _END and word not in _SYMBOLS

    def selector(self) -> list[Requirement]:
        found: list[Requirement] = []
        while (word := self.peek()) != _END:
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
            word = self.peek()
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
            return requirement(key, Operator.ABSENT)
        if self.peek() in {_END, ","}:
            return requirement(key, Operator.EXISTS)
        word = self.take()
        operator = _OPERATORS.get(word)
        if operator is None:
            raise BadRequest(f"found '{word}', expected: {', '.join(_BINARY)}")
        values = self._values() if operator in {Operator.IN, Operator.NOT_IN} else self._value()
        return requirement(key, operator, sorted(values))

    def _value(self) -> set[str]:
        if self.peek() in {_END, ","}:
            return {""}
        word = self.take()
        if not self.is_word(word):
            raise BadRequest(f"found '{word}', expected: identifier")
        return {word}

    def _values(self) -> set[str]:
        word = self.take()
        if word != "(":
            raise BadRequest(f"found '{word}' expected: '('")
        if self.peek() == ")":
            self.take()
            return {""}
        if self.peek() != "," and not self.is_word(self.peek()):
            raise BadRequest(f"found '{self.peek()}', expected: ',', ')' or identifier")
        values: set[str] = set()
        wanted = True
        while (word := self.take()) != ")":
            if self.is_word(word) and wanted:
                values.add(word)
                wanted = False
            elif word == ",":
                if wanted:
                    values.add("")
                wanted = True
            else:
                expected = "',', or identifier" if wanted else "',' or ')'"
                raise BadRequest(f"found '{word}', expected: {expected}")
        if wanted:
            values.add("")
        return values


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
