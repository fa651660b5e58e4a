"""Resources of which tenants may create no objects, and the configuration that names others (AD4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

DEFAULT_REFUSED: Final = frozenset({("", "nodes"), ("apps", "daemonsets")})
"""Nodes belong to the platform, and a DaemonSet runs on every one of them."""

_VERSION: Final = "tenancy.tenantry.io/v1alpha1"


def read_configuration(document: Any) -> frozenset[tuple[str, str]]:
    """The (group, plural) pairs of a ``TenantScopeConfiguration``, in place of the default.

    Raises ``ValueError``, whose message names the field.
    """
    if not isinstance(document, Mapping) or document.get("kind") != "TenantScopeConfiguration":
        raise ValueError("configuration must be a TenantScopeConfiguration")
    if document.get("apiVersion") != _VERSION:
        raise ValueError(f"configuration.apiVersion must be {_VERSION}")
    for key in document:
        if key not in ("apiVersion", "kind", "refused"):
            raise ValueError(f"configuration.{key} is not supported")
    refused = document.get("refused")
    if not isinstance(refused, list) or not all(isinstance(name, str) and name for name in refused):
        raise ValueError("refused must be a list of resources, such as daemonsets.apps")
    return frozenset((group, plural) for plural, _, group in (name.partition(".") for name in refused))
