"""The way to a cluster and back: latency, throughput, a log's bytes, idle streams, streams that end; and 2,000 faults.

``python -m bench.door``

The wire alone, without the stages before it: a small API server in a process of its own, the door in another, and the
client here. Direct and through the door are measured in turns, so that a ratio is one of the same minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import resource
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

import django

django.setup()

import httptools  # noqa: E402
import trustme  # noqa: E402
import uvloop  # noqa: E402

from gateway.upstream.client import Cluster, Upstream  # noqa: E402
from tests.gateway.upstream.door import door_to  # noqa: E402
from tests.gateway.upstream.faultrun import run as fault_run  # noqa: E402
from tests.gateway.upstream.rawcluster import Visit, ok, raw_cluster  # noqa: E402

GETS: Final = 3000
TURNS: Final = 3
CONNECTIONS: Final = 32
LOG_BYTES: Final = 256 * 1024 * 1024
PIECE: Final = b"x" * 32 * 1024
STREAMS: Final = 1000
FAULTS: Final = 2000
POD: Final = b'{"kind":"Pod","metadata":{"name":"web"},"spec":{"a":"%b"}}' % (b"x" * 3000)
PODS: Final = "/api/v1/namespaces/acme-web/pods"
SWITCH: Final = b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n"


async def behave(visit: Visit) -> None:
    """An API server with one pod, its log, and a shell that says nothing."""
    while True:
        line, _, _ = await visit.request()
        if b"/exec" in line:
            await visit.say(SWITCH)
            await visit.reader.read()
            return
        if b"/log" in line:
            await visit.say(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
            chunk = b"%x\r\n%b\r\n" % (len(PIECE), PIECE)
            for _ in range(LOG_BYTES // len(PIECE)):
                await visit.say(chunk)
            await visit.say(b"0\r\n\r\n")
            continue
        await visit.say(ok(POD, b"Content-Type: application/json"))


class _Answers:
    """Counts what comes on one connection."""

    def __init__(self) -> None:
        self.parser = httptools.HttpResponseParser(self)
        self.complete, self.size = False, 0

    def on_body(self, body: bytes) -> None:
        self.size += len(body)

    def on_message_complete(self) -> None:
        self.complete = True


async def _connect(url: str, ca: Path) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    host, port = url.removeprefix("https://").split(":")
    context = ssl.create_default_context(cafile=str(ca))
    return await asyncio.open_connection(host, int(port), ssl=context)


async def _gets(url: str, ca: Path, count: int) -> list[float]:
    """Seconds that each GET took, one after the other on one connection."""
    reader, writer = await _connect(url, ca)
    found = []
    for _ in range(count):
        answers = _Answers()
        begun = time.perf_counter()
        writer.write(f"GET {PODS}/web HTTP/1.1\r\nhost: x\r\n\r\n".encode())
        while not answers.complete:
            answers.parser.feed_data(await reader.read(262144))
        found.append(time.perf_counter() - begun)
    writer.close()
    return found


async def _log(url: str, ca: Path) -> float:
    """Bytes a second of a log."""
    reader, writer = await _connect(url, ca)
    answers = _Answers()
    begun = time.perf_counter()
    writer.write(f"GET {PODS}/web/log?follow=true HTTP/1.1\r\nhost: x\r\n\r\n".encode())
    while not answers.complete:
        answers.parser.feed_data(await reader.read(262144))
    writer.close()
    return answers.size / (time.perf_counter() - begun)


async def _throughput(url: str, ca: Path) -> float:
    begun = time.perf_counter()
    await asyncio.gather(*[_gets(url, ca, GETS // CONNECTIONS) for _ in range(CONNECTIONS)])
    return GETS / (time.perf_counter() - begun)


async def _serve_cluster(folder: Path) -> None:
    async with raw_cluster(behave) as cluster:
        (folder / "ca.pem").write_bytes(cluster.ca.cert_pem.bytes())
        print(cluster.url, flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def _memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


async def _serve_door(url: str, folder: Path) -> None:
    """Say where it is; then, at each line, how much memory there is, or how long it takes to end every stream."""
    upstream = Upstream(Cluster(uid="c", name="c", url=url, ca_pem=(folder / "ca.pem").read_text()))
    loop = asyncio.get_running_loop()
    tls, authority = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), trustme.CA()
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with (folder / "ca.pem").open("ab") as trusted:
        trusted.write(authority.cert_pem.bytes())
    async with door_to(upstream, tls=tls) as door:
        print(f"https://127.0.0.1:{door.address[1]}", flush=True)
        while line := (await loop.run_in_executor(None, sys.stdin.readline)).strip():
            if line == "memory":
                print(_memory(), flush=True)
            else:
                begun = time.perf_counter()
                door.suspend()
                while len(door.streams):
                    await asyncio.sleep(0.01)
                print(time.perf_counter() - begun, flush=True)
    await upstream.close()


def _process(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.door", *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def _say(process: subprocess.Popen[str], word: str) -> float:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{word}\n")
    process.stdin.flush()
    return float(process.stdout.readline())


async def _streams(door: subprocess.Popen[str], url: str, ca: Path) -> tuple[float, float]:
    """Bytes of memory that an idle stream takes at the door, and seconds until the last of all has ended."""
    before = _say(door, "memory")
    clients = []
    for _ in range(STREAMS):
        reader, writer = await _connect(url, ca)
        lines = (f"POST {PODS}/web/exec?command=sh HTTP/1.1", "host: x", "connection: upgrade", "upgrade: SPDY/3.1")
        writer.write(("\r\n".join([*lines, "", ""])).encode())
        await reader.readuntil(b"\r\n\r\n")
        clients.append((reader, writer))
    taken = (_say(door, "memory") - before) / STREAMS
    ended = _say(door, "end")
    for reader, writer in clients:
        await reader.read()
        writer.close()
    return taken, ended


async def _measure(folder: Path) -> None:
    ca = folder / "ca.pem"
    cluster, direct = _process("cluster", str(folder))
    door, through = _process("door", direct, str(folder))
    try:
        for url in (direct, through):
            await _gets(url, ca, 300)
        straight: list[float] = []
        passed: list[float] = []
        rates: dict[str, list[float]] = {direct: [], through: []}
        logs: dict[str, list[float]] = {direct: [], through: []}
        for _ in range(TURNS):
            straight += await _gets(direct, ca, GETS // TURNS)
            passed += await _gets(through, ca, GETS // TURNS)
            for url in (direct, through):
                rates[url].append(await _throughput(url, ca))
                logs[url].append(await _log(url, ca))
        for name, index in (("p50", 49), ("p99", 98)):
            one, other = (statistics.quantiles(each, n=100)[index] * 1e6 for each in (straight, passed))
            print(f"GET {name}: direct {one:.0f} µs, through the door {other:.0f} µs, added {other - one:.0f} µs")
        one, other = max(rates[direct]), max(rates[through])
        print(f"GETs, {CONNECTIONS} connections: direct {one:.0f}/s, through {other:.0f}/s: {other / one:.2f}x")
        one, other = max(logs[direct]) / 1e6, max(logs[through]) / 1e6
        print(f"log: direct {one:.0f} MB/s, through {other:.0f} MB/s: {other / one:.2f}x")
        taken, ended = await _streams(door, through, ca)
        print(f"idle stream: {taken / 1024:.0f} KiB; {STREAMS} streams ended in {ended:.2f} s")
    finally:
        for process in (door, cluster):
            process.terminate()
            process.wait()
    report = await fault_run(1, FAULTS, 60)
    print(f"{FAULTS} requests, {sum(report.faults.values()) - report.faults['']} faults: {dict(report.answers)}")
    print(f"wrong: {report.wrong}, repeated: {report.repeated}, left: {report.left}")
    if report.wrong or report.repeated or any(report.left):
        sys.exit("a promise does not hold under faults")


def main() -> None:
    """Measure, or be one of the processes that are measured."""
    logging.disable()
    uvloop.install()
    with contextlib.suppress(KeyboardInterrupt):
        if sys.argv[1:2] == ["cluster"]:
            asyncio.run(_serve_cluster(Path(sys.argv[2])))
        elif sys.argv[1:2] == ["door"]:
            asyncio.run(_serve_door(sys.argv[2], Path(sys.argv[3])))
        else:
            with tempfile.TemporaryDirectory() as name:
                asyncio.run(_measure(Path(name)))


if __name__ == "__main__":
    main()
