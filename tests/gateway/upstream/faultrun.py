"""Many requests through the door to a cluster that fails in every way, chosen by a seed; and what must hold all the same."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import random
import socket
import ssl
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import trustme

from gateway.http.requestresponse import RequestResponseCycle
from gateway.process.streams import OpenStream
from gateway.upstream.client import Answer, Cluster, Limits, Upstream
from gateway.upstream.connection import MAX_HEAD_BYTES, MAX_SILENT_BYTES, Connection
from gateway.upstream.exchange import Exchange
from tests.gateway.upstream.door import Client, client_of, door_to

PODS = "/api/v1/namespaces/acme-web/pods"
CLIENTS = 16
LIMITS = Limits(connect_seconds=0.5, answer_seconds=0.5, rest_seconds=0, idle_seconds=0.5)
"""Short, so that a run is; nothing is decided by how long they are."""

TLS_FAULTS = ("no handshake", "stalled handshake", "nonsense for a handshake")
FAULTS = (
    "cut",
    "stall",
    "cut head",
    "stalled head",
    "cut body",
    "stalled body",
    "cut chunks",
    "nonsense",
    "closed",
    "half-close",
    "half-close in the body",
    "short length",
    "long length",
    "redirect",
    "endless header",
    "endless headers",
    "interim flood",
    "answer before the body",
    "answer before the body, and a cut",
    "another protocol",
    "two answers",
)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"


class FaultyCluster:
    """Half of its requests are answered well: with the name that they carry in their path, which nobody else's answer has."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._ca = trustme.CA()
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._ca.issue_cert("127.0.0.1").configure_cert(self._context)
        self.heard: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self) -> Cluster:
        self._server = await asyncio.start_server(self._begin, "127.0.0.1", 0)
        url = f"https://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return Cluster(uid="c1", name="prod", url=url, ca_pem=self._ca.cert_pem.bytes().decode())

    async def close(self) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._connection(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            if self._random.random() < 0.1:
                fault = self._random.choice(TLS_FAULTS)
                self.faults[fault] += 1
                if fault == "nonsense for a handshake":
                    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                if fault == "stalled handshake":
                    await reader.read(1)
                    await asyncio.Event().wait()
                return
            await writer.start_tls(self._context)
            while await self._exchange(reader, writer):
                pass
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass
        finally:
            with contextlib.suppress(OSError):
                writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Answer one request, well or not; whether the connection goes on."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        method, target, _ = head.split("\r\n")[0].split(" ")
        name = target.rpartition("/")[2]
        self.heard[f"{method} {name}"] += 1
        size = next((int(line[16:]) for line in head.split("\r\n") if line.startswith("content-length: ")), 0)
        fault = self._random.choice(FAULTS) if self._random.random() < 0.5 else ""
        self.faults[fault] += 1
        if not fault.startswith("answer before"):
            await reader.readexactly(size)
        said = name.encode() * 50
        good = HEAD % len(said) + said
        writer.write(
            {
                "": good,
                "cut head": good[:20],
                "stalled head": good[:20],
                "cut body": good[:-10],
                "stalled body": good[:-10],
                "cut chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbegi",
                "nonsense": self._random.randbytes(200),
                "short length": HEAD % (len(said) - 10) + said,
                "long length": HEAD % (len(said) + 10) + said,
                "redirect": b"HTTP/1.1 307 X\r\nLocation: https://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
                "endless header": b"HTTP/1.1 200 OK\r\nX: " + b"x" * (2 * MAX_SILENT_BYTES),
                "endless headers": b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * MAX_HEAD_BYTES,
                "interim flood": b"HTTP/1.1 102 Processing\r\n\r\n" * 1000,
                "answer before the body": good,
                "answer before the body, and a cut": good,
                "another protocol": b"HTTP/1.1 101 X\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n",
                "half-close in the body": good[:-10],
                "two answers": good + good,
            }.get(fault, b"")
        )
        if fault.startswith("half-close"):
            # Not one of TLS: it says no more and goes on to listen.
            await writer.drain()
            writer.get_extra_info("socket").shutdown(socket.SHUT_WR)
        if fault in ("stall", "stalled head", "stalled body", "long length", "endless header") or "half" in fault:
            await reader.read()
        await writer.drain()
        if fault == "closed":
            writer.close()
            await writer.wait_closed()
        return fault in ("", "short length", "two answers", "answer before the body", "another protocol")


@dataclass
class Report:
    """What clients heard, by kind, and what was wrong with it."""

    answers: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    heard: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    left: tuple[int, int, int] = (0, 0, 0)
    """Streams, connections to the cluster, and tasks that remain."""
    kept: Counter[str] = field(default_factory=Counter)
    """Objects of the way through the door that are still in memory, by their class."""

    @property
    def repeated(self) -> list[str]:
        """Requests that the cluster heard more often than is safe."""
        return [request for request, times in self.heard.items() if times > (2 if request.startswith("GET ") else 1)]


async def run(seed: int, requests: int, patience: float) -> Report:
    """Send ``requests`` through a door of their own; ``patience`` is how many seconds a client waits for one at most."""
    report, choice = Report(), random.Random(seed)
    tasks, kept = len(asyncio.all_tasks()), Counter(_kept())
    cluster = FaultyCluster(seed)
    upstream = Upstream(await cluster.open(), LIMITS)
    plan = [(number, choice.choice(("GET", "GET", "POST", "PUT", "DELETE"))) for number in range(requests)]

    async with door_to(upstream) as door:

        async def client() -> None:
            connection = await client_of(door)
            while plan:
                number, method = plan.pop()
                try:
                    async with asyncio.timeout(patience):
                        if not await _ask(connection, report, method, f"r{number:06}"):
                            connection = await client_of(door)
                except TimeoutError:
                    report.wrong.append(f"{method} r{number:06} hangs")
                    connection = await client_of(door)
            connection.close()

        await asyncio.gather(*[client() for _ in range(CLIENTS)])
        async with asyncio.timeout(patience):
            while upstream.connections or len(door.streams):
                await asyncio.sleep(0.05)
        streams = len(door.streams)
    await upstream.close()
    await cluster.close()
    async with asyncio.timeout(patience):
        while len(asyncio.all_tasks()) > tasks:
            await asyncio.sleep(0.05)
    report.heard, report.faults = cluster.heard, cluster.faults
    report.left = streams, upstream.connections, len(asyncio.all_tasks()) - tasks
    report.kept = Counter(_kept()) - kept
    return report


def _kept() -> Iterator[str]:
    """Whatever each request makes, by its class. What an exception still refers to goes with it."""
    gc.collect()
    for thing in gc.get_objects():
        if type(thing) in (Connection, Exchange, Answer, OpenStream, RequestResponseCycle):
            yield type(thing).__name__


async def _ask(client: Client, report: Report, method: str, name: str) -> bool:
    """One request; whether the connection goes on."""
    body = b"" if method in ("GET", "DELETE") else b"x" * 200_000
    client.ask(f"{PODS}/{name}", f"Content-Length: {len(body)}", method=method)
    try:
        client.writer.write(body)
        line, headers = await client.head()
        if b"content-length" in headers:
            said = await client.reader.readexactly(int(headers[b"content-length"]))
        else:
            said = b""
            while piece := await client.chunk():
                said += piece
    except (asyncio.IncompleteReadError, OSError):
        report.answers["closed"] += 1
        client.close()
        return False
    status = line.split(b" ")[1].decode()
    report.answers[status] += 1
    # A cluster that lies about a length has said less: what it has said is passed on, and never another's.
    if status == "200" and not (name.encode() * 51).startswith(said):
        report.wrong.append(f"{method} {name} was answered with {said[:40]!r}")
    if headers.get(b"connection") == b"close":
        client.close()
        return False
    return True
