"""Watches that have to wait before they begin (AD6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
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
from store.engine import Engine
from store.types import Create, Key
from tests.databases import migrated

ASKED = 5
MOST = 2


@pytest.fixture(scope="module")
def database() -> Iterator[str]:
    with migrated("beginnings") as url:
        yield url


async def test_of_watches_that_wait_for_a_revision_at_once_no_more_open_than_may(database: str) -> None:
    """None of them is open while it waits, and all of them have come in."""
    streams = OpenStreams()
    throttle = TenantThrottle(replace(UNLIMITED, open_watches=MOST, person_share=100), streams.of)

    async def recheck() -> None:
        """The right stands."""

    async with Engine(database) as store:
        runtime = cast("Runtime", SimpleNamespace(store=store, open_streams=streams, throttle=throttle))
        query = {
            "watch": "true",
            "sendInitialEvents": "true",
            "resourceVersionMatch": "NotOlderThan",
            "resourceVersion": str(store.revision + 1),
        }
        info = resolve("GET", b"/api/v1/namespaces/default/configmaps", b"watch=true", "acme", None)
        kind = Catalogs().require(info)
        who = Principal(name="anna", tenant="acme", authenticator="test")
        request = Request(principal=who, info=info, query=query, headers={}, body=b"", now=time.time())

        async def opened() -> Any:
            throttle.take(who, info, time.monotonic())
            stream = await watching.watch(runtime, request, kind, recheck)
            await anext(stream.chunks)
            return stream

        asked = [asyncio.ensure_future(opened()) for _ in range(ASKED)]
        await asyncio.sleep(0.1)
        await store.commit(Create(Key("root:acme", "", "notes", "", "a"), {"metadata": {}}))
        found = await asyncio.gather(*asked, return_exceptions=True)
        assert [type(each) for each in found if isinstance(each, Exception)] == [RateLimited] * (ASKED - MOST)
        for stream in found:
            if not isinstance(stream, BaseException):
                await stream.chunks.aclose()
        assert len(streams) == 0
