"""Resources of which tenants may create no objects, and the configuration that names others (AD4)."""

from __future__ import annotations

from typing import Any, Final

from kube.requests.configurations import configuration_of

DEFAULT_REFUSED: Final = frozenset({("", "nodes"), ("apps", "daemonsets")})
"""Nodes belong to the platform, and a DaemonSet runs on every one of them."""


def read_configuration(document: Any) -> frozenset[tuple[str, str]]:
    """The (group, plural) pairs of a ``TenantScopeConfiguration``, in place of the default.

    Raises ``ValueError``, whose message names the field.
    """
    refused = configuration_of(document, "TenantScopeConfiguration", "refused")
    if not isinstance(refused, list) or not all(isinstance(name, str) and name for name in refused):
        raise ValueError("refused must be a list of resources, such as daemonsets.apps")
    return frozenset((group, plural) for plural, _, group in (name.partition(".") for name in refused))
