"""What is asked by access reviews, word for word as Kubernetes takes it (AZ10)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.gateway.callers import Answer, Caller
from tests.gateway.conftest import Server
from tests.gateway.test_access import RBAC, REVIEWS, role_binding

EVERYWHERE, LOCAL, OWN = "SubjectAccessReview", "LocalSubjectAccessReview", "SelfSubjectAccessReview"


def asked(caller: Caller, kind: str, spec: dict[str, Any], *, namespace: str = "") -> Answer:
    place = f"{REVIEWS}/namespaces/{namespace}" if namespace else REVIEWS
    return caller.post(
        f"{place}/{kind.lower()}s", {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
    )


def status(answer: Answer) -> dict[str, Any]:
    assert answer.status == 201, answer.body
    return dict(answer.body["status"])


def allowed(answer: Answer) -> bool:
    return bool(status(answer)["allowed"])


@pytest.mark.parametrize("way", [EVERYWHERE, LOCAL, OWN])
def test_a_question_about_a_namespace_is_decided_where_it_says(
    server: Server, alice: Caller, namespace: str, way: str
) -> None:
    """Not where the namespace is that it names: who asks in one learns nothing of rights in another."""
    binding = role_binding("reader", "view", "nancy")
    binding["roleRef"]["kind"] = "ClusterRole"
    assert alice.post(f"{RBAC}/namespaces/{namespace}/rolebindings", binding).status == 201
    caller = server.user("acme", "nancy") if way == OWN else alice
    who = {} if way == OWN else {"user": "nancy"}
    for place, told in ((namespace, True), ("default", False), ("", False)):
        if way == LOCAL and not place:
            continue
        attributes = {"verb": "get", "resource": "namespaces", "name": namespace, "namespace": place}
        spec = {**who, "resourceAttributes": attributes}
        assert allowed(asked(caller, way, spec, namespace=place if way == LOCAL else "")) is told, place
    # As the request is decided, which names the namespace twice.
    assert server.user("acme", "nancy").get(f"/api/v1/namespaces/{namespace}").status == 200
