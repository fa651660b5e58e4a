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
        body, old = attributes.object, attributes.old
        metadata, metadata_before = body.get("metadata"), old.get("metadata") if old is not None else None
        for what, field in (("annotation", "annotations"), ("label", "labels")):
            new, before = _of(metadata, field), _of(metadata_before, field)
            if not new and not before:
                continue
            for key in _changed(new, before):
                if what == "label" or key not in _JUDGED.get(attributes.place, ()):
                    raise attributes.forbidden(f'modification of reserved {what}: "{key}"')


def _of(metadata: Any, field: str) -> Mapping[str, Any]:
    found = metadata.get(field) if type(metadata) is dict else None
    # What is no mapping is for validation to refuse.
    return found if type(found) is dict else {}


def _changed(new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*new, *old]):
        if _DOMAIN in key and _is_reserved(key) and new.get(key) != old.get(key):
            yield key


def _is_reserved(key: str) -> bool:
    domain, slash, _ = key.partition("/")
    return bool(slash) and (domain == _DOMAIN or domain.endswith(f".{_DOMAIN}"))
