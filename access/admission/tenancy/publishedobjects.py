"""Published objects: who may publish, and that nobody changes a copy or makes what looks like one (AZ8)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Final

import orjson

from access.admission.base import CREATE, DELETE, UPDATE, Attributes, NoopPlugin
from access.authorization.chain import AuthorizationChain
from kube.objects import publications
from kube.objects.publications import DEFINITIONS, NAMESPACES, ORIGIN, PUBLISHED, SECRETS, TENANTS
from kube.requests.fielderrors import forbidden, invalid, invalid_object
from kube.requests.labelselectors import parse_labels
from kube.requests.logicalclusters import ROOT
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import BadRequest, StatusError
from store.garbagecollection import gains_owners
from store.interface import Reader
from store.types import Operation, Range

VERB: Final = "publish"
"""What it takes, beside the right to write the object, to publish one, and to change or delete one that is published."""

_PUBLISHED: Final = f'"{PUBLISHED}"'.encode()


class PublishedObjects(NoopPlugin):
    """Copies are the server's: every write of one is refused, of any part and whoever asks, and so is a forged mark.

    Only objects of the system space are published, by who may ``publish`` them there: it reaches every tenant. So does
    whatever takes one away: its deletion, that of its namespace, and an owner that it goes with.
    """

    name = "PublishedObjects"

    def __init__(
        self,
        authorization: AuthorizationChain,
        store: Reader,
        served: Callable[[str], Awaitable[Sequence[tuple[str, str, str]]]],
    ) -> None:
        """``served`` names what a logical cluster may hold: group, stored resource and plural."""
        self._authorization = authorization
        self._store = store
        self._served = served

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
        goes = attributes.operation == DELETE or (attributes.place == NAMESPACES and gains_owners(old, new))
        if attributes.cluster == ROOT and goes:
            await self._judge_deletion(attributes)
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
        if not changed and old is not None and publications.follows(old) == publications.follows(new):
            return
        await self._require_right(attributes)
        if problem := _problem(attributes, wanted):
            raise problem
        if attributes.place == SECRETS and publications.SECRET not in wanted and PUBLISHED in wanted:
            attributes.warnings.append(publications.MESSAGES[publications.Reason.UNCONFIRMED])

    async def _judge_deletion(self, attributes: Attributes) -> None:
        if publications.is_published(attributes.old):
            await self._require_right(attributes)
        if attributes.place == NAMESPACES:
            async for source in self._sources_in(attributes):
                await self._require_right(attributes, source)

    async def _sources_in(self, attributes: Attributes) -> AsyncIterator[RequestInfo]:
        """What is published of what goes with a namespace."""
        for group, kept, plural in await self._served(ROOT):
            for stored in (await self._store.list(Range(ROOT, group, kept, attributes.name))).items:
                if _PUBLISHED in stored.data and publications.is_published(orjson.loads(stored.data)):
                    info = replace(attributes.info, group=group, resource=plural, namespace=attributes.name)
                    yield replace(info, name=stored.key.name)

    async def _require_right(self, attributes: Attributes, source: RequestInfo | None = None) -> None:
        """``source`` is what is published; without it that is what is written."""
        info = source or replace(attributes.info, name=attributes.name)
        asked = replace(info, verb=VERB, subresource="", field_selector="", label_selector="")
        if not (await self._authorization.authorize(attributes.principal, asked)).allowed:
            kind = f"{info.resource}.{info.group}".removesuffix(".")
            named = f'{kind} "{info.name}"' if source is not None else kind
            raise attributes.forbidden(
                f'user "{attributes.principal.name}" may not "{VERB}" {named} in the '
                "system space, which it takes to change what tenants get"
            )


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
