"""A registered cluster that lies, drips and never ends harms nobody but its own tenants (GW12, GW15)."""

from __future__ import annotations

import base64
import copy
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any
from urllib.parse import unquote

import pytest
from django.utils import timezone

from access.credentials import credentials_expire, kubeconfig_issue
from access.models import Credential
from kube.requests.status import ServiceUnavailable
from tenants.clusters import client as clusters
from tenants.clusters import objects
from tenants.clusters.client import Outcome, client_to
from tenants.clusters.deadline import HurriedSocket, deadline
from tenants.models import Cluster, Operation, Phase, Workspace
from tenants.reconciler.loop import clusters_recheck, operations_run, workspaces_reconcile
from tenants.services import cluster_check, cluster_register, workspace_init, workspace_suspend
from tests.hostilecluster import HostileCluster, hostile_cluster
from tests.tenants.conftest import OPERATOR, actor_of, make_tenant, make_user

pytestmark = pytest.mark.django_db

OURS = "Something went wrong on our side"


@pytest.fixture
def hostile(db) -> Iterator[HostileCluster]:
    with hostile_cluster() as cluster:
        cluster_register(actor=OPERATOR, name="hostile", kubeconfig=cluster.kubeconfig, is_default=True)
        yield cluster


@pytest.fixture
def workspace(hostile, tiers) -> Workspace:
    owner = make_user()
    make_tenant("acme", owner)
    workspace = workspace_init(actor=actor_of(owner), user=owner, tier="basic", name="web")
    Workspace.objects.update(namespace_uid="u")
    return workspace


DRIPS = {
    "body": (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 4000\r\n\r\n", lambda _: b" "),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", lambda _: b"1\r\n \r\n"),
    "headers": (b"HTTP/1.1 200 OK\r\n", lambda number: f"X-{number}: a\r\n".encode()),
    "one-header": (b"HTTP/1.1 200 OK\r\nX: ", lambda _: b"a"),
    "continue": (b"", lambda _: b"HTTP/1.1 100 Continue\r\n\r\n"),
    "status": (b"HTTP/1.1 2", lambda _: b"0"),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_no_drip_prolongs_a_call(hostile, drip, monkeypatch):
    """A call has one deadline, which no byte begins anew: leases of operations are built on it."""
    monkeypatch.setattr(clusters, "CALL_SECONDS", 1.5)  # less than they drip, and enough to begin with
    first, more = DRIPS[drip]
    cut = threading.Event()

    def trickle(connection: Any) -> None:
        connection.sendall(first)
        try:
            for number in range(90):
                time.sleep(0.05)
                connection.sendall(more(number))
        except OSError:
            cut.set()
            raise

    hostile.reply = lambda _method, _path: trickle
    answer = client_to(Cluster.objects.get(name="hostile")).get("/api/v1/namespaces/x")
    assert answer.outcome in {Outcome.UNKNOWN, Outcome.RETRY}
    assert not answer.reached
    assert cut.wait(300), "the call lasted as long as the cluster liked"


def test_each_piece_of_a_call_has_what_is_left_of_the_earliest_deadline(hostile):
    """A cluster that takes what is sent to it byte by byte is no better than one that answers so."""
    context = ssl.create_default_context(cadata=hostile.ca.cert_pem.bytes().decode())
    context.sslsocket_class = HurriedSocket
    host, port = hostile.url.removeprefix("https://").split(":")
    with socket.create_connection((host, int(port))) as plain, context.wrap_socket(plain, server_hostname=host) as line:
        line.sendall(b"GET /version HTTP/1.1\r\n")
        with deadline(0), deadline(60):
            for use in (lambda: line.send(b"x"), lambda: line.sendall(b"x"), lambda: line.recv_into(bytearray(1))):
                with pytest.raises(TimeoutError):
                    use()


def object_at(path: str) -> dict[str, Any]:
    """What a friendly cluster could answer to a path: a workspace's own object, or a list with one."""
    metadata = {"name": unquote(path.partition("?")[0].rpartition("/")[2]), "uid": "u", "labels": {}, "annotations": {}}
    found: dict[str, Any] = {"apiVersion": "v1", "kind": "Thing", "metadata": metadata, "spec": {}, "status": {}}
    if metadata["name"] in {"rolebindings", "storageclasses", "pods"}:
        found = {**found, "kind": "ThingList", "metadata": {}, "items": [found]}
    return found


VALUES = {
    "text": "x",
    "number": 5,
    "list": [[]],
    "object": {"x": {}},
    "true": True,
    "nothing": None,
    "nul": "a\0b",
    "surrogate": "a\ud800",
    "infinite": float("inf"),
}
PLACES = [
    ("metadata",),
    ("metadata", "name"),
    ("metadata", "uid"),
    ("metadata", "labels"),
    ("metadata", "labels", "x"),
    ("metadata", "annotations"),
    ("metadata", "deletionTimestamp"),
    ("metadata", "continue"),
    ("spec",),
    ("spec", "hard"),
    ("status",),
    ("status", "hard"),
    ("status", "token"),
    ("status", "allowed"),
    ("status", "userInfo"),
    ("items",),
    ("items", 0),
    ("items", 0, "metadata"),
    ("items", 0, "metadata", "name"),
    ("items", 0, "metadata", "labels"),
    ("items", 0, "provisioner"),
    ("items", 0, "subjects"),
    ("items", 0, "roleRef"),
    ("message",),
    ("reason",),
    ("kind",),
]


def spoiled(path: str, place: tuple[Any, ...], value: Any) -> dict[str, Any]:
    body = copy.deepcopy(object_at(path))
    inner: Any = body
    for key in place[:-1]:
        if isinstance(inner, dict):
            inner = inner.setdefault(key, {})
        elif isinstance(inner, list) and inner:
            inner = inner[0]
    if isinstance(inner, dict):
        inner[place[-1]] = value
    elif isinstance(inner, list):
        inner[:] = [value]
    return body


@pytest.mark.parametrize("code", [200, 403, 409])
@pytest.mark.parametrize("value", VALUES)
def test_no_answer_stops_the_sweeps(hostile, workspace, value, code):
    """Generated: every value of the wrong kind at every place that is read, in every piece of work that asks a cluster."""
    now = timezone.now()
    credential = Credential.objects.create(
        tenant=workspace.tenant,
        workspace=workspace,
        issued_to=workspace.user,
        role="admin",
        anchor="tenantry-anchor-1",
        failed_at=now,
    )

    def work() -> None:
        Operation.objects.update(state="pending", not_before=now - timedelta(hours=1), lease_until=None, steps_done=[])
        operations_run(limit=1)

    def drift() -> None:
        Workspace.objects.update(checked_at=None, observed_generation=1, generation=1, phase=Phase.READY)
        workspaces_reconcile()

    def recheck() -> None:
        Cluster.objects.update(checked_at=None)
        clusters_recheck()

    jobs: list[Callable[[], object]] = [
        work,
        drift,
        recheck,
        lambda: cluster_check(actor=OPERATOR, name="hostile"),
        lambda: credentials_expire(now=now),
    ]
    for place in PLACES:
        hostile.reply = lambda _method, path, place=place: (code, spoiled(path, place, VALUES[value]))
        for job in jobs:
            Cluster.objects.update(away_until=None)
            Credential.objects.filter(pk=credential.pk).update(confirm_after=None, revocation_confirmed_at=None)
            job()
            assert OURS not in Operation.objects.get().error, (place, Operation.objects.get().error)


@pytest.mark.parametrize("value", VALUES)
def test_no_answer_makes_a_suspension_true(hostile, workspace, value):
    """What is not the answer to the question proves nothing: a Status, a Pod, another's namespace."""
    Workspace.objects.update(phase=Phase.READY)
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="x")
    for place in PLACES:
        if place == ("metadata", "uid") and value == "text":
            continue  # a namespace of another identity is another's
        hostile.reply = lambda _method, path, place=place: (200, spoiled(path, place, VALUES[value]))
        Operation.objects.update(not_before=timezone.now() - timedelta(hours=1), lease_until=None)
        Cluster.objects.update(away_until=None)
        operations_run(limit=1)
        assert Workspace.objects.get().phase == Phase.SUSPENDING, place


def test_a_namespace_is_gone_only_where_the_cluster_says_so(hostile, workspace):
    Workspace.objects.update(phase=Phase.READY)
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="x")
    for body in ({"kind": "Status", "status": "Success"}, {"kind": "Pod", "metadata": {"name": "p", "uid": "v"}}):
        hostile.reply = lambda _method, _path, body=body: (200, body)
        Operation.objects.update(not_before=timezone.now() - timedelta(hours=1), lease_until=None)
        operations_run(limit=1)
        assert Workspace.objects.get().phase == Phase.SUSPENDING
        assert "something else" in Operation.objects.order_by("-generation")[0].error


def test_a_list_without_an_end_ends(hostile, workspace, monkeypatch):
    """Every page names another one; each binding is told to be deleted and none is kept beyond what a row has room for."""
    monkeypatch.setattr("tenants.reconciler.closing._PAGES_MOST", 20)
    Workspace.objects.update(phase=Phase.READY)
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="x")
    pages = iter(range(1_000_000))

    def reply(method: str, path: str) -> tuple[int, Any]:
        if method == "GET" and "rolebindings?" in path:
            item = {"metadata": {"name": f"b{next(pages)}"}, "subjects": []}
            return 200, {"kind": "RoleBindingList", "metadata": {"continue": "more"}, "items": [item]}
        return 200, object_at(path)

    hostile.reply = reply
    operations_run(limit=1)
    assert "does not end" in Operation.objects.order_by("-generation")[0].error
    assert next(pages) == 20


def test_a_slow_cluster_gets_a_share_of_a_workers_time_and_no_more(hostile, workspace, monkeypatch):
    """The calls of one turn together: thirty at the edge of their deadlines would keep a worker for minutes."""
    monkeypatch.setattr(clusters, "PATIENCE_SECONDS", 0.0)
    hostile.reply = lambda _method, path: (200, object_at(path))
    cluster = Cluster.objects.get(name="hostile")
    client = clusters.ClusterClient(clusters._pool_of(cluster), "", patience=0.000001)
    first, second = client.get("/api/v1/namespaces/x"), client.get("/api/v1/namespaces/x")
    assert first.outcome is Outcome.DONE
    assert second.outcome is Outcome.RETRY
    assert not second.reached
    assert len(hostile.calls) == 1


def test_reads_keep_a_lease_too(hostile, workspace, monkeypatch):
    """A cluster that takes its time for every read must not cost the worker its turn, again and again."""
    renewed = []
    monkeypatch.setattr("tenants.operationqueue.READS_RENEW_AFTER", -1.0)
    original = "tenants.operationqueue.OperationLease.renew"
    from tenants.operationqueue import OperationLease

    renew = OperationLease.renew

    def counted(turn: OperationLease) -> None:
        renewed.append(1)
        renew(turn)

    monkeypatch.setattr(original, counted)
    Workspace.objects.update(service_accounts=dict.fromkeys(objects.ACCOUNTS.values(), "v"))
    hostile.reply = lambda _method, path: (200, object_at(path))
    operations_run(limit=1)
    assert len(renewed) >= len(hostile.calls)


CLAIMS = [
    ("sub",),
    ("kubernetes.io",),
    ("kubernetes.io", "namespace"),
    ("kubernetes.io", "serviceaccount"),
    ("kubernetes.io", "serviceaccount", "uid"),
    ("kubernetes.io", "secret"),
    ("kubernetes.io", "secret", "name"),
    ("kubernetes.io", "secret", "uid"),
]


@pytest.mark.parametrize("wrong", [None, *CLAIMS], ids=str)
@pytest.mark.parametrize("value", [None, "x", {"name": "x"}], ids=["missing", "text", "object"])
def test_no_token_is_handed_out_that_its_anchor_would_not_end(hostile, workspace, wrong, value):
    """GW3: what a token says of its account and its anchor is what was asked for, or it could not be revoked."""
    namespace, account = workspace.k8s_namespace, objects.ACCOUNTS["admin"]
    accounts = dict.fromkeys(objects.ACCOUNTS.values(), "v")
    Workspace.objects.update(phase=Phase.READY, service_accounts=accounts)

    def reply(method: str, path: str) -> tuple[int, Any]:
        if not path.endswith("/token"):
            return 200, object_at(path)
        bound: dict[str, Any] = {"namespace": namespace, "serviceaccount": {"name": account, "uid": "v"}}
        bound["secret"] = {"name": json.loads(hostile.sent)["spec"]["boundObjectRef"]["name"], "uid": "u"}
        ends = timezone.now() + timedelta(hours=1)
        claims: dict[str, Any] = {
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "exp": int(ends.timestamp()),
            "kubernetes.io": bound,
        }
        if wrong is not None:
            place = claims
            for part in wrong[:-1]:
                place = place[part]
            del place[wrong[-1]]
            if value is not None:
                place[wrong[-1]] = value
        payload = base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=")
        return 201, {
            "kind": "TokenRequest",
            "status": {"token": f"e30.{payload}.e30", "expirationTimestamp": f"{ends}"},
        }

    hostile.reply = reply
    who, now = actor_of(workspace.user), timezone.now()
    issue = partial(kubeconfig_issue, actor=who, workspace_id=workspace.id, kind="direct", now=now)
    if wrong is None:
        assert "e30" in issue().yaml
        return
    with pytest.raises(ServiceUnavailable):
        issue()
    assert Credential.objects.get().failed_at is not None


def test_a_canary_without_a_token_asks_nobody(hostile, workspace):
    """With an empty token the question would go out with the gateway's own credential, and prove the wrong thing."""
    Workspace.objects.update(phase=Phase.READY)
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.id, reason="x")

    def reply(method: str, path: str) -> tuple[int, Any]:
        if method == "GET" and "rolebindings?" in path:
            return 200, {"kind": "RoleBindingList", "metadata": {}, "items": []}
        return 200, object_at(path)

    hostile.reply = reply
    operations_run(limit=1)
    assert "no token to try" in Operation.objects.order_by("-generation")[0].error
    assert not any("selfsubjectaccessreviews" in path for _method, path in hostile.calls)
