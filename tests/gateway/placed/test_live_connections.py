"""Whatever kubectl keeps open into a container that runs ends with the right to it, and never comes back (GW4, GW5, RV-11).

Each end alone, with everything open that kubectl can keep open, on a real node; then what was closed is opened again, and
the file from before stays dead while one from after works.
"""

from __future__ import annotations

import os
import pty
import re
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest
import yaml
from django.db.models import Sum
from django.utils import timezone

from access.credentials import credential_revoke, kubeconfig_issue
from tenants.models import Cluster, Phase, PodConnection, Role, StreamCount, Tier, User, Workspace
from tenants.services import (
    cluster_register,
    membership_remove,
    membership_set,
    tenant_resume,
    tenant_suspend,
    workspace_delete,
    workspace_resume,
    workspace_suspend,
)
from tests import factories, node
from tests.clusters import TestCluster
from tests.gateway.callers import Caller, eventually
from tests.gateway.placed.conftest import Door
from tests.kubeapiserver import KUBECTL
from tests.ports import free_port
from tests.tenants.conftest import OPERATOR, actor_of

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE = 240.0
"""Where a test gives up on containers, whatever the machine."""
LARGE = 4 << 30
"""Bytes of the files that are being copied; nothing of them is on a disk until it is copied."""
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web"},
    "spec": {
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "containers": [
            {
                "name": name,
                "image": node.IMAGE,
                "imagePullPolicy": "Never",
                "command": ["sh", *(("-c", command) if command else ())],
                "stdin": not command,
                "tty": not command,
            }
            for name, command in (
                (
                    "c",
                    f"busybox truncate -s {LARGE} /tmp/large; echo sunrise > /tmp/page; busybox httpd -p 8080 -h /tmp; "
                    "for i in $(seq 1000000); do echo line $i; sleep 1; done",
                ),
                ("ear", ""),
            )
        ],
    },
}
HANDSHAKE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
}
REFUSALS = (401, 403, 404)


@dataclass
class Place:
    """A workspace on a cluster with a node, where the pod ``web`` runs, and a member of its tenant, who is no owner."""

    door: Door
    cluster: TestCluster
    namespace: str
    folder: Path
    environment: dict[str, str]

    @property
    def workspace(self) -> Workspace:
        return Workspace.objects.get(k8s_namespace=self.namespace, deleted_at=None)

    @property
    def user(self) -> User:
        return User.objects.get(email=f"ed@{self.door.name}.test")

    def settled(self, phase: Phase) -> None:
        self.door.until(lambda: self.workspace.phase == phase)

    def run(self) -> None:
        """Have the pod run, whoever made it."""
        pods = f"/api/v1/namespaces/{self.namespace}/pods"
        admin = self.cluster.real.admin

        def ready() -> bool:
            # It takes the account that a controller makes.
            if admin.send("POST", pods, POD).status not in (201, 409):
                return False
            told = admin.send("GET", f"{pods}/web").body["status"].get("containerStatuses", ())
            return len(told) == 2 and all(each["ready"] for each in told)

        assert eventually(ready, PATIENCE), admin.send("GET", f"{pods}/web").body

    def file(self) -> File:
        """A new one of the member's, as the portal gives it."""
        issued = kubeconfig_issue(
            actor=actor_of(self.user), workspace_id=self.workspace.pk, kind="gateway", now=timezone.now()
        )
        assert issued.credential is not None
        path = self.folder / f"{issued.credential.jti}.kubeconfig"
        path.write_text(issued.yaml)
        token = yaml.safe_load(issued.yaml)["users"][0]["user"]["token"]
        server = self.door.server
        return File(
            self, issued.credential.jti, path, Caller(server.url, server.folder / "pki" / "ca.crt", token=token)
        )


@dataclass
class File:
    """A kubeconfig, and what is opened with it."""

    place: Place
    jti: str
    path: Path
    caller: Caller
    open: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def start(self, *arguments: str, **streams: Any) -> subprocess.Popen[bytes]:
        cache = self.place.folder / "cache"
        command = [str(KUBECTL), f"--kubeconfig={self.path}", f"--cache-dir={cache}", *arguments]
        return subprocess.Popen(command, cwd=self.place.folder, env=os.environ | self.place.environment, **streams)

    def run(self, *arguments: str) -> tuple[int, str]:
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        process = self.start(*arguments, **pipes)
        said, _ = process.communicate(timeout=PATIENCE)
        return process.returncode, said.decode()

    def said(self, name: str) -> str:
        """What one of those that are open has said so far."""
        return (self.place.folder / f"{name}.said").read_text(errors="replace")

    def opened(self, stack: ExitStack, name: str, *arguments: str, stdin: int | IO[bytes]) -> subprocess.Popen[bytes]:
        output = stack.enter_context((self.place.folder / f"{name}.said").open("wb"))
        process = self.open[name] = self.start(*arguments, stdin=stdin, stdout=output, stderr=output)
        stack.callback(process.kill)
        return process

    def terminal(self, stack: ExitStack, name: str, *arguments: str) -> None:
        """One that is open at a terminal, and answers."""
        ours, theirs = pty.openpty()
        stack.callback(os.close, ours)
        self.opened(stack, name, *arguments, stdin=theirs)
        os.close(theirs)
        os.write(ours, b"echo answer $((6 * 7))\n")
        assert eventually(lambda: "answer 42" in self.said(name), PATIENCE), self.said(name)

    def everything(self, stack: ExitStack) -> socket.socket:
        """Have everything open that kubectl can keep open, and in use; a connection through the forwarded port."""
        self.terminal(stack, "shell", "exec", "-it", "web", "-c", "c", "--", "sh")
        self.terminal(stack, "attached", "attach", "-it", "web", "-c", "ear")
        typing = ("exec", "-i", "web", "-c", "c", "--", "sh", "-c", "echo begun; cat")
        keyboard = self.opened(stack, "input", *typing, stdin=subprocess.PIPE)
        stack.callback(suppressing(keyboard.stdin.close))  # type: ignore[union-attr]
        self.opened(stack, "log", "logs", "-f", "web", "-c", "c", stdin=subprocess.DEVNULL)
        self.opened(stack, "watch", "get", "pods", "-w", stdin=subprocess.DEVNULL)
        port = free_port()
        self.opened(stack, "port", "port-forward", "pod/web", f"{port}:8080", stdin=subprocess.DEVNULL)
        for name, word in {"input": "begun", "log": "line 1", "watch": "web", "port": "Forwarding from"}.items():
            assert eventually(lambda name=name, word=word: word in self.said(name), PATIENCE), (name, self.said(name))
        (self.place.folder / "large").touch()
        os.truncate(self.place.folder / "large", LARGE)
        self.opened(stack, "taken", "cp", "web:/tmp/large", "copy", "-c", "c", stdin=subprocess.DEVNULL)
        self.opened(stack, "given", "cp", "large", "web:/tmp/copy", "-c", "c", stdin=subprocess.DEVNULL)
        copy = self.place.folder / "copy"
        assert eventually(lambda: copy.exists() and copy.stat().st_size > 0, PATIENCE), self.said("taken")
        inside = ("exec", "web", "-c", "c", "-n", self.place.namespace, "--", "test", "-s", "/tmp/copy")
        assert eventually(lambda: self.place.cluster.real.kubectl(*inside).returncode == 0, PATIENCE), self.said(
            "given"
        )
        line = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        line.settimeout(PATIENCE)
        line.sendall(b"GET /page HTTP/1.0\r\n")
        for name, process in self.open.items():
            assert process.poll() is None, (name, self.said(name))
        return line

    def dead(self) -> None:
        """Whatever is asked with it, and however, is refused; nothing of the pod is shown."""
        pod = f"/api/v1/namespaces/{self.place.namespace}/pods/web"
        for path, headers in (
            (f"{pod}/exec?command=sh&stdin=true&stdout=true", HANDSHAKE),
            (f"{pod}/attach?container=ear&stdin=true&stdout=true", HANDSHAKE),
            (f"{pod}/portforward", {**HANDSHAKE, "Sec-WebSocket-Protocol": "SPDY/3.1+portforward.k8s.io"}),
            (f"{pod}/log?container=c&follow=true", {}),
            (f"/api/v1/namespaces/{self.place.namespace}/pods?watch=true", {}),
        ):
            assert self.caller.get(path, headers).status in REFUSALS, path
        for arguments in (
            ("exec", "web", "-c", "c", "--", "cat", "/tmp/page"),
            ("attach", "web", "-c", "ear"),
            ("logs", "web", "-c", "c"),
            ("port-forward", "pod/web", f"{free_port()}:8080"),
            ("cp", "web:/tmp/page", "page", "-c", "c"),
            ("get", "pods"),
        ):
            code, said = self.run(*arguments)
            assert code != 0, (arguments, said)
            assert not re.search(r"sunrise|line \d|Forwarding|Running", said), (arguments, said)


def suppressing(close: Callable[[], object]) -> Callable[[], None]:
    def closed() -> None:
        with suppress(OSError):
            close()

    return closed


@pytest.fixture(params=["true", "false"], ids=["websockets", "spdy"])
def place(
    request: pytest.FixtureRequest,
    new_door: Callable[[], Door],
    second: TestCluster,
    with_node: None,
    settings: Any,
    tmp_path: Path,
) -> Place:
    Tier.objects.update(limit_range=[], quota={"services": "9"})
    cluster_register(actor=OPERATOR, name="second", kubeconfig=second.real.kubeconfig("tenantry-gateway"))
    Cluster.objects.filter(name="second").update(credential_kinds=["gateway"])
    door = new_door()
    settings.PORTAL_TOKEN_KEY_FILE = door.server.folder / "pki" / "portal-tokens.key"
    authority = (door.server.folder / "pki" / "ca.crt").read_text()
    factories.cluster("own", kind=Cluster.Kind.EMBEDDED, server=door.server.url, ca_data=authority, is_default=False)
    owner = door.person("olga", Role.OWNER)
    door.person("ed", Role.EDITOR)
    placed = door.place(owner, on="second")
    said = {f"KUBECTL_{what}_WEBSOCKETS": request.param for what in ("REMOTE_COMMAND", "PORT_FORWARD")}
    found = Place(door, second, placed, tmp_path, said)
    found.run()
    return found


class TenantSuspended:
    def end(self, place: Place, file: File) -> None:
        tenant_suspend(actor=OPERATOR, name=place.door.name, reason="unpaid")

    def undo(self, place: Place) -> None:
        place.settled(Phase.SUSPENDED)
        tenant_resume(actor=OPERATOR, name=place.door.name)
        place.settled(Phase.READY)


class WorkspaceSuspended:
    def end(self, place: Place, file: File) -> None:
        workspace_suspend(actor=OPERATOR, workspace_id=place.workspace.pk, reason="mining")

    def undo(self, place: Place) -> None:
        place.settled(Phase.SUSPENDED)
        workspace_resume(actor=OPERATOR, workspace_id=place.workspace.pk)
        place.settled(Phase.READY)


class CredentialRevoked:
    def end(self, place: Place, file: File) -> None:
        credential_revoke(actor=actor_of(place.user), jti=file.jti, now=timezone.now())

    def undo(self, place: Place) -> None:
        """Nothing is taken back: the member asks for another file."""


class MemberRemoved:
    def end(self, place: Place, file: File) -> None:
        membership_remove(actor=OPERATOR, tenant=place.door.name, user=place.user)

    def undo(self, place: Place) -> None:
        membership_set(actor=OPERATOR, tenant=place.door.name, user=place.user, role=Role.EDITOR)


class WorkspaceDeleted:
    def end(self, place: Place, file: File) -> None:
        workspace_delete(actor=OPERATOR, workspace_id=place.workspace.pk)

    def undo(self, place: Place) -> None:
        """Another one of the same name, in the same namespace of the same cluster."""
        owner = place.door.person("olga", Role.OWNER)
        listed = "/api/v1/namespaces"
        place.door.until(
            lambda: place.namespace not in {item["metadata"]["name"] for item in owner.get(listed).body["items"]}
        )
        place.door.place(owner, place.namespace, on="second")
        place.run()


def long_running(cluster: TestCluster) -> float:
    """How many connections into pods, and logs, the cluster has open for anybody."""
    metrics = cluster.real.admin.send("GET", "/metrics").body
    found = re.findall(r"^apiserver_longrunning_requests\{(.*)\} (\S+)$", metrics, re.MULTILINE)
    return sum(float(number) for labels, number in found if re.search(r'"(exec|attach|portforward|log)"', labels))


@pytest.mark.parametrize(
    "way",
    [TenantSuspended(), WorkspaceSuspended(), CredentialRevoked(), MemberRemoved(), WorkspaceDeleted()],
    ids=lambda way: type(way).__name__,
)
def test_nothing_survives_and_nothing_comes_back(place: Place, way: Any) -> None:
    file = place.file()
    assert eventually(lambda: file.caller.get(f"/api/v1/namespaces/{place.namespace}/pods").status == 200)
    with ExitStack() as stack:
        line = file.everything(stack)
        assert long_running(place.cluster) > 0
        way.end(place, file)
        ordered = time.monotonic()
        for name, process in file.open.items():
            process.wait(PATIENCE)
            print(f"\n  {name}: {time.monotonic() - ordered:.2f} s, {process.returncode}: {file.said(name)[-200:]!r}")
        with suppress(ConnectionError):
            assert line.recv(1) == b""
        assert (place.folder / "copy").stat().st_size < LARGE
        (place.folder / "copy").unlink()
    reported = {"namespace": place.namespace, "ended_by": ""}
    assert eventually(lambda: not PodConnection.objects.filter(**reported).exists())
    open_there = StreamCount.objects.filter(namespace=place.namespace)
    assert eventually(lambda: not open_there.aggregate(n=Sum("open"))["n"])
    assert eventually(lambda: long_running(place.cluster) == 0), "behind the door nothing is left either"
    assert eventually(lambda: file.caller.get(f"/api/v1/namespaces/{place.namespace}/pods").status in REFUSALS)
    file.dead()
    way.undo(place)
    file.dead()
    again = place.file()
    page = ("exec", "web", "-c", "c", "--", "cat", "/tmp/page")
    assert eventually(lambda: again.run(*page) == (0, "sunrise\n"), PATIENCE), again.run(*page)
    file.dead()
