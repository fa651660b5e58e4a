"""Roles that gather others' rules by labels: what they hold, and what it costs to find out (KC7, DOS-03)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.authorization.aggregation import RULES_MAX, aggregated_rules, choices_of
from kube.authorization.rbac import Role, Rule, aggregate, role_from
from kube.requests.labelselectors import parse_labels
from kube.validation.listlimits import BOUNDS
from tests.effort import effort

_SELECTORS = ["a=1", "a in (1,2)", "a", "!a", "a!=1", "a=1,b", "a notin (2),b=1", "b>0"]
_LABELS = st.dictionaries(st.sampled_from("ab"), st.sampled_from("12"))
_GATHERED = st.none() | st.lists(st.sampled_from(_SELECTORS), max_size=3, unique=True)


@st.composite
def cluster_roles(draw: st.DrawFn) -> dict[str, Role]:
    found = {}
    for name in draw(st.lists(st.sampled_from("pqrstu"), min_size=1, unique=True)):
        gathered = draw(_GATHERED)
        selectors = None if gathered is None else tuple(map(parse_labels, gathered))
        found[name] = Role(name, "", (Rule(("get",), ("",), (name,)),), draw(_LABELS), selectors)
    return found


def plainly(role: Role, roles: dict[str, Role]) -> set[Rule]:
    """The same by looking at each role for each selector."""
    if role.aggregation is None:
        return set(role.rules)
    seen, waiting = {role.name}, [role]
    found: set[Rule] = set()
    while waiting:
        current = waiting.pop()
        for name, other in roles.items():
            if name not in seen and any(each.matches(other.labels) for each in current.aggregation or ()):
                seen.add(name)
                waiting.append(other)
                found |= set(other.rules) if other.aggregation is None else set()
    return found


@settings(max_examples=300, deadline=None)
@given(cluster_roles())
def test_a_role_holds_the_rules_of_all_that_it_chooses(roles: dict[str, Role]) -> None:
    for role in roles.values():
        found = aggregate(role, roles)
        assert set(found) == plainly(role, roles)
        assert len(found) == len(set(found))


def manifest(name: str, labels: dict[str, str], *, rules: int = 0, chooses: list[Any] | None = None) -> dict[str, Any]:
    rule = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    made: dict[str, Any] = {"metadata": {"name": name, "labels": labels}, "rules": []}
    made["rules"] = [{**rule, "resourceNames": [f"{name}-{number}"]} for number in range(rules)]
    if chooses is not None:
        made["aggregationRule"] = {"clusterRoleSelectors": chooses}
    return made


def absent(number: int) -> dict[str, Any]:
    return {"matchExpressions": [{"key": f"k{number}", "operator": "DoesNotExist"}]}


_CHAIN = [
    manifest(f"c{n:04}", {"n": f"v{n}"}, chooses=[{"matchLabels": {"n": f"v{n + 1}"}}, {"matchLabels": {"w": f"w{n}"}}])
    for n in range(1500)
]
_KEYS = {f"k{number}": "x" for number in range(200)}
_VAIN = [manifest(f"v{n:04}", _KEYS, chooses=[absent(number) for number in range(n % 200)]) for n in range(800)]
_LARGE = [manifest(f"l{n}", {"a": "b"}, rules=190) for n in range(10)]


@pytest.mark.parametrize(
    "house",
    [
        [manifest("root", {}, chooses=[{"matchLabels": {"n": "v0"}}]), *_CHAIN],
        [manifest("root", {}, chooses=[absent(number) for number in range(1000)]), *_VAIN],
        [manifest("root", {}, chooses=[{"matchLabels": {"a": "b"}}, *map(absent, range(1000))]), *_LARGE],
        [
            manifest("root", {}, chooses=[{"matchLabels": {"a": "b"}}]),
            *(manifest(f"m{n}", {"a": "b"}) for n in range(5000)),
        ],
    ],
    ids=["a chain", "in vain", "many rules", "many roles"],
)
def test_whatever_a_tenant_lets_its_roles_gather_is_found_at_little_cost(house: list[dict[str, Any]]) -> None:
    """A decision asked this of each role for each selector, and held the server for half a minute."""
    manifests = {each["metadata"]["name"]: each for each in house}
    roles = {name: role_from(each) for name, each in manifests.items()}
    assert effort(lambda: aggregate(roles["root"], roles)) < 30
    choices = choices_of(manifests)
    assert effort(lambda: aggregated_rules(manifests["root"], manifests, choices)) < 30


def test_a_role_gathers_no_more_rules_than_one_may_have() -> None:
    """What is read back is an object: larger ones are put together by decisions alone."""
    assert BOUNDS["rules"] == RULES_MAX
    house = [manifest("root", {}, chooses=[{"matchLabels": {"a": "b"}}]), *_LARGE]
    few = {each["metadata"]["name"]: each for each in house}
    found = aggregated_rules(few["root"], few, choices_of(few))
    assert found is not None
    assert len(found) == 1900
    many = {**few, **{each["metadata"]["name"]: each for each in (manifest("more", {"a": "b"}, rules=101),)}}
    assert aggregated_rules(many["root"], many, choices_of(many)) is None
    roles = {name: role_from(each) for name, each in many.items()}
    assert len(aggregate(roles["root"], roles)) == 2001
