"""The doctor of a whole installation: everything is well as it comes, and a worker that hangs is missed (GW12)."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

from tests.story.product import Product, eventually


def states(product: Product) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in json.loads(product.manage("doctor", "--output", "json", check=False))["findings"]:
        found.setdefault(each["name"], set()).add(each["state"])
    return found


def test_a_first_start_is_well_and_a_worker_that_hangs_is_missed(product: Product) -> None:
    def well() -> bool:
        return set().union(*states(product).values()) == {"ok"}

    eventually(well, every=1)
    text = product.manage("doctor")
    assert "ok  workers: 1 answer" in text
    log = str(product.folder / "log" / "worker.log")
    (worker,) = (
        pid
        for pid in product.processes()
        if any(str(each.readlink()) == log for each in Path(f"/proc/{pid}/fd").iterdir())
    )

    os.kill(worker, signal.SIGSTOP)
    try:
        assert states(product)["workers"] == {"failed"}
    finally:
        os.kill(worker, signal.SIGCONT)
    eventually(well, every=1)
