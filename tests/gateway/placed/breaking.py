"""Ways to a server that break when told to, API servers of the product that end while they are needed, and who depends on it."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any

import pytest

from tenants.models import Phase, Role, Tier, Workspace
from tenants.services import cluster_register, workspace_resume, workspace_suspend
from tests.clusters import TestCluster
from tests.gateway.callers import Caller, eventually
from tests.gateway.conftest import Server, start, stop
from tests.gateway.placed.conftest import Door, bearer, tenant_file
from tests.kubeapiserver import TOKEN
from tests.tenants.conftest import OPERATOR


class Relay:
    """A port in front of a server: it may be another server's next, and what is open may be lost."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.listens = 0
        self.cuts = 0
        """How many connections are still to be cut."""
        self._within = 0
        self._loop = asyncio.new_event_loop()
        self._open: set[asyncio.StreamWriter] = set()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(300)

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.listens}"

    def lose(self) -> None:
        """Cut every connection, without a word."""
        self._loop.call_soon_threadsafe(self._cut)

    def cut(self, times: int, *, within: int) -> None:
        """Cut the next connections by which the server says more than ``within`` bytes from now on, in the midst of them."""
        self._within, self.cuts = within, times

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(300)
        self._loop.call_soon_threadsafe(self._loop.stop)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.listens = self._server.sockets[0].getsockname()[1]

    async def _end(self) -> None:
        """Listen no more, and lose what is open."""
        self._server.close()
        self._cut()
        serving = asyncio.all_tasks() - {asyncio.current_task()}
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    def _cut(self) -> None:
        for writer in self._open:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, there[1]}
        ways = [asyncio.ensure_future(_pass(reader, there[1])), asyncio.ensure_future(self._answer(there[0], writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for each in (writer, there[1]):
            each.close()
            self._open.discard(each)
        await asyncio.wait(ways)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on what the server says, up to where the connection is cut."""
        said = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                said = said + len(data) if self.cuts else 0
                writer.write(data)
                await writer.drain()
                if said > self._within and self.cuts:
                    self.cuts -= 1
                    writer.transport.abort()
                    return


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()


class Doors:
    """API servers of the product, one after the other, behind one address: each with the certificates of ``like``."""

    def __init__(self, like: Server, folder: Path) -> None:
        shutil.copytree(like.folder / "pki", folder / "pki")
        self._folder, self._database = folder, like.database
        self.server = start(folder, like.database)
        self.relay = Relay(self.server.port)

    def restart(self, end: Callable[[Server], object] = stop) -> None:
        """End the one that is there, and start the next."""
        end(self.server)
        self.server = start(self._folder, self._database)
        self.relay.port = self.server.port

    def close(self) -> None:
        self.relay.close()
        stop(self.server)


@dataclass
class Breakable:
    """A tenant, its namespaces, its file of the product, and what may break between whoever has the file and a cluster."""

    door: Door
    doors: Doors
    behind: Relay
    """Between the doors and the cluster that all happens to."""
    cluster: TestCluster
    stored: str
    calm: str
    """On a cluster that nothing happens to."""
    hit: str
    file: Path
    caller: Caller
    """Whoever has the file."""
    here: Caller
    """The same person at an API server that nothing happens to."""

    @property
    def workspace(self) -> Workspace:
        return Workspace.objects.get(k8s_namespace=self.hit, deleted_at=None)

    def suspend(self) -> None:
        workspace_suspend(actor=OPERATOR, workspace_id=self.workspace.pk, reason="unpaid")
        self.door.until(lambda: self.workspace.phase == Phase.SUSPENDED)

    def resume(self) -> None:
        workspace_resume(actor=OPERATOR, workspace_id=self.workspace.pk)
        self.door.until(lambda: self.workspace.phase == Phase.READY)


@contextmanager
def breakable(
    new_door: Callable[[], Door],
    cluster: TestCluster,
    door_server: tuple[Server, str],
    settings: Any,
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
) -> Iterator[Breakable]:
    """One, as it is found by whoever has the file."""
    running, key = door_server
    monkeypatch.setenv("TENANTRY_SEALING_KEYS", key)
    Tier.objects.update(workspaces_per_user=9, limit_range=[], quota={"services": "9"})
    with ExitStack() as stack:
        behind = Relay(int(cluster.real.url.rpartition(":")[2]))
        stack.callback(behind.close)
        config = cluster.real.kubeconfig("tenantry-gateway", server=behind.url)
        cluster_register(actor=OPERATOR, name="hit", kubeconfig=config)
        doors = Doors(running, folder / "data")
        stack.callback(doors.close)
        door = new_door()
        owner = door.person("olga", Role.OWNER)
        stored = f"{door.name}-stored"
        assert owner.post("/api/v1/namespaces", {"metadata": {"name": stored}}).status == 201
        calm, hit = door.place(owner, f"{door.name}-calm"), door.place(owner, f"{door.name}-hit", on="hit")
        file = tenant_file(door, door.member("olga"), folder / "config", doors.relay.url, settings)
        caller = bearer(file, owner.ca)
        for name in (stored, calm, hit):
            account = f"/api/v1/namespaces/{name}/serviceaccounts/default"
            assert eventually(lambda account=account: status_of(caller, account) == 200)
        yield Breakable(door, doors, behind, cluster, stored, calm, hit, file, caller, owner)


def status_of(caller: Caller, path: str) -> int:
    """What is answered, 0 for nothing."""
    try:
        return caller.get(path).status
    except (OSError, HTTPException):
        return 0


def administrator(cluster: TestCluster) -> Caller:
    """Whoever is at the cluster itself."""
    return Caller(cluster.real.url, cluster.real.folder / "ca.pem", token=TOKEN)


def kill(server: Server) -> None:
    """End it without asking it."""
    server.process.kill()
    server.process.wait(300)
