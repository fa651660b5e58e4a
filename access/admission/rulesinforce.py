"""How many objects of a tenant's own may be asked about each write, or each knock, where they are (DOS-03)."""

from __future__ import annotations

from typing import Final

from access.admission.base import CREATE, Attributes
from store.interface import Store
from store.types import Range

RULES_MAX: Final = 20
"""ResourceQuotas, or LimitRanges, of one namespace: each is read, and counted in, by every write there."""
ENTRIES_MAX: Final = 200
"""Of one of them."""
POLICIES_MAX: Final = 500
"""Policies of one space: each is asked whenever somebody from elsewhere comes."""


def require_short(attributes: Attributes, plural: str, field: str) -> None:
    """Raises ``Forbidden`` for one with more than ``ENTRIES_MAX`` in a field of its spec."""
    resource = attributes.resource
    if attributes.object is None or (resource.group, resource.plural) != ("", plural):
        return
    spec = attributes.object.get("spec")
    entries = spec.get(field) if isinstance(spec, dict) else None
    if isinstance(entries, list | dict) and len(entries) > ENTRIES_MAX:
        raise attributes.forbidden(f"spec.{field} has at most {ENTRIES_MAX} entries")


async def require_room(store: Store, attributes: Attributes, group: str, plural: str, most: int) -> None:
    """Raises ``Forbidden`` for a new one of this kind where there are ``most`` already."""
    resource = attributes.resource
    if attributes.operation != CREATE or (resource.group, resource.plural) != (group, plural) or attributes.subresource:
        return
    place = Range(attributes.cluster, group, plural, attributes.namespace or None)
    if len((await store.list(place, cached=True)).items) >= most:
        where = "namespace" if attributes.namespace else "space"
        raise attributes.forbidden(f"a {where} has at most {most} {plural}: put what they say into one of them")
