"""Selectors as access reviews write them: as text, or as a list of requirements (authorization.k8s.io/v1).

As in Kubernetes, what of a selector cannot be read is left out: the question is then about more, never about less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

from kube.requests.fieldselectors import FieldTerm, parse_fields
from kube.requests.labelselectors import Operator, expression, parse_labels
from kube.requests.status import BadRequest

_FIELD_OPERATORS: Final = {"In": False, "NotIn": True}
_LABEL_OPERATORS: Final = {
    Operator.IN: "In",
    Operator.EQUALS: "In",
    Operator.DOUBLE_EQUALS: "In",
    Operator.NOT_IN: "NotIn",
    Operator.NOT_EQUALS: "NotIn",
    Operator.EXISTS: "Exists",
    Operator.ABSENT: "DoesNotExist",
}
"""A review has no word for the others."""


class Selected(NamedTuple):
    """A review's selector as the query of a request writes it, and whether anything of it was left out."""

    text: str
    partial: bool = False

    def error(self, path: str) -> str:
        """What ``evaluationError`` says of the field at this path, empty where all of it was understood."""
        if not self.partial:
            return ""
        return f"{path} {'partially ' if self.text else ''}ignored due to parse error"


def selected_fields(given: Mapping[str, Any] | None) -> Selected:
    """Read ``FieldSelectorAttributes``."""
    return _selected(given, parse_fields, _term)


def selected_labels(given: Mapping[str, Any] | None) -> Selected:
    """Read ``LabelSelectorAttributes``."""
    return _selected(given, parse_labels, expression)


def field_requirements(text: str) -> list[dict[str, Any]]:
    """The requirements of a field selector; none of one that cannot be read."""
    try:
        terms = sorted(parse_fields(text).terms, key=str)
    except BadRequest:
        return []
    return [
        {"key": term.field, "operator": "NotIn" if term.negated else "In", "values": [term.value]} for term in terms
    ]


def label_requirements(text: str) -> list[dict[str, Any]]:
    """The requirements of a label selector; none of one that cannot be read, and ``<`` and ``>`` are none."""
    try:
        requirements = parse_labels(text).requirements
    except BadRequest:
        return []
    return [
        {
            "key": each.key,
            "operator": _LABEL_OPERATORS[each.operator],
            **({"values": sorted(each.values)} if each.values else {}),
        }
        for each in requirements
        if each.operator in _LABEL_OPERATORS
    ]


def _selected(
    given: Mapping[str, Any] | None, parse: Callable[[str], object], read: Callable[[Mapping[str, Any]], object]
) -> Selected:
    given = given or {}
    requirements = given.get("requirements") or ()
    parts = []
    for each in requirements:
        with suppress(BadRequest):
            parts.append(str(read(each)))
    text = given.get("rawSelector") or ",".join(parts)
    try:
        parse(text)
    except BadRequest:
        return Selected("", partial=True)
    return Selected(text, partial=len(parts) < len(requirements))


def _term(given: Mapping[str, Any]) -> FieldTerm:
    """A requirement on a field. Raises ``BadRequest`` for one that no request's selector can make."""
    key, operator, values = given.get("key") or "", given.get("operator"), given.get("values") or []
    if operator not in _FIELD_OPERATORS or len(values) != 1:
        raise BadRequest("a field is compared with one value")
    term = FieldTerm(key, values[0], _FIELD_OPERATORS[operator])
    if parse_fields(str(term)).terms != (term,):
        raise BadRequest("no field is called so")
    return term
