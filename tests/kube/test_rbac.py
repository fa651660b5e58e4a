"""RBAC: the meaning of rules, and the compiled index against the plain evaluation."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.authorization.decisions import Verdict
from kube.authorization.rbac import (
    CLUSTER,
    NO_OPINION,
    TENANTED,
    Attributes,
    Binding,
    Role,
    Rule,
    Scope,
    Subject,
    aggregate,
    applicable,
    binding_from,
    evaluate,
    role_from,
    role_rules,
    rules_from,
)
from kube.authorization.rbacindex import CACHE_BUDGET, PolicyIndex, TargetTenant, intern_all
from kube.requests.labelselectors import parse_labels
from kube.requests.requestinfo import parse, resolve


def about(verb: str, resource: str, *, group: str = "", namespace: str = "", name: str = "") -> Attributes:
    return Attributes(verb, group, resource, resource.partition("/")[2], namespace, name)


def url(verb: str, path: str) -> Attributes:
    return Attributes(verb, path=path, is_resource=False)


POD_READER = Rule(("get", "list"), ("",), ("pods",))


@pytest.mark.parametrize(
    ("rule", "attributes", "allowed"),
    [
        (POD_READER, about("get", "pods"), True),
        (POD_READER, about("watch", "pods"), False),
        (POD_READER, about("get", "pods", group="apps"), False),
        (POD_READER, about("get", "pods/log"), False),
        (POD_READER, url("get", "pods"), False),
        (Rule(("*",), ("*",), ("*",)), about("impersonate", "pods/log", group="x.io"), True),
        (Rule(("*",), ("*",), ("*",)), url("get", "/healthz"), False),
        (Rule(("get",), ("",), ("pods/*",)), about("get", "pods/log"), False),
        (Rule(("get",), ("",), ("*/scale",)), about("get", "deployments/scale"), True),
        (Rule(("get",), ("",), ("*/scale",)), about("get", "deployments"), False),
        (Rule(("get",), ("",), ("*/scale",)), about("get", "deployments/status"), False),
        (Rule(("get",), ("",), ("pods/log",)), about("get", "pods/log"), True),
        (Rule(("get",), ("",), ("pods/log",)), about("get", "pods"), False),
        (Rule(("get", "list"), ("",), ("pods",), ("a",)), about("get", "pods", name="a"), True),
        (Rule(("get", "list"), ("",), ("pods",), ("a",)), about("get", "pods", name="b"), False),
        # AZ-13: a rule with names matches nothing that has none
        (Rule(("*",), ("",), ("pods",), ("a",)), about("list", "pods"), False),
        (Rule(("*",), ("",), ("pods",), ("a",)), about("create", "pods"), False),
        (Rule(("*",), ("",), ("pods",), ("a",)), about("deletecollection", "pods"), False),
        (Rule(("list",), ("",), ("pods",), ("a",)), about("list", "pods", name="a"), True),
        (Rule(("get",), urls=("/healthz",)), url("get", "/healthz"), True),
        (Rule(("get",), urls=("/healthz",)), url("get", "/healthz/x"), False),
        (Rule(("get",), urls=("/healthz",)), url("head", "/healthz"), False),
        (Rule(("get",), urls=("/api/*",)), url("get", "/api/v1"), True),
        (Rule(("get",), urls=("/api/*",)), url("get", "/api"), False),
        (Rule(("get",), urls=("/api*",)), url("get", "/apis"), True),
        (Rule(("get",), urls=("*",)), url("get", "/"), True),
        (Rule(("get",), urls=("/*/x",)), url("get", "/a/x"), False),
        (Rule(("get",), ("",), ("pods",), urls=("/x",)), url("get", "/x"), True),
        (Rule((), ("",), ("pods",)), about("get", "pods"), False),
        (Rule(("get",), (), ("pods",)), about("get", "pods"), False),
    ],
)
def test_rules_mean_what_they_mean_in_kubernetes(rule: Rule, attributes: Attributes, allowed: bool) -> None:
    """AZ2."""
    assert rule.allows(attributes) is allowed
    index = PolicyIndex.build(
        [Role("r", rules=(rule,))], [Binding("b", "", "ClusterRole", "r", (Subject("User", "u"),))]
    )
    assert index.authorize("u", (), attributes).allowed is allowed


def test_a_resolved_request_gives_its_attributes() -> None:
    info = resolve(parse("GET", b"/api/v1/namespaces/a/pods/p/log"), "t1")
    assert Attributes.of(info) == Attributes("get", "", "pods/log", "log", "a", "p")
    info = resolve(parse("GET", b"/healthz"), "t1")
    assert Attributes.of(info) == url("get", "/healthz")


@pytest.mark.parametrize(
    ("subject", "user", "groups", "namespace", "meant"),
    [
        (Subject("User", "bob"), "bob", (), "", True),
        (Subject("User", "bob"), "Bob", (), "", False),
        (Subject("Group", "dev"), "bob", ("dev",), "", True),
        (Subject("Group", "bob"), "bob", (), "", False),
        (Subject("User", "dev"), "bob", ("dev",), "", False),
        (Subject("ServiceAccount", "sa", "ns"), "system:serviceaccount:ns:sa", (), "", True),
        (Subject("ServiceAccount", "sa", "ns"), "system:serviceaccount:other:sa", (), "other", False),
        (Subject("ServiceAccount", "sa"), "system:serviceaccount:ns:sa", (), "ns", True),
        (Subject("ServiceAccount", "sa"), "system:serviceaccount::sa", (), "", False),
        (Subject("ServiceAccount", "sa", "ns"), "sa", (), "ns", False),
        (Subject("User", "system:serviceaccount:ns:sa"), "system:serviceaccount:ns:sa", (), "", True),
        (Subject("Robot", "bob"), "bob", (), "", False),
        (Subject("User", ""), "", (), "", False),
    ],
)
def test_subjects_mean_who_they_mean_in_kubernetes(
    subject: Subject, user: str, groups: tuple[str, ...], namespace: str, *, meant: bool
) -> None:
    """AZ2."""
    assert subject.includes(user, groups, namespace) is meant
    binding = Binding("b", namespace, "ClusterRole", "r", (subject,))
    index = PolicyIndex.build([Role("r", rules=(POD_READER,))], [binding])
    assert index.authorize(user, groups, about("get", "pods", namespace=namespace)).allowed is meant


def test_reasons_are_those_of_kubernetes() -> None:
    """AZ11."""
    roles = [Role("reader", rules=(POD_READER,)), Role("reader", "ns", (POD_READER,))]
    account = Subject("ServiceAccount", "sa")
    for binding, user, reason in (
        (
            Binding("x", "", "ClusterRole", "reader", (Subject("User", "z"),)),
            "z",
            'RBAC: allowed by ClusterRoleBinding "x" of ClusterRole "reader" to User "z"',
        ),
        (
            Binding("x", "ns", "Role", "reader", (account,)),
            "system:serviceaccount:ns:sa",
            'RBAC: allowed by RoleBinding "x/ns" of Role "reader" to ServiceAccount "sa/ns"',
        ),
    ):
        decision = PolicyIndex.build(roles, [binding]).authorize(user, (), about("get", "pods", namespace="ns"))
        assert decision.reason == reason
        assert decision.rule == reason.removeprefix("RBAC: allowed by ")
        assert decision.step == "RBAC"


def test_a_role_binding_ends_at_its_namespace() -> None:
    """AZ2."""
    index = PolicyIndex.build(
        [Role("r", rules=(POD_READER,))], [Binding("b", "a", "ClusterRole", "r", (Subject("User", "u"),))]
    )
    assert index.authorize("u", (), about("get", "pods", namespace="a")).allowed
    for namespace in ("", "b"):
        assert index.authorize("u", (), about("get", "pods", namespace=namespace)) == NO_OPINION


def test_a_binding_to_a_missing_role_grants_nothing_until_it_exists() -> None:
    """AZ-08."""
    index = PolicyIndex.build(bindings=[Binding("b", "a", "Role", "r", (Subject("User", "u"),))])
    wanted = about("get", "pods", namespace="a")
    assert index.rules_of("Role", "a", "r") is None
    said = 'RBAC: role.rbac.authorization.k8s.io "r" not found'
    for without in (index, index.with_role(Role("r", "b", (POD_READER,))), index.with_role(Role("r"))):
        decision = without.authorize("u", (), wanted)
        assert (decision.verdict, decision.reason) == (Verdict.NO_OPINION, said)
    assert index.authorize("v", (), wanted) == NO_OPINION
    assert index.with_role(Role("r", "a", (POD_READER,))).authorize("u", (), wanted).allowed


def test_an_own_role_hides_the_bootstrap_role_of_its_name() -> None:
    """KC7, KC8, AZ-11."""
    bootstrap = PolicyIndex.build([Role("view", rules=(POD_READER,))])
    binding = Binding("b", "", "ClusterRole", "view", (Subject("User", "u"),))
    index = PolicyIndex.build([], [binding], bootstrap=bootstrap)
    assert index.authorize("u", (), about("get", "pods")).allowed
    hidden = index.with_role(Role("view", rules=(Rule(("get",), ("",), ("nodes",)),)))
    assert not hidden.authorize("u", (), about("get", "pods")).allowed
    assert hidden.without_role("", "view").authorize("u", (), about("get", "pods")).allowed
    assert index.authorize("u", (), about("get", "pods")).allowed


def labelled(name: str, label: str, *rules: Rule, selects: str = "") -> Role:
    aggregation = (parse_labels(selects),) if selects else None
    return Role(name, "", rules, {label: "true"} if label else {}, aggregation)


def test_aggregated_roles_are_the_union_of_those_they_choose() -> None:
    """AZ2."""
    nodes, pods = Rule(("get",), ("",), ("nodes",)), POD_READER
    roles = {
        role.name: role
        for role in (
            labelled("admin", "", Rule(("own",), ("",), ("ignored",)), selects="to-admin=true"),
            labelled("edit", "to-admin", selects="to-edit"),
            labelled("a", "to-edit", nodes),
            labelled("b", "to-admin", pods, nodes),
            labelled("loop", "to-edit", selects="to-admin"),
        )
    }
    assert set(aggregate(roles["admin"], roles)) == {nodes, pods}
    assert aggregate(roles["edit"], roles) == (nodes, pods)
    assert aggregate(roles["a"], roles) == (nodes,)


def test_malformed_objects_grant_nothing() -> None:
    for rules in (None, {}, "x", [None, 1, "a"], [{"verbs": "get", "apiGroups": [1], "resources": None}]):
        role = role_from({"metadata": {"name": "r"}, "rules": rules})
        assert not any(rule.allows(about("get", "pods")) for rule in role.rules)
    binding = binding_from({"metadata": {"name": "b"}, "roleRef": None, "subjects": [None, {"kind": "User"}]})
    assert not applicable([binding], "", (), "")


@pytest.mark.parametrize(
    ("rule", "scope"),
    [
        ({}, TENANTED),
        ({"scopeType": "Tenanted"}, TENANTED),
        ({"scopeType": "Namespaced"}, TENANTED),
        ({"scopeType": "Cluster"}, CLUSTER),
        ({"tenants": ["a", "b"]}, Scope(tenants=frozenset("ab"))),
        ({"scopeType": "Cluster", "tenants": ["a"]}, Scope(tenants=frozenset("a"))),
        ({"tenants": "a"}, Scope()),
        ({"tenantSelector": {"matchLabels": {"x": "y"}}}, Scope(selector=parse_labels("x=y"))),
        ({"tenantSelector": {"matchLabels": 1}}, Scope()),
    ],
)
def test_scopes_are_read_in_the_system_space_alone(rule: dict[str, Any], scope: Scope) -> None:
    """AZ9."""
    assert rules_from([rule], scoped=True)[0].scope == scope
    assert rules_from([rule])[0].scope == TENANTED


def test_scopes_include_and_cover() -> None:
    """AZ9."""
    chosen = Scope(selector=parse_labels("tier=gold"))
    named = Scope(tenants=frozenset({"t1"}))
    assert CLUSTER.includes("t1", {})
    assert CLUSTER.includes("system", {})
    assert TENANTED.includes("system", {})
    assert not TENANTED.includes("t1", {})
    assert named.includes("t1", {})
    assert not named.includes("system", {})
    assert chosen.includes("t1", {"tier": "gold"})
    assert not chosen.includes("t1", {})
    assert not Scope(selector=parse_labels("")).includes("system", {})
    assert CLUSTER.covers(chosen)
    assert chosen.covers(chosen)
    assert not chosen.covers(CLUSTER)
    assert not named.covers(TENANTED)
    assert Scope(tenants=frozenset({"t1", "t2"})).covers(named)
    assert not named.covers(chosen)


def test_the_index_counts_only_rules_whose_scope_includes_the_tenant() -> None:
    """AZ9."""
    rules = (
        Rule(("get",), ("",), ("pods",), scope=CLUSTER),
        Rule(("get",), ("",), ("nodes",)),
        Rule(("get",), ("",), ("secrets",), scope=Scope(selector=parse_labels("tier=gold"))),
    )
    index = PolicyIndex.build([Role("r", rules=rules)], [Binding("b", "", "ClusterRole", "r", (Subject("User", "u"),))])
    gold = TargetTenant("t1", (("tier", "gold"),))
    for target, resources in (
        (TargetTenant("system"), {"pods", "nodes"}),
        (TargetTenant("t1"), {"pods"}),
        (gold, {"pods", "secrets"}),
        (None, {"pods", "nodes", "secrets"}),
    ):
        for resource in ("pods", "nodes", "secrets"):
            assert index.authorize("u", (), about("get", resource), target).allowed is (resource in resources)
        assert {rule.resources[0] for rule in index.rules_for("u", (), "", target)} == resources


CROWDED: list[Callable[[PolicyIndex, int], object]] = [
    lambda index, number: index.authorize("u", (), about("get", f"r{number}" + "x" * 20_000)),
    lambda index, number: index.authorize("u", (), about(f"v{number}" + "x" * 20_000, "pods")),
    lambda index, number: index.authorize(f"u{number}" + "x" * 20_000, (), about("get", "pods")),
    lambda index, number: index.authorize("u", (f"g{number}" + "x" * 20_000,), about("get", "pods")),
    lambda index, number: index.authorize("u", tuple(f"{number}-{n}" for n in range(300)), about("get", "pods")),
    lambda index, number: index.authorize("u", (), url("get", f"/{number}" + "x" * 20_000)),
    lambda _, number: intern_all((f"{number}" + "x" * 20_000,)),
    lambda index, number: index.authorize(f"bound{number}", ("many",), about("get", "pods")),
]
"""One question after the other, each of which would leave 16 kB or more behind."""


ROOM = 2 * 1024 * 1024


def remembered(ask: int) -> tuple[int, int]:
    """The bytes that are left of many questions in a process with that much room, and the most that were taken at a time."""
    bindings = [Binding(f"b{n}", "", "ClusterRole", "r", (Subject("Group", "many"),)) for n in range(40)]
    index = PolicyIndex.build(
        [Role("r", rules=(POD_READER,))], [Binding("b", "", "ClusterRole", "r", (Subject("User", "u"),)), *bindings]
    )
    CACHE_BUDGET.empty()
    CACHE_BUDGET._capacity = ROOM
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(ROOM // 8_000):
        CROWDED[ask](index, number)
    after, most = tracemalloc.get_traced_memory()
    return after - before, most - before


@pytest.mark.parametrize("ask", range(len(CROWDED)))
def test_questions_do_not_pile_up(ask: int) -> None:
    """P9, DOS-03: what is remembered is bounded in bytes, whatever is asked.

    In a process of its own: what other threads of this one allocate meanwhile would be counted too.
    """
    script = f"from tests.kube.test_rbac import remembered; print(*remembered({ask}))"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout
    left, most = map(int, said.split())
    assert left < ROOM
    assert most < ROOM + ROOM // 2


def test_a_reference_that_can_mean_nothing_takes_no_role_away() -> None:
    """AZ2: a ClusterRoleBinding that names a Role, whichever of the two is asked about first."""
    bindings = [
        Binding("b", "", "ClusterRole", "r", (Subject("User", "u"),)),
        Binding("c", "", "Role", "r", (Subject("User", "v"),)),
    ]
    for order in ("uv", "vu"):
        index = PolicyIndex.build([Role("r", rules=(POD_READER,))], bindings)
        assert {user: index.authorize(user, (), about("get", "pods")).allowed for user in order} == {
            "u": True,
            "v": False,
        }


def test_what_was_asked_often_is_remembered() -> None:
    """P9: a rule set is compiled once for a question, and by whoever holds an equal one."""
    index = PolicyIndex.build(
        [Role("r", rules=(POD_READER,))],
        [Binding("b", "", "ClusterRole", "r", (Subject("User", "u"), Subject("User", "v")))],
    )
    index.authorize("u", (), about("get", "pods"))
    index.authorize("v", (), about("get", "secrets"))
    mine, theirs = (index._held[user, (), "", None][0] for user in "uv")
    assert mine is theirs
    assert set(mine._resources) == {("get", "", "pods"), ("get", "", "secrets")}


def test_nothing_is_left_of_roles_that_are_gone() -> None:
    """DOS-03: a tenant writes large roles, one after the other, and deletes them."""
    index = PolicyIndex.build(bindings=[Binding("b", "", "ClusterRole", "r", (Subject("User", "u"),))])
    known: list[weakref.ref[object]] = []
    for number in range(20):
        rules = tuple(Rule(("get",), ("",), (f"r{number}-{n}",), ("a", f"b{n}")) for n in range(200))
        index = index.with_role(Role("r", rules=rules))
        assert index.authorize("u", (), about("get", f"r{number}-7", name="b7")).allowed
        known.append(weakref.ref(index._held["u", (), "", None][0]))
        index = index.without_role("", "r")
    assert [each() for each in known] == [None] * 20


def test_thousands_of_named_rules_answer_but_are_not_remembered() -> None:
    """P9: a role of one megabyte must not fill the memory question by question."""
    rules = tuple(Rule(("get",), ("",), ("*",), (f"n{number}",)) for number in range(1000))
    binding = Binding("b", "", "ClusterRole", "r", (Subject("User", "u"),))
    index = PolicyIndex.build([Role("r", rules=rules)], [binding])
    assert index.authorize("u", (), about("get", "pods", name="n999")).allowed
    assert not index.authorize("u", (), about("get", "pods", name="n1000")).allowed
    assert not index._held["u", (), "", None][0]._resources


NAMES = st.sampled_from(["a", "b", "c"])
SPACES = st.sampled_from(["", "n1", "n2"])
RESOURCES = st.sampled_from(["pods", "pods/log", "secrets", "*", "*/log"])
SCOPES = st.sampled_from([TENANTED, CLUSTER, Scope(tenants=frozenset({"t1"})), Scope(selector=parse_labels("g"))])


def some(elements: st.SearchStrategy[str], most: int = 2) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(elements, max_size=most).map(tuple)


RULES = st.builds(
    Rule,
    verbs=some(st.sampled_from(["get", "list", "*"])),
    groups=some(st.sampled_from(["", "apps", "*"])),
    resources=some(RESOURCES),
    names=some(NAMES),
    urls=some(st.sampled_from(["/x", "/x/*", "/x*", "/*", "/*/y", "*", "/X"])),
    scope=SCOPES,
)
ROLES = st.builds(
    Role,
    NAMES,
    SPACES,
    st.lists(RULES, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from(["l", "m"]), st.just("true"), max_size=1),
    st.none() | st.sampled_from([(parse_labels("l"),), (parse_labels("m"),), ()]),
).map(lambda role: role if not role.namespace else Role(role.name, role.namespace, role.rules, role.labels))
WHO = st.sampled_from(["u", "v", "U", "", "system:authenticated", "system:masters", "system:serviceaccounts:n1"])
SUBJECTS = st.builds(Subject, st.sampled_from(["User", "Group", "ServiceAccount", "user"]), WHO, SPACES)
BINDINGS = st.builds(
    Binding,
    NAMES,
    SPACES,
    st.sampled_from(["Role", "ClusterRole"]),
    NAMES,
    st.lists(SUBJECTS, max_size=3).map(tuple),
)
QUESTIONS = st.builds(
    about,
    st.sampled_from(["get", "list", "delete"]),
    st.sampled_from(["pods", "pods/log", "secrets"]),
    group=st.sampled_from(["", "apps"]),
    namespace=SPACES,
    name=st.sampled_from(["", "a", "b"]),
) | st.builds(url, st.sampled_from(["get", "post"]), st.sampled_from(["/x", "/x/y", "/xy", "/z", "/", "/X", ""]))
USERS = st.sampled_from(["u", "v", "U", "", "system:serviceaccount:n1:u", "system:serviceaccount:n2:v"])
GROUPS = st.sampled_from([(), ("u",), ("v", "u"), ("U", "system:authenticated"), ("system:serviceaccounts:n1", "")])
TARGETS = st.sampled_from([None, TargetTenant("system"), TargetTenant("t1"), TargetTenant("t2", (("g", ""),))])


@settings(max_examples=250, deadline=None)
@given(
    st.dictionaries(NAMES, RULES.map(lambda rule: (rule,)), max_size=2),
    st.lists(BINDINGS.map(lambda binding: replace(binding, namespace="", role_kind="ClusterRole")), max_size=2),
    st.lists(st.tuples(st.sampled_from(["role", "binding", "-role", "-binding"]), ROLES, BINDINGS), max_size=12),
    st.lists(st.tuples(USERS, GROUPS, QUESTIONS, TARGETS), min_size=1, max_size=8),
)
def test_the_index_answers_as_the_plain_evaluation_does_after_every_change(
    bootstrap_rules: dict[str, tuple[Rule, ...]],
    bootstrap_bindings: list[Binding],
    changes: list[tuple[str, Role, Binding]],
    questions: list[tuple[str, tuple[str, ...], Attributes, TargetTenant | None]],
) -> None:
    """AZ2, AZ9, KC7: an own role or binding counts in the place of the bootstrap policy's of its name, while it is there."""
    bootstrap = {name: Role(name, "", rules, {"l": "true"}) for name, rules in bootstrap_rules.items()}
    roles: dict[tuple[str, str], Role] = {}
    cluster_roles: dict[str, Role] = dict(bootstrap)
    bindings: dict[tuple[str, str], Binding] = {}
    compiled = PolicyIndex.build(bootstrap.values(), bootstrap_bindings)
    index = PolicyIndex.build(bootstrap=compiled)
    for change, role, binding in changes:
        before = index
        if change == "binding":
            bindings[binding.namespace, binding.name] = binding
            index = index.with_binding(binding)
        elif change == "-binding":
            bindings.pop((binding.namespace, binding.name), None)
            index = index.without_binding(binding.namespace, binding.name)
        elif role.namespace:
            if change == "role":
                roles[role.namespace, role.name] = role
                index = index.with_role(role)
            else:
                roles.pop((role.namespace, role.name), None)
                index = index.without_role(role.namespace, role.name)
        elif change == "role":
            cluster_roles[role.name] = role
            index = index.with_role(role)
        else:
            cluster_roles.pop(role.name, None)
            if role.name in bootstrap:
                cluster_roles[role.name] = bootstrap[role.name]
            index = index.without_role("", role.name)
        assert before is not index
        for user, groups, attributes, target in questions:
            labels = dict(target.labels) if target else {}
            expected = evaluate(
                user,
                groups,
                attributes,
                bindings={**compiled.bindings, **bindings}.values(),
                roles=roles,
                cluster_roles=cluster_roles,
                counts=lambda rule: target is None or rule.scope.includes(target.tenant, labels),  # noqa: B023
            )
            assert index.authorize(user, groups, attributes, target) == expected
            held = index.rules_for(user, groups, attributes.namespace, target)
            assert expected.allowed is any(rule.allows(attributes) for rule in held)
    rebuilt = PolicyIndex.build([*roles.values(), *cluster_roles.values()], bindings.values(), bootstrap=compiled)
    for user, groups, attributes, target in questions:
        assert rebuilt.authorize(user, groups, attributes, target) == index.authorize(user, groups, attributes, target)


@given(BINDINGS, ROLES)
def test_references_never_leave_their_space(binding: Binding, role: Role) -> None:
    rules = role_rules(binding, {(role.namespace, role.name): role} if role.namespace else {}, {})
    assert rules is None or (binding.role_kind == "Role" and binding.namespace == role.namespace)
