"""A pooler of sessions between the product and its database: the same promises, with it, without it and after it."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import psycopg
import pytest

from store.postgresql.dedicatedconnection import DedicatedConnection
from tests.apiserver import running
from tests.balancer import status_of
from tests.databases import ROOT, migrated
from tests.ports import free_port
from tests.story.product import eventually

PGBOUNCER = shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin")
AT = "/api/v1/namespaces/default/configmaps"

pytestmark = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")


@dataclass
class Pooler:
    """pgbouncer in front of one database; it lends a session for as long as its client stays."""

    database: str
    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The database, by way of the pooler."""
        given = urlsplit(self.database)
        return f"postgresql://{given.username}@127.0.0.1:{self.port}{given.path}"

    def start(self) -> None:
        """Listen. It does not run as root: it is whoever the database is."""
        assert PGBOUNCER is not None
        given = urlsplit(self.database)
        host = parse_qs(given.query).get("host", [given.hostname or ""])[0]
        there = {"host": unquote(host), "port": given.port or 5432, "user": given.username, "password": given.password}
        words = " ".join(f"{key}={value}" for key, value in there.items() if value is not None)
        configuration = self.folder / "pgbouncer.ini"
        configuration.write_text(
            f"[databases]\n* = {words}\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {self.port}\nunix_socket_dir =\n"
            "auth_type = any\npool_mode = session\nmax_client_conn = 500\ndefault_pool_size = 100\n"
        )
        configuration.chmod(0o644)
        user = Path(there["host"]).owner() if os.getuid() == 0 and there["host"].startswith("/") else None
        with (self.folder / "pgbouncer.log").open("ab") as log:
            self.process = subprocess.Popen([PGBOUNCER, "-q", configuration], user=user, stdout=log, stderr=log)
        eventually(self._answers)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "pgbouncer.log").read_text()
        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError as error:
            print(error)
            return False
        return True

    def kill(self) -> None:
        """End it, with all that it has open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(300)


@contextmanager
def pooled(database: str) -> Iterator[Pooler]:
    with tempfile.TemporaryDirectory(prefix="pooler-") as folder:
        Path(folder).chmod(0o755)
        pooler = Pooler(database, Path(folder))
        try:
            pooler.start()
            yield pooler
        finally:
            pooler.kill()


@pytest.fixture
def pooler() -> Iterator[Pooler]:
    with migrated("pooled") as database, pooled(database) as running_one:
        yield running_one


def test_the_engines_settings_hold_behind_it(pooler: Pooler) -> None:
    """No lock, statement or open transaction lasts longer because a pooler lets no start-up options pass."""

    async def asked() -> list[str]:
        connection = DedicatedConnection(pooler.url, "tenantry-test", session="SET synchronous_commit TO off")
        names = (
            "lock_timeout",
            "statement_timeout",
            "idle_in_transaction_session_timeout",
            "enable_seqscan",
            "synchronous_commit",
        )
        try:
            results = [await connection.ask(f"SELECT current_setting('{name}')") for name in names]
        finally:
            connection.close()
        return [(result.get_value(0, 0) or b"").decode() for result in results]

    for _ in range(3):  # a session that was given back is lent again, without what the one before had set
        assert asyncio.run(asked()) == ["5s", "30s", "2s", "off", "off"]
    with psycopg.connect(pooler.url) as other:
        row = other.execute("SELECT current_setting('lock_timeout'), current_setting('enable_seqscan')").fetchone()
        assert row == ("0", "on")


def test_two_servers_behind_it_see_each_others_writes_and_outlive_it(pooler: Pooler) -> None:
    """What was acknowledged is there after the pooler was killed, and servers go on with the next by themselves."""
    with running(pooler.url, workers=2) as server:
        space = server.tenant("pooled")
        since = space.send("GET", AT).revision
        names = [f"before-{number}" for number in range(20)]
        with space.watch(f"{AT}?watch=true&resourceVersion={since}") as events:
            for name in names:
                assert space.send("POST", AT, {"metadata": {"name": name}}).status == 201
            told = (event["object"]["metadata"]["name"] for event in events)
            seen = [name for _, name in zip(names, (name for name in told if name in names), strict=False)]
        assert seen == names
        pooler.kill()
        pooler.start()
        # Either of the two may be asked, and may still find out that its lines are dead; who has not heard asks again.
        eventually(lambda: space.send("POST", AT, {"metadata": {"name": "after"}}).status in (201, 409))
        listed = space.send("GET", AT)["items"]
        assert {item["metadata"]["name"] for item in listed} >= {*names, "after"}


def test_a_portal_behind_it_is_ready_again_by_itself(pooler: Pooler) -> None:
    """GW18: its sessions were somebody else's before, and end with the pooler; the next request opens others."""
    port = free_port()
    environment = {**os.environ, "DATABASE_URL": pooler.url, "SECRET_KEY": secrets.token_urlsafe(48)}
    command = [sys.executable, "manage.py", "portal", f"--port={port}"]
    with (pooler.folder / "portal.log").open("ab") as log:
        portal = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    try:
        eventually(lambda: status_of(port, "/readyz") == 200)
        assert status_of(port, "/login/") == 200
        pooler.kill()
        eventually(lambda: status_of(port, "/readyz") == 503)
        pooler.start()
        eventually(lambda: status_of(port, "/readyz") == 200)
        assert status_of(port, "/login/") == 200
    finally:
        portal.kill()
        portal.wait(300)
