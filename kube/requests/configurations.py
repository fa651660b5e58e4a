"""The head of a configuration file of the product's own: what it is, and that it says nothing that nobody reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_VERSION: Final = "tenancy.tenantry.io/v1alpha1"


def configuration_of(document: Any, kind: str, field: str) -> Any:
    """The one ``field`` of a document of this kind, ``None`` where it is not there. Raises ``ValueError``, which names the field."""
    if not isinstance(document, Mapping) or document.get("kind") != kind:
        raise ValueError(f"configuration must be a {kind}")
    if document.get("apiVersion") != _VERSION:
        raise ValueError(f"configuration.apiVersion must be {_VERSION}")
    for key in document:
        if key not in ("apiVersion", "kind", field):
            raise ValueError(f"configuration.{key} is not supported")
    return document.get(field)
