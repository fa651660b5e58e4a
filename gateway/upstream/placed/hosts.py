"""Host names of Ingresses in placed namespaces: which there are, and whose a new one is (AD5)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final

from access.admission.tenancy.hostclaims import HostClaims, HostRefused
from gateway.http.lanes import by_turns
from gateway.upstream.admission import MAKING, PlacedWrite, name_of
from gateway.upstream.clusters import Clusters
from gateway.upstream.placements import Placements
from gateway.upstream.reading import read_list_as
from gateway.upstream.tokens import WorkspaceTokens
from kube.policies.hosts import hosts_of
from kube.requests.status import Conflict, Forbidden, ServiceUnavailable, StatusError
from store.interface import Store
from store.types import Key, Operation, PreconditionFailed

_GROUP: Final = "networking.k8s.io"
_PLURAL: Final = "ingresses"
_INGRESSES: Final = (_GROUP, _PLURAL)
UNDERWAY_SECONDS: Final = 120.0
"""Longer than a request to a cluster is waited for."""

ASK_SECONDS: Final = 5.0
"""How long whoever asks for a name, of another tenant mostly, waits to hear that it is not in use any more."""

_ATTEMPTS: Final = 16


class IngressReader:
    """Asks clusters, with the tokens of the workspaces themselves."""

    def __init__(self, placements: Placements, clusters: Clusters, tokens: WorkspaceTokens) -> None:
        self._placements = placements
        self._clusters = clusters
        self._tokens = tokens

    async def hosts(self, space: str) -> Collection[str]:
        """The host names in all placed namespaces of a space. Raises ``StatusError`` while one cannot be looked at."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                return await self._found(space)
        except TimeoutError:
            raise ServiceUnavailable("its clusters take too long to say which host names are in use") from None

    async def _found(self, space: str) -> Collection[str]:
        found: set[str] = set()
        for placement in await self._placements.all_in_space(space):
            if not placement.is_active:
                raise ServiceUnavailable(f'the namespace "{placement.namespace}" is closed')
            path = f"/apis/{_GROUP}/v1/namespaces/{placement.namespace}/{_PLURAL}"
            items = await read_list_as(self._clusters, self._tokens, placement, "viewer", path)
            async for item in by_turns(items):
                found.update(host.lower() for _, host in hosts_of("Ingress", item))
        return found


class PlacedHosts:
    """Takes the host names for the tenant before an Ingress goes to its cluster, once that has nothing against it.

    ``explained`` makes of what the cluster has against it what the client is told.
    """

    name = "HostOwnership"

    def __init__(
        self, store: Store, claims: HostClaims, explained: Callable[[StatusError, Key], Awaitable[StatusError]]
    ) -> None:
        self._store = store
        self._claims = claims
        self._explained = explained

    async def admit(self, write: PlacedWrite) -> None:
        """Raise ``Forbidden`` with a cause for every name that it does not get, or what the cluster refuses anyway.

        The names of a write that comes to nothing all the same wait for it no longer than it could be under way.
        """
        info = write.info
        if (info.group, info.resource) != (_GROUP, _PLURAL) or info.subresource or info.verb not in MAKING:
            return
        body = await write.object()
        if not isinstance(body, Mapping):
            return
        name, until = info.name or name_of(body), write.now + UNDERWAY_SECONDS

        async def claimed() -> Sequence[Operation]:
            return await self._claims.claim(info.cluster, None, body, now=write.now, until=until)

        try:
            if not await claimed():
                return
            try:
                await write.outcome()
            except StatusError as refused:
                raise await self._explained(refused, Key(info.cluster, *_INGRESSES, info.namespace, name)) from None
            for _ in range(0 if write.dry_run else _ATTEMPTS):
                with contextlib.suppress(PreconditionFailed):
                    await self._store.commit(*await claimed())
                    return
        except HostRefused as refused:
            said = f'{_PLURAL}.{_GROUP} "{name}" is forbidden: {refused}'
            raise Forbidden(said, group=_GROUP, kind=_PLURAL, name=name, causes=refused.causes) from None
        if not write.dry_run:
            raise Conflict("its host names are asked for by many at once, please try again", group=_GROUP, kind=_PLURAL)
