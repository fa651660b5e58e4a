"""The release before this one: what processes of this tree run beside for a while, and what one may go back to.

It is named here and nowhere else. Whoever makes a release writes its commit and its last migrations in place of those of the
one before, and makes ``recorded`` anew with it (CONTRIBUTING.md).
"""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.databases import ROOT

COMMIT: Final = "a520eadd26ae1a8315f6642c6e536cf104425c64"
MIGRATIONS: Final = {
    "access": "0006_logins",
    "audit": "0009_days",
    "store": "0005_read_leases",
    "tenants": "0028_postponements",
}
"""The last of each application that it has; what comes after runs while its processes do."""

PORTAL: Final = (
    *("-m", "uvicorn", "portal.asgi:application", "--no-proxy-headers"),
    *("--http=portal.protocol:PortalProtocol", "--log-level=warning"),
)
"""How its portal is started: it had no command for that."""


class NotInHistory(Exception):
    """Its files cannot be had here: this is no clone, or one that begins later."""


def archived(*paths: str) -> bytes:
    """Its files, or those below some paths, as a tar archive. Raises ``NotInHistory``."""
    if shutil.which("git") is None:
        raise NotInHistory("git is not installed")
    # Whoever runs the tests may be another than whose clone it is.
    git = ["git", "-C", str(ROOT), "-c", f"safe.directory={ROOT}"]
    done = subprocess.run([*git, "archive", "--format=tar", COMMIT, *paths], capture_output=True, check=False)
    if done.returncode:
        raise NotInHistory(f"the release before is not in this history: {done.stderr.decode().strip()}")
    return done.stdout


@contextmanager
def unpacked() -> Iterator[Path]:
    """A folder with its files. Raises ``NotInHistory``."""
    archive = archived()
    folder = Path(tempfile.mkdtemp(prefix="release-before-"))
    try:
        folder.chmod(0o755)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(folder, filter="data")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if sys.pycache_prefix:
            shutil.rmtree(Path(sys.pycache_prefix, *folder.parts[1:]), ignore_errors=True)
