"""What the database knows of a credential, while the database says nothing for some seconds (D9, GW5, GW17)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from access.authentication.base import Credentials, Refused
from access.authentication.chain import AuthenticationChain
from access.authentication.clusterwebhooks import PREFIX, ClusterWebhookAuthenticator
from access.authentication.portal import STALE_SECONDS, PortalAuthenticator, StandingCredentials
from kube.requests.status import Unauthorized
from store.postgresql import connections
from store.types import Unavailable
from tests.access.authorization.databaseproxy import DatabaseProxy
from tests.databases import migrated


@pytest.fixture(scope="module")
def proxy() -> Iterator[DatabaseProxy]:
    with migrated("silent") as database:
        proxy = DatabaseProxy(database)
        proxy.start()
        yield proxy
        proxy.stop()


async def of_a_person(proxy: DatabaseProxy) -> None:
    """Ask about a token of the portal that has ended."""
    assert await StandingCredentials(proxy.conninfo).standing("ended", expires_at=time.time() + 60) is None


async def of_a_cluster(proxy: DatabaseProxy) -> None:
    """Ask about a webhook's token that was none."""
    chain = AuthenticationChain([ClusterWebhookAuthenticator(proxy.conninfo)])
    with pytest.raises(Unauthorized):
        await chain.authenticate(Credentials(authorization=f"Bearer {PREFIX}none"), now=time.time())


QUESTIONS = [of_a_person, of_a_cluster]


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_credential_is_not_refused_while_the_database_catches_its_breath(
    proxy: DatabaseProxy, question: Callable[[DatabaseProxy], Awaitable[None]]
) -> None:
    """Longer than one try of the question may take."""
    proxy.cut = True
    asked = asyncio.ensure_future(question(proxy))
    await asyncio.sleep(1.5 * STALE_SECONDS)
    proxy.cut = False
    await asked


@pytest.mark.parametrize("question", QUESTIONS)
async def test_who_cannot_tell_says_so_and_does_not_say_no(
    proxy: DatabaseProxy, monkeypatch: pytest.MonkeyPatch, question: Callable[[DatabaseProxy], Awaitable[None]]
) -> None:
    """What is refused with 401 is thrown away by clients; 503 is asked again."""
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", STALE_SECONDS / 2)
    proxy.cut = True
    try:
        with pytest.raises(Unavailable):
            await question(proxy)
    finally:
        proxy.cut = False


@pytest.mark.parametrize("called", ["JTI=", "JTI=ended", "JTI=" + "x" * 60_000, "JTI=\0", "7" * 36, "JTI=" + "A" * 36])
async def test_what_no_credential_is_called_is_asked_for_nowhere_and_remembered_by_nobody(called: str) -> None:
    """DOS-03: a registered cluster says by which credential somebody was known, and may say anything."""
    key: Any = None
    credentials = StandingCredentials("host=/nowhere")
    with pytest.raises(Refused):
        await PortalAuthenticator(key, credentials).holder(called, now=time.time())
    assert not credentials._known
