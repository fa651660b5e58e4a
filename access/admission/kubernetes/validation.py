"""Whether an object is acceptable as such, every cause at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from access.admission.base import CREATE, UPDATE, Attributes, NoopPlugin
from kube.kinds.schemas import Definitions
from kube.objects.warnings.objects import status_warnings_for, warnings_for
from kube.requests.fielderrors import invalid_object
from kube.requests.status import Cause
from kube.validation.objects import create_causes, state_causes, update_causes
from kube.validation.podparts import ephemeral_causes, resize_causes
from store.types import Operation

_Change = Callable[[dict[str, Any], dict[str, Any]], list[Cause]]

_PARTS_OF_PODS: Final[dict[str, _Change]] = {
    "binding": lambda new, old: [],  # noqa: ARG005 - its handler binds a pod once
    "ephemeralcontainers": ephemeral_causes,
    "resize": resize_causes,
}
"""Subresources that change what a plain update of a pod may not, and what is wrong with the change."""


class ObjectValidation(NoopPlugin):
    """Judges new objects and changes by the rules of their kind, and warns of what is valid and unwise."""

    name = "ObjectValidation"

    def __init__(self, definitions: Callable[[], Definitions]) -> None:
        self._definitions = definitions

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Invalid`` (422) naming every field that is wrong."""
        body, old, resource = attributes.object, attributes.old, attributes.resource
        if body is None:
            return ()
        version = attributes.info.version
        if attributes.subresource in _PARTS_OF_PODS and old is not None:
            causes = state_causes(resource, version, body, self._definitions())
            causes += _PARTS_OF_PODS[attributes.subresource](body, old)
        elif attributes.operation == CREATE:
            causes = create_causes(resource, version, body, self._definitions())
        elif attributes.operation == UPDATE and old is not None:
            causes = update_causes(resource, version, body, old, self._definitions())
        else:
            return ()
        if causes:
            raise invalid_object(resource.storage_key[0], resource.kind, attributes.name, causes)
        # What is refused as it is, is warned of no more; who is refused later for other reasons hears of it.
        if not resource.custom and not attributes.subresource:
            attributes.warnings.extend(warnings_for(body, old))
        elif attributes.subresource == "status" and not resource.custom:
            attributes.warnings.extend(status_warnings_for(body))
        return ()
