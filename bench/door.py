"""``make bench ARGS=door``: the door to a real cluster, with as many streams and requests as it was built for (GW4, GW5).

Against a real kube-apiserver (``KUBEBUILDER_ASSETS``): the stories of the tests, with more. 1,000 mixed streams of a tenant
that is suspended, and 10,000 mixed requests, each of which both audit logs have to know by one ID. The first stream that
stays, or request that only one of them knows, ends it. Then what the door costs (``bench.doorfigures``). And two thousand
faults of a cluster, which take no real one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACED = "tests/gateway/placed"
FAULTS = ("FAULTY_REQUESTS", 2500, "tests/gateway/upstream/test_faults.py")
STORIES = (
    ("SUSPENDED_STREAMS", 1000, f"{PLACED}/test_many_streams.py::test_nothing_stays_open_when_a_tenant_is_suspended"),
    ("AUDITED_REQUESTS", 10_000, f"{PLACED}/test_audit_trail.py::test_every_request_is_in_both_logs_under_one_id"),
)


def main() -> None:
    """Play them; each prints its figures."""
    _play(*FAULTS)
    if "KUBEBUILDER_ASSETS" not in os.environ:
        print("skipped: KUBEBUILDER_ASSETS names no kube-apiserver")
        return
    for story in STORIES:
        _play(*story)
    subprocess.run([sys.executable, "-m", "bench.doorfigures"], cwd=ROOT, check=True)


def _play(variable: str, number: int, story: str) -> None:
    environment = {**os.environ, variable: str(number)}
    # With so many it takes as long as the machine needs.
    command = [sys.executable, "-m", "pytest", "-q", "-s", "-n0", "--timeout=0", "--log-level=ERROR", story]
    subprocess.run(command, cwd=ROOT, env=environment, check=True)


if __name__ == "__main__":
    main()
