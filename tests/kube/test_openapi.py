"""The OpenAPI documents, read as clients read them: references resolve, kubectl explains."""

from __future__ import annotations

import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator
from typing import Any, ClassVar
from urllib.parse import urlsplit

import orjson
import pytest

from kube.kinds.builtins import BUILTINS, TENANT_BUILTINS
from kube.kinds.resources import Catalog, Resource, Version
from kube.kinds.schemas import Definitions
from kube.objects import tables
from kube.openapi import discovery, documents

CRONTAB = {
    "type": "object",
    "description": "A cron tab.",
    "properties": {
        "spec": {
            "type": "object",
            "description": "What it does.",
            "properties": {
                "size": {"type": "integer", "nullable": True, "description": "How big."},
                "default": {"type": "string", "default": "x"},
            },
        }
    },
}


def custom(schema: dict[str, Any] = CRONTAB) -> Resource:
    return Resource(
        group="stable.example.com",
        kind="CronTab",
        plural="crontabs",
        singular="crontab",
        list_kind="CronTabList",
        namespaced=True,
        versions=(Version(name="v1", openapi=schema),),
        custom=True,
    )


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return BUILTINS.extended([custom()])


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        target = value.get("$ref")
        if isinstance(target, str):
            yield target
        for child in value.values():
            yield from references(child)
    elif isinstance(value, list):
        for child in value:
            yield from references(child)


def test_every_group_version_has_a_document_whose_references_resolve(
    catalog: Catalog, definitions: Definitions
) -> None:
    index = documents.v3_index(catalog)["paths"]
    for group, versions in catalog.groups().items():
        for version in versions:
            document = documents.v3_document(catalog, definitions, group, version)
            assert document is not None
            path = documents.group_path(group, version)
            assert index[path]["serverRelativeURL"] == f"/openapi/v3/{path}?hash={document.hash}"
            body = orjson.loads(document.body)
            schemas = body["components"]["schemas"]
            assert {name.rpartition("/")[2] for name in references(body)} <= set(schemas)
            kinds = {
                (gvk["group"], gvk["version"], gvk["kind"])
                for schema in schemas.values()
                for gvk in schema.get("x-kubernetes-group-version-kind", ())
            }
            for resource in catalog.in_version(group, version):
                assert (group, version, resource.kind) in kinds


def test_the_version_two_document_resolves_and_names_every_kind(catalog: Catalog, definitions: Definitions) -> None:
    document = documents.v2_document(catalog, definitions, "v1.37.0")
    body = orjson.loads(document.body)
    assert {name.rpartition("/")[2] for name in references(body)} <= {*body["definitions"], *body["parameters"]}
    assert all(parameter["description"] for parameter in body["parameters"].values())
    assert "com.example.stable.v1.CronTab" in body["definitions"]
    assert (
        "default"
        not in body["definitions"]["com.example.stable.v1.CronTab"]["properties"]["spec"]["properties"]["default"]
    )
    containers = body["definitions"]["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert b'"format":"quantity"' not in document.body


def test_a_patch_says_which_parameters_it_takes(definitions: Definitions) -> None:
    """Kubectl looks here before it sends dryRun or fieldValidation."""
    document = documents.v3_document(BUILTINS, definitions, "apps", "v1")
    assert document is not None
    patch = orjson.loads(document.body)["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert patch["x-kubernetes-action"] == "patch"
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
    }
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= {p["name"] for p in patch["parameters"]}


def test_a_space_shows_its_own_kinds_and_no_others(definitions: Definitions) -> None:
    """TS10, TS13: what a tenant cannot hold is not described to it; its own CRDs are, to it alone."""
    own = TENANT_BUILTINS.extended([custom()])
    assert b"CronTab" in documents.v2_document(own, definitions, "v1").body
    assert b"CronTab" not in documents.v2_document(TENANT_BUILTINS, definitions, "v1").body
    assert b"io.tenantry.v1.Tenant" not in documents.v2_document(own, definitions, "v1").body
    assert "apis/stable.example.com/v1" not in documents.v3_index(TENANT_BUILTINS)["paths"]
    assert documents.v3_document(TENANT_BUILTINS, definitions, "stable.example.com", "v1") is None


def test_the_hash_changes_with_the_schema_alone(definitions: Definitions) -> None:
    one, same = Catalog([custom()]), Catalog([custom()])
    other = Catalog([custom({**CRONTAB, "description": "Another."})])
    hashes = [documents.v3_hash(each, "stable.example.com", "v1") for each in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]
    document = documents.v3_document(one, definitions, "stable.example.com", "v1")
    assert document is not None
    assert document.etag == f'"{hashes[0]}"'


PREFIX = "/clusters/root:acme"


class _Server(http.server.BaseHTTPRequestHandler):
    """The documents over HTTP, as the API server serves them."""

    catalog: ClassVar[Catalog]
    definitions: ClassVar[Definitions]

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if not path.startswith(PREFIX):
            self.send_error(404)
            return
        path = path.removeprefix(PREFIX)
        body, media = self._answer(path, self.headers.get("Accept", ""))
        self.send_response(200 if body is not None else 404)
        self.send_header("Content-Type", media)
        data = body if isinstance(body, bytes) else orjson.dumps(body)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _answer(self, path: str, accept: str) -> tuple[Any, str]:
        catalog = self.catalog
        if path in ("/api", "/apis") and "v=v2;" in accept:
            return discovery.aggregated(catalog, core=path == "/api"), discovery.aggregated_media_type("v2")
        parts = path.strip("/").split("/")
        if path == "/openapi/v3":
            return documents.v3_index(catalog, PREFIX), "application/json"
        if path.startswith("/openapi/v3/"):
            group, version = ("", parts[3]) if parts[2] == "api" else (parts[3], parts[4])
            document = documents.v3_document(catalog, self.definitions, group, version)
            return (document.body if document else None), "application/json"
        if path == "/api/v1/namespaces/default/pods":
            pods = catalog.find("", "v1", "pods")
            assert pods is not None
            pod = {
                "metadata": {"name": "p"},
                "spec": {"containers": [{"name": "c"}]},
                "status": {"phase": "Pending"},
            }
            return tables.table(tables.convertor_of(pods, "v1"), [pod], now=0.0), "application/json"
        return None, "application/json"

    def log_message(self, *args: object) -> None:
        """Quiet."""


@pytest.fixture(scope="module")
def server(catalog: Catalog, definitions: Definitions) -> Iterator[str]:
    handler = type("Handler", (_Server,), {"catalog": catalog, "definitions": definitions})
    listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=listener.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{listener.server_port}{PREFIX}"
    listener.shutdown()
    listener.server_close()


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (["explain", "deployment.spec.replicas"], "FIELD: replicas <integer>"),
        (["explain", "pod.spec.containers.resources.limits"], "FIELD: limits <map[string]Quantity>"),
        (["explain", "crontab.spec.size"], "How big."),
        (["explain", "tenant.metadata.tenant"], "The tenant whose space holds the object."),
        (["api-resources", "--namespaced=false"], "tenants te v1 false Tenant"),
        (["api-resources", "--api-group=autoscaling", "-o", "name"], "horizontalpodautoscalers.autoscaling"),
        (["get", "pods", "-o", "wide"], "p 0/1 Pending 0 <unknown> <none>"),
        (["api-versions"], "autoscaling/v2"),
    ],
)
def test_kubectl_understands_the_documents(server: str, tmp_path: Any, arguments: list[str], shown: str) -> None:
    """TS15: discovery, explain and tables, by the real binary."""
    command = ["kubectl", "--server", server, f"--cache-dir={tmp_path}", "--kubeconfig=/dev/null", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert shown in " ".join(done.stdout.split()), done.stderr + done.stdout
