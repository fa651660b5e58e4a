"""The whole product, two of everything, on databases of its own, behind links; and those who bring it back when it dies."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import os
import random
import shutil
import signal
import ssl
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from bench.campaign.links import Link
from bench.campaign.nursery import BACK, TELL
from bench.campaign.plan import COPIES, VICTIMS
from portal.quickstart.embedded.postgresql import PostgreSQL
from portal.quickstart.embedded.redis import Redis
from portal.quickstart.embedded.sockets import OWNER, PRODUCT, postgresql_sockets
from portal.quickstart.layout import Layout
from tests.apiserver import ANY_PACE
from tests.faultproxy import FaultProxy, write_certificate
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]
DATABASE, TEMPLATE = "campaign", "campaign_template"
_READY_SECONDS = 240
_GATEWAY_USER = "tenantry-gateway"


class NotReady(Exception):
    """Something of the house did not come up: nothing that could be judged."""


@dataclass
class Part:
    """A process of the product. ``pid`` is 0 while it is down; ``frozen`` while it sleeps."""

    name: str
    kind: str
    port: int
    pid: int = 0
    frozen: bool = False
    wanted: bool = True
    starts: int = 0


@dataclass
class House:
    """Made once for a campaign; ``open`` begins a round on a new copy of the installation, ``close`` ends it."""

    kept: Path | None = None
    """Where the installation is kept for the next campaign; without it nothing is."""
    parts: dict[str, Part] = field(default_factory=dict)
    links: dict[str, Link] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.folder = self.kept or Path(tempfile.mkdtemp(prefix="tenantry-campaign-"))
        self.folder.mkdir(exist_ok=True)
        self.folder.chmod(0o711)
        self.data = self.folder / "data"
        Layout(self.data).make_secrets()
        self.postgresql = PostgreSQL(self.folder / "postgresql", self.folder / "log" / "postgresql.log")
        self.redis = Redis(self.folder / "redis", self.folder / "log" / "redis.log")
        self.chance = random.Random()
        self._turns = asyncio.Lock()
        self._looking: asyncio.Task[None] | None = None

    @property
    def owner_url(self) -> str:
        """The database of the round, past every link."""
        return f"postgresql://{OWNER}@/{DATABASE}?host={postgresql_sockets(self.folder / 'postgresql')}"

    async def build(self) -> None:
        """Databases, links, keys, the nursery, and the installation that every round has a copy of."""
        await asyncio.to_thread(self.postgresql.start)
        await asyncio.to_thread(self.redis.start)
        ports = {name: free_port() for name in VICTIMS}
        socket = postgresql_sockets(self.folder / "postgresql") / ".s.PGSQL.5432"
        for name in VICTIMS:
            self.links[f"database of {name}"] = Link([socket], self.chance)
        for front in ("apiserver", "portal"):
            self.links[front] = Link([ports[f"{front}-{number}"] for number in range(COPIES)], self.chance)
        for link in self.links.values():
            await link.start()
        await self._raise_nursery()
        self._cluster = await asyncio.to_thread(self._make_cluster)
        built = self.folder / "built"
        self._do("DROP DATABASE IF EXISTS {} WITH (FORCE)", DATABASE)
        if not built.exists():
            self._do("DROP DATABASE IF EXISTS {} WITH (FORCE)", TEMPLATE)
            self._do("CREATE DATABASE {}", DATABASE)
            await self.run("move_in")
            self._do("ALTER DATABASE {} RENAME TO {}", DATABASE, TEMPLATE)
            built.touch()
        for name in VICTIMS:
            kind = name.partition("-")[0]
            self.parts[name] = Part(name, kind, ports[name])

    @property
    def apiserver_url(self) -> str:
        """Where clients find the API servers."""
        return f"https://127.0.0.1:{self.links['apiserver'].port}"

    @property
    def portal_url(self) -> str:
        """Where people find the portals."""
        return f"http://127.0.0.1:{self.links['portal'].port}"

    @property
    def trust(self) -> ssl.SSLContext:
        """The administrator's certificate, and whom to believe."""
        context = ssl.create_default_context(cafile=str(self.data / "pki/ca.crt"))
        context.load_cert_chain(self.data / "pki/admin.crt", self.data / "pki/admin.key")
        return context

    @property
    def bearers(self) -> ssl.SSLContext:
        """For who comes with a token."""
        return ssl.create_default_context(cafile=str(self.data / "pki/ca.crt"))

    def tokens(self) -> dict[str, str]:
        """The personal access tokens of the day, by whose they are."""
        read: dict[str, str] = json.loads((self.folder / "tokens.json").read_text())
        return read

    async def open(self, chance: random.Random) -> None:
        """A new copy of the installation, and everything up."""
        self.chance.seed(chance.random())
        for backup in self.folder.glob("*.backup"):
            backup.unlink()  # of the round before: none is written over another
        await asyncio.to_thread(self._do, "CREATE DATABASE {} TEMPLATE {}", DATABASE, TEMPLATE)
        await asyncio.to_thread(self._redis, "flushall")
        await self.run("arrive", cluster=str(self._cluster), tokens=str(self.folder / "tokens.json"))
        for part in self.parts.values():
            part.wanted, part.starts = True, 0
        self._looking = asyncio.create_task(self._look())
        await self.ready()

    async def close(self) -> None:
        """End all parts, and forget the round's database."""
        if self._looking is not None:
            self._looking.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._looking
        for part in self.parts.values():
            await self.kill(part)
        self.heal()
        await asyncio.to_thread(self._do, "DROP DATABASE IF EXISTS {} WITH (FORCE)", DATABASE)

    async def demolish(self) -> None:
        """End everything, and keep nothing."""
        self._nursery.terminate()
        with contextlib.suppress(ProcessLookupError):
            await self._nursery.wait()
        await asyncio.to_thread(self.proxy.stop)
        for link in self.links.values():
            await link.stop()
        for server in (self.redis, self.postgresql):
            await asyncio.to_thread(server.stop)
        if self.kept is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def heal(self) -> None:
        """Links and cluster are well, who sleeps wakes, clocks are right."""
        self.proxy.heal()
        for link in self.links.values():
            link.heal()
        for part in self.parts.values():
            self.thaw(part)
            self.signal(part, BACK)

    async def ready(self) -> None:
        """Wait until every server answers, itself and not another one. Raises ``NotReady``."""
        import aiohttp

        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=3)) as session:
            for part in self.parts.values():
                if part.kind not in ("apiserver", "portal"):
                    continue
                scheme = "https" if part.kind == "apiserver" else "http"
                url = f"{scheme}://127.0.0.1:{part.port}/readyz"
                deadline = asyncio.get_running_loop().time() + _READY_SECONDS
                while asyncio.get_running_loop().time() < deadline:
                    if self._looking is not None and self._looking.done():
                        self._looking.result()
                    with contextlib.suppress(aiohttp.ClientError, TimeoutError, OSError):
                        async with session.get(url, ssl=self.bearers) as answer:
                            if answer.status == 200:
                                break
                    await asyncio.sleep(0.1)
                else:
                    self.signal(part, TELL)
                    await asyncio.sleep(1)
                    raise NotReady(f"{part.name} ({part.pid}) is not ready: {self.log(part.name)[-1500:]}")

    def log(self, name: str) -> str:
        """What a part has said."""
        file = self.folder / "log" / f"{name}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    # Parts.

    def signal(self, part: Part, number: int) -> None:
        """To a part that runs."""
        if part.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(part.pid, number)

    def freeze(self, part: Part) -> None:
        """Stop it where it is."""
        part.frozen = True
        self.signal(part, signal.SIGSTOP)

    def thaw(self, part: Part) -> None:
        """Let it go on."""
        if part.frozen:
            part.frozen = False
            self.signal(part, signal.SIGCONT)

    async def kill(self, part: Part) -> None:
        """SIGKILL, and wait until it is gone; it stays down unless somebody looks after it."""
        self.signal(part, signal.SIGKILL)
        part.frozen = False
        while part.pid and (await self._ask("look", part.name))["code"] is None:
            await asyncio.sleep(0.02)
        part.pid = 0

    async def _look(self) -> None:
        """What an init system does: whoever has ended is started again."""
        while True:
            for part in self.parts.values():
                if part.pid and (await self._ask("look", part.name))["code"] is not None:
                    part.pid = 0
                if not part.pid and part.wanted:
                    await self._start(part)
            await asyncio.sleep(0.1)

    async def _start(self, part: Part) -> None:
        part.starts += 1
        answer = await self._ask(
            "start",
            part.name,
            kind=part.kind,
            port=part.port,
            database=f"postgresql://{PRODUCT}@127.0.0.1:{self.links[f'database of {part.name}'].port}/{DATABASE}",
            log=str(self.folder / "log" / f"{part.name}.log"),
            flags=list(ANY_PACE),
            schedule=str(self.folder / f"{part.name}.schedule"),
        )
        part.pid, part.frozen = int(answer["pid"]), False

    async def run(self, kind: str, **arguments: Any) -> None:
        """One of the inhabitants' affairs. Raises ``NotReady`` with the end of its log."""
        await self._run(kind, arguments)

    async def command(self, *arguments: str) -> str:
        """A management command, which goes straight to the database; what it said. Raises ``NotReady``."""
        return await self._run("command", list(arguments))

    async def _run(self, kind: str, arguments: Any) -> str:
        name = f"{kind}-{self.chance.random()}"
        log = self.folder / "log" / f"{name}.log"
        await self._ask("start", name, kind=kind, arguments=arguments, log=str(log))
        while (code := (await self._ask("look", name))["code"]) is None:
            await asyncio.sleep(0.05)
        said = log.read_text(errors="replace")
        if code:
            raise NotReady(f"{kind} {arguments} ended with {code}: {said[-1500:]}")
        return said

    async def _ask(self, do: str, name: str, **more: Any) -> dict[str, Any]:
        line = json.dumps({"do": do, "name": name, **more}) + "\n"
        async with self._turns:
            assert self._nursery.stdin is not None
            assert self._nursery.stdout is not None
            self._nursery.stdin.write(line.encode())
            answer: dict[str, Any] = json.loads(await self._nursery.stdout.readline())
            return answer

    async def _raise_nursery(self) -> None:
        sockets = postgresql_sockets(self.folder / "postgresql")
        environment = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("TENANTRY_", "PORTAL_"))},
            "DJANGO_SETTINGS_MODULE": "portal.settings",
            "TENANTRY_DATA_DIR": str(self.data),
            # Parts come another way, each by its own link.
            "DATABASE_URL": f"postgresql://{PRODUCT}@/{DATABASE}?host={sockets}",
            "MIGRATION_DATABASE_URL": f"postgresql://{OWNER}@/{DATABASE}?host={sockets}",
            "REDIS_URL": self.redis.url,
            "APISERVER_URL": self.apiserver_url,
            "PORTAL_URL": self.portal_url,
            "WORKSPACE_INIT_WAIT": "3",
        }
        self._nursery = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bench.campaign.nursery"),
            cwd=ROOT,
            env=environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=2**20,
        )
        assert self._nursery.stdout is not None
        if not await self._nursery.stdout.readline():
            raise NotReady("the nursery did not come up")

    def _make_cluster(self) -> Path:
        """The embedded server as a cluster, which the product reaches through a proxy that answers what it is told to."""
        from gateway.http.certificates import client_kubeconfig, prepare
        from gateway.options import Options

        options = Options(database_url="", data_folder=self.data, external_url=self.apiserver_url)
        prepare(options)
        config = client_kubeconfig(options, _GATEWAY_USER, organizations=["tenant:system"])
        pair = write_certificate(config)
        self.proxy = FaultProxy(self.apiserver_url, (self.data / "pki/ca.crt").read_text(), pair)
        self.proxy.start()
        through = json.loads(config)
        authority = base64.b64encode(self.proxy.ca.cert_pem.bytes()).decode()
        through["clusters"][0]["cluster"] = {"server": self.proxy.url, "certificate-authority-data": authority}
        file = self.folder / "cluster.kubeconfig"
        file.write_text(json.dumps(through))
        return file

    def _do(self, statement: str, *names: str) -> None:
        with psycopg.connect(self.postgresql.owner_url, autocommit=True) as connection:
            connection.execute(sql.SQL(statement).format(*map(sql.Identifier, names)))

    def _redis(self, command: str) -> None:
        import redis

        with contextlib.closing(redis.Redis.from_url(self.redis.url)) as client:
            client.execute_command(command)
