"""A server is replaced by the next while everybody goes on working: no request fails, and no watch misses an event."""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections import Counter
from http.client import HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.apiserver import running, started
from tests.databases import migrated
from tests.speaking import Speaker
from tests.story.product import eventually

AT = "/api/v1/namespaces/default/configmaps"
CALLERS = 6
WATCHERS = 8
SHARING = "--permit-port-sharing"
DELAYS = (2, 30, 240)
"""Seconds for which a server that stops serves on: longer where the machine was too slow for everybody to ask within."""


class Caller(threading.Thread):
    """Asks over a kept connection, one request after the other, and repeats nothing."""

    def __init__(self, space: Speaker, number: int, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._space, self._number, self._stop_asking = space, number, stop
        self.failures: list[str] = []
        self.made: list[str] = []
        self.asked = 0
        self.parted = 0
        """Answers that were the last of their connection."""

    def run(self) -> None:
        """Write and read until told to stop."""
        connection = connection_of(self._space)
        while not self._stop_asking.is_set():
            name = f"c{self._number}-{self.asked}"
            body = json.dumps({"metadata": {"name": name}})
            for method, path, data, wanted in (
                ("POST", AT, body, 201),
                ("GET", f"{AT}/{name}", None, 200),
                ("GET", f"{AT}?limit=5", None, 200),
            ):
                self.asked += 1
                headers = {"Content-Type": "application/json"} if data else {}
                try:
                    connection.request(method, self._space.prefix + path, data, headers)
                    answer = connection.getresponse()
                    text = answer.read()
                    self.parted += answer.headers["connection"] == "close"
                except (OSError, HTTPException) as error:
                    self.failures.append(f"{method} {path}: {error!r}")
                    connection.close()
                    continue
                if answer.status != wanted:
                    self.failures.append(f"{method} {path}: {answer.status} {text[:200]!r}")
                elif method == "POST":
                    self.made.append(name)
        connection.close()


class Watcher(threading.Thread):
    """Follows the objects as an informer does: a watch that ends is begun again where it was."""

    def __init__(self, space: Speaker, since: str, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self._space, self._since, self._stop_watching = space, since, stop
        self.seen: Counter[str] = Counter()
        self.errors: list[str] = []
        self.ended = 0

    def run(self) -> None:
        """Watch until told to stop."""
        while not self._stop_watching.is_set():
            connection = connection_of(self._space)
            try:
                path = f"{AT}?watch=true&resourceVersion={self._since}"
                connection.request("GET", self._space.prefix + path)
                answer = connection.getresponse()
                while line := answer.readline():
                    self._hear(json.loads(line))
            except (OSError, HTTPException, ValueError) as error:
                self.errors.append(repr(error))
            self.ended += 1

    def _hear(self, event: dict[str, object]) -> None:
        told = event["object"]
        assert isinstance(told, dict)
        if event["type"] == "ERROR":
            self.errors.append(str(told))
            return
        self._since = told["metadata"]["resourceVersion"]
        self.seen[told["metadata"]["name"]] += 1


def connection_of(space: Speaker) -> HTTPSConnection:
    return HTTPSConnection(urlsplit(space.url).netloc, context=space.context, timeout=300)


def listeners(url: str) -> int:
    """How many sockets of this machine listen on the port."""
    port = f"{urlsplit(url).port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return sum(row[1].endswith(f":{port}") and row[3] == "0A" for row in rows)


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="the system does not say who listens")
def test_servers_take_turns_on_one_port_and_nobody_notices() -> None:
    """GW18: rolled twice, from one process to two and back, under requests that are asked once and watches."""
    assert any(map(rolled, DELAYS))


def rolled(delay: int) -> bool:
    """Whether everybody asked whoever stopped once more before it went: else nothing is promised, and nothing shown."""
    flags = (SHARING, f"--shutdown-delay-duration={delay}s")
    stop, enough = threading.Event(), threading.Event()
    with migrated("restarts") as database, running(database, flags=flags) as server:
        space = server.tenant("busy")
        since = space.send("GET", AT).revision
        callers = [Caller(space, number, stop) for number in range(CALLERS)]
        watchers = [Watcher(space, since, enough) for _ in range(WATCHERS)]
        for thread in (*callers, *watchers):
            thread.start()
        try:
            for workers in (2, 1):
                asked = sum(caller.asked for caller in callers)
                assert eventually(lambda asked=asked: sum(each.asked for each in callers) > asked + 50)
                before = server.processes[-1]
                server.processes.append(started(server, workers=workers, flags=flags))
                assert eventually(lambda: listeners(server.url) >= 2)
                parted = [caller.parted for caller in callers]
                going = time.monotonic() + delay
                before.terminate()
                while any(caller.parted == known for caller, known in zip(callers, parted, strict=True)):
                    if time.monotonic() > going:
                        return False
                    time.sleep(0.01)
                if time.monotonic() > going:
                    return False
                assert before.wait(timeout=300) in (0, -signal.SIGTERM)
                assert eventually(lambda: listeners(server.url) == 1)
            asked = sum(caller.asked for caller in callers)
            assert eventually(lambda: sum(each.asked for each in callers) > asked + 50)
            stop.set()
            for caller in callers:
                caller.join(300)
            made = {name for caller in callers for name in caller.made}
            assert [failure for caller in callers for failure in caller.failures] == []
            assert eventually(lambda: all(made <= watcher.seen.keys() for watcher in watchers))
            assert [error for watcher in watchers for error in watcher.errors] == []
            assert all(set(watcher.seen.values()) == {1} for watcher in watchers)
            assert all(watcher.ended >= 1 for watcher in watchers)
        finally:
            stop.set()
            enough.set()
    return True


def test_a_server_that_stops_says_so_first_and_serves_until_then() -> None:
    """Whoever balances the load has the time to look elsewhere: not ready, but alive, and every request is answered."""
    with migrated("leaving") as database, running(database, flags=("--shutdown-delay-duration=10m",)) as server:
        space = server.tenant("leaving")
        probe = space.at("")
        try:
            server.processes[0].terminate()
            assert eventually(lambda: probe.send("GET", "/readyz").status == 503)
            assert "[-]shutdown failed" in probe.send("GET", "/readyz").body
            assert probe.send("GET", "/livez").status == 200
            answer = space.send("POST", AT, {"metadata": {"name": "late"}})
            assert answer.status == 201
            assert answer.headers["connection"] == "close"
            assert server.processes[0].poll() is None
        finally:
            server.processes[0].kill()


def test_a_port_that_is_not_shared_is_refused_with_the_remedy() -> None:
    with migrated("taken") as database, running(database) as server:
        second = started(server, flags=(SHARING,), stderr=subprocess.PIPE)
        _, said = second.communicate(timeout=300)
        assert second.returncode != 0
        assert b"--secure-port" in said
        assert b"--permit-port-sharing" in said
