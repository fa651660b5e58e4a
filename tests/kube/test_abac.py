"""ABAC policies with tenants."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.authentication.identity import Principal
from kube.authorization import abac
from kube.authorization.abac import InvalidPolicy, parse_policy_file, policy_from
from kube.authorization.rbac import Attributes

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
        ({"user": "op", "tenant": "t1", "space": "t1"}, principal("op", "t1"), "root", False),
        # AZ6: across tenants, by the cluster's administrator
        ({"user": "op", "tenant": "t1", "space": "t2"}, principal("op", "t1"), "root:t2", True),
        ({"user": "op", "tenant": "t1", "space": "t2"}, principal("op", "t2"), "root:t2", False),
        ({"user": "op", "tenant": "t1", "space": "*", "crossTenant": True}, principal("op", "t1"), "root:t9", True),
        ({"user": "op", "tenant": "t1", "space": "system", "crossTenant": True}, principal("op", "t1"), "root", True),
        ({"user": "op", "tenant": "system", "space": "*"}, principal("op", "system"), "root:t9", True),
        ({"user": "op", "tenant": "*", "space": "t2"}, principal("op", "t9"), "root:t2", True),
        ({"user": "op", "tenant": "*", "space": "*", "crossTenant": True}, principal("op", None), "root:t2", False),
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
        ({"nonResourcePath": "*", "readonly": True}, Attributes("head", path="/x", is_resource=False), False),
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


@pytest.mark.parametrize(
    ("spec", "remedy"),
    [
        ({"tenant": "t1"}, 'it names no space for users of tenant "t1"; add "space": "t1"'),
        ({"tenant": "t1", "space": ""}, 'it names no space for users of tenant "t1"; add "space": "t1"'),
        ({"tenant": "*"}, 'it names no space for the users of any tenant; add "space": "<tenant>"'),
        (
            {"tenant": "t1", "space": "*"},
            'it opens every space to users of tenant "t1"; if that is meant, add "crossTenant": true',
        ),
        (
            {"tenant": "*", "space": "system", "crossTenant": False},
            'it opens the system space to the users of any tenant; if that is meant, add "crossTenant": true',
        ),
        ({"tenant": "t1", "space": "t1", "crossTenant": "yes"}, "crossTenant is neither true nor false"),
    ],
)
def test_a_line_that_opens_more_than_it_says_is_refused_with_its_number_and_the_remedy(
    spec: dict[str, Any], remedy: str
) -> None:
    """AZ3, AZ6: Arktos' default of ``space`` is for operators alone."""
    with pytest.raises(InvalidPolicy) as refusal:
        parse_policy_file(f"# first\n{line(user='op')}\n{line(user='x', **spec)}\n")
    assert str(refusal.value) == f"line 3: {remedy}"


@given(
    tenant=st.sampled_from([None, "", "t1", "t2", "*", "system"]),
    space=st.sampled_from([None, "", "t1", "t2", "*", "system"]),
    across=st.sampled_from([None, True, False]),
    twice=st.booleans(),
    who=st.sampled_from(["t1", "t2"]),
    cluster=st.sampled_from(["root", "root:t1", "root:t2"]),
)
def test_no_line_lets_a_tenants_user_in_where_it_does_not_say_so(
    tenant: str | None, space: str | None, across: bool | None, twice: bool, who: str, cluster: str
) -> None:
    """AZ3, AZ6: whatever a line leaves out, or names twice."""
    spec: dict[str, Any] = {"user": "*", **EVERYTHING}
    for key, value in (("tenant", tenant), ("space", space), ("crossTenant", across)):
        if value is not None:
            spec[key] = value
    text = line(**spec)
    if twice:
        text = text.replace('"space"', '"tenant"')
    try:
        policies = parse_policy_file(text)
    except InvalidPolicy:
        return
    if abac.authorize(principal("x", who), PODS, cluster, policies).allowed:
        assert tenant in (who, "*")
        assert space in (cluster.removeprefix("root:") if cluster != "root" else "system", "*")
        assert across is True or space == cluster.removeprefix("root:")
    assert across is True or not any(policy.crosses for policy in policies)


def test_an_object_knows_nothing_of_crossing() -> None:
    """AZ7: it opens its author's space and no other, so that there is nothing to say."""
    with pytest.raises(InvalidPolicy, match="unknown fields"):
        policy_from({"tenant": "t2", "user": "eve", "crossTenant": True}, "x", space="t1")


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


@pytest.mark.parametrize(
    ("spec", "who", "attributes", "expected"),
    [
        ({"user": "olga"}, "olga", PODS, True),
        ({"user": "olga"}, "otto", PODS, False),
        ({"user": "*"}, "otto", PODS, True),
        ({"group": "dev"}, "olga", PODS, True),
        ({"group": "ops"}, "olga", PODS, False),
        ({"readonly": True}, "olga", PODS, True),
        ({"readonly": True}, "olga", PODS._replace(verb="delete"), False),
        ({"user": "olga", "resource": "pods"}, "olga", PODS, True),
        ({"user": "olga", "resource": "services"}, "olga", PODS, False),
        ({"user": "olga", "namespace": "other"}, "olga", PODS, False),
        ({"user": "olga", "resource": "pods"}, "olga", PODS._replace(group="apps"), True),
    ],
)
def test_a_line_from_before_versions_is_about_operators(
    spec: dict[str, Any], who: str, attributes: Attributes, expected: bool
) -> None:
    """AZ3: what it leaves out means everything, but never a tenant."""
    text = json.dumps(spec)
    assert allowed(text, principal(who, "system", "dev"), attributes) is expected
    for cluster in ("root", "root:acme"):
        assert not allowed(text, principal(who, "acme", "dev"), attributes, cluster)
    assert not allowed(text, principal(who, "system", "dev"), attributes, "root:acme")


@pytest.mark.parametrize("text", ["{}", '{"tenant": "acme", "user": "olga"}', '{"user": "olga", "apiGroup": "*"}'])
def test_a_line_without_a_version_says_nothing_of_tenants(text: str) -> None:
    with pytest.raises(InvalidPolicy, match="line 1"):
        parse_policy_file(text)
