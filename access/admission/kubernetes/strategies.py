"""What the server sets in an object after everybody else has changed it."""

from __future__ import annotations

from access.admission.base import CREATE, UPDATE, Attributes, NoopPlugin
from kube.objects.strategies import prepare_for_create, prepare_for_update


class Strategies(NoopPlugin):
    """Built-in kinds get what kube-apiserver's strategies set (TS15); defaults are there before admission begins."""

    name = "Strategies"

    async def admit(self, attributes: Attributes) -> None:
        """Fill in what is the server's to say."""
        body = attributes.object
        if body is None or attributes.resource.custom or attributes.subresource:
            return
        if attributes.operation == CREATE:
            prepare_for_create(body)
        elif attributes.operation == UPDATE and attributes.old is not None:
            prepare_for_update(body, attributes.old)
