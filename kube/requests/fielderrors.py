"""Why fields are refused, in kube-apiserver's words, and the 422 that lists the reasons.

The words are those of ``k8s.io/apimachinery/pkg/util/validation/field``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kube.requests.status import Cause, Invalid

CAUSES_MAX: Final = 100
"""Causes that one answer names."""

CAUSES_CHARACTERS: Final = 128 * 1024
"""Characters of them all."""

SHOWN_MAX: Final = 4_096
"""Characters of a value, or of a list of choices, that a message shows."""

_JSON: Final = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, default=str)


def required(path: str, detail: str = "") -> Cause:
    """``Required value``: the field must be set."""
    return _bare("FieldValueRequired", "Required value", path, detail)


def forbidden(path: str, detail: str) -> Cause:
    """``Forbidden``: the field may not be set, or not be changed."""
    return _bare("FieldValueForbidden", "Forbidden", path, detail)


def too_long(path: str, limit: int) -> Cause:
    """``Too long``: more than ``limit`` bytes."""
    return _bare("FieldValueTooLong", "Too long", path, f"may not be more than {limit} bytes")


def too_many(path: str, actual: int, limit: int) -> Cause:
    """``Too many``: more than ``limit`` members."""
    items = "item" if limit == 1 else "items"
    return Cause("FieldValueTooMany", f"Too many: {actual}: must have at most {limit} {items}", path)


def invalid(path: str, value: Any, detail: str) -> Cause:
    """``Invalid value``: the value and what is wrong with it."""
    return _bare("FieldValueInvalid", f"Invalid value: {shown(value)}", path, detail)


def unshown(path: str, detail: str) -> Cause:
    """``Invalid value`` without the value."""
    return Cause("FieldValueInvalid", f"Invalid value: {detail}", path)


def type_invalid(path: str, value: Any, detail: str) -> Cause:
    """``Invalid value``: the value is of the wrong type."""
    return _bare("FieldValueTypeInvalid", f"Invalid value: {shown(value)}", path, detail)


def immutable(path: str, value: Any) -> Cause:
    """``Invalid value … field is immutable``."""
    return invalid(path, value, "field is immutable")


def duplicate(path: str, value: Any) -> Cause:
    """``Duplicate value``: the value must be unique in its list."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {shown(value)}", path)


def not_found(path: str, value: Any, detail: str = "") -> Cause:
    """``Not found``: the value names something that is not there."""
    return _bare("FieldValueNotFound", f"Not found: {shown(value)}", path, detail)


def not_supported(path: str, value: Any, supported: Iterable[Any]) -> Cause:
    """``Unsupported value``: the value is none of those supported, which are named in this order."""
    words: list[str] = []
    room = SHOWN_MAX
    for choice in supported:
        if room < 0:
            words.append("...")
            break
        words.append(shown(choice if isinstance(choice, str) else shown(choice)))
        room -= len(words[-1])
    said = f"Unsupported value: {shown(value)}: supported values: {', '.join(words)}"
    return Cause("FieldValueNotSupported", said, path)


def choice_causes(body: Mapping[str, Any], field: str, choices: Iterable[str], path: str) -> list[Cause]:
    """What is wrong with a field that has these values or none; an empty value counts as one unless it is a choice."""
    value = body.get(field)
    choices = tuple(choices)
    return [] if value is None or value in choices else [not_supported(f"{path}.{field}", value, choices)]


def needed_causes(body: Mapping[str, Any], path: str, *fields: str) -> list[Cause]:
    """The fields that are absent or empty and must not be."""
    return [required(f"{path}.{field}") for field in fields if not body.get(field)]


def count_causes(body: Mapping[str, Any], path: str, *fields: str) -> list[Cause]:
    """The fields that are negative and must not be."""
    detail = "must be greater than or equal to 0"
    return [invalid(f"{path}.{field}", body[field], detail) for field in fields if body.get(field, 0) < 0]


def range_causes(value: int, low: int, high: int, path: str) -> list[Cause]:
    """What is wrong with a number that must lie between two others, both inclusive."""
    return [] if low <= value <= high else [invalid(path, value, f"must be between {low} and {high}, inclusive")]


def reason_causes(path: str, value: Any, reasons: Iterable[str]) -> list[Cause]:
    """``Invalid value`` once for each reason."""
    return [invalid(path, value, reason) for reason in reasons]


def shown(value: Any) -> str:
    """A value as messages show it: JSON, fields in the order they stand; of a long one the beginning."""
    # A text is longer as JSON: of what is cut off here nothing would be shown.
    return _beginning(_JSON.encode(value[:SHOWN_MAX] if isinstance(value, str) else value), SHOWN_MAX)


def key_path(path: str, key: str) -> str:
    """The path of a map's entry: ``spec.hard[requests.cpu]``."""
    return f"{path}[{key}]"


def invalid_object(group: str, kind: str, name: str, causes: Sequence[Cause]) -> Invalid:
    """The 422 for an object: ``Deployment.apps "web" is invalid: [a, b]``."""
    causes = _bounded(causes)
    qualified = f"{kind}.{group}" if group else kind
    message = f"{qualified} {shown(name)} is invalid: {together(causes)}"
    return Invalid(message, group=group, kind=kind, name=name, causes=causes)


def together(causes: Iterable[Cause]) -> str:
    """What is wrong in one line, each thing once: ``a``, or ``[a, b]``."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    return texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"


def _bounded(causes: Sequence[Cause]) -> list[Cause]:
    """As many of them as an answer has room for; what they show is the caller's, and would be copied for each."""
    found: list[Cause] = []
    room = CAUSES_CHARACTERS
    for cause in causes[:CAUSES_MAX]:
        message, field = (_beginning(text, 3 * SHOWN_MAX) for text in (cause.message, cause.field))
        room -= len(message) + len(field)
        if found and room < 0:
            break
        found.append(Cause(cause.reason, message, field))
    return found


def _beginning(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}..."


def _bare(reason: str, word: str, path: str, detail: str) -> Cause:
    return Cause(reason, f"{word}: {detail}" if detail else word, path)
