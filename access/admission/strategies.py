"""What the server sets in an object after everybody else has changed it."""

from __future__ import annotations

from access.admission.base import CREATE, UPDATE, Attributes, Quiet
from kube.advice import advice
from kube.strategies import fill_on_create, fill_on_update


class Strategies(Quiet):
    """Built-in kinds get what kube-apiserver's strategies set (TS15); defaults are there before admission begins."""

    name = "Strategies"

    async def admit(self, attributes: Attributes) -> None:
        """Fill in what is the server's to say."""
        body = attributes.object
        if body is None or attributes.resource.custom or attributes.subresource:
            return
        if attributes.operation == CREATE:
            fill_on_create(body)
            attributes.warnings.extend(advice(body))
        elif attributes.operation == UPDATE and attributes.old is not None:
            fill_on_update(body, attributes.old)
            if body.get("spec") != attributes.old.get("spec"):
                attributes.warnings.extend(advice(body))
