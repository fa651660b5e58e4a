"""What a list, watch or collection delete is about: its range in the store and its selectors, read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from gateway import fields
from gateway.exchange import Request
from gateway.kinds import Kind
from kube.fieldselectors import FieldSelector, parse_fields
from kube.selectors import Selector, parse_labels
from store.types import Everywhere, Key, Range, Stored


@dataclass(frozen=True, slots=True)
class Selection:
    """A range with selectors. ``matches`` decides on an object's bytes, parsing them only when it must."""

    range: Range | Everywhere
    labels: Selector
    fields: FieldSelector

    @property
    def is_whole(self) -> bool:
        """Whether every object of the range is selected."""
        return not self.labels and not self.fields

    @property
    def by_key(self) -> bool:
        """Whether the key alone decides."""
        return not self.labels and all(
            term.field in ("metadata.name", "metadata.namespace") for term in self.fields.terms
        )

    def matches(self, key: Key, data: bytes) -> bool:
        """Whether the object is selected."""
        if self.is_whole:
            return True
        if self.by_key:
            return self.fields.matches({"metadata.name": key.name, "metadata.namespace": key.namespace})
        return self.matches_body(orjson.loads(data))

    def matches_body(self, body: dict[str, Any]) -> bool:
        """Whether the decoded object is selected."""
        labels = body.get("metadata", {}).get("labels") or {}
        return self.labels.matches(labels) and self.fields.matches(fields.values(self.fields, body))

    def filter(self, items: Sequence[Stored]) -> Sequence[Stored]:
        """The selected ones, in order."""
        if self.is_whole:
            return items
        return [item for item in items if self.matches(item.key, item.data)]


def selection(request: Request, kind: Kind) -> Selection:
    """What the request selects. Raises ``BadRequest`` for selectors that cannot be read."""
    info = request.info
    labels = parse_labels(request.query.get("labelSelector", ""))
    selector = parse_fields(request.query.get("fieldSelector", ""))
    selector.check(fields.supported(kind), fields.refusal(kind))
    group, kept = kind.resource.place
    if info.all_tenants:
        return Selection(Everywhere(group, kept), labels, selector)
    namespace = (info.namespace or None) if kind.resource.namespaced else None
    return Selection(Range(info.cluster, group, kept, namespace), labels, selector)
