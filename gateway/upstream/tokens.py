"""The tokens that requests carry to clusters: a workspace's own, in memory only, one a role and process (GW4).

1. One that has more than ``RENEW_SECONDS`` left is used as it is.
2. With less, one task asks for the next one, whoever and however many come meanwhile; they go on with the old one.
   Only where there is none they wait, all for the same task.
3. A renewal that fails leaves the old one until its end, and is not tried again for ``PAUSE_SECONDS``.
4. A cluster that refuses one (401) gets one new one, asked for once, however many were refused with it; not sooner than
   ``PAUSE_SECONDS`` after the last, so that a cluster that refuses everything does not fill the audit log.
5. One that cannot be reached is not asked by anybody for ``REST_SECONDS``, then by one; nor is one for the token that it
   has just not given. Whoever comes meanwhile is told so at once, and nothing is recorded.

A token is never logged, shown or put into an error; whose it is means the workspace by its UID, and the cluster by where
it is and whom it has to show to be: what comes to be registered under its name is never shown the old one's.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Final
from uuid import UUID

from access.credentials.tokenrequests import ClusterToken
from access.credentials.workspacetokens import NoAccess, workspace_token_issue
from gateway.upstream.availability import Availability
from gateway.upstream.client import Cluster, Limits
from gateway.upstream.placements import Placement
from kube.requests.status import ServiceUnavailable, StatusError
from store.placethreads import PlaceThreads
from tenants.clusters.client import Place

RENEW_SECONDS: Final = 600.0
PAUSE_SECONDS: Final = 10.0
REST_SECONDS: Final = Limits().rest_seconds

_Owner = tuple[str, str, Cluster, str, str]
"""A workspace's UID, where it is taken to be (space, cluster, namespace), and the role of the account.

What is taken for it elsewhere is another one, and asks the database itself.
"""


@dataclass(slots=True)
class _Held:
    """A token; times in Unix seconds. Not before ``renew_at`` is the next one asked for."""

    text: str = field(repr=False)
    expires_at: float
    issued_at: float
    renew_at: float


class _Failures:
    """Which clusters have given no token lately, and to whom; asked and told in many threads."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._away: dict[Cluster, Availability] = {}
        self._refused: dict[_Owner, tuple[float, str]] = {}
        """Of clusters that answer: whose token they did not give, until when it is not asked for, and what was said."""

    def require(self, owner: _Owner, *, probes: bool) -> None:
        """Raise ``ServiceUnavailable`` where a token has just not been given; ``probes``: whoever asks for one otherwise."""
        with self._lock:
            until, text = self._refused.get(owner, (0.0, ""))
            wait = max(0, math.ceil(until - self._now()))
            if not wait and (away := self._away.get(owner[2])) is not None:
                wait, text = away.admit() if probes else away.rests(), f'the cluster "{owner[2].name}" is away'
        if wait:
            raise ServiceUnavailable(f"{text}, please try again later", retry_after=wait)

    def note(self, owner: _Owner, error: NoAccess | None) -> None:
        """What has come of asking."""
        cluster, now = owner[2], self._now()
        with self._lock:
            if error is not None and not error.reached:
                self._away.setdefault(cluster, Availability(REST_SECONDS, self._now)).failed()
                return
            self._away.pop(cluster, None)
            if error is not None:
                self._refused = {each: known for each, known in self._refused.items() if known[0] > now}
                self._refused[owner] = now + REST_SECONDS, error.message


class WorkspaceTokens:
    """The tokens of this process. ``issue`` is called in a thread; ``now`` gives Unix seconds."""

    def __init__(
        self,
        issue: Callable[[Placement, Cluster, str, datetime], ClusterToken] | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._issue = partial(self._asked, issue or _issue)
        self._now = now
        self._failures = _Failures(now)
        self._held: dict[_Owner, _Held] = {}
        self._issuing: dict[_Owner, asyncio.Task[str]] = {}
        self._threads = PlaceThreads("tokens")

    async def get(self, placement: Placement, cluster: Cluster, role: str) -> str:
        """A token of the workspace's account of ``role``, for this cluster alone. Raises as ``workspace_token_issue``."""
        owner, now = _owner(placement, cluster, role), self._now()
        held = self._held.get(owner)
        if held is None or held.expires_at <= now:
            return await asyncio.shield(self._renewal(placement, cluster, role))
        if held.renew_at <= now:
            held.renew_at = now + PAUSE_SECONDS
            self._renewal(placement, cluster, role).add_done_callback(_heed)
        return held.text

    async def after_refusal(self, placement: Placement, cluster: Cluster, role: str, refused: str) -> str:
        """Another token than the one that the cluster has refused. Raises ``ServiceUnavailable`` where it just got one."""
        owner = _owner(placement, cluster, role)
        held = self._held.get(owner)
        if held is not None and held.text != refused and held.expires_at > self._now():
            return held.text
        if held is not None and self._now() - held.issued_at < PAUSE_SECONDS and owner not in self._issuing:
            raise ServiceUnavailable(
                f'the cluster "{placement.cluster}" does not accept the tokens that it issues',
                retry_after=int(PAUSE_SECONDS),
            )
        return await asyncio.shield(self._renewal(placement, cluster, role))

    def _renewal(self, placement: Placement, cluster: Cluster, role: str) -> asyncio.Task[str]:
        owner = _owner(placement, cluster, role)
        task = self._issuing.get(owner)
        # One that has ended is still there until its callback has had its turn.
        if task is None or task.done():
            task = self._issuing[owner] = asyncio.create_task(self._renew(placement, cluster, role))
            task.add_done_callback(partial(self._ended, owner))
        return task

    def _ended(self, owner: _Owner, task: asyncio.Task[str]) -> None:
        if self._issuing.get(owner) is task:
            del self._issuing[owner]
        if not task.cancelled():
            # Whoever waits for it is told; who has gone meanwhile need not be.
            task.exception()

    async def _issued(self, placement: Placement, cluster: Cluster, role: str, now: datetime) -> ClusterToken:
        return await self._threads.run(placement.cluster, partial(self._issue, placement, cluster, role, now))

    def _asked(
        self,
        issue: Callable[[Placement, Cluster, str, datetime], ClusterToken],
        placement: Placement,
        cluster: Cluster,
        role: str,
        now: datetime,
    ) -> ClusterToken:
        """In a thread: whoever has waited for its turn asks no cluster that was found to be away meanwhile."""
        owner = _owner(placement, cluster, role)
        self._failures.require(owner, probes=True)
        try:
            token = issue(placement, cluster, role, now)
        except NoAccess as error:
            self._failures.note(owner, error)
            raise
        self._failures.note(owner, None)
        return token

    async def _renew(self, placement: Placement, cluster: Cluster, role: str) -> str:
        now = self._now()
        self._failures.require(_owner(placement, cluster, role), probes=False)
        token = await self._issued(placement, cluster, role, datetime.fromtimestamp(now, UTC))
        ends = token.expires_at.timestamp()
        for owner in [owner for owner, held in self._held.items() if held.expires_at <= now]:
            del self._held[owner]
        # A cluster may give less than was asked for: half of what it gives is used before the next one.
        renew_at = max(ends - RENEW_SECONDS, now + (ends - now) / 2)
        self._held[_owner(placement, cluster, role)] = _Held(token.text, ends, now, renew_at)
        return token.text


def _owner(placement: Placement, cluster: Cluster, role: str) -> _Owner:
    return placement.workspace, placement.space, cluster, placement.namespace, role


def _issue(placement: Placement, cluster: Cluster, role: str, now: datetime) -> ClusterToken:
    from django.db import close_old_connections

    close_old_connections()
    try:
        return workspace_token_issue(
            workspace_id=UUID(placement.workspace),
            space=placement.space,
            namespace=placement.namespace,
            cluster=placement.cluster,
            place=Place(UUID(cluster.uid), cluster.url, cluster.ca_pem.encode(), cluster.tls_server_name),
            role=role,
            now=now,
        )
    finally:
        close_old_connections()


def _heed(task: asyncio.Task[str]) -> None:
    """Nobody waits for it: the old token goes on, and the next request after the pause tries again."""
    if not task.cancelled() and not isinstance(task.exception(), StatusError | None):
        task.get_loop().call_exception_handler({"message": "a renewal failed", "exception": task.exception()})
