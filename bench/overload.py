"""How long a tenant waits beside another whose bodies are expensive: p99 over real HTTP, at most twice that of a quiet server.

The other tenant sends a generated corpus, one body after the other, as long as the measurement goes on.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Callable
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


def attack(attacker: Caller, values: int, begun: Event) -> None:
    """The corpus, again and again; a process of its own, so that it takes nothing of the one that measures."""
    line, requests = Line(attacker), list(corpus(values))
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


def beside(victim: Caller, attacker: Callable[[], Caller], values: int = VALUES, samples: int = SAMPLES) -> list[float]:
    """``latencies`` while the corpus is under way."""
    context = multiprocessing.get_context("fork")
    begun = context.Event()
    process = context.Process(target=lambda: attack(attacker(), values, begun), daemon=True)
    process.start()
    try:
        begun.wait()
        found = latencies(victim, samples)
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


def main() -> None:
    """Print both, and their ratio."""
    with tenanted() as (product, _), tempfile.TemporaryDirectory() as folder:
        unlimited = [f"--tenant-{kind}-{bound}=0" for kind in ("read", "write") for bound in ("qps", "burst")]
        server = start(Path(folder, "data"), product.database, *unlimited)
        try:
            for name in ("acme", "globex"):
                tenant_named(server, name)
            victim = server.user("globex", "gina", "tenantry:owner")
            victim.post(f"{NAMESPACED}/configmaps", config_map("mine"))
            server.user("acme", "alice", "tenantry:owner").post(f"{NAMESPACED}/pods", pod("victim"))
            latencies(victim, 200)
            alone = figures(latencies(victim))
            among = figures(beside(victim, lambda: server.user("acme", "alice", "tenantry:owner")))
            print(f"alone                         p50 {alone[0]:8.2f} ms   p99 {alone[1]:8.2f} ms")
            print(f"beside expensive bodies       p50 {among[0]:8.2f} ms   p99 {among[1]:8.2f} ms")
            print(f"p99 beside / alone            {among[1] / alone[1]:8.2f}")
            holds = [line for line in server.admin.get("/metrics").raw.decode().splitlines() if "event_loop" in line]
            print("\n".join(holds))
        finally:
            stop(server)


if __name__ == "__main__":
    main()
