"""ABAC policies with tenants."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube import abac
from kube.abac import InvalidPolicy, parse_policy_file, policy_from
from kube.identity import Principal
from kube.rbac import Attributes

SAMPLE = (
    '{"apiVersion": "abac.authorization.kubernetes.io/v1beta1", "kind": "Policy", "spec": {"tenant": "tenant A", '
    '"user": "alice", "tenant": "tenant-a", "namespace": "*", "resource": "*", "apiGroup": "*"}}'
)
PODS = Attributes("get", "", "pods", "", "ns", "p")


def principal(name: str, tenant: str | None, *groups: str) -> Principal:
    return Principal(name=name, tenant=tenant, groups=(*groups, "system:authenticated"), authenticator="test")


def line(**spec: Any) -> str:
    return json.dumps({"apiVersion": abac.API_VERSION, "kind": "Policy", "spec": spec})


def allowed(text: str, who: Principal, attributes: Attributes = PODS, cluster: str = "root") -> bool:
    return abac.authorize(who, attributes, cluster, parse_policy_file(text)).allowed


@pytest.mark.parametrize(
    ("who", "cluster", "expected"),
    [
        (principal("alice", "tenant-a"), "root:tenant-a", True),
        (principal("alice", "tenant-a"), "root:tenant-b", False),
        (principal("alice", "tenant-a"), "root", False),
        (principal("alice", "tenant-b"), "root:tenant-a", False),
        (principal("alice", "system"), "root:tenant-a", False),
        (principal("bob", "tenant-a"), "root:tenant-a", False),
        (principal("alice", None), "root:tenant-a", False),
        (principal("alice", "tenant-a"), "root:tenant-a:ws", False),
    ],
)
def test_the_documents_sample_with_tenant_twice(who: Principal, cluster: str, expected: bool) -> None:
    """AZ3: the first is the user's tenant, the second the space."""
    assert allowed(SAMPLE, who, cluster=cluster) is expected
    written = line(tenant="tenant-a", space="tenant-a", user="alice", namespace="*", resource="*", apiGroup="*")
    assert allowed(written, who, cluster=cluster) is expected


EVERYTHING = {"namespace": "*", "resource": "*", "apiGroup": "*"}


@pytest.mark.parametrize(
    ("spec", "who", "cluster", "expected"),
    [
        # AZ3: missing means system, on both sides
        ({"user": "op"}, principal("op", "system"), "root", True),
        ({"user": "op"}, principal("op", "t1"), "root", False),
        ({"user": "op"}, principal("op", "system"), "root:t1", False),
        ({"user": "op", "tenant": "t1"}, principal("op", "t1"), "root:t1", False),
        # AZ6: across tenants, by the cluster's administrator
        ({"user": "op", "tenant": "t1", "space": "t2"}, principal("op", "t1"), "root:t2", True),
        ({"user": "op", "tenant": "t1", "space": "t2"}, principal("op", "t2"), "root:t2", False),
        ({"user": "op", "tenant": "t1", "space": "*"}, principal("op", "t1"), "root:t9", True),
        ({"user": "op", "tenant": "*", "space": "t2"}, principal("op", "t9"), "root:t2", True),
        ({"user": "op", "tenant": "*", "space": "*"}, principal("op", None), "root:t2", False),
        # Kubernetes' subjects
        ({"group": "dev"}, principal("x", "system", "dev"), "root", True),
        ({"group": "dev"}, principal("dev", "system"), "root", False),
        ({"user": "x", "group": "dev"}, principal("x", "system"), "root", False),
        ({"user": "x", "group": "dev"}, principal("x", "system", "dev"), "root", True),
        ({"user": "*"}, principal("x", "system"), "root", True),
        ({"user": "*"}, principal("x", "t1"), "root", False),
        ({"group": "*"}, principal("x", "system"), "root", True),
        ({"user": "*", "group": "dev"}, principal("x", "system"), "root", False),
        ({"user": "*"}, Principal(name="x", tenant="system", authenticator="t"), "root", False),
    ],
)
def test_tenant_and_subject_must_both_fit(
    spec: dict[str, str], who: Principal, cluster: str, *, expected: bool
) -> None:
    assert allowed(line(**EVERYTHING | spec), who, cluster=cluster) is expected


@pytest.mark.parametrize(
    ("spec", "attributes", "expected"),
    [
        ({"namespace": "ns", "resource": "pods"}, PODS, True),
        ({"namespace": "other", "resource": "pods"}, PODS, False),
        ({"resource": "pods"}, PODS, False),
        ({"resource": "nodes"}, Attributes("get", "", "nodes"), True),
        ({"namespace": "*", "resource": "pods"}, Attributes("get", "apps", "pods", "", "ns"), False),
        ({"namespace": "*", "resource": "pods", "apiGroup": "*"}, Attributes("get", "apps", "pods", "", "ns"), True),
        ({"namespace": "*", "resource": "pods"}, Attributes("get", "", "pods/log", "log", "ns"), True),
        ({"namespace": "*", "resource": "pods"}, Attributes("delete", "", "pods", "", "ns"), True),
        ({"namespace": "*", "resource": "pods", "readonly": True}, Attributes("delete", "", "pods", "", "ns"), False),
        ({"namespace": "*", "resource": "pods", "readonly": True}, PODS, True),
        (
            {"namespace": "*", "resource": "pods", "readonly": True},
            Attributes("get", "", "pods/exec", "exec", "ns"),
            False,
        ),
        (EVERYTHING, Attributes("get", path="/version", is_resource=False), False),
        ({"nonResourcePath": "/version"}, Attributes("get", path="/version", is_resource=False), True),
        ({"nonResourcePath": "/api*"}, Attributes("get", path="/apis", is_resource=False), True),
        ({"nonResourcePath": "*"}, Attributes("post", path="/x", is_resource=False), True),
        ({"nonResourcePath": "*", "readonly": True}, Attributes("post", path="/x", is_resource=False), False),
        ({"nonResourcePath": "*"}, PODS, False),
        ({}, Attributes("get", path="/", is_resource=False), False),
    ],
)
def test_requests_match_as_in_kubernetes(spec: dict[str, Any], attributes: Attributes, expected: bool) -> None:
    """AZ3."""
    assert allowed(line(user="op", **spec), principal("op", "system"), attributes) is expected


@pytest.mark.parametrize(
    "text",
    [
        line(user="a") + "\n{",
        '{"user": "alice"}',
        "[]",
        "1",
        "null",
        line(),
        line(user=""),
        line(user="a", readonly="yes"),
        line(user="a", readonly=1),
        line(user="a", tenants="t1"),
        line(user=["a"]),
        line(user="a", tenant="all"),
        line(user="a", tenant="a/b"),
        line(user="a", space="T1"),
        line(user="a", tenant=None),
        line(user="a" * 2000),
        line(user="a").replace("v1beta1", "v1"),
        line(user="a").replace("Policy", "Secret"),
        line(user="a").replace('"spec"', '"spec": {}, "spec"'),
        line(user="a").replace('"user"', '"user": "b", "user"'),
        SAMPLE.replace('"user"', '"tenant": "x", "user"'),
        SAMPLE.replace('"user"', '"space": "x", "user"'),
        SAMPLE.replace('"user"', '"user": "x", "user"'),
        "[" * 100_000,
        "1" * 10_000,
        "NaN",
        "x" * (9 * 1024 * 1024),
    ],
    ids=lambda text: text[-60:],
)
def test_a_file_that_is_not_understood_is_refused_whole(text: str) -> None:
    """AZ-16, P9."""
    with pytest.raises(InvalidPolicy):
        parse_policy_file(text)


def test_the_refusal_names_the_line_and_comments_do_not_count() -> None:
    text = f"# comment\n\n{line(user='a')}\r\n   \n{line(user='b')}\n"
    assert [policy.source for policy in parse_policy_file(text)] == [
        "line 3 of the policy file",
        "line 5 of the policy file",
    ]
    with pytest.raises(InvalidPolicy, match="line 6: it is no JSON"):
        parse_policy_file(text + "{")


def test_a_policy_object_opens_its_authors_space_alone() -> None:
    """AZ7, AZ-22."""
    policy = policy_from({"tenant": "t2", "user": "eve", "space": "t3", **EVERYTHING}, 'Policy "p"', space="t1")
    eve = principal("eve", "t2")
    decision = abac.authorize(eve, PODS, "root:t1", [policy])
    assert (decision.allowed, decision.reason) == (True, 'ABAC: allowed by Policy "p"')
    for cluster in ("root:t3", "root:t2", "root"):
        assert not abac.authorize(eve, PODS, cluster, [policy]).allowed


@given(
    st.text(max_size=60)
    | st.recursive(
        st.none() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from(["apiVersion", "kind", "spec", "tenant", "user"]), inner)
        ),
    ).map(json.dumps)
)
def test_any_file_is_read_or_refused(text: str) -> None:
    """P9."""
    try:
        policies = parse_policy_file(text)
    except InvalidPolicy:
        return
    assert all(policy.user or policy.group for policy in policies)
