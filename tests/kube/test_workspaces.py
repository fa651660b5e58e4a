"""Required groups, virtual groups, and questions from afar (KC2, KC3, KC10, KC11)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.authentication.identity import ACCESS_GROUPS, ADMIN_GROUPS, Principal
from kube.authorization import bootstrappolicy
from kube.authorization.effectivepolicy import Policies
from kube.authorization.rbac import Binding, Role, Rule, Subject
from kube.authorization.rbacindex import PolicyIndex
from kube.requests.requestinfo import parse
from kube.requests.status import BadRequest, NotFound
from kube.workspaces.types import (
    RequiredGroupsSyntax,
    cross_workspace_access,
    is_member,
    may_use,
    required_groups,
    state_of,
    with_groups,
)

NAMES = st.sampled_from(["a", "b", "c", "d"])


def somebody(
    name: str = "olga",
    *groups: str,
    tenant: str | None = "acme",
    cluster: str | None = None,
    scope: str | None = None,
) -> Principal:
    return Principal(name=name, groups=groups, tenant=tenant, authenticator="test", cluster=cluster, scope=scope)


@given(st.lists(st.lists(NAMES, min_size=1, max_size=3), min_size=1, max_size=3), st.frozensets(NAMES))
def test_both_dialects_mean_the_same_by_their_own_separators(wanted: list[list[str]], held: frozenset[str]) -> None:
    """KC3."""
    expected = any(set(groups) <= held for groups in wanted)
    document = ",".join(";".join(groups) for groups in wanted)
    kcp = ";".join(",".join(groups) for groups in wanted)
    assert is_member(held, required_groups(document, RequiredGroupsSyntax.DOCUMENT)) is expected
    assert is_member(held, required_groups(kcp, RequiredGroupsSyntax.KCP)) is expected


@pytest.mark.parametrize("text", ["", " ", ";", "a,,b", "a;", ",a", "a; ;b"])
@pytest.mark.parametrize("dialect", list(RequiredGroupsSyntax))
def test_empty_group_is_refused_and_lets_nobody_in(text: str, dialect: RequiredGroupsSyntax) -> None:
    """KC3."""
    with pytest.raises(ValueError, match="empty"):
        required_groups(text, dialect)
    body = {"metadata": {"annotations": {"authorization.kcp.io/required-groups": text}}, "status": {"phase": "Ready"}}
    assert state_of(body, dialect).required is None


def test_virtual_groups_are_given_and_never_brought_along() -> None:
    """KC2."""
    intruder = somebody("olga", "staff", *ADMIN_GROUPS, *ACCESS_GROUPS)
    assert with_groups(intruder, ()).groups == ("staff",)
    assert with_groups(intruder, ACCESS_GROUPS).groups == ("staff", *ACCESS_GROUPS)


def policies(cluster: str, *subjects: Subject) -> Policies:
    local = PolicyIndex.build(
        roles=[Role("users", rules=(Rule(("use",), ("tenancy.kcp.io",), ("workspacetypes",), ("special",)),))],
        bindings=[Binding("users", "", "ClusterRole", "users", subjects)],
        bootstrap=bootstrappolicy.INDEX,
    )
    empty = PolicyIndex.build(bootstrap=bootstrappolicy.INDEX)
    return Policies(cluster, local, local if cluster == "root" else empty, bootstrappolicy.INDEX)


USER, OTHERS, ALL = (
    Subject("User", "olga"),
    Subject("Group", "system:cluster:root:acme"),
    Subject("Group", "system:authenticated"),
)


@pytest.mark.parametrize(
    ("cluster", "subject", "who", "allowed"),
    [
        ("root:acme", USER, somebody(), True),
        ("root:acme:team", USER, somebody(), True),
        ("root:acme", USER, somebody(cluster="root:acme:team"), False),
        ("root:acme", ALL, somebody(cluster="root:acme:team"), True),
        ("root:acme", OTHERS, somebody(cluster="root:acme:team"), True),
        ("root:acme", USER, somebody(scope="root:acme"), True),
        ("root:acme", USER, somebody(scope="root:acme:team"), False),
        ("root:acme", ALL, somebody(scope="root:acme:team"), True),
        ("root", USER, somebody(tenant="system", scope="root:acme"), False),
        ("root:globex", USER, somebody(), False),
        ("root:globex", OTHERS, somebody(), True),
        ("root:globex", OTHERS, somebody(tenant="initech"), False),
        ("root:globex", ALL, somebody(tenant="initech"), True),
        ("root:globex", ALL, somebody(tenant=None), False),
        ("root", USER, somebody(), False),
        ("root", ALL, somebody(), True),
        ("root", ALL, somebody(cluster="root:acme:team"), True),
        ("root", USER, somebody(tenant="system"), True),
    ],
)
def test_names_mean_nothing_in_other_tenants(cluster: str, subject: Subject, who: Principal, allowed: bool) -> None:
    """KC10, KC11."""
    assert cross_workspace_access(who, may_use("special"), policies(cluster, subject)).allowed is allowed
    assert not cross_workspace_access(who, may_use("other"), policies(cluster, subject)).allowed


def test_view_of_an_export_is_a_request_for_its_content() -> None:
    """KC6."""
    parsed = parse("GET", b"/services/apiexport/root:acme:p/widgets/clusters/*/apis/x.io/v1/widgets", b"watch=1")
    assert (parsed.cluster, parsed.resource, parsed.subresource, parsed.name) == (
        "root:acme:p",
        "apiexports",
        "content",
        "widgets",
    )
    assert parsed.verb == "watch"
    assert parsed.rest == "clusters/*/apis/x.io/v1/widgets"
    assert parse("DELETE", b"/services/apiexport/root:acme:p/w/clusters/root:b/api/v1/pods").verb == "deletecollection"


@pytest.mark.parametrize(
    "path",
    [
        b"/services/apiexport",
        b"/services/apiexport/root:acme:p/widgets/clusters/*",
        b"/services/apiexport/root:acme:P/widgets/clusters/*/api/v1/pods",
        b"/services/apiexport/root:acme:p/W/clusters/*/api/v1/pods",
        b"/services/apiexport/root:acme:p/widgets/clusters/**/api/v1/pods",
        b"/services/apiexport/root:acme:p/widgets/clusters/*/clusters/root/api/v1/pods",
        b"/services/apiexport/root:acme:p/widgets/clusters/*/services/apiexport/root:b/c/clusters/*/api/v1/pods",
        b"/services/apiexport/root:acme:p/widgets/clusters/*/api/v1/%70ods",
        b"/services/apiexport/root:acme:p/widgets/clusters/*/api/../pods",
    ],
)
def test_crooked_paths_of_the_view_lead_nowhere(path: bytes) -> None:
    """KC6."""
    with pytest.raises((NotFound, BadRequest)):
        parse("GET", path)
