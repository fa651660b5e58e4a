"""A whole installation that is traced: what people order, followed through every process (docs/operators/monitoring.md)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.collector import Collector, Seen, collecting
from tests.story.product import KUBECTL, Product, eventually

pytestmark = [
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed"),
]

STRANGERS = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    with collecting() as found:
        yield found


@pytest.fixture(scope="module")
def traced(collector: Collector) -> Iterator[Product]:
    with tempfile.TemporaryDirectory(prefix="tenantry-traced-") as folder:
        Path(folder).chmod(0o711)
        headers = Path(folder) / "headers"
        headers.write_text("x-collector-key=very%20secret\n")
        told = {**collector.environment, "OTEL_EXPORTER_OTLP_HEADERS_FILE": str(headers)}
        product = Product(Path(folder) / "data", told)
        product.start()
        yield product
        product.stop()


@pytest.fixture(scope="module")
def alice(traced: Product) -> Any:
    traced.add_person("alice@acme.test", "correct horse battery", "acme")
    return traced.sign_in("alice@acme.test", "correct horse battery")


@pytest.fixture(scope="module")
def ordered(alice: Any) -> dict[str, Any]:
    """A workspace that was ordered in the portal, by somebody who would like to choose the trace."""
    headers = {"traceparent": STRANGERS, "baggage": "userId=alice"}
    answer = alice.post("/api/v1/workspaces/init", json={"tier": "basic"}, headers=headers)
    assert answer.status_code == 201, answer.text
    return {**answer.json(), "request": answer.headers["X-Request-ID"]}


def test_an_order_is_one_trace_from_the_portal_through_a_worker_to_the_cluster(
    collector: Collector, ordered: dict[str, Any]
) -> None:
    asked = collector.wait_for(lambda span: span.attributes.get("audit-id") == ordered["request"])
    assert (asked.service, asked.name) == ("tenantry-portal", "POST /api/v1/workspaces/init")
    assert asked.attributes["http.response.status_code"] == 201
    worked = collector.wait_for(lambda span: span.trace == asked.trace and span.name == "operation ready")
    assert (worked.service, worked.parent) == ("tenantry-worker", asked.id)
    steps = collector.children(worked)
    assert steps
    assert {span.name.partition(" ")[0] for span in steps} == {"step"}
    made = collector.wait_for(
        lambda span: (
            (span.trace, span.service, span.name)
            == (asked.trace, "tenantry-apiserver", "POST /api/v1/namespaces/{:namespace}/serviceaccounts")
        )
    )
    # The worker sends its spans at another time than the API server.
    call = collector.wait_for(lambda span: span.id == made.parent)
    assert (call.service, call.name, call.attributes["http.response.status_code"]) == ("tenantry-worker", "POST", 201)
    # Where a first try ran out of time it was that one's step: every try is in the trace.
    step = collector.wait_for(lambda span: span.id == call.parent)
    tried = collector.wait_for(lambda span: span.id == step.parent)
    assert step.name.partition(" ")[0] == "step"
    assert (tried.service, tried.name.partition(" ")[0], tried.parent) == ("tenantry-worker", "operation", asked.id)


def test_nobody_chooses_the_trace_of_a_request_to_the_portal(collector: Collector, ordered: dict[str, Any]) -> None:
    asked = collector.wait_for(lambda span: span.attributes.get("audit-id") == ordered["request"])
    assert asked.parent == ""
    assert asked.trace not in STRANGERS
    assert asked.links == (STRANGERS.split("-")[1],)


def test_a_request_of_kubectl_is_followed_through_the_stages(
    collector: Collector, traced: Product, alice: Any, ordered: dict[str, Any]
) -> None:
    config = alice.kubeconfig(ordered["id"])
    traced.kubectl("create", "secret", "generic", "vault", "--from-literal=word=xyzzy-plugh", kubeconfig=config)
    asked = collector.wait_for(
        lambda span: (
            (span.name, span.attributes.get("tenantry.tenant"))
            == ("POST /api/v1/namespaces/{:namespace}/secrets", "acme")
        )
    )
    assert (asked.service, asked.parent, asked.attributes["http.response.status_code"]) == (
        "tenantry-apiserver",
        "",
        201,
    )
    assert asked.attributes["k8s.namespace.name"] == ordered["namespace"]
    audited = collector.wait_for(lambda span: (span.parent, span.name) == (asked.id, "audit"))
    stages = collector.children(asked)
    assert [span.name for span in stages] == [
        "authentication",
        "resolution",
        "throttling",
        "authorization",
        "Create",
        "audit",
    ]
    assert all(before.ended <= after.begun for before, after in pairwise(stages))
    assert asked.begun <= stages[0].begun
    assert audited.ended <= asked.ended
    inside = [span.name for span in collector.children(stages[4])]
    assert (inside.count("admission"), inside[-1]) == (1, "store.commit")
    audit_id = asked.attributes["audit-id"]
    code = f"""from audit.models import ApiRequest
print(ApiRequest.objects.filter(request_id='{audit_id}').values_list('path', flat=True).first() or '')"""
    # What is asked is written a moment after it was answered.
    there = f"/namespaces/{ordered['namespace']}/secrets"
    eventually(lambda: traced.manage("shell", code=code).strip().endswith(there), every=1)


def test_a_page_that_asks_the_api_server_is_named_by_a_link(
    collector: Collector, alice: Any, ordered: dict[str, Any]
) -> None:
    """The API server takes no trace from people, and the portal asks as one."""
    answer = alice.get(f"/workspaces/{ordered['id']}/contents/")
    assert answer.status_code == 200, answer.text
    page = collector.wait_for(lambda span: span.attributes.get("audit-id") == answer.headers["X-Request-ID"])
    call = collector.wait_for(lambda span: span.parent == page.id and span.name == "GET")

    def linked(span: Seen) -> bool:
        return span.service == "tenantry-apiserver" and page.trace in span.links

    assert collector.wait_for(linked).parent == ""
    assert call.trace == page.trace


def test_no_secret_and_no_word_of_a_body_is_in_a_span(
    collector: Collector, traced: Product, alice: Any, ordered: dict[str, Any]
) -> None:
    config = alice.kubeconfig(ordered["id"])
    traced.kubectl("get", "configmaps", "--field-selector=metadata.name=nobodys-name", kubeconfig=config)
    refused = traced.kubectl("create", "configmap", "Not-A-Name", kubeconfig=config, check=False)
    assert "Invalid" in refused or "invalid" in refused
    collector.wait_for(lambda span: span.attributes.get("error.type") == "Invalid")
    assert collector.headers[0]["x-collector-key"] == "very secret"
    for word in (
        b"xyzzy",
        b"plugh",
        b"vault",
        b"nobodys-name",
        b"Not-A-Name",
        b"correct horse",
        b"eyJ",
        b"very secret",
    ):
        assert word not in collector.raw, word
