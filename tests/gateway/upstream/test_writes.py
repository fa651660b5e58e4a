"""Writes on their way to a cluster: sent on what is known now, and answered as it answered (GW4, GW5, AD2)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gateway.filters.requestinfo import resolve
from gateway.handlers.placednamespaces.forwarding import forward
from gateway.http.messages import Request, Response
from gateway.process.runtime import Runtime
from gateway.process.streams import OpenStreams
from gateway.upstream.admission import PlacedWrite, Settlement
from gateway.upstream.answers import HeldAnswers
from gateway.upstream.client import Upstream
from gateway.upstream.placements import ACTIVE, Placement
from kube.authentication.identity import Principal
from kube.authorization.leastrole import WorkspaceRoles
from kube.authorization.rbac import Rule
from kube.requests.status import ServiceUnavailable, TooManyRequests
from store.types import Unavailable
from tests.gateway.upstream.asking import until, upstream_of
from tests.gateway.upstream.rawcluster import Behave, Visit, answering, ok

CREATED = ok(b'{"kind":"Pod"}').replace(b"200 OK", b"201 Created")
BEGUN = b"HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n"


class Condition:
    """Has something settled, by ``settle``."""

    name = "test"

    def __init__(self, settle: Settlement) -> None:
        self._settle = settle

    async def admit(self, _write: PlacedWrite) -> Settlement:
        return self._settle


class Door:
    """What passes a write on."""

    def __init__(self, upstream: Upstream, *settlements: Settlement) -> None:
        async def roles(_cluster: str) -> WorkspaceRoles:
            return WorkspaceRoles.of({"admin": (Rule(("*",), ("",), ("*",)),)}, {"admin": "admin"})

        async def token(*_: Any) -> str:
            return "workspace"

        self.streams = OpenStreams()
        self.runtime = SimpleNamespace(
            trustworthy=True,
            require_trustworthy=self._nobody_can_tell,
            clusters=SimpleNamespace(upstream=lambda _: upstream, roles=roles),
            workspace_tokens=SimpleNamespace(get=token),
            placed_admission=[Condition(settle) for settle in settlements],
            open_streams=self.streams,
            held_answers=HeldAnswers(),
        )

    async def _nobody_can_tell(self) -> None:
        raise ServiceUnavailable("the server cannot verify permissions right now, please try again", retry_after=1)

    async def create(self) -> Response:
        """A pod."""

        async def recheck() -> None:
            """The right stands, as far as is known."""

        info = resolve("POST", b"/api/v1/namespaces/acme-web/pods", b"", "acme")
        request = Request(
            principal=Principal(name="anna", tenant="acme", groups=("tenantry:admin",), authenticator="test"),
            info=info,
            query={},
            headers={},
            body=b"{}",
            now=time.time(),
        )
        placement = Placement("w1", "prod", info.cluster, "acme-web", ACTIVE)
        return cast("Response", await forward(cast("Runtime", self.runtime), request, placement, recheck))


@asynccontextmanager
async def door_of(behave: Behave, *settlements: Settlement) -> AsyncIterator[tuple[Door, Upstream]]:
    async with upstream_of(behave) as (_, upstream):
        yield Door(upstream, *settlements), upstream


@pytest.mark.parametrize(
    "failure", [TooManyRequests("a full line", retry_after=1), ServiceUnavailable("x"), Unavailable("x")]
)
async def test_who_has_an_answer_is_not_told_to_ask_again_for_what_cannot_be_settled(failure: Exception) -> None:
    """Clients heed ``Retry-After`` by themselves: what was made would be made twice."""
    told: list[bool] = []

    async def fails(_made: bool) -> None:
        raise failure

    async def hears(made: bool) -> None:
        told.append(made)

    async with door_of(answering(CREATED), fails, hears) as (door, _):
        answer = await door.create()
        assert (answer.status, answer.body) == (201, b'{"kind":"Pod"}')
    assert told == [True]


async def test_who_is_given_up_while_something_is_settled_keeps_no_connection() -> None:
    """The time of a request may be over by then, and nobody reads what its cluster has still to say."""
    settling = asyncio.Event()

    async def waits(_made: bool) -> None:
        settling.set()
        await asyncio.Event().wait()

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(BEGUN)
        await visit.reader.read()

    async with door_of(behave, waits) as (door, upstream):
        asked = asyncio.ensure_future(door.create())
        await settling.wait()
        assert upstream.connections == 1
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await until(lambda: upstream.connections == 0)


async def test_nothing_is_sent_while_revocations_may_be_missed() -> None:
    """GW5, D8: what was decided before the news stopped counts no more once the cluster's turn has come."""
    heard = []

    async def behave(visit: Visit) -> None:
        heard.append(await visit.request())
        await visit.say(CREATED)

    async def settled(_made: bool) -> None:
        """There is nothing to do."""

    async with door_of(behave, settled) as (door, _):
        door.runtime.trustworthy = False
        with pytest.raises(ServiceUnavailable, match="cannot verify permissions"):
            await door.create()
        assert heard == []
        door.runtime.trustworthy = True
        assert (await door.create()).status == 201
    assert len(heard) == 1
