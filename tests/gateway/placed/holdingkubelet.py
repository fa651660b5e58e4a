"""A node of a real cluster that holds streams open: it begins every log, shell and forwarded port, and no more.

Where it is told so, its logs are without end, as fast as they are read.

kube-apiserver connects to it as to any kubelet, by the address in its Node.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
import zlib
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import trustme

from tests.clusters import TestCluster

NODE = "holding"
_LOG = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nbegun\n\r\n"
_SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n"
    b"X-Stream-Protocol-Version: %b\r\n\r\n"
)
_PROTOCOLS = {b"exec": b"v4.channel.k8s.io", b"portForward": b"portforward.k8s.io"}
_WEBSOCKET = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n"
)
"""What RFC 6455 answers to the key of its own example; kube-apiserver speaks SPDY here to all but the oldest shells."""
_SYN_STREAM, _SYN_REPLY, _PING = 1, 2, 6


@contextmanager
def holding_kubelet(cluster: TestCluster, *, floods: bool = False) -> Iterator[None]:
    """One that listens, known to the cluster as the node ``NODE``; gone with its Node afterwards."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(_listen(_flood if floods else _hold), loop).result(300)
    address = [{"type": "InternalIP", "address": "127.0.0.1"}]
    endpoint = {"kubeletEndpoint": {"Port": server.sockets[0].getsockname()[1]}}
    node = {"metadata": {"name": NODE}, "status": {"addresses": address, "daemonEndpoints": endpoint}}
    try:
        cluster.kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", **node}))
        yield
    finally:
        cluster.kubectl("delete", "node", NODE)
        loop.call_soon_threadsafe(server.close)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(300)


def pod_there(cluster: TestCluster, namespace: str, name: str = "web") -> None:
    """A pod on that node, which the cluster's scheduler, played by its administrator, has chosen for it."""
    container = {"name": "c", "image": "example.org/image:1"}
    spec = {"terminationGracePeriodSeconds": 0, "containers": [container]}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace}, "spec": spec}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    made = cluster.real.admin.send("POST", pods, body)
    assert made.status == 201, made
    binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": NODE}}
    bound = cluster.real.admin.send(
        "POST", f"{pods}/{name}/binding", {"apiVersion": "v1", "kind": "Binding", **binding}
    )
    assert bound.status == 201, bound


async def _listen(serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> asyncio.Server:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    trustme.CA().issue_cert("127.0.0.1").configure_cert(context)
    return await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context, backlog=2048)


async def _flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(_LOG)
        line = b"x" * 1023 + b"\n"
        while True:
            writer.write(b"100000\r\n" + line * 1024 + b"\r\n")
            await writer.drain()
    writer.close()


async def _hold(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
        head = await reader.readuntil(b"\r\n\r\n")
        protocol = _PROTOCOLS.get(head.split(b"/")[1])
        if protocol is None or b"\r\nupgrade: websocket\r\n" in head.lower():
            writer.write(_LOG if protocol is None else _WEBSOCKET)
            await reader.read()
        else:
            writer.write(_SWITCH % protocol)
            await _accept_streams(reader, writer)
    writer.close()


async def _accept_streams(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Every stream that the other side begins (SPDY/3.1): kube-apiserver gives up a WebSocket's shell without that."""
    packer = zlib.compressobj()
    while True:
        head = await reader.readexactly(8)
        payload = await reader.readexactly(int.from_bytes(head[5:]))
        kind = int.from_bytes(head[2:4]) if head[0] & 0x80 else 0
        if kind == _SYN_STREAM:
            no_headers = packer.compress(bytes(4)) + packer.flush(zlib.Z_SYNC_FLUSH)
            reply = payload[:4] + no_headers
            writer.write(head[:2] + _SYN_REPLY.to_bytes(2) + len(reply).to_bytes(4) + reply)
        elif kind == _PING:
            writer.write(head + payload)
