"""``make bench [ARGS="apiserver portal"]``: run the benchmarks, all of them unless some are named."""

from __future__ import annotations

import subprocess
import sys

NAMES = (
    "store",
    "authentication",
    "authorization",
    "apiserver",
    "budget",
    "workspaces",
    "portal",
    "overload",
    "rolling",
    "tenantquota",
    "door",
    "publications",
    "webhooks",
    "audit",
)


def main() -> None:
    """Run what was asked for, one after the other, each in a process of its own."""
    asked = sys.argv[1:] or list(NAMES)
    for name in asked:
        if name not in NAMES:
            sys.exit(f"There is no benchmark {name!r}; there are: {', '.join(NAMES)}.")
    for name in asked:
        print(f"\n== {name} ==", flush=True)
        subprocess.run([sys.executable, "-m", f"bench.{name}"], check=True)


if __name__ == "__main__":
    main()
