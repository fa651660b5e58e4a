"""What a list, watch or collection delete is about: its range in the store and its selectors, read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import orjson

from gateway.http.messages import Request, ScopeFilter
from gateway.resources import selectablefields as fields
from gateway.resources.kinds import Kind
from kube.requests.fieldselectors import FieldSelector, parse_fields
from kube.requests.labelselectors import Selector, parse_labels
from kube.requests.status import Forbidden, NotFound
from store.types import AllSpaces, Key, Range, Spaces, Stored

_SHARED_FROM: Final = 16 * 1024

_OF_KEY: Final = frozenset({"metadata.name", "metadata.namespace"})


@dataclass(frozen=True, slots=True)
class Selection:
    """A range with selectors. ``matches`` decides on an object's bytes, parsing them only when it must."""

    range: Range | AllSpaces | Spaces
    labels: Selector
    fields: FieldSelector
    scope_filter: ScopeFilter | None = None

    @property
    def is_whole(self) -> bool:
        """Whether every object of the range is selected."""
        return not self.labels and not self.fields and self.scope_filter is None

    @property
    def by_key(self) -> bool:
        """Whether the key alone decides."""
        return (
            not self.labels
            and (self.scope_filter is None or self.scope_filter.by_key)
            and _OF_KEY.issuperset(self.fields.asked)
        )

    def matches(self, key: Key, data: bytes) -> bool:
        """Whether the object is selected."""
        if self.is_whole:
            return True
        if self.scope_filter is not None and not self.scope_filter.places(key):
            return False
        if self.by_key:
            return self.fields.matches({"metadata.name": key.name, "metadata.namespace": key.namespace})
        body = decoded(data)
        labels = body.get("metadata", {}).get("labels") or {}
        if self.scope_filter is not None and not self.scope_filter.includes(key, labels):
            return False
        return self.labels.matches(labels) and self.fields.matches(fields.values(self.fields, body))

    def filter(self, items: Sequence[Stored]) -> Sequence[Stored]:
        """The selected ones, in order."""
        if self.is_whole:
            return items
        return [item for item in items if self.matches(item.key, item.data)]


@dataclass(frozen=True, slots=True)
class OpenNamespaces:
    """Every object but those in closed namespaces: a ``ScopeFilter``."""

    closed: frozenset[str]

    def places(self, key: Key) -> bool:
        """Whether the object can be one of them, by its key alone."""
        return key.namespace not in self.closed

    def includes(self, key: Key, labels: Mapping[str, str]) -> bool:  # noqa: ARG002 - the key decides
        """Whether it is one of them."""
        return self.places(key)

    @property
    def by_key(self) -> bool:
        """It is the key alone that decides."""
        return True

    @property
    def spaces(self) -> None:
        """They are of one space."""


def decoded(data: bytes) -> dict[str, Any]:
    """A stored object, not to be changed: all who look at the same event look at one and the same."""
    body: dict[str, Any] = _decoded(data) if len(data) > _SHARED_FROM else orjson.loads(data)
    return body


@lru_cache(maxsize=8)
def _decoded(data: bytes) -> Any:
    return orjson.loads(data)


def selection(request: Request, kind: Kind) -> Selection:
    """What the request selects. Raises ``BadRequest`` for selectors that cannot be read, and ``TooManyRequests``."""
    info = request.info
    by_labels, by_fields = request.query.get("labelSelector", ""), request.query.get("fieldSelector", "")
    request.charge_selectors(len(by_labels) + len(by_fields))
    labels, selector = parse_labels(by_labels), parse_fields(by_fields)
    selector.check(fields.supported(kind), fields.refusal(kind))
    group, kept = kind.resource.place
    if info.all_tenants:
        spaces = request.scope_filter.spaces if request.scope_filter is not None else None
        across = AllSpaces(group, kept) if spaces is None else Spaces(group, kept, tuple(spaces))
        return Selection(across, labels, selector, request.scope_filter)
    namespace = (info.namespace or None) if kind.resource.namespaced else None
    return Selection(Range(info.cluster, group, kept, namespace), labels, selector, request.scope_filter)


def require_selected(request: Request, kind: Kind, stored: Stored) -> None:
    """Raise ``NotFound`` for an object that the request cannot reach."""
    if request.scope_filter is None or _is_within(request.scope_filter, stored.key, orjson.loads(stored.data)):
        return
    resource, name = kind.resource, stored.key.name
    text = f'{resource.qualified_name} "{name}" not found'
    raise NotFound(text, group=resource.group, kind=resource.plural, name=name)


def confine_new(request: Request, kind: Kind, key: Key, body: dict[str, Any]) -> None:
    """Raise ``Forbidden`` for an object that the request could not reach once it is there."""
    if request.scope_filter is None or _is_within(request.scope_filter, key, body):
        return
    resource = kind.resource
    text = f'{resource.qualified_name} "{key.name}" is forbidden: the permission claim does not select it'
    raise Forbidden(text, group=resource.group, kind=resource.plural, name=key.name)


def _is_within(scope_filter: ScopeFilter, key: Key, body: dict[str, Any]) -> bool:
    return scope_filter.includes(key, body.get("metadata", {}).get("labels") or {})
