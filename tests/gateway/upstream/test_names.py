"""Names of clusters that do not resolve, or to somewhere else than before: they hold up no other (D8)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from gateway.upstream.client import Upstream
from kube.requests.status import ServiceUnavailable
from tests.gateway.upstream.asking import PATIENT, ask, upstream_of
from tests.gateway.upstream.rawcluster import answering, ok

AT_ONCE = replace(PATIENT, rest_seconds=0)
"""Whoever comes tries again."""


class Names:
    """What looks up names: each has an address or several, or an error, or hangs."""

    def __init__(self) -> None:
        self.known: dict[str, Any] = {}
        self.asked: Counter[str] = Counter()
        self.places: set[tuple[str, str]] = set()
        self.go = threading.Event()
        self._real = socket.getaddrinfo

    def getaddrinfo(self, host: Any, port: Any, *given: Any, **named: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        self.asked[name] += 1
        self.places.add((name, str(port)))
        found = self.known.get(name, name)
        if found is None:
            self.go.wait()
            raise socket.gaierror(socket.EAI_AGAIN, "no name server answers")
        if isinstance(found, Exception):
            raise found
        each = found if isinstance(found, list) else [found]
        return [answer for address in each for answer in self._real(address, port, *given, **named)]


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[Names]:
    names = Names()
    monkeypatch.setattr(socket, "getaddrinfo", names.getaddrinfo)
    yield names
    names.go.set()


def by_name(upstream: Upstream, name: str, limits: Any = PATIENT) -> Upstream:
    """The way to the same cluster by a name, whoever its certificate is of."""
    port = urlsplit(upstream.cluster.url).port
    cluster = replace(upstream.cluster, url=f"https://{name}:{port}", tls_server_name="127.0.0.1")
    return Upstream(cluster, limits)


async def test_a_name_that_hangs_keeps_no_other_from_being_looked_up(names: Names) -> None:
    """However many come for it: it is asked for once, and what has begun is waited for by whoever comes next."""
    names.known |= {"evil.test": None, "good.test": "127.0.0.1"}
    async with upstream_of(answering(ok())) as (_, upstream):
        evil = by_name(upstream, "evil.test", replace(AT_ONCE, connect_seconds=0.05))
        for _ in range(3):
            refused = await asyncio.gather(*(ask(evil) for _ in range(20)), return_exceptions=True)
            assert {type(each) for each in refused} == {ServiceUnavailable}
        good = by_name(upstream, "good.test")
        assert (await ask(good)).status == 200
        assert names.asked["evil.test"] == 1
        await good.close()


async def test_whoever_resolves_no_more_is_where_it_was(names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.upstream.addresses.FRESH_SECONDS", 0.0)
    names.known["good.test"] = "127.0.0.1"
    async with upstream_of(answering(ok())) as (_, upstream):
        good = by_name(upstream, "good.test", replace(PATIENT, idle_connections=0))
        for known in ("127.0.0.1", socket.gaierror(socket.EAI_NONAME, "no such name"), None):
            names.known["good.test"] = known
            assert (await ask(good)).status == 200
        await good.close()


async def test_whoever_is_elsewhere_is_found_there(names: Names) -> None:
    """Of several addresses the first that takes a connection; where none does they are looked up anew."""
    names.known["good.test"] = "127.0.0.2"
    async with upstream_of(answering(ok())) as (_, upstream):
        good = by_name(upstream, "good.test", AT_ONCE)
        with pytest.raises(ServiceUnavailable):
            await ask(good)
        names.known["good.test"] = "127.0.0.1"
        while True:
            try:
                assert (await ask(good)).status == 200
                break
            except ServiceUnavailable:
                continue
        await good.close()


async def _says_nothing(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await asyncio.Event().wait()


async def _hangs_up(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def _speaks_no_tls(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 503 Service Unavailable\r\n\r\n")
    await writer.drain()


@pytest.mark.parametrize("visited", [_says_nothing, _hangs_up, _speaks_no_tls])
async def test_one_address_where_nobody_answers_keeps_nobody_from_the_others(names: Names, visited: Any) -> None:
    """D8: a host that is frozen, or being replaced, is one of three. Who comes next begins with the others."""
    visits: list[asyncio.StreamWriter] = []

    async def visit(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visits.append(writer)
        await visited(reader, writer)

    names.known["good.test"] = ["127.0.0.2", "127.0.0.3", "127.0.0.1"]
    async with upstream_of(answering(ok())) as (_, upstream):
        port = urlsplit(upstream.cluster.url).port
        servers = [await asyncio.start_server(visit, host, port) for host in ("127.0.0.2", "127.0.0.3")]
        good = by_name(upstream, "good.test", replace(AT_ONCE, connect_seconds=3, idle_connections=0))
        answered = 0
        for _ in range(20):
            with contextlib.suppress(ServiceUnavailable):
                answered += (await ask(good)).status == 200
        await good.close()
        for writer in visits:
            writer.transport.abort()
        for server in servers:
            server.close()
    assert answered, "nobody was found at the one address where somebody is"
    assert len(visits) <= 20, "who was silent is asked first again and again"


async def test_who_is_named_by_an_address_is_not_looked_up(names: Names) -> None:
    async with upstream_of(answering(ok())) as (_, upstream):
        where = urlsplit(upstream.cluster.url)
        names.places.clear()
        assert (await ask(upstream)).status == 200
        # Whatever else this process looks up meanwhile.
        assert (where.hostname, str(where.port)) not in names.places
