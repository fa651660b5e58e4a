"""``make bench ARGS=door``: the door to a real cluster, with as many streams and requests as it was built for (GW4, GW5).

Against a real kube-apiserver (``KUBEBUILDER_ASSETS``): the stories of the tests, with more. 1,000 mixed streams of a tenant
that is suspended, and 10,000 mixed requests, each of which both audit logs have to know by one ID. The first stream that
stays, or request that only one of them knows, ends it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACED = "tests/gateway/placed"
STORIES = (
    ("SUSPENDED_STREAMS", 1000, f"{PLACED}/test_many_streams.py::test_nothing_stays_open_when_a_tenant_is_suspended"),
    ("AUDITED_REQUESTS", 10_000, f"{PLACED}/test_audit_trail.py::test_every_request_is_in_both_logs_under_one_id"),
)


def main() -> None:
    """Play them; each prints its figures."""
    if "KUBEBUILDER_ASSETS" not in os.environ:
        print("skipped: KUBEBUILDER_ASSETS names no kube-apiserver")
        return
    for variable, number, story in STORIES:
        environment = {**os.environ, variable: str(number)}
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-s", "-n0", story], cwd=ROOT, env=environment, check=True
        )


if __name__ == "__main__":
    main()
