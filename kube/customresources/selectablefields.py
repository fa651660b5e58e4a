"""The fields of custom objects by which they can be selected, as a definition names them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from kube.requests.fielderrors import duplicate, invalid, required, too_many
from kube.requests.status import Cause

MAX_SELECTABLE_FIELDS: Final = 8
FIELD_PATH: Final = re.compile(r"(\.[A-Za-z0-9_$-]+)+", re.ASCII)


def selectable_causes(fields: Sequence[Any], schema: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """What is wrong with the fields by which objects of a schema are to be selected."""
    if len(fields) > MAX_SELECTABLE_FIELDS:
        yield too_many(path, len(fields), MAX_SELECTABLE_FIELDS)
    seen: set[str] = set()
    for index, field in enumerate(fields):
        where = field.get("jsonPath") if isinstance(field, Mapping) else None
        at = f"{path}[{index}].jsonPath"
        if not isinstance(where, str) or not where:
            yield required(at)
            continue
        if where in seen:
            yield duplicate(at, where)
        seen.add(where)
        if not where.startswith((".", "[")):
            yield invalid(at, where, f"is an invalid path: expected [ or . but got: {re.split('[.[]', where)[0]}")
            continue
        kind = _type_at(schema, where) if FIELD_PATH.fullmatch(where) else ""
        if not kind:
            yield invalid(at, where, "is an invalid path: does not refer to a valid field")
        elif kind not in ("string", "boolean", "integer"):
            words = "must point to a field of type string, boolean or integer."
            yield invalid(at, where, f"{words} Enum string fields and strings with formats are allowed.")


def _type_at(schema: Mapping[str, Any], path: str) -> str:
    node: Any = schema
    for name in path.strip(".").split("."):
        properties = node.get("properties") if isinstance(node, Mapping) else None
        values = node.get("additionalProperties") if isinstance(node, Mapping) else None
        node = properties.get(name) if isinstance(properties, Mapping) else values
    kind = node.get("type") if isinstance(node, Mapping) else None
    return kind if isinstance(kind, str) else ""
