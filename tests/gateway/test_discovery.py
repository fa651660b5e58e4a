"""Discovery, OpenAPI and the small paths of a space (TS10, TS15)."""

from __future__ import annotations

import pytest

from gateway.process.metrics import Metrics
from tests.gateway.callers import Caller, eventually

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"


def test_space_of_a_tenant_shows_what_it_may_hold(alice: Caller, admin: Caller) -> None:
    mine = {resource["name"] for resource in alice.get("/api/v1").body["resources"]}
    theirs = {resource["name"] for resource in admin.get("/api/v1").body["resources"]}
    assert {"configmaps", "pods", "pods/status", "namespaces", "serviceaccounts/token"} <= mine
    assert theirs - mine >= {"nodes", "tenants"}


def test_groups_are_listed_and_found(alice: Caller) -> None:
    groups = {group["name"] for group in alice.get("/apis").body["groups"]}
    assert {"apps", "batch", "rbac.authorization.k8s.io"} <= groups
    assert alice.get("/apis/apps").body["preferredVersion"]["version"] == "v1"
    assert alice.get("/apis/apps/v1").body["groupVersion"] == "apps/v1"
    assert alice.get("/api").body["versions"] == ["v1"]
    assert alice.get("/apis/none").status == 404
    assert alice.get("/apis/apps/v2").status == 404


def test_aggregated_discovery_is_one_document_with_an_etag(alice: Caller) -> None:
    answer = alice.get("/apis", headers={"Accept": AGGREGATED})
    assert answer.headers["content-type"] == AGGREGATED
    assert answer.body["kind"] == "APIGroupDiscoveryList"
    again = alice.get("/apis", headers={"Accept": AGGREGATED, "If-None-Match": answer.headers["etag"]})
    assert (again.status, again.raw) == (304, b"")
    assert "content-type" not in again.headers


def test_openapi_documents_describe_the_space(alice: Caller) -> None:
    paths = alice.get("/openapi/v3").body["paths"]
    document = alice.get(paths["apis/apps/v1"]["serverRelativeURL"]).body
    assert "io.k8s.api.apps.v1.Deployment" in document["components"]["schemas"]
    assert alice.get("/openapi/v3/apis/none/v1").status == 404
    assert "definitions" in alice.get("/openapi/v2").body


def crd(plural: str, kind: str, field: str) -> dict:
    schema = {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {field: {"type": "integer", "maximum": 10}, "replicas": {"type": "integer"}},
            },
            "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}},
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    "subresources": {
                        "status": {},
                        "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
                    },
                }
            ],
        },
    }


CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def test_each_space_has_its_own_custom_resources(alice: Caller, gina: Caller) -> None:
    """TS10."""
    for caller, field in ((alice, "size"), (gina, "weight")):
        made = caller.post(CRDS, crd("boxes", "Box", field))
        assert made.status == 201, made.body
        conditions = {c["type"]: c["status"] for c in made.body["status"]["conditions"]}
        assert conditions["Established"] == "True"
    path = "/apis/example.com/v1/namespaces/default/boxes"
    box = {"apiVersion": "example.com/v1", "kind": "Box", "metadata": {"name": "b"}, "spec": {"size": 3}}
    assert alice.post(path, box).body["spec"] == {"size": 3}
    assert gina.post(path, box, fieldValidation="Strict").status == 400
    assert gina.get(f"{path}/b").status == 404
    too_big = {**box, "metadata": {"name": "c"}, "spec": {"size": 11}}
    assert alice.post(path, too_big).status == 422
    assert alice.patch(f"{path}/b", {"spec": {"size": 4}}).body["metadata"]["generation"] == 2
    assert alice.patch(f"{path}/b", {"spec": {"size": 4}}, "strategic-merge").status == 415
    scale = alice.patch(f"{path}/b/scale", {"spec": {"replicas": 2}}).body
    assert scale["spec"]["replicas"] == 2
    document = alice.get("/openapi/v3/apis/example.com/v1").body
    assert "com.example.v1.Box" in document["components"]["schemas"]
    assert gina.delete(f"{CRDS}/boxes.example.com").status == 200
    assert eventually(lambda: gina.get(path).status == 404)
    assert alice.get(f"{path}/b").status == 200


def test_objects_of_a_deleted_definition_do_not_come_back(alice: Caller) -> None:
    """TS10."""
    path = "/apis/example.com/v1/namespaces/default/crates"
    alice.post(CRDS, crd("crates", "Crate", "size"))
    crate = {"apiVersion": "example.com/v1", "kind": "Crate", "metadata": {"name": "b"}}
    held = {**crate, "metadata": {"name": "held", "finalizers": ["example.com/wait"]}}
    assert (alice.post(path, crate).status, alice.post(path, held).status) == (201, 201)
    alice.delete(f"{CRDS}/crates.example.com")
    assert eventually(lambda: alice.get(f"{path}/b").status == 404)
    assert alice.patch(f"{path}/held", {"metadata": {"finalizers": None}}).status == 200
    assert eventually(lambda: alice.get(f"{CRDS}/crates.example.com").status == 404)
    assert alice.post(CRDS, crd("crates", "Crate", "size")).status == 201
    assert alice.get(path).body["items"] == []


def test_custom_resources_of_the_system_space_are_its_own_unless_published(admin: Caller, alice: Caller) -> None:
    """TS11."""
    path = "/apis/example.com/v1/namespaces/default/shelves"
    assert admin.post(CRDS, crd("shelves", "Shelf", "size")).status == 201
    assert admin.get(path).status == 200
    assert alice.get(path).status == 404
    note = {"metadata": {"annotations": {"multi-tenancy.k8s.io/published": "true"}}}
    assert admin.patch(f"{CRDS}/shelves.example.com", note).status == 200
    assert alice.get(path).status == 200
    admin.delete(f"{CRDS}/shelves.example.com")
    assert eventually(lambda: alice.get(path).status == 404)


@pytest.mark.parametrize("path", ["/version", "/healthz", "/livez", "/readyz", "/metrics", "/"])
def test_small_paths_answer(admin: Caller, path: str) -> None:
    assert admin.get(path).status == 200


def test_metrics_count_requests(admin: Caller) -> None:
    """AD7."""
    text = admin.get("/metrics").raw.decode()
    admin.get("/api/v1/namespaces")
    text = admin.get("/metrics").raw.decode()
    assert 'apiserver_request_total{verb="list",resource="namespaces",code="200"}' in text
    assert "tenantry_tenant_requests_total" in text


def test_metrics_tell_a_tenant_nothing_of_its_neighbours(alice: Caller, gina: Caller) -> None:
    """AD7, CT-17: who else is here, and how busy, is the operators' to know."""
    for path in ("/metrics", "/clusters/root:acme/metrics"):
        gina.get("/api/v1/namespaces")
        text = alice.get(path).raw.decode()
        assert 'tenantry_tenant_requests_total{tenant="acme"}' in text
        assert "globex" not in text
        assert "apiserver_request_total" not in text
    assert alice.get("/clusters/root/metrics").status == 403


def test_names_that_callers_choose_do_not_fill_the_metrics() -> None:
    metrics = Metrics()
    for number in range(20_000):
        metrics.observe(verb="get", resource=f"r{number}", tenant=f"t{number}", code=403, seconds=0.001)
    assert (
        len(metrics.render(open_streams=0, revision=1, silence=0, replaced=0, dropped=0, restarts={}, untraced=0))
        < 1_500_000
    )
    assert b'resource="_other",code="403"} 10000' in metrics.render(
        open_streams=0, revision=1, silence=0, replaced=0, dropped=0, restarts={}, untraced=0
    )
    assert b"tenantry_request_records_dropped_total 7\n" in metrics.render(
        open_streams=0, revision=1, silence=0, replaced=0, dropped=7, restarts={}, untraced=0
    )
