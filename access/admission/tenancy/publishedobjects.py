"""Published objects: who may publish, and that nobody changes a copy or makes what looks like one (AZ8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from access.admission.base import CREATE, UPDATE, Attributes, NoopPlugin
from access.authorization.chain import AuthorizationChain
from kube.objects import publications
from kube.objects.publications import DEFINITIONS, ORIGIN, PUBLISHED, SECRETS, TENANTS
from kube.requests.fielderrors import forbidden, invalid, invalid_object
from kube.requests.labelselectors import parse_labels
from kube.requests.logicalclusters import ROOT
from kube.requests.status import BadRequest, StatusError
from store.types import Operation

VERB: Final = "publish"
"""What it takes, beside the right to write the object, to publish one and to change one that is published."""


class PublishedObjects(NoopPlugin):
    """Copies are the server's: every write of one is refused, of any part and whoever asks, and so is a forged mark.

    Only objects of the system space are published, by who may ``publish`` them there: it reaches every tenant.
    """

    name = "PublishedObjects"

    def __init__(self, authorization: AuthorizationChain) -> None:
        self._authorization = authorization

    async def admit(self, attributes: Attributes) -> None:
        """Raises ``Forbidden`` for copies, before anything else is said of the write."""
        if publications.is_copy(attributes.old):
            raise attributes.forbidden(
                "it is published by the operators, who alone change it, in the system space; "
                "leave it as it is, or use another name"
            )

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden`` and ``Invalid``."""
        new, old = attributes.object, attributes.old
        if new is None or attributes.operation not in (CREATE, UPDATE):
            return ()
        if publications.is_copy(new):
            raise attributes.forbidden(f"the label {ORIGIN} marks copies of published objects, which the server makes")
        if attributes.cluster != ROOT:
            claimed = publications.claims(new)
            if claimed and (added := sorted(claimed.items() - publications.claims(old).items())):
                raise attributes.forbidden(
                    f"only objects of the system space are published: leave the annotation {added[0][0]} out"
                )
            return ()
        wanted, before = publications.asks(new), publications.asks(old)
        if wanted != before or PUBLISHED in wanted:
            await self._judge_source(attributes, wanted, changed=wanted != before)
        return ()

    async def _judge_source(self, attributes: Attributes, wanted: dict[str, str], *, changed: bool) -> None:
        new, old = attributes.object or {}, attributes.old
        if not changed and old is not None and publications.said(old) == publications.said(new):
            return
        info = replace(attributes.info, verb=VERB, name=attributes.name, subresource="")
        if not (await self._authorization.authorize(attributes.principal, info)).allowed:
            raise attributes.forbidden(
                f'user "{attributes.principal.name}" may not "{VERB}" {attributes.resource.qualified_name} in the '
                "system space, which it takes to change what tenants get"
            )
        if problem := _problem(attributes, wanted):
            raise problem
        if attributes.place == SECRETS and publications.SECRET not in wanted and PUBLISHED in wanted:
            attributes.warnings.append(publications.MESSAGES[publications.Reason.UNCONFIRMED])


def _problem(attributes: Attributes, wanted: dict[str, str]) -> StatusError | None:
    """What is wrong with the annotations."""
    field, selector = f"metadata.annotations[{TENANTS}]", wanted.get(TENANTS)
    if selector is None:
        return None
    if attributes.place == DEFINITIONS:
        cause = forbidden(field, "a definition is published to every tenant; choose tenants for its objects")
    else:
        try:
            parse_labels(selector)
        except BadRequest as error:
            cause = invalid(field, selector, error.message)
        else:
            return None
    return invalid_object(attributes.resource.group, attributes.resource.kind, attributes.name, [cause])
