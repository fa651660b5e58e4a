"""What the product reads of clusters for itself: whole, with one credential, and never without end (GW4, GW12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.credentials.tokenrequests import ClusterToken
from gateway.upstream import answers, reading
from gateway.upstream.client import BadGateway
from gateway.upstream.placements import Placement
from gateway.upstream.tokens import WorkspaceTokens
from tests.effort import effort
from tests.gateway.upstream.asking import upstream_of
from tests.gateway.upstream.rawcluster import Visit, ok

WEB = Placement("4f0e", "prod", "root:acme", "acme-web", "Active")
PATH = "/apis/rbac.authorization.k8s.io/v1/rolebindings"


def binding(number: int) -> dict[str, Any]:
    return {"metadata": {"name": f"b{number}", "namespace": "acme-web", "resourceVersion": "7"}}


async def read(behave: Callable[[Visit], Awaitable[None]], ask: Callable[[Any], Awaitable[Any]]) -> Any:
    """What a reader says of a cluster, where the product's own token is ``gateway``."""
    async with upstream_of(behave) as (_, upstream):
        return await ask(SimpleNamespace(upstream=lambda _: upstream, as_gateway=lambda _: (upstream, "gateway")))


@pytest.mark.parametrize("token", ["gateway", "workspace"])
async def test_every_page_of_a_list_is_asked_with_the_same_credential(token: str) -> None:
    shown: list[bytes] = []

    async def behave(visit: Visit) -> None:
        while True:
            line, headers, _ = await visit.request()
            shown.append(headers[b"authorization"])
            query = parse_qs(urlsplit(line.split()[1].decode()).query)
            first = int(query.get("continue", ["page-0"])[0].removeprefix("page-"))
            more = {"continue": f"page-{first + 500}"} if first < 1000 else {}
            body = {"metadata": {"resourceVersion": "9", **more}, "items": [binding(first + n) for n in range(500)]}
            await visit.say(ok(json.dumps(body).encode()))

    async def ask(clusters: Any) -> list[dict[str, Any]]:
        if token == "gateway":
            found, version = await reading.read_list(clusters, "prod", PATH)
            assert version == "9"
            return found
        tokens = WorkspaceTokens(lambda *_: ClusterToken(token, None, datetime.now(UTC) + timedelta(hours=1)))
        return await reading.read_list_as(clusters, tokens, WEB, "viewer", PATH)

    items = await read(behave, ask)
    assert len({item["metadata"]["name"] for item in items}) == 1500
    assert shown == [f"Bearer {token}".encode()] * 3


async def test_a_watch_brings_no_more_than_a_list_may(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names cost a cluster nothing: whoever keeps what they stand for lists anew."""
    monkeypatch.setattr(answers, "VALUES_MAX", 2000)

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        for number in range(2000):
            event = json.dumps({"type": "ADDED", "object": binding(number)}).encode() + b"\n"
            await visit.say(b"%x\r\n%b\r\n" % (len(event), event))
        await visit.say(b"0\r\n\r\n")

    brought = 0

    async def ask(clusters: Any) -> None:
        nonlocal brought
        async for _ in reading.read_events(clusters, "prod", PATH, "9"):
            brought += 1

    with pytest.raises(BadGateway, match="more than 2000 values"):
        await read(behave, ask)
    assert 0 < brought < 2000


async def pieces_of(text: bytes, sizes: list[int]) -> AsyncIterator[bytes]:
    for size in sizes:
        piece, text = text[:size], text[size:]
        yield piece
    yield text


class Said:
    """What says something, and how many turns were waited for."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self.chunks = chunks
        self.turns = 0

    async def turn(self) -> None:
        self.turns += 1


def lines_of(chunks: AsyncIterator[bytes]) -> list[bytes]:
    async def collect() -> list[bytes]:
        return [line async for line in answers.lines(Said(chunks), "prod")]

    return asyncio.run(collect())


@given(st.lists(st.sampled_from([b"", b"\n", b"{}", b'{"a":1}\n'])), st.lists(st.integers(0, 9)))
def test_lines_are_the_same_in_whatever_pieces_they_come(parts: list[bytes], sizes: list[int]) -> None:
    text = b"".join(parts)
    whole, _, _ = text.rpartition(b"\n")
    assert lines_of(pieces_of(text, sizes)) == [line for line in whole.split(b"\n") if line]


def test_a_line_without_end_is_refused_and_costs_as_much_as_it_is_long() -> None:
    """However small its pieces are: none of them is a reason to copy what came before."""

    async def endless() -> AsyncIterator[bytes]:
        yield b"x" * (answers.LINE_MAX - 20_000)
        while True:
            yield b"x"

    def ask() -> None:
        with pytest.raises(BadGateway, match="without end"):
            lines_of(endless())

    assert effort(ask) < 200
