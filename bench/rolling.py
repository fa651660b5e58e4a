"""Two API servers and two portals, each replaced by the next while everybody goes on working: what fails, what is lost.

``python -m bench.rolling [RATE] [WATCHES]``, 200 requests a second and 200 watches unless told.

Both pairs stand behind a balancer that knows nothing but who is ready, as a Service of a cluster does. Requests come at
their pace whether or not the answers do, nine tenths to the API servers and the rest to the portals; each is asked once,
over kept connections, and nothing is repeated. A watch that ends is begun again where it was, as informers do. At the end
every watch must have seen every object come and go, each once and in the order of their versions. Exits with 1 where that
is not so.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import resource
import ssl
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from bench.apiserver import BASE, MANY, tenanted
from tests.balancer import Balancer, status_of
from tests.ports import free_port
from tests.story.product import ROOT, Product, eventually

RATE = 200
WATCHES = 200
DELAY = "--shutdown-delay-duration=3s"
CONNECTIONS = 100
PATIENCE = 180.0
STEADY_SECONDS = 3.0
"""For how long the load goes on before, between and after the changes."""
_LIMITS = tuple(f"--tenant-{what}=0" for what in ("read-qps", "write-qps", "watch-qps"))
_SPACE = "/clusters/root:bench"
_TLS = ssl._create_unverified_context()


@dataclass(slots=True)
class Counts:
    """What was asked, and how it went."""

    milliseconds: list[float] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    made: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)


@dataclass(slots=True)
class Watch:
    """What one watch has seen."""

    revision: int
    seen: Counter[tuple[str, str]] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    endings: int = 0


class Part:
    """A process of the product that is replaced by its like."""

    def __init__(self, product: Product, *command: str, tls: ssl.SSLContext | None = None) -> None:
        self.port = free_port()
        self._tls = tls
        environment = {**product.environment, "DATABASE_URL": product.database}
        whole = [sys.executable, "manage.py", *(word.format(port=self.port) for word in command), DELAY]
        with (product.folder / "rolling.log").open("ab") as log:
            self.process = subprocess.Popen(whole, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def is_ready(self) -> bool:
        """Whether it says so; raises ``RuntimeError`` when it has ended."""
        if self.process.poll() is not None:
            raise RuntimeError(f"it ended with {self.process.returncode} before it was ready")
        return status_of(self.port, "/readyz", tls=self._tls) == 200

    def end(self) -> None:
        """Let it drain, and wait for its end."""
        self.process.terminate()
        self.process.wait(PATIENCE)


@dataclass(slots=True)
class Pair:
    """Two of a kind behind one address."""

    name: str
    product: Product
    command: tuple[str, ...]
    tls: ssl.SSLContext | None
    parts: list[Part] = field(default_factory=list)
    balancer: Balancer = field(default_factory=lambda: Balancer(()))

    @contextlib.contextmanager
    def served(self) -> Iterator[None]:
        """Two parts behind their balancer, until the block ends."""
        try:
            for _ in range(2):
                self.parts.append(self._started())
            self.balancer = Balancer((part.port for part in self.parts), tls=self.tls)
            with self.balancer.served():
                eventually(lambda: len(self.balancer.ready) == 2, within=PATIENCE)
                yield
        finally:
            for part in self.parts:
                part.process.kill()
                part.process.wait(PATIENCE)

    def _started(self) -> Part:
        part = Part(self.product, *self.command, tls=self.tls)
        eventually(part.is_ready, within=PATIENCE, every=0.2)
        return part

    def roll(self, number: int) -> None:
        """Put a new one beside the old, and end the old once the new is asked as well."""
        old, new = self.parts[number], self._started()
        self.parts[number] = new
        self.balancer.ports.append(new.port)
        eventually(lambda: new.port in self.balancer.ready, within=PATIENCE)
        old.end()
        self.balancer.ports.remove(old.port)


async def _ask(
    session: aiohttp.ClientSession, counts: Counts, method: str, url: str, wanted: int, body: Any = None
) -> bytes | None:
    """Ask once; what was answered when it was what was wanted."""
    begun = time.perf_counter()
    try:
        async with session.request(method, url, json=body) as answer:
            text = await answer.read()
    except (aiohttp.ClientError, TimeoutError) as error:
        counts.failures.append(f"{method} {url}: {error!r}")
        return None
    counts.milliseconds.append((time.perf_counter() - begun) * 1000)
    if answer.status != wanted:
        counts.failures.append(f"{method} {url}: {answer.status} {text[:200]!r}")
        return None
    return text


async def _tell(session: aiohttp.ClientSession, counts: Counts, api: str, portal: str, number: int) -> None:
    """One request of the mixture: of 40 there are a creation, a deletion, four to a portal and eight lists."""
    turn = number % 40
    if turn == 0:
        name = f"r-{number}"
        if await _ask(session, counts, "POST", api + BASE, 201, {"metadata": {"name": name}, "data": {"word": "one"}}):
            counts.made.add(name)
    elif turn == 20 and (left := counts.made - counts.gone):
        name = min(left, key=lambda one: int(one[2:]))
        counts.gone.add(name)
        await _ask(session, counts, "DELETE", f"{api}{BASE}/{name}", 200)
    elif turn % 10 == 1:
        await _ask(session, counts, "GET", f"{portal}/login/", 200)
    elif turn % 5 == 2:
        await _ask(session, counts, "GET", f"{api}{BASE}?limit=20", 200)
    else:
        await _ask(session, counts, "GET", f"{api}{BASE}/kept", 200)


async def _load(
    session: aiohttp.ClientSession, counts: Counts, api: str, portal: str, rate: int, stop: asyncio.Event
) -> None:
    """Send at the pace, whatever the answers do; whoever is late catches up."""
    begun, sent = time.perf_counter(), 0
    async with asyncio.TaskGroup() as group:
        while not stop.is_set():
            while sent < (time.perf_counter() - begun) * rate:
                group.create_task(_tell(session, counts, api, portal, sent))
                sent += 1
            await asyncio.sleep(1 / rate)


async def _follow(session: aiohttp.ClientSession, url: str, watch: Watch) -> None:
    """Watch, for ever."""
    while True:
        try:
            async with session.get(url, params={"watch": "true", "resourceVersion": str(watch.revision)}) as answer:
                if answer.status != 200:
                    watch.errors.append(f"{answer.status}: {(await answer.text())[:200]}")
                async for event in _events(answer):
                    _hear(watch, event)
        except aiohttp.ClientError as error:
            watch.errors.append(repr(error))
        watch.endings += 1
        await asyncio.sleep(0.1)


async def _events(answer: aiohttp.ClientResponse) -> AsyncIterator[dict[str, Any]]:
    async for line in answer.content:
        if answer.status == 200:
            yield json.loads(line)


def _hear(watch: Watch, event: dict[str, Any]) -> None:
    if event["type"] == "ERROR":
        watch.errors.append(json.dumps(event["object"]))
        return
    metadata = event["object"]["metadata"]
    revision = int(metadata["resourceVersion"])
    if revision <= watch.revision:
        watch.errors.append(f"{revision} came after {watch.revision}")
    watch.revision = revision
    watch.seen[event["type"], metadata["name"]] += 1


async def _whole(watches: list[Watch], counts: Counts) -> bool:
    """Whether every watch has seen all that was acknowledged, within a minute."""
    wanted = {("ADDED", name) for name in counts.made} | {("DELETED", name) for name in counts.gone}
    for _ in range(600):
        if all(wanted <= watch.seen.keys() for watch in watches):
            return True
        await asyncio.sleep(0.1)
    return False


async def _run(pairs: tuple[Pair, Pair], token: str, rate: int, number: int) -> bool:
    """Roll all of them under the load; says whether nothing was lost."""
    servers, portals = pairs
    api, portal = (f"https://127.0.0.1:{servers.balancer.port}{_SPACE}", f"http://127.0.0.1:{portals.balancer.port}")
    counts, stop = Counts(), asyncio.Event()
    headers = {"Authorization": f"Bearer {token}"}
    kept = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=_TLS)
    apart = aiohttp.TCPConnector(limit=0, ssl=_TLS, force_close=True)
    async with (
        aiohttp.ClientSession(headers=headers, connector=kept, timeout=aiohttp.ClientTimeout(total=60)) as session,
        aiohttp.ClientSession(headers=headers, connector=apart, timeout=aiohttp.ClientTimeout(total=None)) as streams,
    ):
        # It would ask again where a kept connection ended: what this is to show is that nobody needs to.
        session._retry_connection = False
        await _ask(session, counts, "POST", api + BASE, 201, {"metadata": {"name": "kept"}})
        first = json.loads(await _ask(session, counts, "GET", api + BASE, 200) or b"")["metadata"]["resourceVersion"]
        watches = [Watch(int(first)) for _ in range(number)]
        following = [asyncio.create_task(_follow(streams, api + BASE, watch)) for watch in watches]
        load = asyncio.create_task(_load(session, counts, api, portal, rate, stop))
        begun = time.perf_counter()
        for pair, which in itertools.product(pairs, range(2)):
            await asyncio.sleep(STEADY_SECONDS)
            changed = time.perf_counter()
            await asyncio.to_thread(pair.roll, which)
            print(f"  {pair.name} {which + 1} replaced in {time.perf_counter() - changed:.1f} s", flush=True)
        await asyncio.sleep(STEADY_SECONDS)
        stop.set()
        await load
        seconds = time.perf_counter() - begun
        whole = await _whole(watches, counts)
        for task in following:
            task.cancel()
    return _told(counts, watches, seconds, whole=whole)


def _told(counts: Counts, watches: list[Watch], seconds: float, *, whole: bool) -> bool:
    cuts = statistics.quantiles(counts.milliseconds, n=100, method="inclusive")
    errors = [error for watch in watches for error in watch.errors]
    doubled = sum(times - 1 for watch in watches for times in watch.seen.values())
    asked = len(counts.milliseconds) + len(counts.failures)
    print(f"  {asked:,} requests in {seconds:.0f} s ({asked / seconds:.0f}/s), {len(counts.failures)} failed")
    print(f"  answers: p50 {cuts[49]:.1f} ms   p99 {cuts[98]:.1f} ms   longest {max(counts.milliseconds):.0f} ms")
    events, endings = sum(watch.seen.total() for watch in watches), sum(watch.endings for watch in watches)
    print(f"  {len(watches)} watches: {events:,} events, {endings} endings, {doubled} doubled, {len(errors)} errors")
    print(f"  every acknowledged creation and deletion seen by every watch: {'yes' if whole else 'NO'}")
    for text in [*counts.failures[:10], *errors[:10]]:
        print(f"    {text}")
    return whole and not counts.failures and not errors and not doubled


def main() -> None:
    """Print what was seen."""
    rate = int(sys.argv[1]) if len(sys.argv) > 1 else RATE
    number = int(sys.argv[2]) if len(sys.argv) > 2 else WATCHES
    apiserver = ("apiserver", "--secure-port={port}", f"--tenant-max-watches={MANY}", *_LIMITS)
    with tenanted() as (product, token):
        resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
        servers = Pair("API server", product, apiserver, _TLS)
        portals = Pair("portal", product, ("portal", "--port={port}"), None)
        try:
            with servers.served(), portals.served():
                held = asyncio.run(_run((servers, portals), token, rate, number))
        except (RuntimeError, AssertionError):
            print((Path(product.folder) / "rolling.log").read_text()[-3000:])
            raise
    sys.exit(0 if held else 1)


if __name__ == "__main__":
    main()
