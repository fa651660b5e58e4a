"""How long a tenant waits beside another that floods: p99 over real HTTP, at most twice that of a quiet server (AD6, DOS-03).

- Expensive bodies: the other tenant sends a generated corpus, one body after the other, as long as the measurement goes on;
  nothing limits either of them.
- Plain requests: it reads over many connections, each as fast as it is answered, under limits that the victim stays below.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from http.client import HTTPException, HTTPSConnection
from multiprocessing.synchronize import Event
from pathlib import Path
from statistics import quantiles
from typing import Final

import bench.measuring.apps  # noqa: F401 - comes first

# isort: split
from bench.apiserver import tenanted
from tests.gateway.callers import Caller, config_map
from tests.gateway.conftest import start, stop, tenant_named
from tests.gateway.overloading import JSON, NAMESPACED, Expensive, corpus, pod

SAMPLES: Final = 600
VALUES: Final = 20_000
CONNECTIONS: Final = 64
BEGIN_SECONDS: Final = 120
PATIENT: Final = (
    "--tenant-read-qps=1000",
    "--tenant-read-burst=2000",
    "--tenant-write-qps=200",
    "--tenant-write-burst=400",
)
"""More than the victim asks, and less than the flood does.

Its reads are some hundreds a second: what is measured is what others take of the server, not the victim's own limit."""


class Line:
    """One kept connection of a caller."""

    def __init__(self, caller: Caller) -> None:
        self._connection = HTTPSConnection(caller.host, context=caller.context, timeout=60)

    def ask(self, method: str, path: str, body: bytes | None = None, media: str = JSON) -> int:
        """The status of the answer."""
        self._connection.request(method, path, body, {"Content-Type": media} if body is not None else {})
        response = self._connection.getresponse()
        response.read()
        return response.status

    def close(self) -> None:
        """Begin anew with the next request."""
        self._connection.close()


def latencies(victim: Caller, samples: int = SAMPLES) -> list[float]:
    """Seconds of small reads and, one in ten, writes; in order of size."""
    line, found = Line(victim), list[float]()
    body = b'{"data":{"a":"%d"}}'
    while len(found) < samples:
        began = time.perf_counter()
        if len(found) % 10:
            status = line.ask("GET", f"{NAMESPACED}/configmaps/mine")
        else:
            media = "application/merge-patch+json"
            status = line.ask("PATCH", f"{NAMESPACED}/configmaps/mine", body % len(found), media)
        found.append(time.perf_counter() - began)
        if status != 200:
            raise RuntimeError(f"the victim was answered {status}")
    return sorted(found)


def expensive(attacker: Caller, begun: Event) -> None:
    """The corpus, again and again; a process of its own, so that it takes nothing of the one that measures."""
    line, requests = Line(attacker), list(corpus(VALUES))
    while True:
        for asked in requests:
            _send(line, asked)
            begun.set()


def _send(line: Line, asked: Expensive) -> None:
    try:
        status = line.ask(asked.method, asked.path, asked.body, asked.media)
    except HTTPException:
        # More warnings than this client reads.
        line.close()
        return
    if status >= 500:
        raise RuntimeError(f"{asked.name} was answered {status}")


def flood(attacker: Caller, begun: Event) -> None:
    """Plain reads over ``CONNECTIONS``, as fast as they are answered; it has begun once one was refused."""

    def ask() -> None:
        line = Line(attacker)
        while True:
            try:
                status = line.ask("GET", f"{NAMESPACED}/pods")
            except (HTTPException, OSError):
                line.close()
                continue
            if status == 429:
                begun.set()

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def beside(victim: Caller, attack: Callable[[Event], None]) -> list[float]:
    """``latencies`` while the attack is under way."""
    context = multiprocessing.get_context("fork")
    begun = context.Event()
    process = context.Process(target=attack, args=(begun,), daemon=True)
    process.start()
    try:
        if not begun.wait(BEGIN_SECONDS):
            raise RuntimeError("the attack did not begin")
        found = latencies(victim)
        if not process.is_alive():
            raise RuntimeError("the attack ended")
        return found
    finally:
        process.kill()
        process.join()


def figures(found: list[float]) -> tuple[float, float]:
    """p50 and p99 in milliseconds."""
    cuts = quantiles(found, n=100)
    return cuts[49] * 1000, cuts[98] * 1000


def compare(folder: Path, database: str, *flags: str, attack: Callable[[Caller, Event], None], name: str) -> None:
    """A server with these flags and two tenants: what one waits alone, beside the other's attack, and the ratio of both."""
    server = start(folder, database, *flags)
    mine, theirs = (f"{each}-{folder.name}" for each in ("globex", "acme"))
    try:
        for tenant in (mine, theirs):
            tenant_named(server, tenant)
        victim = server.user(mine, "gina", "tenantry:owner")
        attacker = server.user(theirs, "alice", "tenantry:owner")
        victim.post(f"{NAMESPACED}/configmaps", config_map("mine"))
        attacker.post(f"{NAMESPACED}/pods", pod("victim"))
        latencies(victim, 200)
        alone = figures(latencies(victim))
        among = figures(beside(victim, partial(attack, attacker)))
        print(f"alone                         p50 {alone[0]:8.2f} ms   p99 {alone[1]:8.2f} ms")
        print(f"{name:<29} p50 {among[0]:8.2f} ms   p99 {among[1]:8.2f} ms")
        print(f"p99 beside / alone            {among[1] / alone[1]:8.2f}   (must 2)")
        holds = [line for line in server.admin.get("/metrics").raw.decode().splitlines() if "event_loop" in line]
        print("\n".join(holds))
    finally:
        stop(server)


def main() -> None:
    """Both attacks, each on a server of its own."""
    unlimited = [f"--tenant-{kind}-{bound}=0" for kind in ("read", "write") for bound in ("qps", "burst")]
    with tenanted() as (product, _), tempfile.TemporaryDirectory() as folder:
        for number, (flags, attack, name) in enumerate(
            ((unlimited, expensive, "beside expensive bodies"), (PATIENT, flood, "beside a flood of reads"))
        ):
            compare(Path(folder, f"{number}"), product.database, *flags, attack=attack, name=name)


if __name__ == "__main__":
    main()
