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
        """Fill in what is missing, and note whose fields these are."""
        body = attributes.object
        if body is None:
            return
        if attributes.resource.custom:
            if attributes.schema is not None:
                filled = without_nulls(attributes.schema, with_defaults(body, attributes.schema))
                body.clear()
                body.update(filled)
        else:
            fill_defaults(body)
        if attributes.owned is not None:
            body.update(attributes.owned(body))


class FirstState(Quiet):
    """What the server alone decides of a new object of a built-in kind: its first status, what it is labelled with."""

    name = "FirstState"

    async def admit(self, attributes: Attributes) -> None:
        """Fill it in, after all that clients and plugins have said."""
        body = attributes.object
        if body is None or attributes.resource.custom:
            return
        if attributes.operation == CREATE and not attributes.subresource:
            fill_on_create(body)
