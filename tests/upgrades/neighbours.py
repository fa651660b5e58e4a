"""Two releases beside one another, as during an upgrade: one database, one Redis, one folder of keys, one address in front."""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import ssl
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import psycopg

from portal.quickstart.embedded.redis import Redis
from store.postgresql.statements import SPACE_BYTES
from tests.apiserver import ANY_PACE
from tests.balancer import Balancer, status_of
from tests.databases import OWNER, ROOT, url_of
from tests.ports import free_port
from tests.speaking import Speaker, speaker_of
from tests.story.product import Person, eventually

PATIENCE: Final = 300.0
SEALING_KEY: Final = base64.urlsafe_b64encode(b"what tests seal, anybody may see").decode()
"""The same for ever: rows that were recorded by it are read by it."""

_CELERY: Final = ("-m", "celery", "--app", "portal")
_MISCOUNTED: Final = f"""
SELECT space, s.bytes, o.bytes FROM (
    SELECT space, sum(bytes) AS bytes FROM ({SPACE_BYTES}) AS each GROUP BY space
) AS s FULL JOIN (
    SELECT space, sum(octet_length(data)) AS bytes FROM store_object GROUP BY space
) AS o USING (space) WHERE coalesce(s.bytes, 0) <> coalesce(o.bytes, 0)
"""


class House:
    """What runs of one release."""

    parts = ("apiserver", "portal", "worker", "beat")

    def __init__(
        self, name: str, tree: Path, folder: Path, environment: Mapping[str, str], portal: Sequence[str]
    ) -> None:
        self.name, self.tree, self.folder, self._portal = name, tree, folder, portal
        self.portal_port, self.apiserver_port = free_port(), free_port()
        ports = {"PORTAL_PORT": str(self.portal_port), "APISERVER_PORT": str(self.apiserver_port)}
        # No static files are collected, so each release serves its own from where they are.
        self.environment = {**environment, **ports, "TENANTRY_STATIC_DIR": str(folder / f"{name}-static")}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def portal(self) -> str:
        """Its own portal's address; ``Person`` goes there."""
        return f"http://127.0.0.1:{self.portal_port}"

    def run(self, *arguments: str) -> str:
        """What Python prints, in its folder."""
        command = [sys.executable, *arguments]
        done = subprocess.run(command, cwd=self.tree, env=self.environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def manage(self, *arguments: str) -> str:
        """What one of its commands prints."""
        return self.run("manage.py", *arguments)

    def speaker(self, kubeconfig: str) -> Speaker:
        """Whoever a kubeconfig makes one, at its own API server."""
        known = speaker_of(kubeconfig)
        prefix = urlsplit(known.url).path.rstrip("/")
        return Speaker(f"https://127.0.0.1:{self.apiserver_port}", known.context, known.headers, prefix)

    def start(self, *parts: str) -> None:
        """Start these, and wait until they are ready."""
        waits = [partial(self._is_ready, part, self._launch(part)) for part in parts]
        for wait in waits:
            eventually(wait, within=PATIENCE)

    def end(self, *parts: str) -> None:
        """End these as an operator does, and wait for it."""
        ended = [self._running.pop(part) for part in parts if part in self._running]
        for process in ended:
            process.terminate()
        for process in ended:
            process.wait(PATIENCE)

    def kill(self) -> None:
        """End everything at once."""
        for process in self._running.values():
            process.kill()
            process.wait()

    def _log(self, part: str) -> Path:
        return self.folder / f"{self.name}-{part}.log"

    def _launch(self, part: str) -> int:
        commands = {
            "apiserver": ("manage.py", "apiserver", *ANY_PACE),
            "portal": (*self._portal, f"--port={self.portal_port}"),
            "worker": (*_CELERY, "worker", "--pool=threads", "--concurrency=4", f"--hostname={self.name}", "-lINFO"),
            "beat": (*_CELERY, "beat", "--pidfile="),
        }
        with self._log(part).open("ab") as log:
            begins = log.tell()
            command = [sys.executable, *commands[part]]
            self._running[part] = subprocess.Popen(command, cwd=self.tree, env=self.environment, stdout=log, stderr=log)
        return begins

    def _is_ready(self, part: str, begins: int) -> bool:
        assert self._running[part].poll() is None, self._log(part).read_text()[-5000:]
        if part == "apiserver":
            return status_of(self.apiserver_port, "/readyz", tls=_trusting_everybody()) == 200
        if part == "portal":
            return status_of(self.portal_port, "/readyz") == 200
        return part == "beat" or b" ready." in self._log(part).read_bytes()[begins:]


@dataclass
class Installation:
    """What all houses share, and whoever runs them."""

    folder: Path
    environment: Mapping[str, str]
    balancer: Balancer
    houses: dict[str, House] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, tree: Path, portal: Sequence[str] = ("manage.py", "portal")) -> House:
        """A house of this release; nothing runs in it yet."""
        self.houses[name] = House(name, tree, self.folder, self.environment, portal)
        self.balancer.ports.append(self.houses[name].apiserver_port)
        return self.houses[name]

    @property
    def old(self) -> House:
        """That of the release before."""
        return self.houses["old"]

    @property
    def new(self) -> House:
        """That of this tree."""
        return self.houses["new"]

    def other(self, house: House) -> House:
        """The one that is not this."""
        return self.old if house is self.new else self.new

    def prepare(self, house: House) -> None:
        """Migrate and make what is missing, as this release does before its processes start.

        It is tried again as the chart's Job is: rights are given under locks that a process that runs may hold crosswise.
        """
        for left in reversed(range(6)):
            try:
                printed = house.manage("bootstrap")
                break
            except AssertionError as error:
                if not left or "deadlock detected" not in str(error):
                    raise
        found = json.loads(printed.splitlines()[-1])
        self.facts |= {name: value for name, value in found.items() if value is not None}

    def miscounted(self) -> list[tuple[Any, ...]]:
        """Spaces of which the database counts other bytes than their objects have, with both (AD8)."""
        name = urlsplit(self.environment["DATABASE_URL"]).path.removeprefix("/")
        # As the owner: after 0.1 has been prepared, the product itself may not look.
        with psycopg.connect(url_of(name, OWNER)) as connection:
            return connection.execute(_MISCOUNTED).fetchall()

    def admin(self, house: House, space: str = "") -> Speaker:
        """The administrator, in a space where one is named, at one of both API servers."""
        admin = house.speaker((self.folder / "data" / "admin.kubeconfig").read_text())
        return admin.at(f"/clusters/{space}") if space else admin

    def operator(self, house: House) -> Person:
        """The first operator, signed in at one of both portals."""
        return self.signed_in(house, self.facts["operator_email"], self.facts["operator_password"])

    def signed_in(self, house: House, email: str, password: str) -> Person:
        """Somebody, signed in there."""
        person = Person(house)  # type: ignore[arg-type] # a house has the address that it asks of a product
        person.sign_in(email, password)
        return person


def moved(person: Person, house: House) -> Person:
    """The same browser, with the same session, at the portal of another house."""
    there = Person(house)  # type: ignore[arg-type]
    there.cookies = person.cookies
    return there


@contextmanager
def installation(database: str) -> Iterator[Installation]:
    """One on this database, without any house."""
    folder = Path(tempfile.mkdtemp(prefix="releases-"))
    folder.chmod(0o711)
    balancer = Balancer((), tls=_trusting_everybody())
    redis = Redis(folder / "redis", folder / "redis.log")
    with ExitStack() as held:
        held.callback(shutil.rmtree, folder, ignore_errors=True)
        redis.start()
        held.callback(redis.stop)
        held.enter_context(balancer.served())
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "DATABASE_URL": database,
            "REDIS_URL": redis.url,
            "TENANTRY_DATA_DIR": str(folder / "data"),
            "TENANTRY_SEALING_KEYS": SEALING_KEY,
            "SECRET_KEY": secrets.token_urlsafe(48),
            "APISERVER_URL": f"https://127.0.0.1:{balancer.port}",
            "ADMISSION_CONTROL_CONFIG_FILE": str(ROOT / "tests" / "openpolicies.yaml"),
        }
        made = Installation(folder, environment, balancer)
        held.callback(lambda: [house.kill() for house in made.houses.values()])
        yield made


def _trusting_everybody() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
