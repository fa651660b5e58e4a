"""``make bench ARGS=tenantquota``: 200 rounds of 40 creations at once against one tenant's quota (AD2).

Four processes: stored namespaces, and then stored and placed ones together with a real kube-apiserver
(``KUBEBUILDER_ASSETS``). The tests of the same stories, for longer. The first unit too many ends it.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROUNDS = 200
ROOT = Path(__file__).resolve().parents[1]
STORED = "tests/gateway/test_tenantquotas.py::test_forty_creations_at_once_in_four_processes_are_never_one_too_many"
BOTH = "tests/gateway/placed/test_tenantquota.py::test_forty_at_once_in_several_processes_are_never_one_too_many"


def main() -> None:
    """Play them, and say how many rounds held."""
    _play("stored namespaces", STORED)
    if "KUBEBUILDER_ASSETS" in os.environ:
        _play("stored and placed namespaces", BOTH)
    else:
        print("placed namespaces: skipped, KUBEBUILDER_ASSETS names no kube-apiserver")


def _play(kind: str, story: str) -> None:
    environment = {**os.environ, "TENANT_QUOTA_ROUNDS": str(ROUNDS)}
    subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", "--timeout=0", story], cwd=ROOT, env=environment, check=True
    )
    print(f"{kind}: {ROUNDS} rounds of 40 creations: never one unit over, none lost", flush=True)


if __name__ == "__main__":
    main()
