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
from kube.openapi import discovery
from kube.openapi.documents import Documents, Form, group_path

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


def custom(schema: dict[str, Any] = CRONTAB, group: str = "stable.example.com") -> Resource:
    return Resource(
        group=group,
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


@pytest.fixture(scope="module")
def documents(definitions: Definitions) -> Documents:
    return Documents(definitions, "1.37")


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


def test_every_group_version_has_a_document_whose_references_resolve(catalog: Catalog, documents: Documents) -> None:
    index = documents.v3_index(catalog)["paths"]
    for group, versions in catalog.groups().items():
        for version in versions:
            document = documents.v3(catalog, group, version)
            assert document is not None
            path = group_path(group, version)
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


def test_the_version_two_document_resolves_and_names_every_kind(catalog: Catalog, documents: Documents) -> None:
    document = documents.v2(catalog)
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


def test_a_patch_says_which_parameters_it_takes(documents: Documents) -> None:
    """Kubectl looks here before it sends dryRun or fieldValidation."""
    document = documents.v3(BUILTINS, "apps", "v1")
    assert document is not None
    patch = orjson.loads(document.body)["paths"]["/apis/apps/v1/namespaces/{namespace}/deployments/{name}"]["patch"]
    assert patch["x-kubernetes-action"] == "patch"
    assert patch["x-kubernetes-group-version-kind"] == {
        "group": "apps",
        "version": "v1",
        "kind": "Deployment",
    }
    assert {"dryRun", "fieldManager", "fieldValidation", "force"} <= {p["name"] for p in patch["parameters"]}


def test_a_space_shows_its_own_kinds_and_no_others(documents: Documents) -> None:
    """TS10, TS13: what a tenant cannot hold is not described to it; its own CRDs are, to it alone."""
    own = TENANT_BUILTINS.extended([custom()])
    assert b"CronTab" in documents.v2(own).body
    assert b"CronTab" not in documents.v2(TENANT_BUILTINS).body
    assert b"io.tenantry.v1.Tenant" not in documents.v2(own).body
    assert "apis/stable.example.com/v1" not in documents.v3_index(TENANT_BUILTINS)["paths"]
    assert documents.v3(TENANT_BUILTINS, "stable.example.com", "v1") is None


def test_whoever_asks_first_changes_nobody_elses_document(definitions: Definitions) -> None:
    """What a tenant may read alone is written in the system space, whichever of them asked a process first."""
    place = ("scheduling.k8s.io", "v1")
    found = []
    for catalogs in ((BUILTINS, TENANT_BUILTINS), (TENANT_BUILTINS, BUILTINS)):
        documents = Documents(definitions, "1.37")
        told = {catalog: documents.v3(catalog, *place) for catalog in catalogs}
        found.append((told[BUILTINS], told[TENANT_BUILTINS]))
    system, tenant = found[0]
    assert found[0] == found[1]
    assert system is not None and tenant is not None
    assert (b'"post"' in system.body, b'"post"' in tenant.body) == (True, False)


def test_the_hash_changes_with_the_content_alone(documents: Documents) -> None:
    one, same = Catalog([custom()]), Catalog([custom()])
    other = Catalog([custom({**CRONTAB, "description": "Another."})])
    hashes = [documents.v3_hash(each, "stable.example.com", "v1") for each in (one, same, other)]
    assert hashes[0] == hashes[1] != hashes[2]
    document = documents.v3(one, "stable.example.com", "v1")
    assert document is not None
    assert document.hash == hashes[0]
    assert documents.v2(one).hash == documents.v2_hash(same) != documents.v2_hash(other)
    # Whatever a process has learnt of first; and one document in whichever encoding.
    two = [custom(), custom(group="other.example.com")]
    assert documents.v2_hash(Catalog(two)) == documents.v2(Catalog(two[::-1]), Form.V2_PROTOBUF).hash


def test_another_kubernetes_version_is_another_document(definitions: Definitions, documents: Documents) -> None:
    """A client that has kept a document under its hash must not go on with what an earlier server said."""
    later = Documents(definitions, "1.38")
    assert later.v3_hash(BUILTINS, "apps", "v1") != documents.v3_hash(BUILTINS, "apps", "v1")
    changed = Documents(definitions.with_properties("io.k8s.api.core.v1.Pod", {"new": {"type": "string"}}), "1.37")
    assert changed.v2_hash(BUILTINS) != documents.v2_hash(BUILTINS)


def test_a_changed_definition_costs_itself_alone(definitions: Definitions) -> None:
    """However many definitions a space holds, and however often somebody asks."""
    documents = Documents(definitions, "1.37")
    many = [custom(group=f"g{number}.example.com") for number in range(100)]
    before = TENANT_BUILTINS.extended(many)
    for form in (Form.V2, Form.V2_PROTOBUF):
        documents.v2(before, form)
    documents.v3_index(before)
    known = documents.made
    for _ in range(3):
        documents.v2(before)
        documents.v3_index(before)
        documents.v3(before, "g7.example.com", "v1")
    assert documents.made == known
    after = TENANT_BUILTINS.extended([custom({**CRONTAB, "description": "Another."}, many[0].group), *many[1:]])
    assert [resource.group for resource, _ in documents.missing(after, Form.V2)] == ["g0.example.com"]
    assert b"Another." in documents.v2(after).body
    assert documents.made == known + 1
    documents.v2(after, Form.V2_PROTOBUF)
    documents.v3_index(after)
    assert documents.made == known + 3
    # Another space has its own; what both serve is there.
    assert [resource.group for resource, _ in documents.missing(TENANT_BUILTINS.extended([custom()]), Form.V3)] == [
        "stable.example.com"
    ]


PREFIX = "/clusters/root:acme"


class _Server(http.server.BaseHTTPRequestHandler):
    """The documents over HTTP, as the API server serves them."""

    catalog: ClassVar[Catalog]
    documents: ClassVar[Documents]

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
        catalog, documents = self.catalog, self.documents
        if path in ("/api", "/apis") and "v=v2;" in accept:
            return discovery.aggregated(catalog, core=path == "/api"), discovery.aggregated_media_type("v2")
        parts = path.strip("/").split("/")
        if path == "/openapi/v3":
            return documents.v3_index(catalog, PREFIX), "application/json"
        if path.startswith("/openapi/v3/"):
            group, version = ("", parts[3]) if parts[2] == "api" else (parts[3], parts[4])
            document = documents.v3(catalog, group, version)
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
def server(catalog: Catalog, documents: Documents) -> Iterator[str]:
    handler = type("Handler", (_Server,), {"catalog": catalog, "documents": documents})
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
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert shown in " ".join(done.stdout.split()), done.stderr + done.stdout
