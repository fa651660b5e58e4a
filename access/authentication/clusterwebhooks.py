"""Registered clusters that ask the product's webhooks: known by a bearer of their own, and good for nothing else (GW17)."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from access.authentication.base import Credentials, Refused
from kube.authentication.identity import Principal
from kube.requests.logicalclusters import ROOT
from kube.requests.requestinfo import RequestInfo
from store.postgresql.connections import AWAY, ask_patiently
from store.postgresql.dedicatedconnection import DedicatedConnection
from tenants.clusters.changes import CHANNEL

logger = logging.getLogger(__name__)

NAME: Final = "cluster-webhooks"
PREFIX: Final = "twh_"
"""What every credential begins with, so that no other authenticator is asked about one."""

PATH: Final = "/webhooks/"
_USER: Final = "tenantry:cluster:"
POLL_SECONDS: Final = 2.0
STALE_SECONDS: Final = 10.0
"""After so long without an answer of the database nobody knows which credentials have ended."""

_QUESTION: Final = """
SELECT w.digest, c.name, c.id::text, coalesce(extract(epoch FROM w.expires_at)::text, '')
FROM webhook_credentials w JOIN clusters c ON c.id = w.cluster_id WHERE c.kind = 'external'
"""


def digest_of(text: str) -> str:
    """What is kept of a credential."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def cluster_of(principal: Principal) -> str:
    """The registered cluster that asks, empty for anybody else."""
    return principal.name.removeprefix(_USER) if principal.authenticator == NAME else ""


def is_its_own(principal: Principal, request: RequestInfo) -> bool:
    """Whether a registered cluster asks one of its own webhooks."""
    cluster = cluster_of(principal)
    own = bool(cluster) and request.path.startswith(f"{PATH}{cluster}/")
    return own and not request.is_resource and request.cluster == ROOT


@dataclass(frozen=True, slots=True)
class _Known:
    cluster: Principal
    expires_at: float


class ClusterWebhookAuthenticator:
    """Knows the credentials of all clusters: read when somebody is told of a change, and polled behind that."""

    name = NAME

    def __init__(self, database_url: str) -> None:
        self._known: Mapping[str, _Known] = {}
        self._read_at = float("-inf")
        self._told = asyncio.Event()
        self._turn = asyncio.Lock()
        self._connection = DedicatedConnection(
            database_url, "tenantry-webhooks", channel=CHANNEL, heard=lambda _: self._told.set(), lost=self._told.set
        )

    async def authenticate(self, credentials: Credentials, *, now: float) -> Principal | None:
        """The cluster, which belongs to no tenant; ``None`` for other tokens; raises ``Refused``, or ``Unavailable``."""
        token = credentials.bearer
        if token is None or not token.startswith(PREFIX):
            return None
        if time.monotonic() - self._read_at > STALE_SECONDS:
            await ask_patiently(self._read)
        known = self._known.get(digest_of(token))
        if known is None or known.expires_at <= now:
            raise Refused("the credential of the cluster has ended, or never was")
        return known.cluster

    async def follow(self, on_change: Callable[[], None]) -> None:
        """Keep what is known right, until cancelled. Nothing stays open that rests on it."""
        del on_change
        try:
            while True:
                # Cleared before the reading: what is told while it runs brings another one.
                self._told.clear()
                try:
                    await self._read()
                except AWAY as error:
                    logger.warning("the credentials of webhooks cannot be read: %s", type(error).__name__)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(POLL_SECONDS):
                        await self._told.wait()
        finally:
            self._connection.close()

    async def _read(self) -> None:
        async with asyncio.timeout(STALE_SECONDS), self._turn:
            # Of the moment before the question: the answer may be of any moment after it.
            asked_at = time.monotonic()
            result = await self._connection.ask(_QUESTION)
        rows = [
            [(result.get_value(row, column) or b"").decode() for column in range(4)] for row in range(result.ntuples)
        ]
        self._known = {
            digest: _Known(
                Principal(name=f"{_USER}{cluster}", uid=uid, tenant=None, authenticator=NAME), float(ends or "inf")
            )
            for digest, cluster, uid, ends in rows
        }
        self._read_at = asked_at
