"""A soak finds what grows, and only that: what it measures is what there is."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from bench.measuring.accounts import Accounts
from bench.measuring.steadiness import Series
from tests.databases import OWNER, migrated, url_of
from tests.story.product import KUBECTL, ROOT, eventually

PARENT = """
import subprocess, sys
children = [subprocess.Popen([sys.executable, "-c", text]) for text in sys.argv[1:]]
print(*(child.pid for child in children), flush=True)
sys.stdin.read()
for child in children:
    child.kill()
"""
STEADY = "import time; held = bytearray(8 << 20); time.sleep(3600)"
LEAKING = """
import os, signal, time
held = []
def leak(*_):
    held.append(bytearray(b"x" * (10 << 20)))
    held.extend([os.open("/dev/null", os.O_RDONLY) for _ in range(8)])
signal.signal(signal.SIGUSR1, leak)
held.append(os.open("/dev/null", os.O_RDONLY))
while True:
    time.sleep(3600)
"""
"""Ten MiB and eight descriptors each time that it is told to."""


@pytest.fixture
def family() -> Iterator[tuple[int, int, int]]:
    """A process with a steady child and one that leaks; the ids of all three."""
    command = [sys.executable, "-c", PARENT, STEADY, LEAKING]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        steady, leaking = map(int, parent.stdout.readline().split())
        yield parent.pid, steady, leaking
        parent.communicate()


def series(*values: float, floor: float = 1, judged: bool = True) -> Series:
    return Series("it", "MiB", floor, judged, [(10.0 * number, value) for number, value in enumerate(values)])


@pytest.mark.parametrize(
    ("measured", "verdict"),
    [
        (series(100, 100, 100, 100), "flat"),
        (series(100, 104, 103, 104.9, 105), "flat"),
        (series(*range(100, 140)), "GROWS"),
        (series(100, 100, 100, 100, 500, 100, 100, 100), "flat"),  # a peak that goes
        (series(100, 90, 80, 70), "flat"),
        (series(1, 1.5, 1.8, 1.9), "flat"),  # next to nothing
        (series(0, 0, 0, 5), "GROWS"),
        (series(100, 200), "too few"),
        (series(100, 200, 300, 400, judged=False), "a record"),
    ],
)
def test_what_grows_is_told_from_what_does_not(measured: Series, verdict: str) -> None:
    assert measured.verdict(0.05) == verdict


def test_the_slope_is_that_of_an_hour_and_the_warm_up_does_not_count() -> None:
    assert series(*range(10)).per_hour == pytest.approx(360)
    warm = series(0, 50, 100, 100, 100, 100, 100)
    assert warm.verdict(0.05) == "GROWS"
    assert warm.after(20).verdict(0.05) == "flat"
    assert warm.after(20).points[0] == (20.0, 100)


def test_leaks_made_on_purpose_are_found_and_nothing_else(family: tuple[int, int, int], tmp_path: Path) -> None:
    """Of memory, of descriptors, in a log, in a table, of connections."""
    parent, steady, leaking = family
    with migrated("soak") as database:
        owner = url_of(psycopg.conninfo.conninfo_to_dict(database)["dbname"], OWNER)
        (tmp_path / "quiet.log").write_text("nothing\n")
        accounts, held = Accounts(parent, owner, tmp_path), []
        with psycopg.connect(owner, autocommit=True) as connection:
            connection.execute("CREATE TABLE leak (text text)")
            eventually(lambda: "/dev/null" in _opened(leaking))
            for number in range(8):
                accounts.look(float(number))
                os.kill(leaking, signal.SIGUSR1)
                eventually(lambda number=number: _opened(leaking).count("/dev/null") >= 8 * (number + 1) + 1)
                connection.execute(
                    "INSERT INTO leak SELECT string_agg(md5(i::text), '') FROM generate_series(1, 1e5) AS i"
                )
                connection.execute("ALTER TABLE leak ALTER text SET STORAGE EXTERNAL")
                held += [psycopg.connect(owner) for _ in range(3)]
                with (tmp_path / "loud.log").open("a") as log:
                    log.write("x" * 200_000)
        for each in held:
            each.close()
    assert accounts.parts() == {steady, leaking}
    growing = {key for key, each in accounts.series.items() if each.verdict(0.05) == "GROWS"}
    name = next(name for _, name in accounts.series if name.endswith(str(leaking)))
    leaks = {("memory", name), ("descriptors", name), ("log", "loud"), ("table", "leak"), ("connections", "postgresql")}
    assert growing == leaks
    assert len(accounts.series["descriptors", name].points) == 8


def _opened(pid: int) -> list[str]:
    """What the process has open, but for what it was started with."""
    files = [path for path in Path(f"/proc/{pid}/fd").iterdir() if int(path.name) > 2]
    return [str(path.readlink()) for path in files]


LEAK = """
import os, sys, threading, time

def leak():
    held = []
    while len(held) < 300:
        if open("/proc/self/comm").read().strip() == "portal":
            held.append((bytearray(b"x" * (1 << 20)), os.open("/dev/null", os.O_RDONLY)))
            os.write(2, b"x" * 20_000 + b"\\n")
        time.sleep(0.2)

os.register_at_fork(after_in_child=lambda: threading.Thread(target=leak, daemon=True).start())
"""
"""What makes the portal leak memory, descriptors and lines of its log, with nothing of the product changed."""


@pytest.mark.skipif(KUBECTL is None, reason="kubectl is missing")
@pytest.mark.timeout(900)
def test_half_a_minute_counts_what_is_done_and_finds_the_part_that_leaks(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(LEAK)
    command = [
        sys.executable,
        "-m",
        "bench",
        "soak",
        "--minutes=0.5",
        "--warm-up=0",
        "--every=2",
        "--rate=6",
        "--watches=1",
    ]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    begun = time.monotonic()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    told = done.stdout
    assert done.returncode == 1, told + done.stderr
    assert time.monotonic() - begun >= 30
    verdicts = {(kind, name): word for kind, name, word in re.findall(r"^  (\w+) +(\w+).* (\w+)$", told, re.MULTILINE)}
    for kind, name in (("memory", "portal"), ("descriptors", "portal"), ("log", "portal")):
        assert verdicts[kind, name] == "GROWS", told
    for part in ("apiserver", "worker", "beat", "quickstart", "postgres"):
        assert {("memory", part), ("descriptors", part)} <= verdicts.keys(), told
    assert verdicts["descriptors", "beat"] == "flat"
    counted = {what: int(count) for count, what in re.findall(r"(\d+) ([a-z -]+)", told.partition("  done: ")[2])}
    for what in ("creations", "gets", "lists", "watches", "sign-ins", "kubeconfigs", "workspaces made"):
        assert counted[what] > 0, told
    assert counted["workspaces deleted"] == counted["workspaces made"]
    assert "0 answers were not the right ones, 0 parts have ended" in told
