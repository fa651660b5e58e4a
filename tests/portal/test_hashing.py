"""Whoever signs in at once with others takes turns: strangers do not choose how much memory the portal needs (API-34)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from django.contrib.auth.hashers import Argon2PasswordHasher

from portal.signin.hashing import AT_ONCE
from tests.requirements import ROOT

MANY = 3 * AT_ONCE
EACH = Argon2PasswordHasher.memory_cost * 1024
"""Bytes of one hash."""

HASHES = f"""
import pathlib, re, resource, threading
import django
django.setup()
from django.contrib.auth.hashers import check_password, make_password

def most() -> int:
    # Of this program alone, where that is told: what is said of a process counts what it was before.
    status = pathlib.Path("/proc/self/status")
    if status.exists():
        return int(re.search(r"VmHWM:\\s+([0-9]+) kB", status.read_text())[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

known = make_password("a long windy road")
before, answers = most(), []
asks = [lambda: make_password("another one"), lambda: check_password("a long windy road", known)]
threads = [threading.Thread(target=lambda ask=asks[n % 2]: answers.append(bool(ask()))) for n in range({MANY})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert answers == [True] * {MANY}
print(most() - before)
"""


def test_passwords_are_hashed_a_few_at_a_time(tmp_path: Path) -> None:
    """Counted in bytes of a process with the product's own settings: what one hash takes is there before."""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "portal.settings", "TENANTRY_DATA_DIR": str(tmp_path)}
    command = [sys.executable, "-c", HASHES]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    assert int(done.stdout) < (AT_ONCE + 1) * EACH
