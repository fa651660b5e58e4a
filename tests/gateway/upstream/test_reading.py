"""What the product reads of clusters for itself: whole, with one credential, and never without end (GW4, GW12)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime, timedelta
from types import FrameType, SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from access.credentials.tokenrequests import ClusterToken
from gateway.http.lanes import STEPS
from gateway.http.messages import LARGE
from gateway.upstream import answers, reading
from gateway.upstream.client import BadGateway
from gateway.upstream.placed.hosts import IngressReader
from gateway.upstream.placed.quota import PlacedUsageController
from gateway.upstream.placed.rights import PlacedRights
from gateway.upstream.placements import Placement
from gateway.upstream.tokens import WorkspaceTokens
from kube.authorization.leastrole import ROLES, WorkspaceRoles
from kube.authorization.rbac import Rule
from kube.quota.quantities import Quantity
from kube.quota.tenantquotas import TenantQuota
from kube.requests.status import ServiceUnavailable
from tests.effort import effort
from tests.gateway.loopturns import Decodings, LoopTurns
from tests.gateway.upstream.asking import upstream_of
from tests.gateway.upstream.rawcluster import Visit, ok

WEB = Placement("4f0e", "prod", "root:acme", "acme-web", "Active")
PATH = "/apis/rbac.authorization.k8s.io/v1/rolebindings"


def binding(number: int) -> dict[str, Any]:
    return {"metadata": {"name": f"b{number}", "namespace": "acme-web", "resourceVersion": "7"}}


def event_of(type_: str) -> bytes:
    return json.dumps({"type": type_, "object": binding(0)}).encode() + b"\n"


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


async def test_a_page_is_no_longer_than_it_is_asked_for() -> None:
    """What is nearly nothing costs a cluster nothing, and whoever looks at each as much as any other."""

    async def behave(visit: Visit) -> None:
        await visit.request()
        body = {"metadata": {"resourceVersion": "9"}, "items": [binding(number) for number in range(501)]}
        await visit.say(ok(json.dumps(body).encode()))

    with pytest.raises(BadGateway, match="501 objects where 500 are asked for"):
        await read(behave, lambda clusters: reading.read_list(clusters, "prod", PATH))


async def test_a_long_answer_is_taken_apart_beside_the_loop() -> None:
    async def behave(visit: Visit) -> None:
        await visit.request()
        body = {"metadata": {"resourceVersion": "9"}, "items": [binding(number) for number in range(500)]}
        body["items"][0]["data"] = "x" * LARGE
        await visit.say(ok(json.dumps(body).encode()))

    decodings = Decodings()
    with decodings.counting():
        items, _ = await read(behave, lambda clusters: reading.read_list(clusters, "prod", PATH))
    assert (len(items), decodings.most) == (500, 0)


class Looks(LoopTurns):
    """Counts the objects that are looked at in one turn."""

    total = 0

    def _count(self, frame: FrameType, event: str, called: object) -> None:
        super()._count(frame, event, called)
        if event == "call" and frame.f_code.co_name in ("binding_from", "role_from", "counted", "hosts_of"):
            self._steps += 1
            self.total += 1

    def _counts(self, event: str, called: object) -> bool:
        return False


async def pages(visit: Visit) -> None:
    """Four full pages of whatever is asked for."""
    while True:
        line, _, _ = await visit.request()
        query = parse_qs(urlsplit(line.split()[1].decode()).query)
        first = int(query.get("continue", ["0"])[0])
        more = {"continue": str(first + 500)} if first < 1500 else {}
        items = [{**binding(first + number), "roleRef": {"kind": "Role", "name": "r"}} for number in range(500)]
        await visit.say(ok(json.dumps({"metadata": {"resourceVersion": "9", **more}, "items": items}).encode()))


async def bindings(clusters: Any) -> None:
    async def enough(_: object) -> None:
        raise ServiceUnavailable("what follows is not asked")

    with pytest.raises(ServiceUnavailable, match="not asked"):
        await PlacedRights(SimpleNamespace(list=enough), clusters, "")._once("prod")  # type: ignore[arg-type]


async def usages(clusters: Any) -> None:
    quota = TenantQuota(tenant="acme", hard={"pods": Quantity(0)})
    controller = PlacedUsageController(None, None, clusters, clusters.tokens, "")  # type: ignore[arg-type]
    assert len(await controller._found(WEB, quota)) == 2000


async def host_names(clusters: Any) -> None:
    async def placed(_: str) -> list[Placement]:
        return [WEB]

    placements = SimpleNamespace(all_in_space=placed)
    assert await IngressReader(placements, clusters, clusters.tokens)._found("root:acme") == {""}  # type: ignore[arg-type]


@pytest.mark.parametrize("look", [bindings, usages, host_names])
async def test_others_have_their_turns_however_many_objects_are_looked_at(
    look: Callable[[Any], Awaitable[None]],
) -> None:
    tokens = WorkspaceTokens(lambda *_: ClusterToken("t", None, datetime.now(UTC) + timedelta(hours=1)))
    rules = dict.fromkeys(ROLES, (Rule(("*",), groups=("*",), resources=("*",)),))

    async def roles(_: str) -> WorkspaceRoles:
        return WorkspaceRoles.of(rules, {f"tenantry-{role}": role for role in ROLES})

    looks = Looks()

    async def ask(clusters: Any) -> None:
        clusters.roles, clusters.tokens = roles, tokens
        with looks.counting():
            await look(clusters)

    await read(pages, ask)
    assert looks.total >= 2000
    assert looks.most <= STEPS


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


@pytest.mark.parametrize(
    "said", [b"", event_of("BOOKMARK"), event_of("ADDED")], ids=["nothing", "a bookmark", "an event"]
)
async def test_a_watch_that_its_cluster_does_not_end_ends_all_the_same(
    said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GW19: one that is frozen holds its connections, and a right that was taken there would stand here for as long."""
    monkeypatch.setattr(reading, "WATCH_SECONDS", 0)
    monkeypatch.setattr(reading, "_LATE_SECONDS", 0.5)

    async def behave(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while said:
            await visit.say(b"%x\r\n%b\r\n" % (len(said), said))
            await asyncio.sleep(0.05)
        await asyncio.Event().wait()

    async def ask(clusters: Any) -> None:
        async for _ in reading.read_events(clusters, "prod", PATH, "9"):
            pass

    with pytest.raises(ServiceUnavailable, match="does not end"):
        await read(behave, ask)


async def pieces_of(text: bytes, sizes: list[int]) -> AsyncIterator[bytes]:
    for size in sizes:
        piece, text = text[:size], text[size:]
        yield piece
    yield text


class Said:
    """What says something, to whoever may take all of it apart at once."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self.chunks = chunks

    async def work(self, size: int) -> None:
        pass


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
