"""Nobody gives away what they do not hold."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.authorization.escalation import compact, covers, describe, refusal
from kube.authorization.rbac import CLUSTER, TENANTED, Attributes, Rule, Scope
from kube.requests.status import BadRequest
from tests.effort import effort

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


def _plainly(held: list[Rule], wanted: list[Rule]) -> list[Rule]:
    """The same by asking each rule about each permission, as Kubernetes does."""

    def within(items: tuple[str, ...], own: tuple[str, ...]) -> bool:
        return "*" in own or all(
            each in own or ("/" in each and f"*/{each.partition('/')[2]}" in own) for each in items
        )

    def of_urls(urls: tuple[str, ...], own: tuple[str, ...]) -> bool:
        return all(
            any(url == each or (each.endswith("*") and url.startswith(each.rstrip("*"))) for each in own)
            for url in urls
        )

    def singles(rule: Rule) -> list[Rule]:
        named = [(name,) for name in rule.names] or [()]
        parts = itertools.product(rule.groups, rule.resources, rule.verbs, named)
        found = [Rule((v,), (g,), (r,), n, (), rule.scope) for g, r, v, n in parts]
        return found + [Rule((v,), urls=(url,), scope=rule.scope) for url in rule.urls for v in rule.verbs]

    def covered(single: Rule) -> bool:
        return any(
            ("*" in own.verbs or single.verbs[0] in own.verbs)
            and (not single.groups or "*" in own.groups or single.groups[0] in own.groups)
            and within(single.resources, own.resources)
            and (not own.names or (single.names and single.names[0] in own.names))
            and of_urls(single.urls, own.urls)
            and own.scope.covers(single.scope)
            for own in held
        )

    return list(dict.fromkeys(single for rule in wanted for single in singles(rule) if not covered(single)))


_SOME = st.lists(st.sampled_from(["a", "b", "*"]), min_size=1, max_size=2, unique=True).map(tuple)
_RULES = st.lists(
    st.one_of(
        st.builds(
            Rule,
            _SOME,
            _SOME,
            st.lists(st.sampled_from(["a", "a/x", "b/x", "*/x", "*"]), min_size=1, max_size=3, unique=True).map(tuple),
            st.lists(st.sampled_from(["n", "m"]), max_size=2, unique=True).map(tuple),
            scope=st.sampled_from([TENANTED, CLUSTER]),
        ),
        st.builds(
            Rule,
            _SOME,
            urls=st.lists(st.sampled_from(["/", "/a", "/a*", "/a/*", "*", "/ab**"]), min_size=1, max_size=3).map(tuple),
        ),
    ),
    max_size=4,
)


@settings(max_examples=600, deadline=None)
@given(_RULES, _RULES)
def test_what_is_missing_is_what_no_rule_covers(held: list[Rule], wanted: list[Rule]) -> None:
    assert covers(held, wanted) == _plainly(held, wanted)


_MANY = tuple(f"x{number}" for number in range(2000))


@pytest.mark.parametrize("part", ["verbs", "groups", "resources", "names", "urls", "prefixes"])
def test_many_rules_are_compared_with_many_permissions_at_little_cost(part: str) -> None:
    """DOS-03: a binding of 200 bytes asks this; what was said about each pair held the server for minutes."""
    whole: dict[str, tuple[str, ...]] = {"verbs": ("get",), "groups": ("",), "resources": ("pods",)}
    if part in ("urls", "prefixes"):
        whole = {"verbs": ("get",)}
    field, end = ("urls", "*") if part == "prefixes" else (part, "")
    held = [Rule(**{**whole, field: (f"/h{number}{end}",)}) for number in range(6000)]
    wanted = [Rule(**{**whole, field: _MANY})]
    assert effort(lambda: covers(held, wanted)) < 60
    assert len(covers(held, wanted)) == len(_MANY)
