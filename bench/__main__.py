"""``make bench [ARGS="apiserver portal"]``: run the benchmarks, all of them unless some are named.

What begins with a dash, and what comes after it, is for the last one that is named: ``python -m bench soak --minutes 60``.
"""

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

FOR_ITSELF = ("soak",)
"""Of an hour: run when it is named."""


def main() -> None:
    """Run what was asked for, one after the other, each in a process of its own."""
    words = sys.argv[1:]
    first = next((number for number, word in enumerate(words) if word.startswith("-")), len(words))
    asked, options = words[:first] or list(NAMES), words[first:]
    for name in asked:
        if name not in NAMES + FOR_ITSELF:
            sys.exit(f"There is no benchmark {name!r}; there are: {', '.join(NAMES + FOR_ITSELF)}.")
    for number, name in enumerate(asked, start=1):
        print(f"\n== {name} ==", flush=True)
        subprocess.run([sys.executable, "-m", f"bench.{name}", *(options if number == len(asked) else ())], check=True)


if __name__ == "__main__":
    main()
