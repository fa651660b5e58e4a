"""A server with every authorizer switched on, and the world that the decision tables speak of."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.access.authorization.apiservers import Client, Server
from tests.databases import migrated

FOLDER = Path(__file__).parent


class Oracle(ThreadingHTTPServer):
    """A webhook that allows, denies or has no opinion by the name of the resource, and remembers what it was asked."""

    asked: list[dict[str, Any]]


class _Answers(BaseHTTPRequestHandler):
    server: Oracle

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        spec = review["spec"]
        self.server.asked.append(spec)
        resource = (spec.get("resourceAttributes") or {}).get("resource", "")
        name = (spec.get("resourceAttributes") or {}).get("name", "")
        if name == "broken":
            self.send_error(500)
            return
        status: dict[str, Any] = {"allowed": resource == "oracles" and name != "denied"}
        if name in ("denied", "both"):
            status["denied"] = True
        if name == "unsure":
            status["reason"] = "ask the guard"
        if name == "nonsense":
            status = {"allowed": "true"}
        data = json.dumps({**review, "status": status}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Be quiet."""


@pytest.fixture(scope="session")
def oracle() -> Iterator[Oracle]:
    server = Oracle(("127.0.0.1", 0), _Answers)
    server.asked = []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def authorization_database() -> Iterator[str]:
    with migrated("authorization") as url:
        yield url


@pytest.fixture(scope="session")
def policy_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("policies") / "policies.jsonl"
    path.write_text((FOLDER / "policies.jsonl").read_text())
    return path


@pytest.fixture(scope="session")
def servers(
    authorization_database: str, policy_file: Path, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[list[Server]]:
    """Two processes on one database, with the same folder."""
    folder = tmp_path_factory.mktemp("servers")
    webhook = folder / "webhook.yaml"
    webhook.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{oracle.server_port}/"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": ""}}],
                "current-context": "x",
            }
        )
    )
    flags = (
        "--authorization-mode=Node,ABAC,RBAC,Webhook",
        f"--authorization-policy-file={policy_file}",
        f"--authorization-webhook-config-file={webhook}",
        "--authorization-webhook-cache-unauthorized-ttl=0s",
    )
    started = [Server(authorization_database, folder, *flags) for _ in range(2)]
    try:
        for server in started:
            server.wait()
        yield started
    finally:
        for server in started:
            server.stop()


@pytest.fixture(scope="session")
def world(servers: list[Server]) -> Client:
    """Everything in world.yaml, made over the API; speaks as the operators' master to the first server."""
    client = servers[0].client()
    collections = {
        "Tenant": "/api/v1/tenants",
        "Namespace": "/api/v1/namespaces",
        "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
        "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
        "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/roles",
        "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}/rolebindings",
        "Policy": "/apis/abac.authorization.kubernetes.io/v1beta1/policies",
        "ServiceAccount": "/api/v1/namespaces/{namespace}/serviceaccounts",
        "Secret": "/api/v1/namespaces/{namespace}/secrets",
        "Pod": "/api/v1/namespaces/{namespace}/pods",
    }
    for document in yaml.safe_load_all((FOLDER / "world.yaml").read_text()):
        for manifest in document["objects"]:
            namespace = manifest["metadata"].get("namespace", "")
            path = collections[manifest["kind"]].format(namespace=namespace)
            client.ok("POST", f"/clusters/{document['cluster']}{path}", manifest)
    return client
