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

    @property
    def admin_kubeconfig(self) -> Path:
        """The kubeconfig of a system-tenant admin."""
        return self.folder / "admin.kubeconfig"

    def prepare(self) -> None:
        """Make the folder and the secrets that are missing; secrets are readable by the owner alone."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(exist_ok=True)
        write_once(self.folder / "secret-key", secrets.token_urlsafe(50))
        write_once(self.folder / "sealing-key", Fernet.generate_key().decode())
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
        return handle


def write_once(path: Path, content: str) -> None:
    """Write a secret that does not exist yet, complete or not at all, mode 0600."""
    if path.exists():
        return
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


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
