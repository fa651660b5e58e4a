"""Required fields, and for custom resources types and choices, by schema."""

from __future__ import annotations

from typing import Any, Final

from kube.kinds.schemas import Schema
from kube.requests.fielderrors import key_path, required
from kube.requests.status import Cause

MAX_CAUSES: Final = 100
"""How many causes are collected by schema; who has more has read enough."""

_EXEMPT: Final = ("metadata", "status")
"""Parts of a built-in object that other rules judge, or that only controllers write."""


def required_causes(body: dict[str, Any], schema: Schema) -> list[Cause]:
    """The required fields that a built-in object lacks, with their paths in document order."""
    causes = [required(name) for name in schema.required if name not in body]
    for name, child in schema.properties.items():
        if name in body and name not in _EXEMPT:
            _collect(body[name], child, name, causes)
    return causes[:MAX_CAUSES]


def _collect(value: Any, schema: Schema, path: str, causes: list[Cause]) -> None:
    if len(causes) >= MAX_CAUSES:
        return
    if type(value) is dict:
        causes += [required(f"{path}.{name}") for name in schema.required if name not in value]
        if schema.properties:
            for name, child in value.items():
                field = schema.properties.get(name)
                if field is not None and type(child) in (dict, list):
                    _collect(child, field, f"{path}.{name}", causes)
        elif schema.additional is not None:
            for name, child in value.items():
                if type(child) in (dict, list):
                    _collect(child, schema.additional, key_path(path, name), causes)
    elif type(value) is list and schema.items is not None:
        for index, child in enumerate(value):
            if type(child) in (dict, list):
                _collect(child, schema.items, f"{path}[{index}]", causes)
