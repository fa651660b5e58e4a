"""The proxy into pods and services of a real cluster: by the tier alone, and by nobody's right who could pass it on (GW4)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tenants.models import Role, Tier, Workspace
from tenants.services import tenant_suspend, tier_change, workspace_change_tier, workspace_resume, workspace_suspend
from tests.gateway.callers import Answer, Caller, eventually
from tests.gateway.placed.conftest import Door
from tests.tenants.conftest import OPERATOR

pytestmark = pytest.mark.django_db(transaction=True)


class Echo(BaseHTTPRequestHandler):
    """Says what it has heard, redirects, and goes on for ever."""

    protocol_version = "HTTP/1.1"

    def head(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "7000")
        self.end_headers()

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.startswith("/leave"):
            self.send_response(302)
            self.send_header("Location", {"/leave/in": "/login?a=b", "/leave/out": "https://evil.test/"}[self.path])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        heard = {name.lower(): value for name, value in self.headers.items()}
        said = json.dumps([self.command, self.path, body.decode(), heard]).encode()
        endless = self.path == "/endless"
        self.send_response(200)
        # Of a page a cluster reads all before it passes it on: it writes its links anew.
        self.send_header("Content-Type", "text/plain" if endless else "text/html")
        self.send_header("Set-Cookie", "sessionid=stolen; Path=/")
        if endless:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)
        if endless:
            self.wfile.flush()
            self.connection.recv(1)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = answer  # noqa: N815
    do_HEAD = head  # noqa: N815

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def listener() -> Iterator[tuple[str, int]]:
    """Where something listens that a cluster takes for a pod: it reaches none at a loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        # Nothing is sent: the system says which address it would be sent from.
        probe.connect(("192.0.2.1", 9))
        address = probe.getsockname()[0]
    server = ThreadingHTTPServer((address, 0), Echo)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield address, server.server_address[1]
    server.shutdown()
    server.server_close()


@pytest.fixture
def place(door: Door, listener: tuple[str, int]) -> str:
    """A namespace with the service ``web``, behind which something listens."""
    name = door.place(door.person("olga", Role.OWNER))
    address, port = listener
    real = door.cluster.real.admin
    service = {"metadata": {"name": "web"}, "spec": {"ports": [{"name": "http", "port": 80}]}}
    assert real.send("POST", f"/api/v1/namespaces/{name}/services", service).status == 201
    # A cluster reaches no address but that of a pod of the namespace.
    pods = f"/api/v1/namespaces/{name}/pods"
    pod = {
        "metadata": {"name": "web"},
        "spec": {"automountServiceAccountToken": False, "containers": [{"name": "c", "image": "example.org/web"}]},
    }
    door.until(lambda: real.send("POST", pods, pod).status in (201, 409))
    status = {"status": {"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]}}
    assert real.send("PUT", f"{pods}/web/status", {**real.send("GET", f"{pods}/web").body, **status}).status == 200
    target = {"kind": "Pod", "namespace": name, "name": "web"}
    subset = {"addresses": [{"ip": address, "targetRef": target}], "ports": [{"name": "http", "port": port}]}
    ends = {"metadata": {"name": "web"}, "subsets": [subset]}
    assert real.send("POST", f"/api/v1/namespaces/{name}/endpoints", ends).status == 201
    return name


def proxies(door: Door, name: str, *, opened: bool) -> None:
    """Have the tier of a namespace open the proxy, or close it, on its cluster too."""
    tier = Workspace.objects.get(k8s_namespace=name).tier_id
    tier_change(actor=OPERATOR, name=tier, proxies=opened)
    bindings = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings/tenantry-proxy"
    door.until(lambda: (door.cluster.real.admin.send("GET", bindings).status == 200) is opened)


def reach(owner: Caller, path: str) -> Answer:
    """What is answered behind the proxy, once the cluster knows of the binding and of the service's endpoints."""
    answers: list[Answer] = []

    def reached() -> bool:
        answers.append(owner.get(path))
        return answers[-1].status == 200

    assert eventually(reached), answers[-1]
    return answers[-1]


def may(door: Door, name: str, account: str) -> bool:
    return door.cluster.kubectl(
        "auth",
        "can-i",
        "create",
        "pods",
        "--subresource=proxy",
        "-n",
        name,
        f"--as=system:serviceaccount:{name}:{account}",
    ).startswith("yes")


def test_the_tier_opens_it_and_closes_it_at_the_door_and_on_the_cluster(door: Door, place: str) -> None:
    owner, viewer = door.person("olga", Role.OWNER), door.person("vera", Role.VIEWER)
    path = f"/api/v1/namespaces/{place}/services/web:80/proxy/"
    closed = owner.get(path)
    assert (closed.status, closed.reason) == (403, "Forbidden")
    assert "unless an operator opens it" in closed.body["message"]
    assert not may(door, place, "sa-tenant-edit")
    proxies(door, place, opened=True)
    reach(owner, path)
    assert viewer.get(path).status == 403
    # The account that makes RoleBindings could pass it on to what outlives the tier.
    assert [may(door, place, f"sa-tenant-{role}") for role in ("edit", "admin", "view")] == [True, False, False]
    own = {"metadata": {"name": "own"}, "rules": [{"apiGroups": [""], "resources": ["pods/proxy"], "verbs": ["get"]}]}
    assert owner.post(f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place}/roles", own).status == 403
    binding = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{place}/rolebindings/tenantry-proxy"
    assert owner.delete(binding).status in (403, 422)
    proxies(door, place, opened=False)
    assert eventually(lambda: owner.get(path).status == 403)
    assert eventually(lambda: not may(door, place, "sa-tenant-edit"))


def test_what_is_asked_and_answered_passes_and_nothing_else(door: Door, place: str) -> None:
    owner = door.person("olga", Role.OWNER)
    proxies(door, place, opened=True)
    path = f"/api/v1/namespaces/{place}/services/web:80/proxy"
    reach(owner, path)
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"):
        body = None if method in ("GET", "OPTIONS") else b"sent"
        given = {"Cookie": "a=b", "X-Own": "kept", "X-Remote-User": "root", "Content-Type": "text/plain"}
        answer = owner.call(method, f"{path}/a%20b/?q=1&q=2", body, given)
        said, target, sent, heard = answer.body
        assert (said, target, sent) == (method, "/a%20b/?q=1&q=2", "sent" if body else "")
        assert heard["x-own"] == "kept"
        assert not {"authorization", "cookie", "x-remote-user", "impersonate-user"} & heard.keys()
        assert "Bearer" not in str(heard)
        assert answer.headers["content-type"] == "text/html"
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert "set-cookie" not in answer.headers
    head = owner.call("HEAD", f"{path}/a")
    assert (head.status, head.headers["content-length"], head.raw) == (200, "7000", b"")
    full = f"/api/v1/tenants/{door.name}/namespaces/{place}/services/web:80/proxy"
    within = owner.get(f"{path}/leave/in")
    assert (within.status, within.headers["location"]) == (302, f"{full}/login?a=b")
    assert owner.get(within.headers["location"]).body[1] == "/login?a=b"
    outside = owner.get(f"{path}/leave/out")
    assert outside.status == 302
    assert "location" not in outside.headers
    foreign = owner.get(path, headers={"Origin": "https://evil.test"})
    assert foreign.status == 403
    big = owner.post(f"{path}/", b"x" * (4 << 20), {"Content-Type": "text/plain"})
    assert big.status == 413


def test_options_are_for_whoever_may_do_everything(door: Door, place: str) -> None:
    """As at any cluster, which asks for no verb then; HEAD is a way of getting."""
    owner, editor = door.person("olga", Role.OWNER), door.person("edda", Role.EDITOR)
    proxies(door, place, opened=True)
    path = f"/api/v1/namespaces/{place}/services/web:80/proxy/"
    reach(owner, path)
    assert [person.call("HEAD", path).status for person in (owner, editor)] == [200, 200]
    assert [person.call("OPTIONS", path).status for person in (owner, editor)] == [200, 403]
    for method in ("HEAD", "OPTIONS"):
        assert owner.call(method, f"/api/v1/namespaces/{place}/services/web").status == 405


def test_neither_nodes_nor_other_namespaces_are_reached(door: Door, place: str) -> None:
    owner = door.person("olga", Role.OWNER)
    proxies(door, place, opened=True)
    reach(owner, f"/api/v1/namespaces/{place}/services/web:80/proxy/")
    for path in (
        "/api/v1/nodes/n/proxy/",
        "/api/v1/namespaces/default/services/https:kubernetes:443/proxy/",
        f"/api/v1/namespaces/{place}/services/kubernetes.default/proxy/",
        f"/api/v1/namespaces/{place}/services/web:80/proxy/..%2f..%2f",
        f"/api/v1/namespaces/{place}/services/web:80/proxy/../../../secrets",
        f"/api/v1/namespaces/{place}/services/..%2f..%2fdefault%2fservices%2fkubernetes/proxy/",
        f"/api/v1/namespaces/{place}/pods/127.0.0.1/proxy/",
    ):
        assert owner.get(path).status in (400, 403, 404, 503), path
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{place}/endpointslices"
    # Whoever could write these would have the cluster ask whatever it reaches.
    assert owner.post(slices, {"metadata": {"name": "x"}, "addressType": "IPv4", "endpoints": []}).status == 403
    assert owner.post(f"/api/v1/namespaces/{place}/endpoints", {"metadata": {"name": "x"}}).status == 403


def test_what_goes_on_ends_with_the_suspension(door: Door, place: str) -> None:
    owner = door.person("olga", Role.OWNER)
    proxies(door, place, opened=True)
    path = f"/api/v1/namespaces/{place}/services/web:80/proxy"
    reach(owner, path)
    response = owner.open("GET", f"{path}/endless")
    assert response.read1(65536)
    tenant_suspend(actor=OPERATOR, name=door.name, reason="unpaid")
    with pytest.raises(Exception, match=r"IncompleteRead|0 bytes"):
        response.read()
    assert owner.get(path).status == 403


@pytest.mark.parametrize("change", ["of the tier", "to another tier"])
def test_what_goes_on_ends_with_the_tier(door: Door, place: str, change: str) -> None:
    owner = door.person("olga", Role.OWNER)
    proxies(door, place, opened=True)
    path = f"/api/v1/namespaces/{place}/services/web:80/proxy"
    reach(owner, path)
    response, watch = owner.open("GET", f"{path}/endless"), owner.open("GET", "/api/v1/namespaces?watch=true")
    assert response.read1(65536)
    workspace = Workspace.objects.get(k8s_namespace=place)
    if change == "of the tier":
        tier_change(actor=OPERATOR, name=workspace.tier_id, proxies=False)
    else:
        other = Tier.objects.exclude(pk=workspace.tier_id).filter(proxies=False).first()
        assert other is not None
        workspace_change_tier(actor=OPERATOR, workspace_id=workspace.pk, tier=other.pk)
        door.until(lambda: not workspace.operations.exclude(state="done").exists())
    with pytest.raises(Exception, match=r"IncompleteRead|0 bytes"):
        response.read()
    assert owner.get(path).status == 403
    # Nothing else ends by it.
    assert watch.read1(65536)
    watch.close()


def test_a_workspace_that_comes_back_has_what_its_tier_gives_then(door: Door, place: str) -> None:
    """Not what it had when it was suspended."""
    owner = door.person("olga", Role.OWNER)
    proxies(door, place, opened=True)
    workspace = Workspace.objects.get(k8s_namespace=place)
    workspace_suspend(actor=OPERATOR, workspace_id=workspace.pk, reason="unpaid")
    door.until(lambda: Workspace.objects.get(pk=workspace.pk).phase == "suspended")
    tier_change(actor=OPERATOR, name=workspace.tier_id, proxies=False)
    workspace_resume(actor=OPERATOR, workspace_id=workspace.pk)
    door.until(lambda: Workspace.objects.get(pk=workspace.pk).phase == "ready")
    assert not may(door, place, "sa-tenant-edit")
    assert owner.get(f"/api/v1/namespaces/{place}/services/web:80/proxy/").status == 403
