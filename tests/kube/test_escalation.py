"""Nobody gives away what they do not hold."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.authorization.escalation import compact, covers, describe, refusal
from kube.authorization.rbac import CLUSTER, TENANTED, Attributes, Rule, Scope
from kube.requests.status import BadRequest

EVERYTHING = (Rule(("*",), ("*",), ("*",)), Rule(("*",), urls=("*",)))


GET_PODS = Rule(("get",), ("",), ("pods",))
API = (Rule(("get",), urls=("/api/*",)),)


@pytest.mark.parametrize(
    ("held", "wanted", "missing"),
    [
        ((Rule(("get",), ("",), ("configmaps",)),), Rule(("get",), ("",), ("configmaps",)), []),
        (
            (Rule(("get",), ("",), ("configmaps",)),),
            Rule(("get", "list"), ("",), ("configmaps",)),
            ['{APIGroups:[""], Resources:["configmaps"], Verbs:["list"]}'],
        ),
        (
            (Rule(("get",), ("",), ("a",)), Rule(("get",), ("",), ("b",))),
            Rule(("get",), ("",), ("a", "b")),
            [],
        ),
        (EVERYTHING, Rule(("*",), ("*",), ("*",), urls=("*",)), []),
        ((Rule(("get", "list"), ("",), ("pods",)),), Rule(("*",), ("",), ("pods",)), None),
        ((Rule(("get",), ("",), ("pods",), ("a",)),), Rule(("get",), ("",), ("pods",)), None),
        ((Rule(("get",), ("",), ("pods",)),), Rule(("get",), ("",), ("pods",), ("a",)), []),
        ((Rule(("get",), ("",), ("pods",), ("a", "b")),), Rule(("get",), ("",), ("pods",), ("b",)), []),
        ((Rule(("get",), ("",), ("*/scale",)),), Rule(("get",), ("",), ("x/scale",)), []),
        ((Rule(("get",), ("",), ("*/scale",)),), Rule(("get",), ("",), ("x",)), None),
        ((Rule(("get",), ("",), ("pods",)),), Rule(("get",), ("",), ("pods/log",)), None),
        (API, Rule(("get",), urls=("/api/v1", "/api/*")), []),
        (
            (Rule(("get",), urls=("/api/*",)),),
            Rule(("get",), urls=("/ap*",)),
            ['{NonResourceURLs:["/ap*"], Verbs:["get"]}'],
        ),
        (
            (),
            Rule(("get",), ("",), ("pods",), ("a",)),
            ['{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["get"]}'],
        ),
        (
            (Rule(("get",), ("",), ("pods",), scope=TENANTED),),
            Rule(("get",), ("",), ("pods",), scope=CLUSTER),
            None,
        ),
        (
            (Rule(("get",), ("",), ("pods",), scope=CLUSTER),),
            Rule(("get",), ("",), ("pods",), scope=Scope(tenants=frozenset("a"))),
            [],
        ),
    ],
)
def test_rules_cover_others_as_in_kubernetes(held: tuple[Rule, ...], wanted: Rule, missing: list[str] | None) -> None:
    """AZ2, AZ-07."""
    found = [describe(rule) for rule in covers(held, [wanted])]
    assert bool(found) if missing is None else found == missing


def test_a_refusal_reads_as_kubernetes_writes_it() -> None:
    wanted = Rule(("get", "list"), ("apps",), ("deployments", "replicasets"))
    assert refusal("bob", ("dev", 'a"b'), covers((), [wanted])) == (
        'user "bob" (groups=["dev" "a\\"b"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:["apps"], Resources:["deployments"], Verbs:["get" "list"]}\n'
        '{APIGroups:["apps"], Resources:["replicasets"], Verbs:["get" "list"]}'
    )


def test_rules_that_multiply_are_refused_before_they_are_taken_apart() -> None:
    """P9."""
    many = tuple(str(number) for number in range(1000))
    with pytest.raises(BadRequest):
        covers((), [Rule(many, many, many)])
    assert covers(EVERYTHING, [Rule(many, many, many)]) == []


def test_compacting_joins_verbs_and_leaves_the_rest() -> None:
    urls = Rule(("get",), urls=("/x",))
    assert compact([Rule(("a",), ("",), ("p",)), urls, Rule(("b",), ("",), ("p",))]) == [
        urls,
        Rule(("a", "b"), ("",), ("p",)),
    ]


VERBS, GROUPS, RESOURCES = ("get", "put"), ("", "apps"), ("pods", "pods/log", "secrets")
CHOICES = st.builds(
    Rule,
    st.lists(st.sampled_from([*VERBS, "*"]), max_size=2).map(tuple),
    st.lists(st.sampled_from([*GROUPS, "*"]), max_size=2).map(tuple),
    st.lists(st.sampled_from([*RESOURCES, "*", "*/log"]), max_size=2).map(tuple),
    st.lists(st.sampled_from(["a", "b"]), max_size=1).map(tuple),
)


@settings(deadline=None)
@given(st.lists(CHOICES, max_size=4), st.lists(CHOICES, max_size=2))
def test_what_is_covered_allows_nothing_new(held: list[Rule], wanted: list[Rule]) -> None:
    """AZ2: whoever passes the check gains no request that they could not make before."""
    if covers(held, wanted):
        return
    for verb, group, resource, name in itertools.product(
        (*VERBS, "x"), (*GROUPS, "y"), (*RESOURCES, "z"), ("a", "b", "")
    ):
        asked = Attributes(verb, group, resource, resource.partition("/")[2], "", name)
        if any(rule.allows(asked) for rule in wanted):
            assert any(rule.allows(asked) for rule in held)
