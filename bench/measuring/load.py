"""Load from wrk, a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

_SCRIPT = """
local calls = 0
request = function()
  calls = calls + 1
  return wrk.format(nil, nil, nil, wrk.body and wrk.body:gsub("@N@", calls .. "-RUN"))
end
done = function(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format("RESULT %d %d %f %f %d\\n", summary.requests, summary.duration, latency:percentile(50),
    latency:percentile(99), errors.status + errors.connect + errors.read + errors.timeout))
end
"""

_runs = count()
_CORES = sorted(os.sched_getaffinity(0))


@contextlib.contextmanager
def on_core(number: int) -> Iterator[None]:
    """Start what is started here on one core: 0 for a server with its database, -1 (the last) for whoever asks it.

    So a peer with many threads and a server of one process are measured by what a core does, and the load does not
    compete with either.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {_CORES[number]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def move(pid: int, number: int) -> None:
    """Let a process that was started here run on another core from now on, all its threads."""
    for thread in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(ProcessLookupError):  # it has ended meanwhile
            os.sched_setaffinity(int(thread.name), {_CORES[number]})


def busy(number: int, seconds: float = 5) -> float:
    """The part of its time for which a core has worked, from now on, whoever for."""
    before = _times(_CORES[number])
    time.sleep(seconds)
    spent, idle = (after - first for first, after in zip(before, _times(_CORES[number]), strict=True))
    return 1 - idle / spent


def _times(core: int) -> tuple[int, int]:
    """All ticks of a core, and those in which it had nothing to do or waited for a disk."""
    line = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith(f"cpu{core} "))
    ticks = [int(word) for word in line.split()[1:9]]
    return sum(ticks), ticks[3] + ticks[4]


@dataclass(frozen=True, slots=True)
class Figures:
    """Requests per second, latencies in milliseconds, and how many answers were errors."""

    rate: float
    p50: float
    p99: float
    errors: int

    def __str__(self) -> str:
        text = f"{self.rate:>9,.0f}/s   p50 {self.p50:8.2f} ms   p99 {self.p99:8.2f} ms"
        return text + (f"   {self.errors} ERRORS" if self.errors else "")


def drive(
    url: str,
    *,
    connections: int,
    headers: Mapping[str, str],
    method: str = "GET",
    body: str | None = None,
    seconds: int = 3,
) -> Figures:
    """Requests as fast as the answers come over kept connections; ``@N@`` in the body becomes a new word each time.

    Raises ``RuntimeError`` where wrk is not installed.
    """
    if shutil.which("wrk") is None:
        raise RuntimeError("wrk is not installed (Debian: apt-get install wrk)")
    lines = [f"wrk.method = {_quoted(method)}"]
    lines += [f"wrk.headers[ {_quoted(key)} ] = {_quoted(value)}" for key, value in headers.items()]
    if body is not None:
        lines.append(f"wrk.body = {_quoted(body)}")
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        Path(file.name).write_text("\n".join(lines) + _SCRIPT.replace("RUN", str(next(_runs))))
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "10s", "-s", file.name, url]
        with on_core(-1):
            output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = re.search(r"RESULT (\d+) (\d+) (\S+) (\S+) (\d+)", output)
    if found is None:
        raise RuntimeError(f"wrk said nothing that can be read:\n{output}")
    requests, microseconds, p50, p99, errors = (float(text) for text in found.groups())
    return Figures(requests / microseconds * 1e6, p50 / 1000, p99 / 1000, int(errors))


def _quoted(text: str) -> str:
    return f"[==[{text}]==]"
