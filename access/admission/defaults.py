"""The defaults that clients read back, filled in before anything looks at the object."""

from __future__ import annotations

from access.admission.base import CREATE, Attributes, Quiet
from kube.customobjects import without_nulls
from kube.defaults import fill_defaults, fill_on_create
from kube.structural import with_defaults


class Defaults(Quiet):
    """Built-in kinds have kube-apiserver's defaults, custom kinds those of their schema (TS15)."""

    name = "Defaults"

    async def admit(self, attributes: Attributes) -> None:
        """Fill in what is missing."""
        body = attributes.object
        if body is None:
            return
        if attributes.resource.custom:
            if attributes.schema is not None:
                filled = without_nulls(attributes.schema, with_defaults(body, attributes.schema))
                body.clear()
                body.update(filled)
            return
        fill_defaults(body)
        if attributes.operation == CREATE and not attributes.subresource:
            fill_on_create(body)
