"""Watches that have to wait before they begin (AD6, GW5)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from access.requestlimits import RateLimited, TenantThrottle
from gateway.filters.requestinfo import resolve
from gateway.handlers import watching
from gateway.http.messages import Request
from gateway.process.runtime import Runtime
from gateway.process.streams import OpenStreams
from gateway.resources.kinds import Catalogs
from kube.authentication.identity import Principal
from kube.requests.ratelimits import UNLIMITED
from kube.requests.status import ServiceUnavailable
from store.engine import Engine
from store.types import Create, Key
from tests.databases import migrated

ASKED = 5
MOST = 2


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("beginnings") as url:
        yield url


class Waiting:
    """Watches that wait for the next revision of a store, in a process that hears of revocations until it is ``deaf``."""

    def __init__(self, store: Engine, most: int) -> None:
        self.store = store
        self.streams = OpenStreams()
        self.deaf = False
        self.throttle = TenantThrottle(replace(UNLIMITED, open_watches=most, person_share=100), self.streams.of)
        query = {
            "watch": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "resourceVersion": str(store.revision + 1),
        }
        self._info = resolve("GET", b"/api/v1/namespaces/default/configmaps", b"watch=true", "acme")
        self._who = Principal(name="anna", tenant="acme", authenticator="test")
        self._request = Request(
            principal=self._who, info=self._info, query=query, headers={}, body=b"", now=time.time()
        )

    open_streams = property(lambda self: self.streams)
    trustworthy = property(lambda self: not self.deaf)

    async def require_trustworthy(self) -> None:
        if self.deaf:
            raise ServiceUnavailable("the server cannot verify permissions right now, please try again", retry_after=1)

    async def recheck(self) -> None:
        """The right stands, as far as is known."""

    async def opened(self) -> Any:
        self.throttle.take(self._who, self._info, time.monotonic())
        kind = Catalogs().require(self._info)
        stream = await watching.watch(cast("Runtime", self), self._request, kind, self.recheck)
        await anext(stream.chunks)
        return stream

    async def go(self) -> None:
        await self.store.commit(Create(Key("root:acme", "", "notes", "", f"n-{self.store.revision}"), {"metadata": {}}))


async def test_no_watch_begins_that_would_not_hear_of_its_end(database: str) -> None:
    """Its request was let in while the process did hear."""
    async with Engine(database) as store:
        waiting = Waiting(store, MOST)
        asked = asyncio.ensure_future(waiting.opened())
        await asyncio.sleep(0.1)
        waiting.deaf = True
        await waiting.go()
        with pytest.raises(ServiceUnavailable, match="cannot verify permissions") as refused:
            await asked
        assert refused.value.retry_after == 1
        assert len(waiting.streams) == 0


async def test_of_watches_that_wait_for_a_revision_at_once_no_more_open_than_may(database: str) -> None:
    """None of them is open while it waits, and all of them have come in."""
    async with Engine(database) as store:
        waiting = Waiting(store, MOST)
        streams = waiting.streams
        asked = [asyncio.ensure_future(waiting.opened()) for _ in range(ASKED)]
        await asyncio.sleep(0.1)
        await waiting.go()
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in found if isinstance(each, Exception)] == [RateLimited] * (ASKED - MOST)
        for stream in found:
            if not isinstance(stream, BaseException):
                await stream.chunks.aclose()
        assert len(streams) == 0
