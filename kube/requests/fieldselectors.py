"""Field selectors: ``metadata.name=x,status.phase!=Running``, as ``k8s.io/apimachinery/pkg/fields`` reads them."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Final

from kube.requests.status import BadRequest

TERMS_MAX: Final = 100
LENGTH_MAX: Final = 65536

_TERM: Final = re.compile(r"(?:\\.|[^\\,])*", re.DOTALL)
_OPERATOR: Final = re.compile(r"((?:\\.|[^\\=!]|!(?!=))*?)(!=|==|=)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class FieldTerm:
    """One comparison: the field equals the value, or, with ``negated``, differs from it."""

    field: str
    value: str
    negated: bool = False

    def __str__(self) -> str:
        value = self.value.replace("\\", "\\\\").replace(",", "\\,").replace("=", "\\=")
        return f"{self.field}{'!=' if self.negated else '='}{value}"


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """A conjunction of comparisons; empty selects everything."""

    terms: tuple[FieldTerm, ...] = ()

    def __str__(self) -> str:
        return ",".join(map(str, self.terms))

    def __bool__(self) -> bool:
        return bool(self.terms)

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether an object with these fields is selected; a field it lacks is the empty string."""
        return all((fields.get(term.field, "") == term.value) is not term.negated for term in self.terms)

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
    pieces = []
    characters = iter(value)
    for character in characters:
        if character == "\\":
            following = next(characters, "")
            if following not in {"\\", ",", "="} or not following:
                raise BadRequest(f"invalid field selector: invalid escape sequence: \\{following}")
            pieces.append(following)
        elif character in "=,":
            raise BadRequest(f"invalid selector: '{selector}'; unescaped character in value: {character}")
        else:
            pieces.append(character)
    return "".join(pieces)


def parse_fields(text: str) -> FieldSelector:
    """Read a field selector. Raises ``BadRequest`` for one that cannot be understood or is too long."""
    if not text:
        return EVERYTHING
    if len(text) > LENGTH_MAX:
        raise BadRequest("the field selector is too long")
    terms: list[FieldTerm] = []
    position = 0
    while position <= len(text):
        match = _TERM.match(text, position)
        part = match.group() if match else ""
        position += len(part) + 1
        if position <= len(text) and text[position - 1] != ",":
            raise BadRequest(f"invalid field selector: invalid escape sequence: {text[position - 1 :][:2]}")
        if not part:
            continue
        comparison = _OPERATOR.fullmatch(part)
        if not comparison:
            raise BadRequest(f"invalid selector: '{text}'; can't understand '{part}'")
        field, operator, value = comparison.groups()
        if field or value:
            terms.append(FieldTerm(field, _unescape(value, text), operator == "!="))
        if len(terms) > TERMS_MAX:
            raise BadRequest("the field selector has too many terms")
    return FieldSelector(tuple(terms))


def exact_match(text: str, field: str) -> str | None:
    """The value that the selector demands of a field, ``None`` when there is none or it cannot be read."""
    try:
        return parse_fields(text).required(field)
    except BadRequest:
        return None
