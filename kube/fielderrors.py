"""Why a field is refused, in kube-apiserver's words (``k8s.io/apimachinery/pkg/util/validation/field``)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from kube.status import Cause, Invalid


def required(path: str, detail: str = "") -> Cause:
    """The field is missing."""
    return Cause("FieldValueRequired", _with("Required value", detail), path)


def invalid(path: str, value: Any, detail: str) -> Cause:
    """The value is wrong."""
    return Cause("FieldValueInvalid", _with(f"Invalid value: {quoted(value)}", detail), path)


def type_invalid(path: str, value: Any, detail: str) -> Cause:
    """The value is of the wrong type."""
    return Cause("FieldValueTypeInvalid", _with(f"Invalid value: {quoted(value)}", detail), path)


def not_supported(path: str, value: Any, supported: Iterable[Any]) -> Cause:
    """The value is none of those there are."""
    words = ", ".join(quoted(choice if isinstance(choice, str) else _json(choice)) for choice in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {quoted(value)}: supported values: {words}", path)


def duplicate(path: str, value: Any) -> Cause:
    """The value is there already."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {quoted(value)}", path)


def forbidden(path: str, detail: str) -> Cause:
    """The field must not be set."""
    return Cause("FieldValueForbidden", _with("Forbidden", detail), path)


def too_long(path: str, limit: int) -> Cause:
    """The text has more bytes than allowed."""
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} bytes", path)


def too_many(path: str, actual: int, limit: int) -> Cause:
    """The list or map has more members than allowed."""
    return Cause("FieldValueTooMany", f"Too many: {actual}: must have at most {limit} items", path)


def refusal(group: str, kind: str, name: str, causes: Sequence[Cause]) -> Invalid:
    """The 422 that lists every cause: ``Kind.group "name" is invalid: …``."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    what = f"{kind}.{group}" if group else kind
    words = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    return Invalid(f"{what} {_json(name)} is invalid: {words}", group=group, kind=kind, name=name, causes=causes)


def quoted(value: Any) -> str:
    """A value as messages show it: texts in quotes, maps and lists as JSON."""
    return _json(value)


def _with(message: str, detail: str) -> str:
    return f"{message}: {detail}" if detail else message


def _json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False, default=str)
