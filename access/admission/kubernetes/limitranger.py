"""LimitRanges: defaults for containers that state nothing, and bounds for those that do (GW1)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import orjson

from access.admission.base import CREATE, UPDATE, Attributes, NoopPlugin
from access.admission.rulesinforce import RULES_MAX, require_room, require_short
from kube.quota.limitranges import violations, with_defaults
from kube.quota.quantities import InvalidQuantity
from kube.requests.status import BadRequest
from store.interface import Store
from store.types import Operation, Range

_LIMIT_RANGES: Final = ("", "limitranges")


class LimitRanger(NoopPlugin):
    """Applies every LimitRange of the namespace."""

    name = "LimitRanger"
    kinds = frozenset({_LIMIT_RANGES, ("", "persistentvolumeclaims"), ("", "pods")})

    def __init__(self, store: Store) -> None:
        self._store = store

    async def admit(self, attributes: Attributes) -> None:
        """Give a new pod the default requests and limits."""
        body = attributes.object
        if body is None or not self._concerns(attributes) or attributes.resource.plural != "pods":
            return
        if attributes.operation != CREATE:
            return
        for limit_range in await self._ranges(attributes):
            filled = with_defaults(limit_range, body)
            body.clear()
            body.update(filled)

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` for what is beyond the bounds."""
        if attributes.place == _LIMIT_RANGES:
            require_short(attributes, "limitranges", "limits")
            await require_room(self._store, attributes, "", "limitranges", RULES_MAX)
        body, resource = attributes.object, attributes.resource
        if body is None or not self._concerns(attributes):
            return ()
        for limit_range in await self._ranges(attributes):
            try:
                found = violations(limit_range, resource.plural, body)
            except InvalidQuantity as error:
                raise BadRequest(str(error)) from None
            if found:
                rule = f"LimitRange {attributes.namespace}/{limit_range['metadata']['name']}"
                raise attributes.forbidden(found, rule=rule)
        return ()

    @staticmethod
    def _concerns(attributes: Attributes) -> bool:
        resource = attributes.resource
        if attributes.subresource not in ("", "resize"):
            return False
        if "deletionTimestamp" in (attributes.old or {}).get("metadata", {}):
            return False  # Who ends what holds it must be able to.
        if resource.plural == "pods":
            return attributes.operation == CREATE or attributes.subresource == "resize"
        return resource.plural == "persistentvolumeclaims" and attributes.operation in (CREATE, UPDATE)

    async def _ranges(self, attributes: Attributes) -> list[dict[str, Any]]:
        place = Range(attributes.cluster, "", "limitranges", attributes.namespace)
        return [orjson.loads(item.data) for item in (await self._store.list(place, cached=True)).items]
