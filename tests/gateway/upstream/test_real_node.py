"""kubectl through the wire into real containers: a kube-apiserver, a kubelet and containerd (GW4, GW5)."""

from __future__ import annotations

import asyncio
import os
import pty
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.upstream.client import Cluster, Limits, Upstream
from tests import kubeapiserver, node
from tests.gateway.upstream.door import Door, door_to
from tests.kubeapiserver import KUBECTL, TOKEN, KubeApiserver
from tests.ports import free_port

WEBSOCKETS, SPDY = (
    {"KUBECTL_REMOTE_COMMAND_WEBSOCKETS": said, "KUBECTL_PORT_FORWARD_WEBSOCKETS": said} for said in ("true", "false")
)
BOTH = pytest.mark.parametrize("protocol", [WEBSOCKETS, SPDY], ids=["websockets", "spdy"])
PATIENCE = 300.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[KubeApiserver]:
    """A server with a node, and on it the pod ``web`` that counts in its log."""
    if not kubeapiserver.PRESENT or node.lacking():
        pytest.skip(kubeapiserver.REASON if not kubeapiserver.PRESENT else node.lacking())
    with tempfile.TemporaryDirectory(prefix="node-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with kubeapiserver.running(flags=node.server_flags(folder)) as server, node.running_node(server, folder):
            counting = node.pod("web", "sh", "-c", "for i in $(seq 1000000); do echo line $i; sleep 1; done")
            assert server.admin.send("POST", "/api/v1/namespaces/default/pods", counting).status == 201
            done = server.kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=240s")
            assert done.returncode == 0, done.stderr
            yield server


class Kubectl:
    """kubectl, which knows of the door alone."""

    def __init__(self, door: Door, folder: Path) -> None:
        self.door, self._folder = door, folder

    async def start(self, *arguments: str, protocol: dict[str, str] | None = None, **streams):
        assert KUBECTL is not None
        host, port = self.door.address
        pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE, "stderr": asyncio.subprocess.PIPE}
        return await asyncio.create_subprocess_exec(
            KUBECTL,
            "--kubeconfig=/dev/null",
            f"--cache-dir={self._folder / 'cache'}",
            f"--server=http://{host}:{port}",
            *arguments,
            env=os.environ | (protocol or {}),
            cwd=self._folder,
            **{**pipes, **streams},
        )

    async def run(self, *arguments: str, stdin: bytes = b"", **options) -> tuple[int, bytes, bytes]:
        process = await self.start(*arguments, **options)
        async with asyncio.timeout(PATIENCE):
            said, complained = await process.communicate(stdin)
        return process.returncode, said, complained


@asynccontextmanager
async def kubectl_to(cluster: KubeApiserver, folder: Path) -> AsyncIterator[Kubectl]:
    place = Cluster(uid="c1", name="real", url=cluster.url, ca_pem=cluster.ca.cert_pem.bytes().decode())
    upstream = Upstream(place, Limits(connect_seconds=60))
    async with door_to(upstream, TOKEN) as door:
        yield Kubectl(door, folder)
        async with asyncio.timeout(PATIENCE):
            while len(door.streams):
                await asyncio.sleep(0.05)
    await upstream.close()


@BOTH
async def test_a_command_runs_and_its_exit_code_comes_back(cluster, tmp_path, protocol) -> None:
    async with kubectl_to(cluster, tmp_path) as kubectl:
        assert await kubectl.run("exec", "web", "--", "echo", "hello", protocol=protocol) == (0, b"hello\n", b"")
        code, said, complained = await kubectl.run(
            "exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 3", protocol=protocol
        )
        assert (code, said) == (3, b"out\n")
        assert complained.startswith(b"err\n")


@BOTH
async def test_input_ends_and_output_goes_on(cluster, tmp_path, protocol) -> None:
    """The half-close of a shell's input: ``wc`` says what it has counted after the end of it."""
    async with kubectl_to(cluster, tmp_path) as kubectl:
        counted = await kubectl.run("exec", "-i", "web", "--", "wc", "-c", stdin=bytes(3_000_000), protocol=protocol)
        assert counted[:2] == (0, b"3000000\n")


@BOTH
async def test_a_terminal(cluster, tmp_path, protocol) -> None:
    async with kubectl_to(cluster, tmp_path) as kubectl:
        ours, theirs = pty.openpty()
        process = await kubectl.start("exec", "-it", "web", "--", "sh", protocol=protocol, stdin=theirs, stdout=theirs)
        os.close(theirs)
        os.write(ours, b"test -t 0 && echo answer $((6 * 7))\nexit 5\n")
        async with asyncio.timeout(PATIENCE):
            await process.wait()
        assert process.returncode == 5
        # The kernel hands over what was written in pieces, and fails once there is no more.
        shown = b""
        while b"answer 42" not in shown:
            shown += os.read(ours, 65536)
        os.close(ours)


@BOTH
async def test_files_are_copied_both_ways(cluster, tmp_path, protocol) -> None:
    content = os.urandom(5_000_000)
    (tmp_path / "there").write_bytes(content)
    async with kubectl_to(cluster, tmp_path) as kubectl:
        for source, target in (("there", "web:/tmp/file"), ("web:/tmp/file", "back")):
            code, _, complained = await kubectl.run("cp", source, target, protocol=protocol)
            assert code == 0, complained
    assert (tmp_path / "back").read_bytes() == content


@BOTH
async def test_a_port_is_forwarded(cluster, tmp_path, protocol) -> None:
    inside, outside = free_port(), free_port()
    async with kubectl_to(cluster, tmp_path) as kubectl:
        serve = ("exec", "web", "--", "sh", "-c", f"echo found > /tmp/page; busybox httpd -p {inside} -h /tmp")
        assert (await kubectl.run(*serve))[0] == 0
        process = await kubectl.start("port-forward", "pod/web", f"{outside}:{inside}", protocol=protocol)
        try:
            async with asyncio.timeout(PATIENCE):
                assert b"Forwarding from" in await process.stdout.readline()
                for _ in range(3):
                    reader, writer = await asyncio.open_connection("127.0.0.1", outside)
                    writer.write(b"GET /page HTTP/1.0\r\n\r\n")
                    assert (await reader.read()).endswith(b"\r\n\r\nfound\n")
                    writer.close()
        finally:
            process.terminate()
            await process.wait()


async def test_an_ephemeral_container_debugs(cluster, tmp_path) -> None:
    async with kubectl_to(cluster, tmp_path) as kubectl:
        debug = ("debug", "web", "-q", f"--image={node.IMAGE}", "--container=look", "--", "echo", "seen")
        code, _, complained = await kubectl.run(*debug)
        assert code == 0, complained
        async with asyncio.timeout(PATIENCE):
            while (await kubectl.run("logs", "web", "-c", "look"))[1] != b"seen\n":
                await asyncio.sleep(0.2)


async def test_a_log_is_followed_until_the_right_to_it_ends(cluster, tmp_path) -> None:
    async with kubectl_to(cluster, tmp_path) as kubectl:
        process = await kubectl.start("logs", "-f", "web")
        async with asyncio.timeout(PATIENCE):
            assert await process.stdout.readline() == b"line 1\n"
            kubectl.door.suspend()
            rest, _ = await process.communicate()
        assert b"error: the workspace is suspended: unpaid\n" in rest


@BOTH
async def test_a_shell_ends_with_the_right_to_it(cluster, tmp_path, protocol) -> None:
    """Over SPDY the connection is closed, which says nothing to kubectl."""
    async with kubectl_to(cluster, tmp_path) as kubectl:
        process = await kubectl.start("exec", "-i", "web", "--", "sh", "-c", "echo begun; cat", protocol=protocol)
        async with asyncio.timeout(PATIENCE):
            assert await process.stdout.readline() == b"begun\n"
            kubectl.door.suspend()
            # Its input stays open: it is the connection that ends.
            await process.wait()
        complained = await process.stderr.read()
        assert protocol is SPDY or (process.returncode != 0 and b"the workspace is suspended: unpaid" in complained)
