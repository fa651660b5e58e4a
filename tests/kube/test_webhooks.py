"""Reviews of clusters, and the wall between the tenants of one (GW17): whatever is in them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kube.authorization.decisions import Verdict
from kube.kinds.openings import openings_from
from kube.requests.requestinfo import RequestInfo
from kube.requests.status import BadRequest
from kube.webhooks.isolation import account_namespace, at_the_wall
from kube.webhooks.reviews import read_access_review, read_admission_review, read_token_review

OPENED = "storageclasses.storage.k8s.io/fast\nstorageclasses.storage.k8s.io?open=true\ningressclasses.networking.k8s.io"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
FIELDS = [
    "token",
    "audiences",
    "user",
    "uid",
    "groups",
    "extra",
    "resourceAttributes",
    "nonResourceAttributes",
    "verb",
    "resource",
    "kind",
    "resource",
    "operation",
    "subResource",
    "namespace",
    "name",
    "object",
    "oldObject",
    "userInfo",
    "username",
    "metadata",
    "labels",
    "annotations",
    "dryRun",
]
shaped = st.recursive(
    json_values, lambda inner: st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6), max_leaves=12
)


@given(shaped, st.sampled_from(["spec", "request"]))
def test_whatever_a_cluster_sends_is_read_or_refused_in_words(content: Any, field: str) -> None:
    for reader, version, kind in (
        (read_token_review, "authentication.k8s.io/v1", "TokenReview"),
        (read_access_review, "authorization.k8s.io/v1", "SubjectAccessReview"),
        (read_admission_review, "admission.k8s.io/v1", "AdmissionReview"),
    ):
        try:
            reader({"apiVersion": version, "kind": kind, field: content})
        except BadRequest as refusal:
            assert refusal.message


requests = st.builds(
    RequestInfo,
    method=st.just(""),
    path=st.sampled_from(["", "/api", "/apis/apps", "/metrics", "/apifoo", "/openapi/v3/x"]),
    cluster=st.just("root:acme"),
    tenant=st.just("acme"),
    verb=st.sampled_from(["get", "list", "watch", "create", "delete", "impersonate", "*"]),
    is_resource=st.booleans(),
    group=st.sampled_from(["", "storage.k8s.io", "networking.k8s.io", "authorization.k8s.io"]),
    resource=st.sampled_from(["pods", "nodes", "storageclasses", "ingressclasses", "selfsubjectaccessreviews", "*"]),
    subresource=st.sampled_from(["", "status"]),
    namespace=st.sampled_from(["", "acme-web", "globex-web"]),
    name=st.sampled_from(["", "fast", "slow"]),
)


@given(requests, st.sampled_from([None, "acme", "globex"]))
def test_nothing_is_let_through_the_wall_but_what_is_the_tenants_or_opened(
    asked: RequestInfo, owner: str | None
) -> None:
    said = at_the_wall("acme", asked, owner, openings_from(OPENED))
    inside = asked.is_resource and asked.namespace != "" and owner == "acme"
    if said is None:
        assert inside
    elif said.verdict is Verdict.ALLOW:
        opened = (asked.group, asked.resource) in {
            ("storage.k8s.io", "storageclasses"),
            ("networking.k8s.io", "ingressclasses"),
        }
        assert opened
        assert asked.verb in ("get", "list", "watch")
        assert asked.namespace == asked.subresource == ""
        assert asked.resource == "ingressclasses" or (asked.verb, asked.name) == ("get", "fast")
    elif said.verdict is Verdict.NO_OPINION:
        discovery = asked.path in ("/api", "/apis/apps", "/openapi/v3/x") and asked.verb == "get"
        assert asked.resource == "selfsubjectaccessreviews" if asked.is_resource else discovery


def test_an_account_is_at_home_in_the_namespace_of_its_name() -> None:
    assert account_namespace("system:serviceaccount:acme-web:robot") == "acme-web"
    for other in ("system:serviceaccount:", "ann", "system:node:n1", ""):
        assert account_namespace(other) == "", other
