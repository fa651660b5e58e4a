"""Where the quickstart keeps what, and the secrets that it makes once."""

from __future__ import annotations

import fcntl
import os
import secrets
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from cryptography.fernet import Fernet


class QuickstartError(Exception):
    """Why the quickstart cannot start or go on, in one line that names the remedy."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The data folder."""

    folder: Path

    @property
    def logs(self) -> Path:
        """One file a process."""
        return self.folder / "log"

    def make_secrets(self) -> bool:
        """Make the folder and the secrets that are missing, readable by the owner alone; says whether any was."""
        self.folder.mkdir(parents=True, exist_ok=True)
        made = [
            write_once(self.folder / "secret-key", secrets.token_urlsafe(50)),
            write_once(self.folder / "sealing-key", Fernet.generate_key().decode()),
        ]
        return any(made)

    def prepare(self) -> None:
        """Make the folders, and begin new logs; those of the last run are kept."""
        self.logs.mkdir(exist_ok=True)
        (self.folder / "static").mkdir(exist_ok=True)  # stays empty: the quickstart serves files from their sources
        for log in self.logs.glob("*.log"):
            log.replace(log.with_suffix(".log.1"))

    def lock(self) -> IO[str]:
        """Hold the folder for this process; the kernel lets go when it ends, however it ends.

        Raises ``QuickstartError`` when another quickstart holds it.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        handle = (self.folder / "lock").open("w")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise QuickstartError(
                f"Tenantry already runs with the data in {self.folder}: stop it, or set TENANTRY_DATA_DIR."
            ) from None
        # Processes forked from this one would go on holding it after its end.
        os.register_at_fork(after_in_child=handle.close)
        return handle


def write_once(path: Path, content: str) -> bool:
    """Write a secret, complete or not at all, mode 0600, unless it exists; says whether it was written."""
    if path.exists():
        return False
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    return True


def check_port(host: str, port: int, variable: str) -> None:
    """Raise ``QuickstartError`` when the port is taken, naming the variable that chooses another."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise QuickstartError(
                f"Port {port} on {host} cannot be used ({error.strerror}): set {variable} to a free one."
            ) from None
