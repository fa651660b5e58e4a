"""Labels and annotations of kcp's domain are the server's: whoever meets one may believe it (KC13)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from access.admission.base import Attributes, NoopPlugin
from kube.authentication.identity import is_masters
from kube.customresources.definitions import CRDS
from kube.workspaces.apiexports import ANNOTATIONS as OF_BOUND_DEFINITIONS
from kube.workspaces.types import INACTIVE, LOGICAL_CLUSTERS, OWNER, REQUIRED_GROUPS, TYPE, TYPE_UID, WORKSPACES

_DOMAIN: Final = "kcp.io"
_FIELDS: Final = (("annotation", "annotations"), ("label", "labels"))
_NOTHING: Final[Mapping[str, Any]] = {}
_JUDGED: Final[Mapping[tuple[str, str], frozenset[str]]] = {
    WORKSPACES: frozenset({OWNER, TYPE, TYPE_UID, REQUIRED_GROUPS}),
    LOGICAL_CLUSTERS: frozenset({OWNER, TYPE, TYPE_UID, REQUIRED_GROUPS, INACTIVE}),
    CRDS: frozenset(OF_BOUND_DEFINITIONS),
}
"""Annotations that the plug-ins of these kinds judge themselves, or put back as they were."""


class ReservedMetadata(NoopPlugin):
    """Refuses to add, change or take off what kcp.io and the domains below it name. It comes before who writes such things."""

    name = "ReservedMetadata"

    async def admit(self, attributes: Attributes) -> None:
        """Raises ``Forbidden``; the operators' masters may."""
        if attributes.object is None or is_masters(attributes.principal):
            return
        metadata, before = _mapping(attributes.object, "metadata"), _mapping(attributes.old, "metadata")
        for what, field in _FIELDS:
            if field not in metadata and field not in before:
                continue
            for key in _changed(_mapping(metadata, field), _mapping(before, field)):
                if what == "label" or key not in _JUDGED.get(attributes.place, ()):
                    raise attributes.forbidden(f'modification of reserved {what}: "{key}"')


def _mapping(holder: Mapping[str, Any] | None, field: str) -> Mapping[str, Any]:
    found = holder.get(field) if holder is not None else None
    # What is no mapping is for validation to refuse.
    return found if type(found) is dict else _NOTHING


def _changed(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*new, *old]):
        if _DOMAIN in key and _is_reserved(key) and new.get(key) != old.get(key):
            yield key


def _is_reserved(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain == _DOMAIN or domain.endswith(f".{_DOMAIN}"))
