"""Open streams (watches, logs, shells, forwarded ports): each ends when its caller loses the right to it (GW5, AZ1)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Any, Final

from access.authentication.impersonation import NAME as IMPERSONATION
from access.outsidebudget import begin_budget
from gateway.http.errors import as_status_error
from kube.authentication.identity import Principal
from kube.requests.logicalclusters import space_of
from kube.requests.names import dns_label
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import Expired, ServiceUnavailable, StatusError, Unauthorized

logger = logging.getLogger(__name__)

CUT_SECONDS: Final = 0.5
"""How long a stream that ends may take to say why to a client that does not keep up; then the connection is cut."""

_LATE_SECONDS: Final = 0.05
"""From here on it is this process that does not keep up."""

_GRANTED: Final = 5
"""How often a client gets the time again that this process did not have."""

_TOGETHER: Final = 64
"""Streams that are looked at again before others get a turn."""

_LOOK_SECONDS: Final = 0.25
"""How often credentials' ends are looked at: a timer for each stream would cost each of them."""

_NEVER: Final = float("inf")

PROMPT_SECONDS: Final = 0.25
"""How old a decision may be when what was decided on is done, or shown: a request that took longer is asked about again."""

STOPPING: Final = ServiceUnavailable("the server is shutting down", retry_after=1)
"""Ends every stream of a server that stops."""

Recheck = Callable[[], Awaitable[None]]
"""Authenticates and authorises the request of a stream again; raises a ``StatusError`` when it no longer may."""


class OpenStream:
    """One open stream; ``ended`` resolves to the error that ends it.

    Whoever serves it says so and is done; ``cut`` ends it where that takes longer than ``CUT_SECONDS``.
    """

    __slots__ = ("_cut", "definition", "due", "ended", "info", "principal", "recheck")

    def __init__(
        self,
        principal: Principal,
        info: RequestInfo,
        recheck: Recheck,
        definition: str,
        cut: Callable[[], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.principal = principal
        self.info = info
        self.recheck = recheck
        self.definition = definition
        self._cut = cut
        self.ended: asyncio.Future[StatusError] = loop.create_future()
        self.due = _NEVER if principal.not_after is None else loop.time() + principal.not_after - time.time()
        """When the caller's credential ends, by the loop's clock: as seen from now, not from when the request came."""

    def end(self, error: StatusError) -> None:
        """End the stream, with ``error`` as its last word."""
        if not self.ended.done():
            self.ended.set_result(error)
            self._cut_later(_GRANTED)

    def _cut_later(self, granted: int) -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(CUT_SECONDS, self._cut_unless_late, loop.time() + CUT_SECONDS, granted)

    def _cut_unless_late(self, due: float, granted: int) -> None:
        """Cut. Where many streams end at once, and the last words wait for this process, it is not the client that is slow."""
        if granted and asyncio.get_running_loop().time() - due > _LATE_SECONDS:
            self._cut_later(granted - 1)
        else:
            self._cut()

    @property
    def last_word(self) -> StatusError | None:
        """What the client is told at the end; ``None`` where the end is enough.

        A watch is simply begun again where the last one was, as when kube-apiserver stops; told of an error, clients
        would list everything anew.
        """
        error = self.ended.result()
        return None if error is STOPPING and self.info.verb == "watch" else error

    def close(self) -> None:
        """Forget the stream: its client has gone."""
        self.ended.cancel()


class OpenStreams:
    """All open streams of this process, and the one task that asks again whether they may stay open.

    1. A change that may end a right (``reauthorize``, ``recheck_known_by``) is only noted, and the task started. Noting
       cannot fail and cannot wait, so it may be called from the store's log itself.
    2. The task takes all notes at once and leaves empty sets. A change that comes while it works lands in the new sets
       and gets a pass of its own: a stream that was already passed is asked again.
    3. Each stream that is concerned is authenticated and authorised anew. Whatever is raised ends it: a stream is kept
       only by a positive answer.
    4. A stream that is opened during a pass is not in the pass' copy. It need not be: whoever opens one asks again
       itself, after registering it (``gateway.filters.standing``).
    """

    def __init__(self) -> None:
        self._open: set[OpenStream] = set()
        self._people: Counter[tuple[str | None, str]] = Counter()
        self.credentials: Counter[str] = Counter()
        """How many rest on each credential, by ``Principal.credential_id``."""
        self._pending_clusters: set[str | None] = set()
        self._pending_authenticators: set[str] = set()
        self._task: asyncio.Task[None] | None = None
        self._clock: asyncio.TimerHandle | None = None
        self.places: Counter[tuple[str, str]] = Counter()
        """How many are open by tenant and namespace; empty for a name that none can have, and for what is across all."""
        self.into_pods: set[OpenStream] = set()
        """Those by which somebody is in a pod."""
        self.on_change: Callable[[], None] = lambda: None
        """Called when a stream was opened or closed."""

    def __len__(self) -> int:
        return len(self._open)

    def of(self, tenant: str | None, person: str = "") -> int:
        """How many streams a tenant's users have open, or one of them."""
        return self._people[tenant, person]

    def open(
        self,
        principal: Principal,
        info: RequestInfo,
        recheck: Recheck,
        *,
        cut: Callable[[], None],
        definition: str = "",
    ) -> OpenStream:
        """Register a stream; ``definition`` is the uid of the CRD that its resource rests on, ``cut`` hangs up."""
        stream = OpenStream(principal, info, recheck, definition, cut)
        self._open.add(stream)
        if stream.due != _NEVER and self._clock is None:
            self._look_at_credentials()
        for counted in _people(principal):
            self._people[counted] += 1
        self.credentials[principal.credential_id] += 1
        self.places[_place(info)] += 1
        if info.connects:
            self.into_pods.add(stream)
        self.on_change()
        return stream

    def close(self, stream: OpenStream) -> None:
        """Take a stream off the list."""
        if stream in self._open:
            self._open.remove(stream)
            self.into_pods.discard(stream)
            for counted in _people(stream.principal):
                _take(self._people, counted)
            _take(self.credentials, stream.principal.credential_id)
            _take(self.places, _place(stream.info))
            self.on_change()
        stream.close()

    def _look_at_credentials(self) -> None:
        """End what has outlived its caller's, for as long as there is any that has an end."""
        loop, lasting = asyncio.get_running_loop(), False
        for stream in self._open:
            if stream.due <= loop.time():
                stream.due = _NEVER
                stream.end(Unauthorized())
            lasting = lasting or stream.due != _NEVER
        self._clock = loop.call_later(_LOOK_SECONDS, self._look_at_credentials) if lasting else None

    def reauthorize(self, cluster: str | None) -> None:
        """Ask again for every stream that rules of ``cluster`` may concern; ``None`` means all of them.

        Changes that come together are looked at together.
        """
        if not self._open:
            return
        self._pending_clusters.add(cluster)
        self._schedule_recheck()

    def recheck_known_by(self, authenticator: str) -> None:
        """Ask again for every stream whose caller was known by ``authenticator``, or acts as another (CT-07)."""
        if not self._open:
            return
        self._pending_authenticators |= {authenticator, IMPERSONATION}
        self._schedule_recheck()

    def _schedule_recheck(self) -> None:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._recheck_pending())

    def end_redefined(self, changed: Collection[tuple[str, str]], definition: Callable[[str, str, str], str]) -> None:
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

    async def _recheck_pending(self) -> None:
        while self._pending_clusters or self._pending_authenticators:
            # No await between taking and emptying: a note is in this pass or in the next, never in neither.
            clusters, self._pending_clusters = self._pending_clusters, set()
            authenticators, self._pending_authenticators = self._pending_authenticators, set()
            asked = []
            for number, stream in enumerate(list(self._open)):
                if number % _TOGETHER == 0:
                    await asyncio.sleep(0)
                concerned = stream.principal.authenticator in authenticators or _concerned(stream, clusters)
                if concerned and not stream.ended.done():
                    asked.append(asyncio.create_task(_recheck(stream)))
            # Side by side: who has to wait for the database holds up nobody's end.
            await asyncio.gather(*asked)


async def _recheck(stream: OpenStream) -> None:
    if stream.ended.done():
        return
    begin_budget()
    try:
        await stream.recheck()
    except Exception as error:  # noqa: BLE001 - whatever happens, the stream must not stay open
        stream.end(as_status_error(error))


def _people(principal: Principal) -> tuple[tuple[str | None, str], tuple[str | None, str]]:
    return (principal.tenant, ""), (principal.tenant, principal.name)


def _place(info: RequestInfo) -> tuple[str, str]:
    # What does not exist may be watched, whatever it is called.
    tenant, namespace = ("" if dns_label(name) else name for name in (info.tenant, info.namespace))
    return tenant, namespace


def _take(counter: Counter[Any], key: object) -> None:
    counter[key] -= 1
    if not counter[key]:
        del counter[key]


def _concerned(stream: OpenStream, clusters: set[str | None]) -> bool:
    principal = stream.principal
    if stream.info.all_tenants or None in clusters or principal.cluster in clusters:
        return True
    # What a workspace asks of those who enter it is asked in all workspaces below as well (KC3).
    for path in (stream.info.cluster, stream.info.through):
        cluster = path
        while cluster:
            if cluster in clusters:
                return True
            cluster = cluster.rpartition(":")[0]
    # Locks of a tenant bind its users wherever they have been let in.
    if principal.tenant is not None and space_of(principal.tenant) in clusters:
        return True
    # The rules of the system space and of the bootstrap policy reach into every space.
    return "root" in clusters or "system:admin" in clusters
