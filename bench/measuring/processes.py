"""What a process has cost so far, as Linux counts it."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path


def processor_seconds(pid: int | None) -> float:
    """Its time on processors, all its threads', to the nanosecond: its clock by POSIX' ``clock_getcpuclockid``."""
    assert pid is not None
    return time.clock_gettime(~pid << 3 | 2)


def children(pid: int) -> list[int]:
    """The processes that it has started, and that are still there."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if int(path.read_text().rpartition(")")[2].split()[1]) == pid:
                found.append(int(path.parent.name))
    return found


def resident(pid: int) -> float:
    """Its memory, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS:"))


def anonymous(pid: int) -> float:
    """Its memory that is nobody else's and no file's, in MiB."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon:"))


def descriptors(pid: int) -> int:
    """How many files, sockets and pipes it has open."""
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def called(pid: int) -> str:
    """What it calls itself."""
    return Path(f"/proc/{pid}/comm").read_text().strip()
