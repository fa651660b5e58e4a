"""Whose RBAC counts for whom."""

from __future__ import annotations

import pytest

from kube.authentication.identity import Principal
from kube.authorization import bootstrappolicy
from kube.authorization.decisions import Verdict
from kube.authorization.effectivepolicy import Policies, authorize, held_rules, rules_for
from kube.authorization.escalation import covers
from kube.authorization.rbac import CLUSTER, Attributes, Binding, Role, Rule, Scope, Subject, role_from
from kube.authorization.rbacindex import PolicyIndex
from kube.authorization.whocan import who_can
from kube.requests.labelselectors import parse_labels
from kube.requests.logicalclusters import ROOT

PODS = Attributes("get", "", "pods", "", "ns-1", "p")
DISCOVERY = Attributes("get", path="/api/v1", is_resource=False)
READ_PODS = Rule(("get",), ("",), ("pods",))


def principal(name: str, tenant: str | None, *groups: str, cluster: str | None = None) -> Principal:
    groups = (*groups, "system:authenticated" if tenant else "system:unauthenticated")
    return Principal(name=name, groups=groups, tenant=tenant, authenticator="test", cluster=cluster)


def space(*bindings: Binding, roles: tuple[Role, ...] = (Role("reader", rules=(READ_PODS,)),)) -> PolicyIndex:
    return PolicyIndex.build(roles, bindings, bootstrap=bootstrappolicy.INDEX)


def bound(*subjects: Subject, role: str = "reader", namespace: str = "") -> Binding:
    return Binding("b", namespace, "ClusterRole", role, subjects)


BOB = Subject("User", "bob")
EMPTY = space()


def policies(
    cluster: str,
    local: PolicyIndex = EMPTY,
    system: PolicyIndex = EMPTY,
    labels: tuple[tuple[str, str], ...] = (),
) -> Policies:
    return Policies(cluster, system if cluster == ROOT else local, system, bootstrappolicy.INDEX, labels)


@pytest.mark.parametrize(
    ("who", "cluster", "verdict"),
    [
        (principal("bob", "t1"), "root:t1", Verdict.ALLOW),
        (principal("eve", "t1"), "root:t1", Verdict.NO_OPINION),
        # AZ1, AZ-01, AZ-04: the binding names him, the tenant does not fit
        (principal("bob", "t2"), "root:t1", Verdict.DENY),
        (principal("bob", "t2", "system:masters"), "root:t1", Verdict.DENY),
        # AZ-02: no tenant equals nothing
        (principal("bob", None), "root:t1", Verdict.NO_OPINION),
        (principal("bob", ""), "root:t1", Verdict.DENY),
        # a local binding does not mean an operator of the same name
        (principal("bob", "system"), "root:t1", Verdict.NO_OPINION),
        (principal("bob", "t1"), "root:t1:ws", Verdict.ALLOW),
        # a tenant that cannot exist has a space of its own, and nothing in any other
        (principal("eve", "tenantA"), "root:tenantA", Verdict.NO_OPINION),
        (principal("eve", "tenantA"), "root:tenanta", Verdict.DENY),
        (principal("bob", "t1"), ROOT, Verdict.DENY),
        (principal("bob", "t1"), "system:admin", Verdict.DENY),
        # design: masters of a tenant are masters of nothing else
        (principal("root", "t1", "system:masters"), "root:t1", Verdict.ALLOW),
        (principal("root", "t1", "system:masters"), "root:t2", Verdict.DENY),
        (principal("root", "t1", "system:masters"), ROOT, Verdict.DENY),
        (principal("root", "system", "system:masters"), "root:t1", Verdict.ALLOW),
        (principal("root", "system", "system:masters"), ROOT, Verdict.ALLOW),
    ],
)
def test_bindings_of_a_space_mean_users_of_its_tenant(who: Principal, cluster: str, verdict: Verdict) -> None:
    everybody = bound(BOB, Subject("Group", "system:unauthenticated"))
    assert authorize(who, PODS, policies(cluster, local=space(everybody))).verdict is verdict


@pytest.mark.parametrize(
    ("home", "cluster", "allowed"),
    [
        ("root:t1", "root:t1", True),
        ("root:t1:ws", "root:t1", False),
        ("root:t1", "root:t1:ws", False),
        ("root:t1:ws", "root:t1:ws", True),
    ],
)
def test_service_accounts_count_where_they_live(home: str, cluster: str, allowed: bool) -> None:
    """KC9, AZ-05."""
    account = principal("system:serviceaccount:ns:sa", "t1", cluster=home)
    local = space(bound(Subject("ServiceAccount", "sa", "ns")))
    assert authorize(account, PODS, policies(cluster, local=local)).allowed is allowed
    assert bool(rules_for(account, "ns", policies(cluster, local=local))[0]) is allowed


@pytest.mark.parametrize(
    ("scope", "labels", "reached"),
    [
        (None, (), {ROOT}),
        (CLUSTER, (), {ROOT, "root:t1", "root:t1:ws", "root:t2"}),
        (Scope(tenants=frozenset({"t1"})), (), {"root:t1", "root:t1:ws"}),
        (Scope(selector=parse_labels("care=bob")), (("care", "bob"),), {"root:t1", "root:t1:ws", "root:t2"}),
        (Scope(selector=parse_labels("care=bob")), (("care", "eve"),), set()),
    ],
)
def test_operators_reach_as_far_as_the_scope_of_their_rules(
    scope: Scope | None, labels: tuple[tuple[str, str], ...], reached: set[str]
) -> None:
    """AZ1, AZ9: different operators care for different tenants."""
    rule = Rule(("get",), ("",), ("pods",)) if scope is None else Rule(("get",), ("",), ("pods",), scope=scope)
    system = space(bound(BOB), roles=(Role("reader", rules=(rule,)),))
    for cluster in (ROOT, "root:t1", "root:t1:ws", "root:t2"):
        seen = policies(cluster, system=system, labels=labels)
        assert authorize(principal("bob", "system"), PODS, seen).allowed is (cluster in reached)
        assert not authorize(principal("bob", "t1"), PODS, seen).allowed
        found, _ = rules_for(principal("bob", "system"), "ns-1", seen)
        assert any(each.allows(PODS) for each in found) is (cluster in reached)


def test_a_system_binding_in_a_namespace_does_not_reach_the_tenants_namespace() -> None:
    """Design, traps."""
    role = Role("reader", rules=(Rule(("get",), ("",), ("pods",), scope=CLUSTER),))
    system = space(bound(BOB, namespace="ns-1"), roles=(role,))
    assert authorize(principal("bob", "system"), PODS, policies(ROOT, system=system)).allowed
    assert not authorize(principal("bob", "system"), PODS, policies("root:t1", system=system)).allowed


def test_a_scope_in_a_tenants_own_role_is_ignored() -> None:
    """AZ9."""
    manifest = {"metadata": {"name": "reader"}, "rules": [{**READ_PODS.as_dict(), "tenants": ["t9"]}]}
    local = space(bound(BOB), roles=(role_from(manifest),))
    assert authorize(principal("bob", "t1"), PODS, policies("root:t1", local=local)).allowed


@pytest.mark.parametrize("cluster", ["root:t1", "root:t1:ws"])
def test_everybody_discovers_their_own_space(cluster: str) -> None:
    """Design, traps: without discovery kubectl is useless."""
    for who in (principal("eve", "t1"), principal("bob", "system")):
        assert authorize(who, DISCOVERY, policies(cluster)).allowed
    assert not authorize(principal("eve", "t2"), DISCOVERY, policies(cluster)).allowed
    assert not authorize(principal("eve", None), DISCOVERY, policies(cluster)).allowed
    version = DISCOVERY._replace(path="/version")
    assert authorize(principal("system:anonymous", None), version, policies(cluster)).allowed


def test_bootstrap_roles_can_be_bound_locally() -> None:
    """KC7, KC8, TS11."""
    local = space(bound(BOB, role="edit", namespace="ns-1"))
    seen = policies("root:t1", local=local)
    assert authorize(principal("bob", "t1"), PODS, seen).reason == (
        'RBAC: allowed by RoleBinding "b/ns-1" of ClusterRole "edit" to User "bob"'
    )
    assert not authorize(principal("bob", "t1"), PODS._replace(namespace="ns-2"), seen).allowed


def test_own_roles_add_to_the_bootstrap_roles_by_their_labels() -> None:
    """AZ2: what an operator of a CRD ships for edit works in that space and in no other."""
    label = {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}
    widgets = Role("widgets", "", (Rule(("*",), ("w.io",), ("widgets",)),), label)
    asked = Attributes("create", "w.io", "widgets", "", "ns-1")
    for roles, allowed in (((widgets,), True), ((), False)):
        for role in ("edit", "admin"):
            local = space(bound(BOB, role=role), roles=roles)
            assert authorize(principal("bob", "t1"), asked, policies("root:t1", local=local)).allowed is allowed


def test_whoever_may_everything_may_give_everything_and_nobody_else() -> None:
    """AZ2, AZ9: escalation is judged by what is held in the space of the request."""
    wanted = (Rule(("*",), ("*",), ("*",)),)
    seen = policies("root:t1", local=space(bound(BOB, role="cluster-admin")))
    assert covers(held_rules(principal("bob", "t1"), "", seen), wanted) == []
    assert covers(held_rules(principal("eve", "t1"), "", seen), wanted)
    assert covers(held_rules(principal("bob", "t2"), "", seen), wanted)
    assert covers(held_rules(principal("root", "system", "system:masters"), "", seen), wanted) == []
    limited = space(
        bound(BOB, role="limited"),
        roles=(Role("limited", rules=(Rule(("*",), ("*",), ("*",), scope=Scope(tenants=frozenset({"t1"}))),)),),
    )
    assert covers(held_rules(principal("bob", "system"), "", policies("root:t1", system=limited)), wanted) == []
    assert covers(held_rules(principal("bob", "system"), "", policies("root:t2", system=limited)), wanted)
    assert covers(held_rules(principal("bob", "system"), "", policies(ROOT, system=limited)), wanted)


@pytest.mark.parametrize("role", ["view", "edit", "admin", "cluster-admin"])
def test_the_bootstrap_roles_are_aggregated(role: str) -> None:
    """KC7."""
    rules = bootstrappolicy.INDEX.rules_of("ClusterRole", "", role)
    assert rules is not None
    can = {
        "view": ("get", "pods", ""),
        "edit": ("create", "deployments", "apps"),
        "admin": ("create", "rolebindings", "rbac.authorization.k8s.io"),
        "cluster-admin": ("delete", "nodes", ""),
    }
    order = list(can)
    for name, (verb, resource, group) in can.items():
        allowed = any(rule.allows(Attributes(verb, group, resource)) for rule in rules)
        assert allowed is (order.index(name) <= order.index(role))
    manifest = next(each for each in bootstrappolicy.CLUSTER_ROLES if each["metadata"]["name"] == role)
    assert set(role_from(manifest, scoped=True).rules) == set(rules)


@pytest.mark.parametrize(
    ("verb", "group", "resource"),
    [
        ("create", "", "serviceaccounts/token"),
        ("impersonate", "", "serviceaccounts"),
        ("bind", "rbac.authorization.k8s.io", "clusterroles"),
        ("update", "", "resourcequotas"),
        ("delete", "", "limitranges"),
        ("patch", "", "namespaces"),
        ("create", "apps", "daemonsets"),
        ("get", "", "nodes"),
        ("escalate", "rbac.authorization.k8s.io", "roles"),
        ("create", "", "pods/binding"),
    ],
)
def test_tenant_roles_leave_no_back_door(verb: str, group: str, resource: str) -> None:
    """Design, tenant role; promise P3."""
    subresource = resource.partition("/")[2]
    asked = Attributes(verb, group, resource, subresource)
    for name in (bootstrappolicy.TENANT_ADMIN, bootstrappolicy.TENANT_EDIT, bootstrappolicy.TENANT_VIEW):
        rules = bootstrappolicy.INDEX.rules_of("ClusterRole", "", name)
        assert rules
        assert not any(rule.allows(asked) for rule in rules)


def test_accounts_and_bindings_are_for_a_workspaces_admin_alone() -> None:
    """What charts bring; fenced by name (``tests/gateway/test_ownership.py``, ``tests/tenants/fences``)."""
    for asked in (
        Attributes("create", "", "serviceaccounts"),
        Attributes("patch", "rbac.authorization.k8s.io", "rolebindings"),
        Attributes("create", "rbac.authorization.k8s.io", "roles"),
    ):
        held = [
            any(rule.allows(asked) for rule in bootstrappolicy.INDEX.rules_of("ClusterRole", "", name) or ())
            for name in (bootstrappolicy.TENANT_ADMIN, bootstrappolicy.TENANT_EDIT, bootstrappolicy.TENANT_VIEW)
        ]
        assert held == [True, False, False]


def test_tenant_roles_grow_from_view_to_admin() -> None:
    rules = [
        bootstrappolicy.INDEX.rules_of("ClusterRole", "", name) or ()
        for name in (bootstrappolicy.TENANT_VIEW, bootstrappolicy.TENANT_EDIT, bootstrappolicy.TENANT_ADMIN)
    ]
    assert covers(rules[1], rules[0]) == []
    assert covers(rules[2], rules[1]) == []
    assert covers(rules[0], rules[1])
    assert covers(rules[1], rules[2])
    secrets = Attributes("get", "", "secrets")
    assert [any(rule.allows(secrets) for rule in held) for held in rules] == [False, True, True]


def test_of_many_missing_roles_the_first_are_named() -> None:
    """AZ11: a tenant writes its bindings itself, and every refusal tells of them."""
    subjects = (Subject("User", "u"),)
    bindings = [Binding(f"b{number:02}", "", "ClusterRole", f"r{number}", subjects) for number in range(20)]
    missing = [f'clusterrole.rbac.authorization.k8s.io "r{number}" not found' for number in range(20)]
    for number, said in ((2, ", ".join(missing[:2])), (20, ", ".join([*missing[:16], "and 4 more"]))):
        index = PolicyIndex.build(bindings=[*bindings[:number], *bindings[:1]])
        assert index.authorize("u", (), PODS).reason == f"RBAC: [{said}]"


OWN_DISCOVERY = Binding("system:discovery", "", "ClusterRole", "system:discovery", ())
PLAIN_DISCOVERY = Role("system:discovery", rules=(Rule(("get",), urls=("/nothing",)),))


@pytest.mark.parametrize("own", [space(OWN_DISCOVERY), space(roles=(PLAIN_DISCOVERY,))], ids=["binding", "role"])
def test_what_operators_make_their_own_of_the_bootstrap_policy_counts_in_their_space_alone(own: PolicyIndex) -> None:
    """KC7: nobody is locked out of tenants' spaces by it."""
    olga = principal("olga", "system")
    assert authorize(olga, DISCOVERY, policies(ROOT, system=own)).verdict is Verdict.NO_OPINION
    elsewhere = policies("root:t1", system=own)
    found = authorize(olga, DISCOVERY, elsewhere)
    assert (found.verdict, found.rule) == (Verdict.ALLOW, authorize(olga, DISCOVERY, policies("root:t1")).rule)
    assert any(rule.covers_url("get", "/api/v1") for rule in rules_for(olga, "", elsewhere)[0])
    holders = who_can(DISCOVERY, elsewhere)
    assert ("Group", "system:authenticated", "system") in {(each.kind, each.name, each.tenant) for each in holders}


def test_what_a_tenant_makes_its_own_counts_for_its_people_and_no_operator() -> None:
    closed = policies("root:t1", local=space(OWN_DISCOVERY))
    assert authorize(principal("bob", "t1"), DISCOVERY, closed).verdict is Verdict.NO_OPINION
    assert authorize(principal("olga", "system"), DISCOVERY, closed).verdict is Verdict.ALLOW


def test_a_refusal_is_short_whatever_a_tenant_calls_what_is_not_there() -> None:
    """DOS-03: everybody who is refused is told."""
    bindings = [Binding(f"b{n}", "", "ClusterRole", f"{n}" * 1_000_000, (BOB,)) for n in range(40)]
    found = authorize(principal("bob", "t1"), PODS, policies("root:t1", local=space(*bindings)))
    assert found.verdict is Verdict.NO_OPINION
    assert len(found.reason) < 8_000
    assert "and 24 more" in found.reason
