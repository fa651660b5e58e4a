"""Field selectors: ``metadata.name=x,status.phase!=Running``, as ``k8s.io/apimachinery/pkg/fields`` reads them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from kube.requests.status import BadRequest

TERMS_MAX: Final = 100
LENGTH_MAX: Final = 65536

_PARTS: Final = re.compile(r"(?:\\.|[^\\,]++)++|\\", re.DOTALL)
_OPERATOR: Final = re.compile(r"((?:\\.|[^\\=!]++|!(?!=))*+)(!=|==|=)(.*)", re.DOTALL)
_VALUE: Final = re.compile(r"(?:[^\\=,]++|\\[\\=,])*+")
_ESCAPED: Final = re.compile(r"\\(.)")


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One comparison: the field equals the value, or, with ``negated``, differs from it."""

    field: str
    value: str
    negated: bool = False

    def __str__(self) -> str:
        value = self.value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        return f"{self.field}{'!=' if self.negated else '='}{value}"


class _Field:
    """All that a selector asks of one field, in however many terms."""

    __slots__ = ("_others", "_wanted")

    def __init__(self) -> None:
        self._wanted: set[str] = set()
        self._others: set[str] = set()

    def add(self, term: FieldTerm) -> None:
        """Ask this as well."""
        (self._others if term.negated else self._wanted).add(term.value)

    def allows(self, value: str) -> bool:
        """Whether a field with this value is one that is asked for."""
        return self._wanted <= {value} and value not in self._others


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A conjunction of comparisons; empty selects everything. An object is looked at once for each field."""

    terms: tuple[FieldTerm, ...] = ()
    asked: Mapping[str, _Field] = field(init=False, repr=False, compare=False)
    """By the fields that are asked for."""

    def __post_init__(self) -> None:
        asked: dict[str, _Field] = {}
        for term in self.terms:
            asked.setdefault(term.field, _Field()).add(term)
        object.__setattr__(self, "asked", asked)

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether an object with these fields is selected; a field it lacks is the empty string."""
        return all(each.allows(fields.get(name, "")) for name, each in self.asked.items())

    def required(self, field: str) -> str | None:
        """The one value that this field must have, if the selector says so."""
        return next((term.value for term in self.terms if term.field == field and not term.negated), None)

    def check(self, supported: Collection[str], refusal: str = "field label not supported: {}") -> None:
        """Raise ``BadRequest`` for a field that the resource cannot be selected by; ``refusal`` has room for it."""
        for term in self.terms:
            if term.field not in supported:
                raise BadRequest(refusal.format(term.field))


EVERYTHING: Final = FieldSelector()


def _unescape(value: str, selector: str) -> str:
    found = _VALUE.match(value)
    wrong = value[found.end() if found is not None else 0 :][:2]
    if wrong.startswith("\\"):
        raise BadRequest(f"invalid field selector: invalid escape sequence: {wrong}")
    if wrong:
        raise BadRequest(f"invalid selector: '{selector}'; unescaped character in value: {wrong[0]}")
    return "".join(_ESCAPED.split(value))


def parse_fields(text: str) -> FieldSelector:
    """Read a field selector. Raises ``BadRequest`` for one that cannot be understood or is too long.

    It is taken apart at once, and refused by the number of its parts: no step is taken for each of its characters.
    """
    if not text:
        return EVERYTHING
    if len(text) > LENGTH_MAX:
        raise BadRequest("the field selector is too long")
    parts = _PARTS.findall(text)
    if len(parts) > TERMS_MAX:
        raise BadRequest("the field selector has too many terms")
    if parts and parts[-1] == "\\":
        raise BadRequest("invalid field selector: invalid escape sequence: \\")
    terms: list[FieldTerm] = []
    for part in parts:
        comparison = _OPERATOR.fullmatch(part)
        if not comparison:
            raise BadRequest(f"invalid selector: '{text}'; can't understand '{part}'")
        name, operator, value = comparison.groups()
        if name or value:
            terms.append(FieldTerm(name, _unescape(value, text), operator == "!="))
    return FieldSelector(tuple(terms))


def exact_match(text: str, field: str) -> str | None:
    """The value that the selector demands of a field, ``None`` when there is none or it cannot be read."""
    try:
        return parse_fields(text).required(field)
    except BadRequest:
        return None
