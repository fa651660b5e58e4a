"""CEL rules: which a CRD may hold, and what they say about objects (TS10)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.cel.evaluation import BUDGET, violations
from kube.cel.rules import rule_causes, rules_of
from kube.crds import crd_causes
from kube.customobjects import object_causes, without_nulls
from kube.schemas import Schema
from kube.status import Cause
from kube.structural import structural_schema
from tests.kube.kinds import definitions
from tests.kube.rules import ACCEPTED, NUMBER, OBJECTS, REFUSED, Where, ruled


def schema_of(document: dict[str, Any]) -> Schema:
    return structural_schema(document["spec"]["versions"][0]["schema"]["openAPIV3Schema"], definitions())


def tried(document: dict[str, Any], before: dict[str, Any] | None, now: dict[str, Any]) -> list[Cause]:
    schema = schema_of(document)
    rules = rules_of(schema)
    assert rules is not None
    body = {"apiVersion": "example.com/v1", "kind": "Ruled", "metadata": {"name": "x"}}
    old = None if before is None else without_nulls(schema, {**body, "spec": before})
    return violations(rules, without_nulls(schema, {**body, "spec": now}), old)


@pytest.mark.parametrize(("rule", "where", "words"), REFUSED)
def test_a_rule_that_cannot_hold_is_refused_with_the_crd(rule: dict[str, Any], where: Where, words: str) -> None:
    causes = crd_causes(ruled(rule, where), definitions())
    assert len(causes) == 1
    assert words in causes[0].message
    assert "x-kubernetes-validations[0]" in causes[0].field


@pytest.mark.parametrize(("rule", "where"), ACCEPTED)
def test_rules_that_a_crd_may_hold(rule: dict[str, Any], where: Where) -> None:
    assert crd_causes(ruled(rule, where), definitions()) == []


@pytest.mark.parametrize(("rule", "where", "before", "now", "words"), OBJECTS)
def test_objects_are_judged_by_rules(rule: Any, where: Where, before: Any, now: Any, words: str) -> None:
    causes = tried(ruled(rule, where), before, now)
    assert [cause.message for cause in causes] == ([words] if words else [])


@pytest.mark.parametrize("rule", ["self.s.find('[') == ''", "self.s.findAll('(', 1).size() == 0", "math.abs(1) == 1"])
def test_what_cannot_be_evaluated_is_refused_and_never_ignored(rule: str) -> None:
    assert crd_causes(ruled({"rule": rule}), definitions())[0].field.endswith("rule")


def test_the_root_of_an_object_shows_its_name_and_nothing_else_of_its_metadata() -> None:
    root = {"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.name.startsWith('a')"}]}
    schema = structural_schema(root, definitions())
    assert rule_causes(schema, "x") == []
    rules = rules_of(schema)
    assert rules is not None
    assert violations(rules, {"metadata": {"name": "abc", "labels": {}}}, None) == []
    assert violations(rules, {"metadata": {"name": "xyz"}}, None)
    labels = {"type": "object", "x-kubernetes-validations": [{"rule": "self.metadata.labels.size() == 0"}]}
    assert "undefined field 'labels'" in rule_causes(structural_schema(labels, definitions()), "x")[0].message


@pytest.mark.parametrize(
    "part",
    [
        {"allOf": [{"x-kubernetes-validations": [{"rule": "false"}]}]},
        {"anyOf": [{"properties": {"n": {"x-kubernetes-validations": [{"rule": "false"}]}}}]},
        {"not": {"x-kubernetes-validations": [{"rule": "false"}]}},
    ],
)
def test_rules_where_they_would_not_be_looked_at_are_refused(part: dict[str, Any]) -> None:
    document = ruled({"rule": "true"})
    document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] |= part
    assert any("x-kubernetes-validations" in cause.field for cause in crd_causes(document, definitions()))


def test_what_a_schema_asks_of_the_name_holds() -> None:
    root = {
        "type": "object",
        "properties": {"metadata": {"type": "object", "properties": {"name": {"type": "string", "pattern": "^a"}}}},
    }
    schema = structural_schema(root, definitions())
    assert object_causes(schema, {"metadata": {"name": "abc"}}) == []
    assert object_causes(schema, {"metadata": {"name": "xyz"}})[0].field == "metadata.name"


@pytest.mark.parametrize(
    "rule",
    [
        "self.l.all(x, self.l.all(y, self.l.all(z, x + y + z != -1)))",
        "self.l.map(x, self.s + self.s).size() == self.l.size()",
        "self.l.map(x, (self.s + self.s).upperAscii()).size() == self.l.size()",
        "self.s.replace('a', self.s).size() > 0",
        "self.l.map(x, self.s).join(self.s).size() > 0",
        "cel.bind(a, self.s + self.s, cel.bind(b, a + a, cel.bind(c, b + b, (c + c + c + c).size() > 0)))",
        "self.l.all(x, self.s.matches('(a+a+)+b') == false)",
        "sets.equivalent(self.l, self.l)",
        "self.s.find('(a+a+)+b') == ''",
        "self.l.all(x, self.s.findAll('a?').size() >= 0)",
    ],
)
def test_a_rule_costs_a_bounded_time(rule: str) -> None:
    """ADM-20, P9: what would take too long, or too much memory, fails instead."""
    spec = {
        "type": "object",
        "properties": {"l": {"type": "array", "items": NUMBER}, "s": {"type": "string"}},
        "x-kubernetes-validations": [{"rule": rule}],
    }
    schema = structural_schema(spec, definitions())
    assert rule_causes(schema, "x") == []
    rules = rules_of(schema)
    assert rules is not None
    body = {"l": list(range(20_000)), "s": "a" * 1_000_000}
    started = time.process_time()
    causes = violations(rules, body, None)
    assert time.process_time() - started < 0.5
    assert len(causes) == 1


def test_many_small_rules_are_bounded_together() -> None:
    items = {"type": "object", "properties": {"a": NUMBER}, "x-kubernetes-validations": [{"rule": "self.a > 0"}]}
    schema = structural_schema(
        {"type": "object", "properties": {"l": {"type": "array", "items": items}}}, definitions()
    )
    rules = rules_of(schema)
    assert rules is not None
    assert violations(rules, {"l": [{"a": 1}] * 1000}, None) == []
    causes = violations(rules, {"l": [{"a": 1}] * (BUDGET // 50)}, None)
    assert "running out of cost budget" in causes[-1].message


@pytest.mark.parametrize(
    "rule", ["(" * 500 + "true" + ")" * 500, "true" + " && true" * 4000, "x" * 20_000, "self.all(" * 40]
)
def test_hostile_expressions_are_refused_quickly(rule: str) -> None:
    started = time.process_time()
    causes = crd_causes(ruled({"rule": rule}), definitions())
    assert causes[0].field.endswith("rule")
    assert time.process_time() - started < 1


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
RULE = (
    "quantity(self.s).isLessThan(quantity('1')) || ip(self.s).isLoopback() || cidr(self.s).prefixLength() == 1 || "
    "url(self.s).getHost() == '' || semver(self.s).major() == 1 || self.names.isSorted() || self.nums.sum() > 1 || "
    "self.ios == self.n || self.map['a'] > self.n"
)


@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "s": st.text(max_size=8),
            "names": st.lists(st.text(max_size=3), max_size=3),
            "ios": json_values,
            "nums": st.lists(st.integers(), max_size=3),
            "n": st.integers(),
            "map": st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
        },
    )
)
def test_no_object_makes_a_rule_fail_in_any_other_way_than_by_a_cause(spec: dict[str, Any]) -> None:
    for cause in tried(ruled({"rule": RULE}), None, spec):
        assert cause.field == "spec"
        assert "internal error" not in cause.message
