"""Two PostgreSQL servers, the second of which follows the first one's log: a primary and its standby, as in production."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from portal.quickstart.embedded.postgresql import PostgreSQL

STANDBY = "standby"
"""What the standby calls itself, as ``synchronous_standby_names`` has it."""


class Pair:
    """A primary and a standby that follows it; ``conninfo`` names both, and leads to the one that takes writes."""

    def __init__(self) -> None:
        # Not below pytest's own folder, which is closed to the account that runs PostgreSQL.
        self._folder = Path(tempfile.mkdtemp(prefix="tenantry-pair-"))
        self._folder.chmod(0o711)
        self.primary = PostgreSQL(self._folder / "a" / "postgresql", self._folder / "a.log")
        self.standby = PostgreSQL(self._folder / "b" / "postgresql", self._folder / "b.log")

    def start(self) -> None:
        """Start the primary."""
        self.primary.start()

    def url(self, database: str = "postgres", *, user: str = "postgres") -> str:
        """Both hosts in one URL, as an installation has it: the first one to answer may be the standby."""
        hosts = [conninfo_to_dict(server.owner_url)["host"] for server in (self.primary, self.standby)]
        return f"postgresql://{user}@/{database}?host={','.join(map(str, hosts))}&target_session_attrs=read-write"

    def follow(self, *, synchronous: bool) -> None:
        """Make the standby of a copy of the primary, and wait until it follows.

        From the main thread: the server ends with the thread that has started it.
        """
        source = make_conninfo(self.primary.owner_url, application_name=STANDBY, dbname="replication")
        self.standby._prepare()
        data = self.standby._data
        shutil.rmtree(data)
        subprocess.run(
            [
                str(self.standby._binaries / "pg_basebackup"),
                *("-d", source, "-D", str(data), "-R", "-X", "stream", "--checkpoint=fast", "--no-sync"),
            ],
            check=True,
            capture_output=True,
            user=self.standby._user,
            group=self.standby._user,
        )
        self.standby.start()
        if synchronous:
            self.synchronize()
        else:
            self._until_it_follows("async")

    def synchronize(self) -> None:
        """Have the primary wait for the standby, and return when it does: a reload comes to its processes one by one."""
        _ask(self.primary, f"ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'")
        _ask(self.primary, "SELECT pg_reload_conf()")
        self._until_it_follows("sync")

    def _until_it_follows(self, state: str) -> None:
        _until(self.primary, f"SELECT sync_state = '{state}' FROM pg_stat_replication WHERE state = 'streaming'")

    def tear(self) -> None:
        """From here on the standby hears nothing: what the primary acknowledges, it alone knows."""
        _ask(self.standby, "ALTER SYSTEM SET primary_conninfo = ''")
        _ask(self.standby, "SELECT pg_reload_conf()")
        _until(self.standby, "SELECT count(*) = 0 FROM pg_stat_wal_receiver")

    def kill_primary(self) -> None:
        """Every process of it at once, as when a machine is lost: none goes on to say yes for a moment."""
        process = self.primary._program.process
        assert process is not None
        os.kill(process.pid, signal.SIGSTOP)
        for child in (process.pid, *_children(process.pid)):
            os.kill(child, signal.SIGKILL)
        process.wait()

    def promote(self) -> None:
        """Let the standby take writes from now on."""
        _ask(self.standby, "SELECT pg_promote(true, 60)")

    def stop(self) -> None:
        """End both, and leave nothing behind."""
        self.standby.stop()
        self.primary.stop()
        shutil.rmtree(self._folder, ignore_errors=True)


def _ask(server: PostgreSQL, statement: str) -> object:
    with psycopg.connect(server.owner_url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        row = cursor.fetchone() if cursor.description else None
        return row[0] if row else None


def _until(server: PostgreSQL, question: str) -> None:
    deadline = time.monotonic() + 300
    while not _ask(server, question):
        assert time.monotonic() < deadline, f"{question}: not within two minutes"
        time.sleep(0.05)


def _children(parent: int) -> list[int]:
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        if int(fields[1]) == parent:
            children.append(int(stat.parent.name))
    return children
