"""Open watches: each ends at once when its caller loses the right to it (GW5, AZ1)."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Final

from access.authentication.impersonation import NAME as IMPERSONATION
from gateway.errors import as_status_error
from kube.identity import Principal
from kube.logicalclusters import space_of
from kube.requestinfo import RequestInfo
from kube.status import Expired, StatusError, Unauthorized

logger = logging.getLogger(__name__)

_TOGETHER: Final = 64
"""Streams that are looked at again before others get a turn."""

Recheck = Callable[[], Awaitable[None]]
"""Authenticates and authorises the request of a stream again; raises a ``StatusError`` when it no longer may."""


class OpenStream:
    """One open watch; ``ended`` resolves to the error that ends it."""

    __slots__ = ("_timer", "definition", "ended", "info", "principal", "recheck")

    def __init__(self, principal: Principal, info: RequestInfo, recheck: Recheck, now: float, definition: str) -> None:
        loop = asyncio.get_running_loop()
        self.principal = principal
        self.info = info
        self.recheck = recheck
        self.definition = definition
        self.ended: asyncio.Future[StatusError] = loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        if principal.not_after is not None:
            self._timer = loop.call_later(max(0.0, principal.not_after - now), self.end, Unauthorized())

    def end(self, error: StatusError) -> None:
        """End the stream with ``error`` as its last event."""
        if not self.ended.done():
            self.ended.set_result(error)

    def close(self) -> None:
        """Forget the stream: its client has gone."""
        if self._timer is not None:
            self._timer.cancel()
        self.ended.cancel()


class Streams:
    """All open streams of this process."""

    def __init__(self) -> None:
        self._open: set[OpenStream] = set()
        self._tenants: Counter[str | None] = Counter()
        self._pending: set[str | None] = set()
        self._doubted: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._open)

    def of(self, tenant: str | None) -> int:
        """How many streams a tenant's users have open."""
        return self._tenants[tenant]

    def open(
        self, principal: Principal, info: RequestInfo, recheck: Recheck, *, now: float, definition: str = ""
    ) -> OpenStream:
        """Register a stream; ``definition`` is the uid of the CRD that its resource rests on."""
        stream = OpenStream(principal, info, recheck, now, definition)
        self._open.add(stream)
        self._tenants[principal.tenant] += 1
        return stream

    def close(self, stream: OpenStream) -> None:
        """Take a stream off the list."""
        if stream in self._open:
            self._open.remove(stream)
            self._tenants[stream.principal.tenant] -= 1
            if not self._tenants[stream.principal.tenant]:
                del self._tenants[stream.principal.tenant]
        stream.close()

    def reconsider(self, cluster: str | None) -> None:
        """Ask again for every stream that rules of ``cluster`` may concern; ``None`` means all of them.

        Changes that come together are looked at together.
        """
        if not self._open:
            return
        self._pending.add(cluster)
        self._look_again()

    def reconsider_known_by(self, authenticator: str) -> None:
        """Ask again for every stream whose caller was known by ``authenticator``, or acts as another (CT-07)."""
        if not self._open:
            return
        self._doubted |= {authenticator, IMPERSONATION}
        self._look_again()

    def _look_again(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._reconsider())

    def redefine(self, changed: Collection[tuple[str, str]], definition: Callable[[str, str, str], str]) -> None:
        """End the streams of (group, resource) whose definition is no longer the one that they began with (TS12)."""
        for stream in list(self._open):
            info = stream.info
            if (info.group, info.resource) not in changed:
                continue
            now = definition(info.cluster, info.group, info.resource)
            if now != stream.definition:
                stream.end(Expired("The definition of the resource has changed, please list again."))

    def end_all(self, error: StatusError) -> None:
        """End every stream: the server stops."""
        for stream in list(self._open):
            stream.end(error)

    async def _reconsider(self) -> None:
        while self._pending or self._doubted:
            clusters, self._pending = self._pending, set()
            authenticators, self._doubted = self._doubted, set()
            for number, stream in enumerate(list(self._open)):
                if number % _TOGETHER == 0:
                    await asyncio.sleep(0)
                concerned = stream.principal.authenticator in authenticators or _concerned(stream, clusters)
                if stream.ended.done() or not concerned:
                    continue
                try:
                    await stream.recheck()
                except Exception as error:  # noqa: BLE001 - whatever happens, the stream must not stay open
                    stream.end(as_status_error(error))


def _concerned(stream: OpenStream, clusters: set[str | None]) -> bool:
    principal = stream.principal
    if stream.info.all_tenants or None in clusters or stream.info.cluster in clusters or principal.cluster in clusters:
        return True
    # Locks of a tenant bind its users wherever they have been let in.
    if principal.tenant is not None and space_of(principal.tenant) in clusters:
        return True
    # The rules of the system space and of the bootstrap policy reach into every space.
    return "root" in clusters or "system:admin" in clusters
