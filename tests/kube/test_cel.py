"""CEL rules: which a CRD may hold, and what they say about objects (TS10)."""

from __future__ import annotations

import gc
import subprocess
import sys
from functools import partial
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.cel import library
from kube.cel.admission import Scope, compile_expression
from kube.cel.costs import HANDED_OVER
from kube.cel.evaluation import BUDGET, violations
from kube.cel.rules import DOUBLED, MAX_LETTERS, RULES_BUDGET, InvalidExpression, Rules, rule_causes, rules_of
from kube.customresources.definitions import crd_causes
from kube.customresources.schemas import structural_schema
from kube.customresources.validation import object_causes, without_nulls
from kube.kinds.mergestrategies import Structure, structure_of
from kube.kinds.schemas import Schema
from kube.requests.status import Cause
from tests.effort import effort
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
    causes: list[Any] = []
    assert effort(lambda: causes.extend(violations(rules, body, None))) < 150
    assert len(causes) == 1


TEXT: Final = {"type": "string"}
LISTED: Final = {
    "type": "object",
    "properties": {
        "l": {"type": "array", "items": TEXT},
        "m": {"type": "array", "items": {"type": "object", "properties": {"k": TEXT, "v": NUMBER}}},
        "s": TEXT,
    },
}


def judged(rule: str, body: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    schema = structural_schema({**LISTED, "x-kubernetes-validations": [{"rule": rule}]}, definitions())
    assert rule_causes(schema, "x") == []
    rules = rules_of(schema)
    assert rules is not None
    return [cause.message for cause in violations(rules, body, old)]


@pytest.mark.parametrize(
    ("rule", "many"),
    [
        ("self.l.all(a, self.l.indexOf('zz') < 0)", 1_000),
        ("self.l.all(a, self.l == self.l)", 3_000),
        ("self.l.all(a, !('zz' in self.l))", 3_000),
        ("self.l.all(a, (self.l + self.l).size() > 0)", 3_000),
        ("self.l.map(a, a).size() > 0", 5_000),
        ("self.l.filter(a, true).size() > 0", 5_000),
        ("self.l.map(a, self.l.map(b, a + b)).size() > 0", 5_000),
        ("self.l.map(a, self.l).flatten().size() > 0", 900),
        ("self.l.map(a, self.l).flatten().map(b, b).size() > 0", 99),
        ("self.l.map(a, self.l) == self.l.map(a, self.l)", 3_000),
        ("cel.bind(x, self.l + self.l, cel.bind(y, x + x, cel.bind(z, y + y, (z + z).isSorted())))", 30_000),
        ("cel.bind(x, [self.l, self.l], cel.bind(y, [x, x, x, x, x, x, x, x], [y, y, y, y] == [y, y, y, y]))", 40_000),
        ("lists.range(10000).map(i, lists.range(10000)).size() > 0", 1),
        ("lists.range(10000).map(i, i).size() > 0", 1),
        ("oldSelf.l.all(a, oldSelf.l.indexOf('zz') < 0)", -1_000),
        ("oldSelf.l.map(a, a).size() > 0", -5_000),
    ],
)
def test_what_goes_through_whole_lists_is_counted_by_their_length(rule: str, many: int) -> None:
    """DOS-03: the evaluator does not stop in the middle of a list, and memory is held until it ends.

    A negative number is the length of the list that was there before.
    """
    body = {"l": [f"a{number}" for number in range(abs(many))], "s": ""}
    pair = (body, None) if many > 0 else ({"l": [], "s": ""}, body)
    assert ["running out of cost budget" in message for message in judged(rule, *pair)] == [True]


def test_a_text_is_as_many_parts_as_it_has_letters() -> None:
    assert judged("self.s.split('').map(a, a).size() > 0", {"l": [], "s": "a" * 20_000})


def test_every_function_that_is_handed_lists_is_counted_as_one() -> None:
    handed = {
        name
        for name, overloads in library._FUNCTIONS.items()
        for _, parameters, _, _ in overloads
        if parameters and (parameters[0] is library._LIST or str(parameters[0]) == "DYN")
    }
    assert handed <= HANDED_OVER


@pytest.mark.parametrize(
    "rule",
    [
        "self.l.all(a, self.l.exists_one(b, a == b))",
        "self.l.map(a, a + 'x').all(b, b.size() > 1)",
        "self.m.map(a, a.k).isSorted() || true",
        "self.m.sortBy(a, a.k).size() >= 0",
        "self.m.filter(a, a.v > 1).size() >= 0 && self.m.filter(a, a.v > 2).size() >= 0",
        "self.l.all(a, a in self.l)",
        "self.l == oldSelf.l || self.l.size() >= oldSelf.l.size()",
        "self.m.all(a, !(a.k in ['x', 'y'])) && self.l.isSorted() || true",
        "self.l.distinct().size() == self.l.size()",
    ],
)
def test_common_rules_hold_for_lists_of_common_length(rule: str) -> None:
    body = {
        "l": [f"a{number}" for number in range(60)],
        "m": [{"k": f"k{number}", "v": number} for number in range(60)],
        "s": "text",
    }
    assert judged(rule, body, body) == []
    assert judged(rule, {**body, "s": "other"}, body) == []


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
    causes: list[Any] = []
    assert effort(lambda: causes.extend(crd_causes(ruled({"rule": rule}), definitions()))) < 100
    assert causes[0].field.endswith("rule")


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


MANY = """
from kube.cel.rules import rule_causes
from kube.kinds.schemas import Schema
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
def ask(number):
    rule = f"self in [{'1,' * 4000}{number}]"
    rule_causes(Schema(type="integer", rules={"x-kubernetes-validations": [{"rule": rule}]}), "spec")
ask(0)
before = resident()
for number in range(100):
    ask(number)
print(resident() - before)
"""


def test_many_large_rules_fill_no_memory() -> None:
    """DOS-03: a tenant sends definitions with rules of eight kilobytes, each of which takes 1.4 MB when it is compiled."""
    done = subprocess.run([sys.executable, "-c", MANY], capture_output=True, text=True, timeout=300, check=True)
    assert int(done.stdout) < 70 << 20


def test_what_is_compiled_of_a_definition_goes_with_it() -> None:
    """DOS-03: whoever makes definitions, and deletes them, leaves nothing in the memory of all."""

    def kept() -> int:
        gc.collect()
        return sum(type(each) in (Rules, Structure) for each in gc.get_objects())

    before = kept()
    for number in range(20):
        schema = schema_of(ruled({"rule": f"self.s != 'x{number}'"}))
        assert rules_of(schema) is rules_of(schema) is not None
        assert structure_of(schema) is structure_of(schema)
    del schema
    assert kept() <= before


def test_what_is_compiled_of_all_definitions_shares_one_number_of_bytes() -> None:
    """DOS-03."""
    long = f"self.s != '{'x' * 5_000}'"
    schemas = [schema_of(ruled({"rule": long.replace("x'", f"{number}'")})) for number in range(10)]
    RULES_BUDGET.empty()
    for schema in schemas:
        assert rules_of(schema)
    assert RULES_BUDGET.taken > 10 * 100 * len(long)
    RULES_BUDGET.empty()
    assert not any(schema.kept["rules"] for schema in schemas)


def test_a_version_has_no_more_letters_of_rules_than_are_compiled_in_a_moment() -> None:
    """DOS-03: beyond them none is compiled."""
    rules = [{"rule": f"self.s != '{number}{'x' * 16_000}'"} for number in range(6)]
    document = ruled(rules[0])
    node = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert crd_causes(document, definitions()) == []
    node["x-kubernetes-validations"] = rules
    assert [cause.message for cause in crd_causes(document, definitions())] == [
        f"Forbidden: must have at most {MAX_LETTERS} characters of validation rules, {DOUBLED}"
    ]


def test_a_rule_has_no_more_optional_steps_than_are_compiled_in_a_moment() -> None:
    """DOS-03: what ``optMap`` is called on is written twice, and twice again by the next one."""
    step, last = ".optMap(x, x)", ".orValue(true)"
    few = ruled({"rule": f"self.?b{step * 7}{last}"})
    assert crd_causes(few, definitions()) == []
    node = few["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    too_many = [
        [{"rule": f"self.?b{step * 7}{last}"}] * 6,
        [{"rule": f"self.?b{step * 40}{last}"}],
        [{"rule": f"self.?b{step.replace('.optMap', ' . optFlatMap ') * 40}{last}"}],
        [{"rule": f"{'optional.of(' * 20}self.?b{f'{step})' * 20}{last}"}],
        [{"rule": f"[{', '.join(['self.?b'] * 1_000)}][0]{step * 4}{last}"}],
        [{"rule": f"'\\z self.?b{step * 16}{last}'"}],
        [{"rule": "self.b", "messageExpression": f"self.?s{step * 16}.orValue('')"}],
    ]
    for rules in too_many:
        node["x-kubernetes-validations"] = rules
        assert [cause.message for cause in crd_causes(few, definitions())] == [
            f"Forbidden: must have at most {MAX_LETTERS} characters of validation rules, {DOUBLED}"
        ]
    for text in (rules[0]["rule"] for rules in too_many[1:-1]):
        with pytest.raises(InvalidExpression, match="each optMap and optFlatMap doubles"):
            compile_expression(text.replace("self", "object"), Scope())
        assert effort(partial(crd_causes, ruled({"rule": text}), definitions())) < 4
