"""What providers leave of rules (KC5, AZ10)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.authorization.maximalpermission import intersect
from kube.authorization.rbac import Attributes, Rule

WIDGETS = ("example.org", "widgets")


def rule(verbs: str, groups: str = "example.org", resources: str = "widgets", names: str = "") -> Rule:
    return Rule(tuple(verbs.split()), tuple(groups.split()), tuple(resources.split()), tuple(names.split()))


@pytest.mark.parametrize(
    ("held", "limit", "left", "exact"),
    [
        (rule("get create"), [rule("get list")], [rule("get")], True),
        (rule("*"), [rule("get list")], [rule("get list")], True),
        (rule("get"), [rule("*", "*", "*")], [rule("get")], True),
        (rule("get"), [], [], True),
        (rule("get", names="a b"), [rule("get", names="b c")], [rule("get", names="b")], True),
        (rule("get", names="a"), [rule("get", names="c")], [], True),
        (rule("get"), [rule("get", names="c")], [rule("get", names="c")], True),
        (rule("get", resources="widgets gadgets"), [], [rule("get", resources="gadgets")], True),
        (rule("update", resources="widgets/status"), [rule("update")], [], True),
        (rule("update", resources="widgets/status"), [rule("*", resources="*/status")], [rule("update", resources="widgets/status")], True),
        (rule("get", "apps", "widgets"), [], [rule("get", "apps", "widgets")], True),
        (rule("*", "*", "*"), [rule("get")], [rule("*", "*", "*")], False),
        (rule("get", "apps", "*"), [], [rule("get", "apps", "*")], True),
        (Rule(("get",), urls=("/x",)), [], [Rule(("get",), urls=("/x",))], True),
    ],
)  # fmt: skip
def test_rules_are_cut_to_what_both_sides_allow(held: Rule, limit: list[Rule], left: list[Rule], exact: bool) -> None:
    assert intersect([held], {WIDGETS: limit}) == (tuple(left), exact)


SOME = st.sampled_from(["get", "list", "*"])
RULES = st.builds(
    Rule,
    st.lists(SOME, max_size=2).map(tuple),
    st.lists(st.sampled_from(["example.org", "apps", "*"]), max_size=2).map(tuple),
    st.lists(st.sampled_from(["widgets", "gadgets", "widgets/status", "*", "*/status"]), max_size=2).map(tuple),
    st.lists(st.sampled_from(["a", "b"]), max_size=1).map(tuple),
)


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=3))
def test_what_is_left_allows_what_rules_and_limit_allow(held: list[Rule], limit: list[Rule]) -> None:
    left, exact = intersect(held, {WIDGETS: limit})
    for group in ("example.org", "apps"):
        for resource in ("widgets", "gadgets", "widgets/status"):
            for verb in ("get", "list"):
                for name in ("", "a", "b"):
                    asked = Attributes(verb, group, resource, resource.partition("/")[2], name=name)
                    limited = (group, resource.partition("/")[0]) == WIDGETS
                    allowed = any(r.allows(asked) for r in held)
                    expected = allowed and (not limited or any(r.allows(asked) for r in limit))
                    shown = any(r.allows(asked) for r in left)
                    assert shown is expected if exact else shown >= expected
