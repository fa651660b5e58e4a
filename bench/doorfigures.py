"""What the door costs: through it and past it in turns, to a real kube-apiserver (GW4).

The door has one core with its database, the cluster the other with who asks. In the door's place while they are measured:
``kubectl proxy``, which does less, and a process that passes bytes on, of which what it adds is the place's. Each figure
stands beside what it is to be (aim) and has to be (must); where a rate depends on what the machine does besides, what the
door's own process spends on it stands there too.
"""

from __future__ import annotations

import contextlib
import os
import re
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from socket import create_connection
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bench.apiserver import Target, served, tenanted
from bench.measuring.load import Figures, busy, drive, on_core
from bench.measuring.processes import processor_seconds, resident
from tests import kubeapiserver
from tests.ports import free_port
from tests.story.product import Product, eventually

if TYPE_CHECKING:
    from tests.clusters import TestCluster

PLACES = 50
PODS = 5000
STREAMS = 800
"""Of each kind: a tenant has room for half of a cluster's connections."""
ROUNDS = 5
SECONDS = 3
AT_REST = 0.1
"""The part of a core that those need who only wait."""

_ORDER = """
from audit.recorder import Actor
from tenants.models import Role, Tier, User
from tenants.services import cluster_register, membership_set, workspace_init
operator = Actor(name="bench", operator=True)
with open({kubeconfig!r}) as file:
    cluster_register(actor=operator, name="bench", kubeconfig=file.read(), is_default=True)
Tier.objects.update(quota={{"services": "9"}}, limit_range=[], workspaces_per_user=99)
for number in range({places}):
    user, _ = User.objects.get_or_create(email=f"u{{number // 9}}@bench.test", defaults={{"password": "!"}})
    membership_set(actor=operator, tenant="bench", user=user, role=Role.EDITOR)
    actor = Actor(name=user.email, user_id=user.pk)
    workspace_init(actor=actor, user=user, tier="basic", tenant="bench", name=f"w{{number}}", namespace=f"bench-{{number}}")
"""

CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one"}, "data": {"padding": "x" * 700}}
POD: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"labels": {"app": "web"}, "annotations": {"note": "x" * 500}},
    "spec": {"containers": [{"name": "c", "image": "example.org/image:1"}]},
}
BY_GATEWAY = ("--as=tenantry-gateway",)
"""Nobody else may have tokens of these accounts."""
_WEBSOCKET = (
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
)


@dataclass(frozen=True)
class Ways:
    """To the same namespaces: through the door, and past it with the token that the door would use."""

    door: Target
    direct: Target
    cluster: TestCluster

    @property
    def pid(self) -> int:
        """The door's process."""
        assert self.door.pid is not None
        return self.door.pid


def place(number: int = 0) -> str:
    """The path of a namespace that is on the cluster."""
    return f"/api/v1/namespaces/bench-{number}"


def told(what: str, found: str, aim: str, must: str, *, fits: bool) -> None:
    """Print a figure beside what it has to be."""
    print(f"  {what:<52} {found:<34} aim {aim:<16} must {must:<16} {'' if fits else 'MISSED'}", flush=True)


@contextlib.contextmanager
def ways() -> Iterator[Ways]:
    """A tenant with its namespaces on a cluster, all ready."""
    from tests.clusters import prepared

    with contextlib.ExitStack() as stack:
        with on_core(-1):
            real = stack.enter_context(kubeapiserver.running(controllers=True))
            cluster = stack.enter_context(prepared(real))
        product, token = stack.enter_context(tenanted())
        _order(product, real)
        door = stack.enter_context(served(product, token))
        # What has made the places looks after them as well, on the door's core.
        eventually(lambda: busy(0) < AT_REST, within=600)
        yield Ways(door, Target("direct", real.url, _account(real, 0)), cluster)


def _account(real: kubeapiserver.KubeApiserver, number: int) -> str:
    """A token of the account that reads a namespace, once it is there."""

    def token() -> str:
        done = real.kubectl("create", "token", "sa-tenant-view", "-n", f"bench-{number}", "--duration=2h", *BY_GATEWAY)
        return done.stdout.strip()

    return eventually(token, within=300, every=1)


def _asked(target: Target, path: str, connections: int) -> Figures:
    """GETs for a while. Raises ``RuntimeError`` where some were refused."""
    # kubectl proxy shows a credential of its own unless it is shown one.
    headers = target.headers if target.token else {}
    found = drive(target.url + path, connections=connections, headers=headers, seconds=SECONDS)
    if found.errors:
        raise RuntimeError(f"{target.name}: {found}")
    return found


def _order(product: Product, real: kubeapiserver.KubeApiserver) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".kubeconfig") as file:
        Path(file.name).write_text(real.kubeconfig("tenantry-gateway"))
        product.manage("shell", code=_ORDER.format(kubeconfig=file.name, places=PLACES), within=300)
    for number in range(PLACES):
        created = eventually(
            lambda number=number: real.admin.send("POST", f"{place(number)}/configmaps", CONFIG_MAP), within=300
        )
        while created.status != 201:
            time.sleep(0.5)
            created = real.admin.send("POST", f"{place(number)}/configmaps", CONFIG_MAP)


def of_requests(found: Ways) -> None:
    """Latency with one connection, and throughput with 32."""
    path = f"{place()}/configmaps/one"
    # First it follows the rights in all its namespaces, and connects.
    for connections in (32, 1):
        _asked(found.door, path, connections)
    with proxied(found) as proxy, _bytes_alone(found) as alone:
        _latency(found, proxy, alone, path)
        _throughput(found, proxy, path)


def _latency(found: Ways, proxy: Target, alone: Target, path: str) -> None:
    rounds, costs = [], []
    for _ in range(ROUNDS):
        past, peer, least = (_asked(target, path, 1) for target in (found.direct, proxy, alone))
        before = processor_seconds(found.pid)
        door = _asked(found.door, path, 1)
        costs.append((processor_seconds(found.pid) - before) * 1e6 / (door.rate * SECONDS))
        rounds.append((past, door, peer, least))
    p50, p99, peer_p50, peer_p99, least_p50, least_p99 = (
        statistics.median((getattr(way[which], name) - getattr(way[0], name)) * 1000 for way in rounds)
        for which in (1, 2, 3)
        for name in ("p50", "p99")
    )
    said = f"{p50:,.0f} µs ({statistics.median(costs):,.0f} of a core; proxy {peer_p50:,.0f}, bytes alone {least_p50:,.0f})"
    told("a GET, added to p50 of direct, 1 connection", said, "100 µs", "250 µs", fits=p50 <= 250)
    said = f"{p99:,.0f} µs (proxy {peer_p99:,.0f}, bytes alone {least_p99:,.0f})"
    told("the same, p99", said, "400 µs", "1,000 µs", fits=p99 <= 1000)


def _throughput(found: Ways, proxy: Target, path: str) -> None:
    pairs = []
    for _ in range(ROUNDS):
        begun = processor_seconds(found.pid), processor_seconds(proxy.pid)
        pair = _asked(found.door, path, 32), _asked(proxy, path, 32)
        ended = processor_seconds(found.pid), processor_seconds(proxy.pid)
        costs = [(b - a) * 1e6 / (each.rate * SECONDS) for a, b, each in zip(begun, ended, pair, strict=True)]
        pairs.append((pair[0].rate / pair[1].rate, *costs))
    ratio, ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    said = f"{ratio:.2f}x ({ours:.0f} µs of a core, {theirs:.0f} µs)"
    told("throughput against kubectl proxy, 32 connections", said, "1x", "0.5x", fits=ratio >= 0.5)


@contextlib.contextmanager
def proxied(found: Ways) -> Iterator[Target]:
    """``kubectl proxy`` with the direct way's token, in the door's place."""
    port, authority = free_port(), found.cluster.real.ca.cert_pem.bytes().decode()
    with tempfile.NamedTemporaryFile("w", suffix=".kubeconfig") as file:
        user = {"token": found.direct.token}
        Path(file.name).write_text(kubeapiserver.make_kubeconfig(found.direct.url, authority, user))
        command = [str(kubeapiserver.KUBECTL), "proxy", f"--port={port}", f"--kubeconfig={file.name}"]
        with on_core(0):
            process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            if "Starting to serve" not in process.stdout.readline():
                raise RuntimeError("kubectl proxy does not serve")
            yield Target("kubectl proxy", f"http://127.0.0.1:{port}", "", process.pid)
        finally:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def _bytes_alone(found: Ways) -> Iterator[Target]:
    """The direct way's bytes through a process in the door's place."""
    port, to = free_port(), urlsplit(found.direct.url).port
    with on_core(0):
        command = [sys.executable, "-m", "bench.measuring.passing", str(port), str(to)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        if "ready" not in process.stdout.readline():
            raise RuntimeError("nothing passes bytes on")
        yield Target("bytes alone", f"https://127.0.0.1:{port}", found.direct.token, process.pid)
    finally:
        process.terminate()
        process.wait()


def of_large_lists(found: Ways) -> None:
    """5,000 pods, from the request to the last byte."""
    admin = found.cluster.real.admin
    for number in range(PODS):
        body = {**POD, "metadata": {**POD["metadata"], "name": f"web-{number}"}}
        answer = admin.send("POST", f"{place()}/pods", body)
        if answer.status != 201:
            raise RuntimeError(answer.body)
    ratios, spent = [], []
    for _ in range(ROUNDS):
        before = processor_seconds(found.pid)
        direct, door = (_whole(target, f"{place()}/pods") for target in (found.direct, found.door))
        spent.append((processor_seconds(found.pid) - before) * 1000)
        ratios.append(door / direct)
    ratio = statistics.median(ratios)
    said = f"{ratio:.2f}x ({statistics.median(spent):.0f} ms of a core)"
    told(f"a list of {PODS:,} pods against direct", said, "1.05x", "1.2x", fits=ratio <= 1.2)


def _whole(target: Target, path: str) -> float:
    """Seconds until the last byte of an answer has come."""
    connection = target.connect()
    connection.connect()
    begun = time.perf_counter()
    connection.request("GET", path, headers=target.headers)
    answer = connection.getresponse()
    room = memoryview(bytearray(1 << 20))
    while answer.readinto(room):
        pass
    seconds = time.perf_counter() - begun
    connection.close()
    return seconds


def of_logs(found: Ways) -> None:
    """A log that is as fast as it is read."""
    from tests.gateway.placed.holdingkubelet import holding_kubelet, pod_there

    path = f"{place(1)}/pods/web/log?follow=true"
    direct = Target("direct", found.direct.url, _account(found.cluster.real, 1))
    with holding_kubelet(found.cluster, floods=True):
        pod_there(found.cluster, "bench-1")
        rounds = []
        for _ in range(3):
            past, before = _flow(direct, path), processor_seconds(found.pid)
            through = _flow(found.door, path)
            spent = processor_seconds(found.pid) - before
            rounds.append((through / past, through / 5e6, through / spent / 1e6))
        found.cluster.kubectl("delete", "pod", "web", "-n", "bench-1", "--grace-period=0", "--force")
    ratio, rate, core = (statistics.median(column) for column in zip(*rounds, strict=True))
    said = f"{core:,.0f} MB a second of its core"
    told("a log", f"{said}; {rate:,.0f} MB/s, {ratio:.2f}x direct", "500 MB/s", "200 MB/s", fits=core >= 200)


def _flow(target: Target, path: str) -> int:
    """Bytes that come in five seconds."""
    command = ["curl", "-sk", "-o", "/dev/null", "-m", "5", "-w", "%{size_download}"]
    command += ["-H", f"Authorization: Bearer {target.token}", target.url + path]
    with on_core(-1):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    return int(done.stdout)


def of_idle_streams(found: Ways) -> None:
    """Watches and shells that nothing happens in."""
    from tests.gateway.placed.holdingkubelet import holding_kubelet, pod_there

    kinds = (
        ("watch", f"{place(2)}/configmaps?watch=true&resourceVersion=0&labelSelector=none", "", "200"),
        ("shell", f"{place(2)}/pods/web/exec?command=sh&stdin=true", _WEBSOCKET, "101"),
    )
    # All stay open to the end: what one kind has given back, the next would seem not to need.
    with holding_kubelet(found.cluster), contextlib.ExitStack() as stack:
        pod_there(found.cluster, "bench-2")
        for what, *asked in kinds:

            def more(number: int, *asked: str) -> None:
                for _ in range(number):
                    stack.enter_context(_opened(found.door, *asked))

            # What the first ones cost is what all share.
            more(STREAMS // 5, *asked)
            before = resident(found.pid)
            more(STREAMS, *asked)
            each = (resident(found.pid) - before) * 1024 / STREAMS
            told(f"an idle {what}", f"{each:.1f} KiB", "40 KiB", "64 KiB", fits=each <= 64)


@contextlib.contextmanager
def _opened(target: Target, path: str, headers: str, status: str) -> Iterator[None]:
    url = urlsplit(target.url)
    plain = create_connection((url.hostname, url.port), timeout=120)
    with ssl._create_unverified_context().wrap_socket(plain) as line:
        head = f"GET {url.path}{path} HTTP/1.1\r\nHost: door\r\nAuthorization: Bearer {target.token}\r\n{headers}\r\n"
        line.sendall(head.encode())
        said = line.recv(65536).decode("latin-1")
        if re.match(rf"HTTP/1.1 {status} ", said) is None:
            raise RuntimeError(said)
        yield


def of_many_places(found: Ways) -> None:
    """One list of all, against the slowest of as many that are asked for at once, and against one alone."""
    path, ratios, alone = "/configmaps", [], []
    for _ in range(ROUNDS):
        all_, one = (_asked(found.door, f"{where}{path}", 1) for where in ("/api/v1", place()))
        many = _asked(found.direct, f"{place()}{path}", PLACES)
        ratios.append(all_.p50 / many.p99)
        alone.append(all_.p50 / one.p50)
    ratio = statistics.median(ratios)
    said = f"{ratio:.2f}x ({statistics.median(alone):.0f}x one alone)"
    told(f"a list across {PLACES} namespaces against the slowest", said, "1.5x", "3x", fits=ratio <= 3)


def main() -> None:
    """Measure the figures of the door in one run, and print them."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
    import django

    # What prepares clusters for tests knows the product's models; it asks no database.
    django.setup()
    with ways() as found, on_core(-1):
        for measure in (of_requests, of_many_places, of_idle_streams, of_logs, of_large_lists):
            measure(found)


if __name__ == "__main__":
    main()
