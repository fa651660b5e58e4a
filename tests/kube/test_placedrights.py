"""Rights of people in a namespace on a cluster: what of its RBAC counts, and which account a request needs (GW19, GW4)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.authentication.identity import Principal
from kube.authorization.leastrole import ROLES, WorkspaceRoles, at_most
from kube.authorization.placedrights import (
    MEMBERS,
    REVIEWS,
    ClusterRbac,
    is_judged,
    membership_of,
    needed,
    placed_rights,
)
from kube.authorization.placedrules import RULES_MAX, held_in_placed
from kube.authorization.rbac import GROUP, Attributes, Binding, Role, Rule, Subject, binding_from, evaluate, role_from
from kube.requests.requestinfo import RequestInfo

NAMESPACE = "acme-web"
ACCOUNTS = {
    "viewer": (Rule(("get", "list"), ("",), ("pods", "configmaps")),),
    "editor": (Rule(("*",), ("",), ("pods", "configmaps", "secrets")),),
    "admin": (Rule(("*",), ("",), ("*",)),),
}
CLUSTER_ROLES = {"tenantry-tenant-view": "viewer", "tenantry-tenant-edit": "editor", "tenantry-tenant-admin": "admin"}

words = st.sampled_from(["get", "list", "create", "delete", "*"])
rules = st.builds(
    lambda verbs, resources, names: Rule(tuple(verbs), ("",), tuple(resources), tuple(names)),
    st.lists(words, min_size=1, max_size=2),
    st.lists(st.sampled_from(["pods", "pods/log", "secrets", "configmaps", "*"]), min_size=1, max_size=2),
    st.lists(st.sampled_from(["a", "b"]), max_size=1),
)
role_names = st.sampled_from(["one", "two", "three"])
roles = st.lists(
    st.builds(lambda name, held: Role(name, NAMESPACE, tuple(held)), role_names, st.lists(rules, max_size=3)),
    unique_by=lambda role: role.name,
    max_size=3,
)
subjects = st.builds(
    Subject,
    st.sampled_from(["User", "Group", "ServiceAccount"]),
    st.sampled_from(
        ["bob", "ann", "tenantry:ann", "system:serviceaccount:acme-web:sa", "system:authenticated", "tenantry:viewer"]
    ),
    st.sampled_from(["", NAMESPACE]),
)
bindings = st.lists(
    st.builds(
        lambda name, role, who: Binding(name, NAMESPACE, role[0], role[1], tuple(who)),
        st.sampled_from(["x", "y", "z", "tenantry:admin"]),
        st.one_of(
            st.tuples(st.just("Role"), role_names),
            st.tuples(st.just("ClusterRole"), st.sampled_from([*CLUSTER_ROLES, "cluster-admin"])),
        ),
        st.lists(subjects, max_size=3),
    ),
    unique_by=lambda binding: binding.name,
    max_size=4,
)
asked = st.builds(
    lambda verb, resource, name: Attributes(verb, "", resource, resource.partition("/")[2], NAMESPACE, name),
    st.sampled_from(["get", "list", "create", "delete"]),
    st.sampled_from(["pods", "pods/log", "secrets", "configmaps", "services"]),
    st.sampled_from(["", "a", "b"]),
)


def read(found: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    """What is kept, as RBAC reads it."""
    kept = [(of, {**body, "metadata": {"name": name, "namespace": NAMESPACE}}) for (of, name), body in found.items()]
    return {
        "roles": {(NAMESPACE, role.name): role for role in (role_from(body) for of, body in kept if of == "roles")},
        "bindings": [binding_from(body) for of, body in kept if of == "rolebindings"],
        "cluster_roles": {},
    }


@given(roles=roles, bindings=bindings, attributes=asked, user=st.sampled_from(["bob", "ann", "eve"]))
def test_a_user_may_what_the_clusters_own_rbac_gives_the_user(
    roles: list[Role], bindings: list[Binding], attributes: Attributes, user: str
) -> None:
    """Neither less nor more, but for bindings in the memberships' names and ClusterRoles that are not the workspaces'."""

    def meant(subject: Subject) -> Subject:
        return Subject(subject.kind, "ann", subject.namespace) if subject.name == "tenantry:ann" else subject

    there = {name: Role(name, rules=ACCOUNTS[account]) for name, account in CLUSTER_ROLES.items()}
    counting = [
        replace(binding, subjects=tuple(map(meant, binding.subjects)))
        for binding in bindings
        if not binding.name.startswith("tenantry:")
    ]
    wanted = evaluate(
        user,
        (),
        attributes,
        bindings=counting,
        roles={(NAMESPACE, role.name): role for role in roles},
        cluster_roles=there,
    )
    kept = read(placed_rights(ClusterRbac(ACCOUNTS, CLUSTER_ROLES, roles, bindings)))
    assert evaluate(user, (), attributes, **kept).allowed == wanted.allowed


@given(roles=roles, bindings=bindings, attributes=asked, account=st.sampled_from(ROLES))
def test_a_membership_gives_its_accounts_role_whatever_the_cluster_says(
    roles: list[Role], bindings: list[Binding], attributes: Attributes, account: str
) -> None:
    kept = read(placed_rights(ClusterRbac(ACCOUNTS, CLUSTER_ROLES, roles, bindings)))
    for group in MEMBERS[account]:
        allowed = evaluate("nobody", (group,), attributes, **kept).allowed
        assert allowed == any(rule.allows(attributes) for rule in ACCOUNTS[account])


@given(roles=roles, bindings=bindings, attributes=asked)
def test_no_group_of_a_cluster_and_no_account_of_its_pods_is_anybody_here(
    roles: list[Role], bindings: list[Binding], attributes: Attributes
) -> None:
    kept = read(placed_rights(ClusterRbac(ACCOUNTS, CLUSTER_ROLES, roles, bindings)))
    stranger = evaluate("system:serviceaccount:acme-web:sa", ("system:authenticated",), attributes, **kept)
    assert not stranger.allowed


def test_what_a_hostile_cluster_names_is_bounded() -> None:
    many = [Binding(f"b{n}", NAMESPACE, "Role", "one", (Subject("User", "bob"),)) for n in range(5000)]
    odd = [Binding(name, NAMESPACE, "Role", "one", (Subject("User", "bob"),)) for name in ("", "a\n", "x" * 300)]
    assert len(placed_rights(ClusterRbac(ACCOUNTS, CLUSTER_ROLES, (), [*odd, *many]))) == 506


@pytest.mark.parametrize(
    ("verb", "resource", "role"),
    [
        ("get", "pods", "viewer"),
        ("create", "pods", "editor"),
        ("get", "services", "admin"),
        ("get", "nodes/x", "admin"),
    ],
)
def test_the_least_account_that_covers_a_request_is_taken(verb: str, resource: str, role: str) -> None:
    held = WorkspaceRoles.of(ACCOUNTS, {})
    assert held.least(Attributes(verb, "", resource, "", NAMESPACE)) == role
    assert held.least(Attributes(verb, "apps", resource, "", NAMESPACE)) is None


def test_accounts_have_an_order() -> None:
    assert [at_most(role, "editor") for role in ROLES] == [True, True, False]


HELD = {
    "viewer": (Rule(("get", "list"), ("",), ("pods", "pods/log", "pods/exec")),),
    "editor": (
        Rule(("*",), ("",), ("pods", "pods/exec", "pods/proxy", "secrets")),
        Rule(("get", "create"), ("",), ("configmaps",), ("a",)),
    ),
    "admin": (
        Rule(("create", "delete", "get", "patch"), (GROUP, "apps"), ("roles", "deployments", "deployments/scale")),
        Rule(("*",), (GROUP,), ("rolebindings",)),
        Rule(("approve", "create"), ("",), ("services",)),
    ),
}
VERBS = ("get", "create", "patch", "delete", "deletecollection", "escalate", "bind", "impersonate", "approve", "frob")
spaces_rules = st.lists(
    st.builds(
        lambda verbs, groups, resources, names: Rule(tuple(verbs), tuple(groups), tuple(resources), tuple(names)),
        st.lists(st.sampled_from([*VERBS, "*"]), min_size=1, max_size=2),
        st.lists(st.sampled_from(["", GROUP, "apps", REVIEWS, "*"]), min_size=1, max_size=2),
        st.lists(
            st.sampled_from(
                [
                    "pods",
                    "pods/exec",
                    "*/exec",
                    "pods/proxy",
                    "secrets",
                    "services",
                    "roles",
                    "rolebindings",
                    "*/scale",
                    "namespaces",
                    "*",
                ]
            ),
            min_size=1,
            max_size=2,
        ),
        st.lists(st.sampled_from(["a", "b"]), max_size=1),
    ),
    max_size=3,
)
requests = st.builds(
    lambda verb, group, resource, name: RequestInfo(
        method="",
        path="",
        cluster="root:acme",
        tenant="acme",
        verb=verb,
        is_resource=True,
        group=group,
        resource=resource.partition("/")[0],
        subresource=resource.partition("/")[2],
        namespace=NAMESPACE,
        name=name,
    ),
    st.sampled_from([*VERBS, "*"]),
    st.sampled_from(["", GROUP, "apps", REVIEWS]),
    st.sampled_from(
        [
            "pods",
            "pods/exec",
            "pods/proxy",
            "secrets",
            "configmaps",
            "services",
            "roles",
            "rolebindings",
            "deployments",
            "deployments/scale",
            "namespaces",
        ]
    ),
    st.sampled_from(["", "a", "b"]),
)


@given(rules=spaces_rules, others=spaces_rules, info=requests, member=st.sampled_from(["", *ROLES]))
def test_the_list_of_what_somebody_may_is_what_every_request_is_decided_by(
    rules: list[Rule], others: list[Rule], info: RequestInfo, member: str
) -> None:
    """``rules`` by name, ``others`` by the membership: what is listed is what is allowed, unless the list says that it is not all."""
    accounts = WorkspaceRoles.of(HELD, {})
    groups = MEMBERS[member] if member else ()
    principal = Principal(name="ann", groups=groups, tenant="acme", authenticator="test")
    attributes = Attributes.of(info)
    held = [*rules, *others] if member else rules
    allowed = any(rule.allows(attributes) for rule in held)
    if is_judged(info):
        wanted = needed(accounts, "east", principal, info)
        by_name = any(rule.allows(attributes) for rule in rules)
        allowed = allowed and not wanted.refusal and (not wanted.beyond or by_name)
    listed, exact = held_in_placed(accounts, member, held, rules)
    found = any(rule.allows(attributes) for rule in listed)
    assert found == allowed or (allowed and not exact)


@pytest.mark.parametrize("verb", ["create", "update", "patch", "deletecollection", "bind", "escalate", "*"])
@pytest.mark.parametrize("groups", [(), MEMBERS["editor"]])
def test_whoever_may_not_give_rights_may_not_do_all_with_them(verb: str, groups: tuple[str, ...]) -> None:
    """``kubectl auth can-i '*' rolebindings`` says no more than each of its verbs."""
    info = RequestInfo(
        method="POST", path="/", cluster="root:acme", tenant="acme", verb=verb, is_resource=True, group=GROUP,
        version="v1", resource="rolebindings", namespace=NAMESPACE,
    )  # fmt: skip
    principal = Principal(name="ann", groups=groups, tenant="acme", authenticator="test")
    accounts = WorkspaceRoles.of({"admin": (Rule(("*",), (GROUP,), ("*",)),)}, {})
    assert "given by admins and owners" in needed(accounts, "east", principal, info).refusal
    admin = Principal(name="ann", groups=MEMBERS["admin"], tenant="acme", authenticator="test")
    assert not needed(accounts, "east", admin, info).refusal


def test_a_member_of_another_tenant_is_none_here() -> None:
    """What somebody is elsewhere neither gives nor takes anything: a grant says what it opens."""
    principal = Principal(name="ann", groups=MEMBERS["viewer"], tenant="globex", authenticator="test")
    assert (membership_of(principal, "acme"), membership_of(principal, "globex")) == ("", "viewer")


def test_a_long_list_of_rules_is_cut_and_says_so() -> None:
    rules = [Rule(("get",), ("",), ("pods",), (str(number),)) for number in range(RULES_MAX + 1)]
    listed, exact = held_in_placed(WorkspaceRoles.of(HELD, {}), "", rules, ())
    assert (len(listed) <= 2 * RULES_MAX, exact) == (True, False)
