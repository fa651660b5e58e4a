"""``make bench ARGS=tenantquota``: 200 rounds of 40 creations at once against one tenant's quota (AD2).

Both kinds of namespaces, four processes, a real kube-apiserver (``KUBEBUILDER_ASSETS``): the test of the same story, for
longer. The first unit too many ends it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROUNDS = 200
ROOT = Path(__file__).resolve().parents[1]
STORY = "tests/gateway/placed/test_tenantquota.py::test_forty_at_once_in_several_processes_are_never_one_too_many"


def main() -> None:
    """Play it, and say how many rounds held."""
    if "KUBEBUILDER_ASSETS" not in os.environ:
        print("skipped: KUBEBUILDER_ASSETS names no kube-apiserver")
        return
    environment = {**os.environ, "TENANT_QUOTA_ROUNDS": str(ROUNDS)}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "--timeout=0", STORY], cwd=ROOT, env=environment, check=True
    )
    print(f"{ROUNDS} rounds of 40 creations: never one unit over, none lost")


if __name__ == "__main__":
    main()
