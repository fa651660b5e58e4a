"""Records what kubectl and a real cluster with a node say to each other: ``KUBEBUILDER_ASSETS=… python -m tests.gateway.upstream.wire.recorder``.

It takes what ``tests.node`` takes. The files are written anew, and are the whole difference that a version of Kubernetes
makes on the wire.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import ssl
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import trustme
import websocket

from tests import kubeapiserver, node
from tests.gateway.upstream.wire.conversation import CLIENT, CLUSTER, FOLDER, Conversation
from tests.kubeapiserver import KUBECTL, TOKEN, KubeApiserver, make_kubeconfig
from tests.ports import free_port

_CREDENTIAL = re.compile(rb"(?i)\r\nauthorization:[^\r]*")
_UPGRADE = re.compile(rb"(?i)\r\nupgrade:")
_BOTH = {"websocket": "true", "spdy": "false"}
_FAILING = ("sh", "-c", "echo out; echo err >&2; exit 3")
_PATIENCE = 240.0


@dataclass
class Listener:
    """Between clients and a cluster: hears the connections that ask for another protocol."""

    cluster: KubeApiserver
    command: str = ""
    heard: list[Conversation] = field(default_factory=list)
    url: str = ""
    ca: trustme.CA = field(default_factory=trustme.CA)
    open: int = 0

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.ca.issue_cert("127.0.0.1").configure_cert(context)
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=context)
        self.url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield
        server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            conversation = Conversation(self.command)
            if _UPGRADE.search(head):
                self.heard.append(conversation)
            conversation.hear(CLIENT, _CREDENTIAL.sub(b"", head))
            host, port = self.cluster.url.removeprefix("https://").split(":")
            context = ssl.create_default_context(cadata=self.cluster.ca.cert_pem.bytes().decode())
            inner, outer = await asyncio.open_connection(host, int(port), ssl=context)
            outer.write(head)
            both = (
                asyncio.create_task(_pass(reader, outer, lambda said: conversation.hear(CLIENT, said))),
                asyncio.create_task(_pass(inner, writer, lambda said: conversation.hear(CLUSTER, said))),
            )
            # Over TLS nobody ends one direction alone: whose end comes first ends both.
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for each in both:
                each.cancel()
            for each in (writer, outer):
                each.close()
        self.open -= 1


async def _pass(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, hear: Callable[[bytes | None], None]
) -> None:
    while data := await reader.read(65536):
        hear(data)
        writer.write(data)
        await writer.drain()
    hear(None)


@dataclass
class Recorder:
    """Plays the clients, and keeps what was heard of each."""

    listener: Listener
    folder: Path

    async def kubectl(
        self, name: str, *arguments: str, protocol: str, stdin: bytes = b"", until: bytes = b"", act: Any = None
    ) -> None:
        """One command; where it goes on by itself it is ended once it has said ``until``, and ``act`` was done."""
        assert KUBECTL is not None
        self.listener.command, self.listener.heard = f"kubectl {' '.join(arguments)}", []
        config = self.folder / "listener.kubeconfig"
        config.write_text(
            make_kubeconfig(self.listener.url, self.listener.ca.cert_pem.bytes().decode(), {"token": TOKEN})
        )
        said = _BOTH[protocol]
        process = await asyncio.create_subprocess_exec(
            KUBECTL,
            f"--kubeconfig={config}",
            f"--cache-dir={self.folder / 'cache'}",
            *arguments,
            env={**os.environ, "KUBECTL_REMOTE_COMMAND_WEBSOCKETS": said, "KUBECTL_PORT_FORWARD_WEBSOCKETS": said},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        async with asyncio.timeout(_PATIENCE):
            if until:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(stdin)
                output = b""
                while until not in output:
                    read = await process.stdout.read(4096)
                    assert read, output
                    output += read
                if act is not None:
                    await act()
                process.terminate()
                await process.wait()
            else:
                await process.communicate(stdin)
        await self.keep(name)

    async def keep(self, name: str) -> None:
        while self.listener.open:
            await asyncio.sleep(0.05)
        assert self.listener.heard, name
        for number, conversation in enumerate(self.listener.heard):
            conversation.keep(FOLDER / f"{name}{f'-{number + 1}' if number else ''}.txt")

    async def old_client(self, name: str, path: str) -> None:
        """A client of version 4 of the protocol, as the official Python one is."""
        self.listener.command, self.listener.heard = f"v4.channel.k8s.io {path}", []
        context = ssl.create_default_context(cadata=self.listener.ca.cert_pem.bytes().decode())

        def speak() -> None:
            connection = websocket.WebSocket(sslopt={"context": context})
            try:
                connection.connect(
                    self.listener.url.replace("https:", "wss:") + path,
                    header=[f"Authorization: Bearer {TOKEN}"],
                    subprotocols=["v4.channel.k8s.io"],
                    suppress_origin=True,
                )
            except websocket.WebSocketBadStatusException:
                return
            while connection.recv_data(control_frame=True)[0] != websocket.ABNF.OPCODE_CLOSE:
                pass
            connection.close()

        await asyncio.to_thread(speak)
        await self.keep(name)


async def record(cluster: KubeApiserver, folder: Path) -> None:
    """Everything, anew."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    listener = Listener(cluster)
    async with listener.listening():
        recorder = Recorder(listener, folder)
        inside = free_port()
        assert (
            cluster.kubectl(
                "exec", "web", "--", "sh", "-c", f"echo found > /tmp/page; busybox httpd -p {inside} -h /tmp"
            ).returncode
            == 0
        )
        for protocol in _BOTH:
            await recorder.kubectl(f"exec-{protocol}", "exec", "web", "--", *_FAILING, protocol=protocol)
            counting = ("exec", "-i", "web", "--", "wc", "-c")
            await recorder.kubectl(f"input-{protocol}", *counting, protocol=protocol, stdin=b"x" * 400)
            await recorder.kubectl(f"no-node-{protocol}", "exec", "nowhere", "--", "date", protocol=protocol)
            missing = ("exec", "web", "--", "nothing")
            await recorder.kubectl(f"no-command-{protocol}", *missing, protocol=protocol)
            await recorder.kubectl(
                f"attach-{protocol}", "attach", "-i", "ear", protocol=protocol, stdin=b"hello\n", until=b"heard hello"
            )
            outside = free_port()
            await recorder.kubectl(
                f"port-{protocol}",
                "port-forward",
                "pod/web",
                f"{outside}:{inside}",
                protocol=protocol,
                until=b"Forwarding from",
                act=lambda port=outside: fetched(port),
            )
        path = "/api/v1/namespaces/default/pods/web/exec?command=sh&command=-c&stdout=true&stderr=true"
        await recorder.old_client("exec-v4", f"{path}&command=echo+out%3B+echo+err+%3E%262%3B+exit+3")
        await recorder.old_client("no-container-v4", f"{path}&command=date&container=nothing")


async def fetched(port: int) -> None:
    """A page through a forwarded port."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /page HTTP/1.0\r\n\r\n")
    assert (await reader.read()).endswith(b"found\n")
    writer.close()


def main() -> None:
    """On a cluster and a node of its own."""
    if not kubeapiserver.PRESENT or node.lacking():
        raise SystemExit(node.lacking() or kubeapiserver.REASON)
    with tempfile.TemporaryDirectory(prefix="node-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with kubeapiserver.running(flags=node.server_flags(folder)) as server, node.running_node(server, folder):
            pods = {
                "web": node.pod("web", "sleep", "1000000"),
                "ear": node.pod("ear", "sh", "-c", "while read line; do echo heard $line; done; sleep 1000000"),
            }
            pods["ear"]["spec"]["containers"][0]["stdin"] = True  # type: ignore[index]
            pods["nowhere"] = node.pod("nowhere", "date")
            del pods["nowhere"]["spec"]["nodeName"]  # type: ignore[attr-defined]
            for pod in pods.values():
                assert server.admin.send("POST", "/api/v1/namespaces/default/pods", pod).status == 201
            done = server.kubectl("wait", "--for=condition=Ready", "pod/web", "pod/ear", "--timeout=240s")
            assert done.returncode == 0, done.stderr
            asyncio.run(record(server, folder))


if __name__ == "__main__":
    main()
