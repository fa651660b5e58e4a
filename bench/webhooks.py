"""``make bench ARGS=webhooks``: what a cluster waits for when it asks us, beside a real kube-apiserver in the same run (GW17).

- authorize: reviews of people whom nobody has asked about before, against the kube-apiserver's own RBAC, which goes
  through 10,060 ClusterRoleBindings for each.
- admit: pods that come and go in the namespaces of 20 tenants, in no order, 500 reviews a second whoever waits for an
  answer. What is admitted is taken of the tenants' quotas, and written before the answer.

Each server has one core together with its database; the load comes from the other. Of the product there is what is
measured alone: one API server, which also counts what is on the cluster, and PostgreSQL. The quickstart sets up what they
are asked about and ends before. The kube-apiserver has the first core while its RBAC is asked, and the load's while ours
is: a cluster is not on the core of whom it asks. ``KUBEBUILDER_ASSETS`` names it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import gc
import itertools
import json
import random
import ssl
import statistics
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from uuid import uuid4

import aiohttp
import psycopg
import uvloop

from bench.apiserver import Target, served
from bench.authorization import REVIEWS, fill
from bench.measuring.load import Figures, drive, move, on_core
from bench.measuring.processes import children, processor_seconds
from portal.quickstart.embedded.postgresql import PostgreSQL
from tests import kubeapiserver
from tests.kubeapiserver import KubeApiserver
from tests.story.product import ROOT, Product, eventually

CLUSTER: Final = "bench-cluster"
TENANTS: Final = 20
BINDINGS: Final = 10_000
RATE: Final = 500
SECONDS: Final = 20
DRIVEN_SECONDS: Final = 5
WARM_SECONDS: Final = 3
AIM_MS: Final = 10
KEPT_CONNECTIONS: Final = 25
"""Idle ones that client-go keeps to one host."""
CONNECTIONS: Final = (1, 32)

_SETUP: Final = """
import base64
from django.utils import timezone
from audit.recorder import Actor
from access.credentials.webhooks import webhook_credential_rotate
from tenants.models import User
from tenants.services import cluster_register, tenant_create, tenant_quota_change, workspace_init
actor = Actor(name="bench", operator=True)
kubeconfig = base64.b64decode("{kubeconfig}").decode()
cluster_register(actor=actor, name="{cluster}", kubeconfig=kubeconfig, credential_kinds=["gateway"])
token = webhook_credential_rotate(actor=actor, cluster="{cluster}", now=timezone.now())
for number in range({tenants}):
    name = f"asked-{{number}}"
    owner = User.objects.create(email=f"olga@{{name}}.test", password="!")
    tenant_create(actor=actor, name=name, owner=owner)
    mine = Actor(name=owner.email, user_id=owner.pk)
    workspace_init(actor=mine, user=owner, tier="basic", name="web", cluster="{cluster}", tenant=name)
    tenant_quota_change(actor=actor, name=name, hard={{"pods": "100000", "requests.cpu": "100000"}})
print("TOKEN", token)
"""

_READY: Final = """
from tenants.models import Workspace
found = Workspace.objects.filter(cluster__name="{cluster}", phase="ready").values_list("tenant__name", "k8s_namespace")
print("READY", *(f"{{tenant}}={{namespace}}" for tenant, namespace in found))
"""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A registered cluster: the credential that it shows, and its namespaces by tenant."""

    token: str
    namespaces: dict[str, str]


def prepare(server: KubeApiserver) -> None:
    """What a cluster is given before it is registered. Raises ``RuntimeError``."""
    for file in ("tenant-roles.yaml", "gateway-role.yaml", "fences.yaml", "mutations.yaml"):
        done = server.kubectl("apply", "--server-side", "-f", str(ROOT / "tenants" / "manifests" / file))
        if done.returncode:
            raise RuntimeError(done.stderr)


def registered(product: Product, server: KubeApiserver) -> Cluster:
    """The kube-apiserver as a cluster of the product, with a workspace of each of some tenants in use there."""
    kubeconfig = base64.b64encode(server.kubeconfig("tenantry-gateway").encode()).decode()
    said = product.manage("shell", code=_SETUP.format(kubeconfig=kubeconfig, cluster=CLUSTER, tenants=TENANTS))
    token = next(line.split()[1] for line in said.splitlines() if line.startswith("TOKEN "))

    def ready() -> dict[str, str]:
        answer = product.manage("shell", code=_READY.format(cluster=CLUSTER))
        words = next(line.split()[1:] for line in answer.splitlines() if line.startswith("READY"))
        found = dict(word.split("=") for word in words)
        return found if len(found) == TENANTS else {}

    return Cluster(token, eventually(ready, within=600, every=2))


def question(user: str, tenant: str, namespace: str) -> dict[str, Any]:
    """May somebody look at the pods of a namespace: as a cluster asks, and as its own administrator does."""
    return {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {
            "user": f"tenantry:{user}",
            "groups": ["tenantry:viewer", "system:authenticated"],
            "extra": {"multi-tenancy.k8s.io/tenant": [tenant]},
            "resourceAttributes": {"verb": "list", "resource": "pods", "version": "v1", "namespace": namespace},
        },
    }


def authorize(target: Target, cluster: Cluster, real: Target) -> None:
    """Both, one after the other, and the ratio."""
    tenant, namespace = next(iter(cluster.namespaces.items()))
    body = json.dumps(question("user-@N@", tenant, namespace))
    headers = {"Authorization": f"Bearer {cluster.token}", "Content-Type": "application/json"}
    for connections in CONNECTIONS:
        own = drive(
            f"{_root(target)}/webhooks/{CLUSTER}/authorize",
            connections=connections,
            headers=headers,
            method="POST",
            body=body,
            seconds=DRIVEN_SECONDS,
        )
        its = drive(
            f"{real.url}{REVIEWS}",
            connections=connections,
            headers=real.headers,
            method="POST",
            body=body,
            seconds=DRIVEN_SECONDS,
        )
        if not its.rate:
            raise RuntimeError("the kube-apiserver has answered nothing: the machine does too much else to measure on")
        print(f"  authorize, our webhook               c={connections:<3} {own}", flush=True)
        print(f"  its RBAC, {BINDINGS + 60:,} bindings            c={connections:<3} {its}", flush=True)
        print(f"  our webhook answers {own.rate / its.rate:.1f} times as many (aim 3, must 2)", flush=True)


def reviews(namespaces: list[str]) -> Iterator[bytes]:
    """Of pods that come, are changed, and go: no more than fifty of a namespace at a time.

    Tenants know nothing of each other: were they asked for in turn, all would make pods at one time, and delete at another.
    """
    there = {namespace: deque[dict[str, Any]]() for namespace in namespaces}
    chance = random.Random(0)
    while True:
        namespace = chance.choice(namespaces)
        pods = there[namespace]
        if len(pods) == 50:
            yield _review(namespace, "DELETE", None, pods.popleft())
            continue
        pods.append(_pod())
        yield _review(namespace, "CREATE", pods[-1], None)
        if len(pods) % 5 == 0:
            old = {**pods[-1], "metadata": {**pods[-1]["metadata"], "resourceVersion": "1"}}
            yield _review(namespace, "UPDATE", {**old, "metadata": {**old["metadata"], "labels": {"a": "b"}}}, old)


def _pod() -> dict[str, Any]:
    container = {"name": "web", "image": "registry.example.org/web:1", "resources": {"requests": {"cpu": "100m"}}}
    metadata = {"name": f"web-{uuid4().hex[:10]}", "uid": str(uuid4())}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def _review(namespace: str, operation: str, new: dict[str, Any] | None, old: dict[str, Any] | None) -> bytes:
    request = {
        "uid": str(uuid4()),
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": (new or old or {})["metadata"]["name"],
        "namespace": namespace,
        "operation": operation,
        "userInfo": {
            "username": "system:serviceaccount:kube-system:replicaset-controller",
            "groups": ["system:serviceaccounts:kube-system"],
        },
        "object": new,
        "oldObject": old,
        "dryRun": False,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}).encode()


@dataclass(frozen=True, slots=True)
class Answered:
    """Milliseconds from when each review was due until it was answered, and until the load had a turn to send it.

    What is ``late`` is the load's own, and of who else is on its core: it is in ``times`` as well.
    """

    times: list[float] = field(default_factory=list)
    late: list[float] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)


async def _steadily(session: aiohttp.ClientSession, url: str, bodies: Sequence[bytes], at_once: int = 1) -> Answered:
    """Have ``RATE`` reviews a second answered, the first ``at_once``."""
    found = Answered()

    async def ask(body: bytes, due: float) -> None:
        found.late.append((time.perf_counter() - due) * 1000)
        async with session.post(url, data=body) as answer:
            said = await answer.json(content_type=None)
        admitted = answer.status == 200 and said["response"]["allowed"]
        found.answers["admitted" if admitted else f"{answer.status}"] += 1
        found.times.append((time.perf_counter() - due) * 1000)

    async with asyncio.TaskGroup() as group:
        begun = time.perf_counter()
        for number, body in enumerate(bodies):
            due = begun + max(0, number + 1 - at_once) / RATE
            await asyncio.sleep(max(0.0, due - time.perf_counter()))
            group.create_task(ask(body, due))
    return found


async def _load(
    url: str, token: str, bodies: Iterator[bytes], spent: Callable[[], tuple[float, float]]
) -> tuple[Answered, float, float]:
    """What was answered once all is warm, and what server and database have ``spent`` on it.

    The load is not to be what is measured: what it asks is written beforehand, and its connections are kept, as many as a
    kube-apiserver keeps.
    """
    first, asked = (list(itertools.islice(bodies, RATE * seconds)) for seconds in (WARM_SECONDS, SECONDS))
    gc.collect()
    gc.disable()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connector = aiohttp.TCPConnector(ssl=ssl._create_unverified_context(), limit=64, keepalive_timeout=300)
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        await _steadily(session, url, first, at_once=KEPT_CONNECTIONS)
        before = spent()
        found = await _steadily(session, url, asked)
        after = spent()
    gc.enable()
    return found, after[0] - before[0], after[1] - before[1]


def admit(product: Product, target: Target, cluster: Cluster) -> None:
    """The steady load, and what was answered within which time."""
    url = f"{_root(target)}/webhooks/{CLUSTER}/admit?timeout=10s"
    bodies = reviews(list(cluster.namespaces.values()))
    postgresql = int((product.folder / "postgresql" / "data" / "postmaster.pid").read_text().split()[0])

    def spent() -> tuple[float, float]:
        return processor_seconds(target.pid), sum(map(processor_seconds, [postgresql, *children(postgresql)]))

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        found, server, database = runner.run(_load(url, cluster.token, bodies, spent))
    asked, cuts, late = len(found.times), *(statistics.quantiles(each, n=100) for each in (found.times, found.late))
    figures = Figures(asked / SECONDS, cuts[49], cuts[98], asked - found.answers["admitted"])
    print(f"  admit at {RATE}/s, {TENANTS} tenants          {figures}   (aim: p99 {AIM_MS} ms)", flush=True)
    print(
        f"  answers {dict(found.answers)}; the load itself was late by p50 {late[49]:.1f} and p99 {late[98]:.1f} ms; "
        f"of the core the server takes {server / SECONDS:.0%}, PostgreSQL "
        f"{database / SECONDS:.0%}: {server / asked * 1e6:.0f} and {database / asked * 1e6:.0f} µs each"
    )


def commits(product: Product) -> None:
    """The floor: as many commits a second of one small row each, on the same database, with nothing else to do."""
    times: list[float] = []
    with psycopg.connect(product.database.replace("tenantry@", "postgres@"), autocommit=True) as connection:
        connection.execute("CREATE TABLE floor AS SELECT 0::bigint AS number")
        begun = time.perf_counter()
        for number in range(RATE * SECONDS // 2):
            time.sleep(max(0.0, begun + number / RATE - time.perf_counter()))
            sent = time.perf_counter()
            connection.execute("UPDATE floor SET number = number + 1")
            times.append((time.perf_counter() - sent) * 1000)
    cuts = statistics.quantiles(times, n=100)
    print(f"  a commit of the database alone, {RATE}/s   p50 {cuts[49]:8.2f} ms   p99 {cuts[98]:8.2f} ms", flush=True)


def _root(target: Target) -> str:
    return f"https://{urlsplit(target.url).netloc}"


@contextlib.contextmanager
def measured(server: KubeApiserver) -> Iterator[tuple[Product, Target, Cluster]]:
    """One API server and its database, with the kube-apiserver as a cluster, and nothing else of the product."""
    with tempfile.TemporaryDirectory(prefix="tenantry-bench-") as folder, contextlib.ExitStack() as stack:
        Path(folder).chmod(0o711)
        product = Product(Path(folder) / "data")
        product.start()
        try:
            cluster = registered(product, server)
        finally:
            product.stop()
        database = PostgreSQL(product.folder / "postgresql", Path(folder) / "log")
        with on_core(0):
            database.start()
        stack.callback(database.stop)
        yield product, stack.enter_context(served(product, "")), cluster


def main() -> None:
    """Measure authorize and admit beside the real server, and print both."""
    if not kubeapiserver.PRESENT:
        print(f"skipped: {kubeapiserver.REASON}")
        return
    with contextlib.ExitStack() as stack:
        with on_core(0):
            server = stack.enter_context(kubeapiserver.running(controllers=True, serious=True))
        prepare(server)
        product, target, cluster = stack.enter_context(measured(server))
        real = Target("kube-apiserver", server.url, kubeapiserver.TOKEN)
        with on_core(-1):
            fill(real, 0, BINDINGS)
            authorize(target, cluster, real)
            for process in server.processes:
                move(process.pid, -1)
            commits(product)
            admit(product, target, cluster)


if __name__ == "__main__":
    main()
