"""The doctor of a whole installation: everything is well as it comes, and a worker that hangs is missed (GW12)."""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from pathlib import Path

from tests.story.product import Product, eventually


def states(product: Product) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in json.loads(product.manage("doctor", "--output", "json", check=False))["findings"]:
        found.setdefault(each["name"], set()).add(each["state"])
    return found


def writes(pid: int, log: str) -> bool:
    """Whether a process has the file open; what it closes meanwhile is not it, nor is one that ends."""
    with suppress(OSError):
        for each in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                if str(each.readlink()) == log:
                    return True
    return False


def test_a_first_start_is_well_and_a_worker_that_hangs_is_missed(product: Product) -> None:
    def well() -> bool:
        return set().union(*states(product).values()) == {"ok"}

    def said() -> str:
        """Once it ends without an error: its questions have their own short time, and the machine others' work."""
        with suppress(AssertionError):
            return product.manage("doctor")
        return ""

    eventually(well, every=1)
    text = eventually(said, every=1)
    assert "ok  workers: 1 answer" in text
    log = str(product.folder / "log" / "worker.log")
    (worker,) = (pid for pid in product.processes() if writes(pid, log))

    os.kill(worker, signal.SIGSTOP)
    try:
        assert states(product)["workers"] == {"failed"}
    finally:
        os.kill(worker, signal.SIGCONT)
    eventually(well, every=1)
