"""``python -m bench.measuring.profiled FILE COMMAND…``: a command of ``manage.py``, profiled between two signals.

SIGUSR1 begins, SIGUSR2 ends and writes what was found to FILE, whole or not at all. The
database shares the core with what is profiled: what it takes meets every function alike.
"""

from __future__ import annotations

import cProfile
import os
import runpy
import signal
import sys
from pathlib import Path


def main() -> None:
    """Put the signals up, and go on as ``manage.py``."""
    file, profiles = Path(sys.argv[1]), list[cProfile.Profile]()

    def begin(*_: object) -> None:
        profiles.append(cProfile.Profile())
        profiles[-1].enable()

    def end(*_: object) -> None:
        profile = profiles.pop()
        profile.disable()
        part = file.with_suffix(f".{os.getpid()}")
        profile.dump_stats(part)
        part.rename(file)

    signal.signal(signal.SIGUSR1, begin)
    signal.signal(signal.SIGUSR2, end)
    sys.argv = ["manage.py", *sys.argv[2:]]
    runpy.run_path("manage.py", run_name="__main__")


if __name__ == "__main__":
    main()
