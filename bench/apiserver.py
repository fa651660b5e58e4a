"""The API server beside kube-apiserver: reads, writes, reviews, delivery to 1,000 watches, memory, idle spaces.

``python -m bench.apiserver [SPACES]``, 10,000 unless told.

The peer runs when ``KUBEBUILDER_ASSETS`` names a folder with kube-apiserver and etcd; one after the other, on the same
machine, over TLS with kept connections, with authentication, authorization, admission and audit on. Each server has one
core together with its database, and the load comes from another.
"""

from __future__ import annotations

import contextlib
import json
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg

from bench.measuring.load import Figures, drive, on_core
from bench.measuring.processes import resident
from tests import kubeapiserver
from tests.ports import free_port
from tests.story.product import ROOT, Product, eventually

SPACES = 10_000
WATCHES = 1000
READ = 10
"""Watches that are read from, spread over all of them."""
MANY = 1_000_000
_LIMITS = [f"--tenant-{kind}-{what}={MANY}" for kind in ("read", "write", "watch") for what in ("qps", "burst")]
"""One tenant has the server to itself: its requests are counted, and not held up."""

BASE = "/api/v1/namespaces/default/configmaps"
CONFIGMAP = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"padding": "x" * 700}}
REVIEW = {
    "apiVersion": "authorization.k8s.io/v1",
    "kind": "SubjectAccessReview",
    "spec": {
        "user": "jane",
        "groups": ["developers"],
        "resourceAttributes": {"verb": "list", "resource": "pods", "namespace": "default"},
    },
}


@dataclass(frozen=True, slots=True)
class Target:
    """A server under load, spoken to as a service account with RBAC rights in one space (at the peer: in the cluster)."""

    name: str
    url: str
    token: str
    pid: int | None = None

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every request."""
        return {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}

    def connect(self) -> HTTPSConnection:
        """A new connection."""
        return HTTPSConnection(urlsplit(self.url).netloc, context=ssl._create_unverified_context(), timeout=60)

    def call(self, connection: HTTPSConnection, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """One request; raises ``RuntimeError`` when it is refused."""
        connection.request(method, urlsplit(self.url).path + path, body and json.dumps(body), self.headers)
        answer = connection.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]!r}")
        result: dict[str, Any] = json.loads(text)
        return result


@contextlib.contextmanager
def tenanted() -> Iterator[tuple[Product, str]]:
    """The quickstart, with a tenant, and the token of a service account that may do what it likes in its space."""
    with tempfile.TemporaryDirectory(prefix="tenantry-bench-") as folder:
        Path(folder).chmod(0o711)
        product = Product(Path(folder) / "data")
        with on_core(0):
            product.start()
        try:
            manifest = Path(folder) / "tenant.yaml"
            manifest.write_text("apiVersion: v1\nkind: Tenant\nmetadata: {name: bench}\n")
            product.kubectl("create", "-f", str(manifest))
            yield product, driver(product, "bench")
        finally:
            product.stop()


def driver(product: Product, tenant: str, *arguments: str) -> str:
    """The token of a service account that may do what it likes in the tenant's space."""
    at = ("--server", f"{product.facts['apiserver_url']}/clusters/root:{tenant}")
    product.kubectl(*at, "create", "serviceaccount", "driver", "-n", "default")
    rights = ("--clusterrole=cluster-admin", "--serviceaccount=default:driver")
    product.kubectl(*at, "create", "clusterrolebinding", "driver", *rights)
    return product.kubectl(*at, "create", "token", "driver", "-n", "default", *arguments).strip()


@contextlib.contextmanager
def tenantry() -> Iterator[Target]:
    """A server of ours under load; afterwards it is measured what tenants and idle spaces cost it."""
    with tenanted() as (product, token), served(product, token) as target:
        assert target.pid is not None
        print(f"  Tenantry        resident when idle {resident(target.pid):,.0f} MiB", flush=True)
        yield target
        _new_tenants(product, target.url.removesuffix("/clusters/root:bench"))
        _idle_spaces(product, target.pid)


@contextlib.contextmanager
def served(
    product: Product, token: str, *, alone: bool = True, program: Sequence[str] = ("manage.py",)
) -> Iterator[Target]:
    """An API server beside the product's own, with no limit that the load would meet.

    ``alone`` it shares a core with its database; one of several has all cores with the others. ``program`` runs what is
    else run by ``manage.py``.
    """
    port = free_port()
    environment = {
        **product.environment,
        "DATABASE_URL": product.database,
    }
    command = [sys.executable, *program, "apiserver", f"--secure-port={port}", f"--tenant-max-watches={MANY}"]
    with on_core(0) if alone else contextlib.nullcontext():
        process = subprocess.Popen([*command, *_LIMITS], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    target = Target("Tenantry", f"https://127.0.0.1:{port}", "")
    try:
        eventually(lambda: _is_ready(target), within=300, every=0.2)
        yield Target("Tenantry", f"{target.url}/clusters/root:bench", token, process.pid)
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(target: Target) -> bool:
    connection = target.connect()
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _new_tenants(product: Product, url: str, rounds: int = 30) -> None:
    """From asking for a tenant to having an object in its space."""
    context = ssl._create_unverified_context()
    context.load_cert_chain(product.folder / "pki" / "admin.crt", product.folder / "pki" / "admin.key")
    connection = HTTPSConnection(urlsplit(url).netloc, context=context, timeout=60)
    times = []
    for number in range(rounds):
        tenant = {"apiVersion": "v1", "kind": "Tenant", "metadata": {"name": f"quick-{number}"}}
        first = {**CONFIGMAP, "metadata": {"name": "first"}}
        begun = time.perf_counter()
        for path, body in (
            ("/api/v1/tenants", tenant),
            (f"/api/v1/tenants/quick-{number}/namespaces/default/configmaps", first),
        ):
            connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 201:
                raise RuntimeError(f"{path}: {answer.status} {text[:300]!r}")
        times.append((time.perf_counter() - begun) * 1000)
    cuts = statistics.quantiles(times, n=100, method="inclusive")
    print(f"  Tenantry        a tenant created and used   p50 {cuts[49]:.1f} ms   p99 {cuts[98]:.1f} ms", flush=True)


_MAKE_SPACES = """
from audit.recorder import Actor
from tenants.services.tenants import tenant_create
actor = Actor(name="bench", operator=True)
for number in range({spaces}):
    tenant_create(actor=actor, name=f"idle-{{number}}", display_name="")
"""


def _idle_spaces(product: Product, pid: int) -> None:
    """What a space costs that nobody uses: bytes in the database, with its log and its audit, and in the server."""
    spaces = int(sys.argv[1]) if len(sys.argv) > 1 else SPACES
    database = product.database
    with psycopg.connect(database, autocommit=True) as connection:

        def size() -> int:
            row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            return int(row[0]) if row else 0

        before, before_memory, begun = size(), resident(pid), time.perf_counter()
        product.manage("shell", code=_MAKE_SPACES.format(spaces=spaces), within=600)
        seconds, grown = time.perf_counter() - begun, size() - before
    print(
        f"  Tenantry        {spaces:,} idle spaces, {spaces / seconds:,.0f} made a second: "
        f"{grown / spaces / 1024:.1f} KiB each in the database, "
        f"{(resident(pid) - before_memory) * 1024 / spaces:.2f} KiB each in memory",
        flush=True,
    )


@contextlib.contextmanager
def peer() -> Iterator[Target | None]:
    """A kube-apiserver with etcd, or nothing."""
    if not kubeapiserver.PRESENT:
        yield None
        return
    with contextlib.ExitStack() as stack:
        with on_core(0):
            server = stack.enter_context(kubeapiserver.running(serious=True))
        yield Target("kube-apiserver", server.url, _driver(Target("", server.url, kubeapiserver.TOKEN)))


def _driver(administrator: Target) -> str:
    """The token of a service account that may do what it likes by RBAC, as the one that asks our server."""
    connection = administrator.connect()
    accounts, metadata = "/api/v1/namespaces/default/serviceaccounts", {"name": "driver"}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata}
    administrator.call(connection, "POST", accounts, account)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "driver", "namespace": "default"}],
    }
    administrator.call(connection, "POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
    wanted = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
    token = administrator.call(connection, "POST", f"{accounts}/driver/token", wanted)
    return str(token["status"]["token"])


def measure(target: Target) -> dict[str, Figures]:
    """Every measurement of one server, printed as it comes."""
    figures: dict[str, Figures] = {}

    def load(label: str, connections: int, path: str, **how: Any) -> None:
        found = drive(target.url + path, connections=connections, **{"headers": target.headers, **how})
        figures[f"{label}, {connections} connections"] = found
        print(f"  {target.name:<15} {label:<20} c={connections:<3} {found}", flush=True)

    connection = target.connect()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "list"}}
    target.call(connection, "POST", "/api/v1/namespaces", namespace)
    for number in range(500):
        item = {**CONFIGMAP, "metadata": {"name": f"item-{number}"}}
        target.call(connection, "POST", "/api/v1/namespaces/list/configmaps", item)
    target.call(connection, "POST", BASE, {**CONFIGMAP, "metadata": {"name": "one"}})
    new = json.dumps({**CONFIGMAP, "metadata": {"name": "new-@N@"}})
    patch = {"method": "PATCH", "body": json.dumps({"data": {"word": "@N@"}})}
    patch["headers"] = {**target.headers, "Content-Type": "application/merge-patch+json"}  # type: ignore[assignment]
    whole = {**CONFIGMAP, "metadata": {"name": "one"}, "data": {"word": "@N@"}}
    update = {"method": "PUT", "body": json.dumps(whole)}
    reviews = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    review = {"method": "POST", "body": json.dumps(REVIEW)}
    new_question = {**REVIEW, "spec": {**REVIEW["spec"], "user": "jane-@N@"}}  # type: ignore[dict-item]
    for connections in (1, 32):
        load("GET", connections, f"{BASE}/one")
        load("LIST of 500", min(connections, 8), "/api/v1/namespaces/list/configmaps")
        load("CREATE", connections, BASE, method="POST", body=new)
        load("UPDATE of one object", connections, f"{BASE}/one", **update)
        load("PATCH of one object", connections, f"{BASE}/one", **patch)
        load("SubjectAccessReview", connections, reviews, **review)
        load("… of a new user each", connections, reviews, method="POST", body=json.dumps(new_question))
    for label, spread in (("delivery to one of 1,000 watches", True), ("delivery to all of 1,000 watches", False)):
        figures[label] = watch_delivery(target, spread=spread)
        print(f"  {target.name:<15} {label} {figures[label]}", flush=True)
    if target.pid is not None:
        print(f"  {target.name:<15} resident after all that      {resident(target.pid):,.0f} MiB")
    return figures


def watch_delivery(target: Target, *, spread: bool, events: int = 100) -> Figures:
    """From sending a create to reading its event from an open watch, whichever of them.

    All watches look at one namespace and each gets every event, or, ``spread``, each has a namespace of its own.
    """
    connection = target.connect()
    places = [f"watched-{number if spread else 0}" for number in range(READ)]
    for place in dict.fromkeys(places):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place}}
        with contextlib.suppress(RuntimeError):  # it is there from the other measurement
            target.call(connection, "POST", "/api/v1/namespaces", namespace)
    watches = []
    for number in range(WATCHES):
        watch = target.connect()
        nth, rest = divmod(number, WATCHES // READ)
        place = places[nth] if not rest or not spread else f"quiet-{number}"
        path = f"{urlsplit(target.url).path}/api/v1/namespaces/{place}/secrets?watch=true&timeoutSeconds=300"
        watch.request("GET", path, headers=target.headers)
        watches.append((watch, watch.getresponse()))
    arrived: list[dict[str, float]] = [{} for _ in range(READ)]

    def read(number: int) -> None:
        answer = watches[number * (WATCHES // READ)][1]
        with contextlib.suppress(OSError, ValueError, AttributeError):  # the watch is closed below
            while line := answer.readline():
                now = time.perf_counter()
                arrived[number][json.loads(line)["object"]["metadata"]["name"]] = now

    for number in range(READ):
        threading.Thread(target=read, args=(number,), daemon=True).start()
    delays = []
    for number in range(events):
        name = f"event-{number}-{time.monotonic_ns()}"
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
        begun = time.perf_counter()
        target.call(connection, "POST", f"/api/v1/namespaces/{places[number % READ]}/secrets", secret)
        told = [arrived[number % READ]] if spread else arrived
        eventually(lambda name=name, told=told: all(name in seen for seen in told), within=5, every=0.005)
        delays += [(seen[name] - begun) * 1000 for seen in told]
    for watch, _ in watches:
        watch.close()
    cuts = statistics.quantiles(delays, n=100)
    return Figures(1000 / statistics.mean(delays), cuts[49], cuts[98], 0)


def main() -> None:
    """Measure ours, then the peer, and print the ratios."""
    with tenantry() as target, on_core(-1):
        mine = measure(target)
    with peer() as other, on_core(-1):
        theirs = measure(other) if other is not None else None
    if theirs is None:
        print("  No peer: set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd for the ratios.")
        return
    print("  Against kube-apiserver:")
    for label, figure in mine.items():
        their = theirs[label]
        rate, p50, p99 = figure.rate / their.rate, their.p50 / figure.p50, their.p99 / figure.p99
        print(f"    {label:<36} {rate:5.1f}x the rate   p50 {p50:5.1f}x and p99 {p99:5.1f}x as quick")


if __name__ == "__main__":
    main()
