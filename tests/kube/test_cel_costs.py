"""What expressions do with texts takes a moment, or is refused before it begins, or is left to where nobody waits (DOS-03)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Any, Final

import pytest
from cel_expr_python import cel
from hypothesis import given
from hypothesis import strategies as st

from kube.cel import library, regexes, texts
from kube.cel.costs import READ_STEPS
from kube.cel.evaluation import violations
from kube.cel.rules import Rules, _environment, rule_causes, rules_of
from kube.cel.zones import ZONED
from kube.customresources.schemas import structural_schema
from kube.requests.decoding import TooHeavy
from tests.effort import effort
from tests.kube.kinds import definitions

TEXT: Final = {"type": "string"}
LONG: Final = "a" * 700_000
BODY: Final = {
    "t": LONG,
    "u": "a" * 350_000 + "b",
    "v": "b" + "a" * 350_000,
    "spread": "a{1000}" * 10 + "b",
    "nested": "(a+a+)+b",
    "classes": r"\pL{300}" * 12,
    "letters": "[" + "".join(chr(0x4E00 + 2 * number) for number in range(2_000)) + "]",
    "link": f"http://a/{LONG}?{'a=b&' * 100_000}",
    "version": f"1.2.3-{'1.' * 300_000}1",
    "number": "1" * 700_000,
    "address": f"1.2.3.4/{'1' * 700_000}",
    "l": [LONG, LONG],
    "short": "ab",
}
OPAQUE: Final = (
    *("url(self.link)", "semver(self.version)", "quantity(self.number)", "cidr(self.address)", "ip(self.address)"),
    *("url('http://a/?' + self.t)", "quantity('1')"),
)
"""Values of the library's own types, which are made of texts."""

ARGUMENTS: Final = {
    "STRING": ("self.u", "self.v", "self.spread", "self.nested", "self.classes", "self.letters", "'b'"),
    "INT": ("100",),
    "BOOL": ("true",),
    "DYN": ("self.u",),
}
NATIVE: Final = (
    *("self.t.charAt(600000)", "self.t.lowerAscii()", "self.t.upperAscii()", "self.t.trim()", "self.t.reverse()"),
    *("self.t.substring(5, 600000)", "self.t.size()", "size(self.t)", "strings.quote(self.t)", "'%s'.format([self.t])"),
    *("self.l.join(self.t)", "self.t + self.u", "bytes(self.t)", "string(self.t)", "base64.encode(bytes(self.t))"),
    *("base64.decode(self.t)", "int(self.t)", "uint(self.t)", "double(self.t)", "bool(self.t)", "timestamp(self.t)"),
    *("duration(self.number + 's')", "self.t == self.l[0]", "self.t < self.l[0]", "self.t in self.l", "{self.t: 1}"),
    *("self.t.startsWith(self.u)", "self.t.endsWith(self.v)", "self.t.contains(self.u)", "self.t.contains(self.v)"),
    *("self.t.indexOf(self.u)", "self.t.indexOf(self.u, 5)", "self.t.lastIndexOf(self.v)", "self.t.split(self.u)"),
    *("self.t.lastIndexOf(self.u)", "self.t.lastIndexOf(self.v, 690000)", "self.t.split('')", "self.t.split('a')"),
    *("self.t.split(self.u, 3)", "self.t.replace(self.u, 'b')", "self.t.replace('a', 'b')", "self.t.replace('', 'b')"),
    *(f"self.t.matches(self.{name})" for name in ("u", "spread", "nested", "classes", "letters")),
    *("self.t.matches('(a|b)*a(a|b){30}c')", "matches(self.t, self.spread)", "self.t . matches (self.spread)"),
    *("cel.bind(x, self.t, x.matches(self.spread))", "self.l.map(x, x.reverse()).map(x, x.reverse())"),
    *("self.t.matches('a{1000}a{1000}a{1000}a{1000}b')", "[self.t].all(x, x.contains(self.u))"),
    *("format.dns1123Label().validate(self.t)", "format.uri().validate(self.link)", "format.byte().validate(self.t)"),
    *("format.date().validate(self.t)", "format.qualifiedName().validate(self.t)", "format.named(self.t)"),
)


def _named() -> dict[str, list[str]]:
    """Calls of each of the library's functions that is given a text, or what was made of one."""
    calls: dict[str, list[str]] = {}
    for name, overloads in library._FUNCTIONS.items():
        for member, parameters, _, _ in overloads:
            kinds = [str(parameter.name()).partition("<")[0] for parameter in parameters]
            receivers = {"STRING": ("self.t", "self.link", "self.version"), "MAP": OPAQUE}.get((*kinds, "")[0], ())
            rest = [ARGUMENTS.get(kind, OPAQUE) for kind in kinds[1:]]
            for first in () if name.endswith("__") else receivers:
                for choice in range(max(map(len, rest), default=1)):
                    others = [options[choice % len(options)] for options in rest]
                    call = (
                        f"{first}.{name}({', '.join(others)})" if member else f"{name}({', '.join([first, *others])})"
                    )
                    calls.setdefault(name, []).append(call)
    return calls


CALLED: Final = {**_named(), **{call: [call] for call in NATIVE}}


LOOPS: Final = ("{}", "lists.range(300).all(i, {})", "lists.range(9000).all(i, {})")


def ruled(rule: str) -> Rules:
    fields = {**dict.fromkeys(BODY, TEXT), "l": {"type": "array", "items": TEXT}}
    schema = structural_schema(
        {"type": "object", "properties": fields, "x-kubernetes-validations": [{"rule": rule}]}, definitions()
    )
    causes = rule_causes(schema, "x")
    assert causes == [], causes
    rules = rules_of(schema)
    assert rules is not None
    return rules


@contextmanager
def light() -> Iterator[None]:
    token = regexes.light.set(regexes.Light())
    try:
        yield
    finally:
        regexes.light.reset(token)


@pytest.mark.parametrize("called", CALLED)
def test_whatever_is_asked_of_long_texts_holds_nobody_up(called: str) -> None:
    """Each function, once and again and again: it takes little time, or fails, or says beforehand that it takes long."""
    for call in CALLED[called]:
        for loop in LOOPS:
            rules = ruled(loop.format(f"(dyn({call}) == dyn(1) || true)"))

            def ask(rules: Rules = rules) -> None:
                with light(), suppress(TooHeavy):
                    violations(rules, BODY, None)

            def ask_beside(rules: Rules = rules) -> None:
                violations(rules, BODY, None)

            assert effort(ask) < 40, (call, loop)
            if loop == LOOPS[1]:
                assert effort(ask_beside) < 400, (call, loop)


def test_every_function_that_is_given_a_text_has_its_price() -> None:
    given_texts = {
        name
        for name, overloads in library._FUNCTIONS.items()
        for _, parameters, _, _ in overloads
        if any(str(parameter.name()) == "STRING" for parameter in parameters)
    }
    assert {name for name in given_texts if not {name, name.removesuffix("__")} & READ_STEPS.keys()} == set()


@pytest.mark.parametrize(
    "rule",
    [
        "self.short.size() < 10 && self.short.matches('^[a-z]+$') && self.short.lowerAscii() == self.short",
        "self.l.all(x, x.size() < 10 && x.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$') && x.reverse().size() < 10)",
        "cel.bind(x, self.short, [1, 2, 3, 4, 5, 6].all(i, x.size() == 2 && x.indexOf('b') == 1))",
        "self.l.all(i, x, x.trim().size() < 10 && i < 100)",
        "self.l.exists(x, x.contains(self.short)) || self.l[0].charAt(0) == 'a'",
        "self.l.all(x, x == self.l[0] || x > self.l[0] || x.startsWith(self.short) || x != self.short)",
        "isURL(self.short) || self.l.all(x, !isIP(x) && !isURL(x) && !isSemver(x))",
        "self.l.map(x, x + 'b').size() == 60 && self.l.filter(x, x.size() > 3).size() == 50",
        "oldSelf.short == self.short || self.short.size() > 0",
    ],
)
def test_a_long_text_makes_nothing_dear_that_does_not_look_at_it(rule: str) -> None:
    body = {**BODY, "l": [f"ab{number}" for number in range(60)], "t": "a" * 1_400_000}
    assert violations(ruled(rule), body, body) == []
    assert violations(ruled(rule), body, {**body, "short": "other"}) == []


def test_what_is_nowhere_is_taken_to_be_as_long_as_what_should_hold_it() -> None:
    """A path that ends early must not make a text look short."""
    for rule in (
        "self.m.all(k, v, lists.range(300).all(i, v.value.reverse().size() > 0))",
        "self.m.all(k, lists.range(300).all(i, self.m[k].value.reverse().size() > 0))",
        "lists.range(300).all(i, self.m['x'].value.reverse().size() > 0)",
    ):
        fields = {"value": TEXT, "other": TEXT}
        held = {"type": "object", "additionalProperties": {"type": "object", "properties": fields}}
        spec = {"type": "object", "properties": {"m": held}, "x-kubernetes-validations": [{"rule": rule}]}
        schema = structural_schema(spec, definitions())
        assert rule_causes(schema, "x") == []
        rules = rules_of(schema)
        assert rules is not None
        body = {"m": {"x": {"value": LONG}, "value": {"value": "short"}}}
        causes = violations(rules, body, None)
        assert "running out of cost budget" in causes[0].message


_SMALL = st.text("ab", max_size=12)


def _evaluated(expression: str, **data: Any) -> Any:
    result = _environment().compile(expression).eval(data={"self": data, "oldSelf": None, "previous": {}})
    return "error" if result.type() == cel.Type.ERROR else result.plain_value()


def _own(call: Any, *arguments: Any) -> Any:
    regexes.reset_budget()
    try:
        return call(*arguments)
    except ValueError:
        return "error"


@given(_SMALL, st.text("ab", max_size=3), st.integers(-2, 14))
def test_our_own_functions_of_two_texts_say_what_the_evaluators_say(text: str, part: str, place: int) -> None:
    data = {"t": text, "p": part, "n": place}
    assert _evaluated("self.t.contains(self.p)", **data) == texts.contains(text, part)
    assert _evaluated("self.t.indexOf(self.p)", **data) == texts.index_of(text, part)
    assert _evaluated("self.t.lastIndexOf(self.p)", **data) == texts.last_index_of(text, part)
    assert _evaluated("self.t.split(self.p)", **data) == texts.split(text, part)
    assert _evaluated("self.t.indexOf(self.p, self.n)", **data) == _own(texts.index_of, text, part, place)
    assert _evaluated("self.t.lastIndexOf(self.p, self.n)", **data) == _own(texts.last_index_of, text, part, place)
    assert _evaluated("self.t.split(self.p, self.n)", **data) == _own(texts.split, text, part, place)


_PATTERNS = st.lists(
    st.sampled_from(
        ["a", "b", "^", "$", ".", "[ab]", "(a|b)", "a*", "b+?", r"\b", r"\pL", "(", "{2}", "é", r"\d", "x|"]
    ),
    max_size=5,
).map("".join)


@given(st.text("ab1é\n", max_size=8), _PATTERNS)
def test_a_pattern_matches_what_the_evaluators_matches(text: str, pattern: str) -> None:
    expected = _evaluated("self.t.matches(self.p)", t=text, p=pattern)
    assert _own(regexes.matches, text, pattern) == expected
    assert regexes.is_pattern(pattern) == (expected != "error")


def test_a_name_apart_from_its_parenthesis_is_refused() -> None:
    """What cannot be replaced is not evaluated either."""
    fields = {"type": "object", "properties": {"t": TEXT, "u": TEXT}}
    rule = {"rule": "self.t.matches // a comment\n(self.u)", "message": "no match"}
    schema = structural_schema({**fields, "x-kubernetes-validations": [rule]}, definitions())
    (cause,) = rule_causes(schema, "x")
    assert "the name matches has to stand before its parenthesis" in cause.message


def test_where_nobody_waits_much_longer_texts_are_searched() -> None:
    rules = ruled("self.t.findAll('[ab]+c').size() == 0 && self.u.matches('^(a|b)*([ab]|x)$')")
    body = {**BODY, "t": "ab" * 20_000, "u": "ab" * 20_000}
    with light(), pytest.raises(TooHeavy):
        violations(rules, body, None)
    assert violations(rules, body, None) == []


PLAIN: Final = (
    "self.short.size() <= 10 && self.short.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",
    "!has(self.link) || self.short == 'ab'",
    "self.short == oldSelf.short",
    "self.l.all(x, x.startsWith('a') || x.contains('b')) && self.l.exists_one(x, x == 'a')",
    "self.l.map(x, x + 'b').size() == self.l.filter(x, x.size() > 3).size()",
    "self.short in ['a', 'b', 'c'] ? self.n > 1 : self.n * 2 + 1 <= 7 && -self.n != 3",
    "self.l.all(x, self.l.exists(y, y == x)) && self.l[0].lowerAscii().trim() == string(self.n)",
)
BESIDE: Final = (
    *("[optional.none()].sort() == []", "self.?short.orValue('') == ''", "self.l[?0].hasValue()"),
    *("'%s'.format([b'x']) == ''", "b'x' == b'y'", "{'a': 1}.size() == 1", "[self.t, self.u].size() == 2"),
    *("timestamp('2020-01-01T00:00:00Z').getHours('UTC') == 1", "duration('1s') > duration('2s')"),
    *("quantity(self.short).isInteger()", "isURL(self.t)", "isIP(self.t)", "semver('1.2.3').major() == 1"),
    *("self.l.sort() == self.l", "self.l.distinct().size() == 1", "sets.contains(self.l, self.l)"),
    *("self.l.all(i, x, i > 0)", "self.l.sortBy(x, x) == []", "cel.bind(x, self.t, x == '')"),
    *("self.t.find('a') == 'a'", "self.t.split('a').size() == 1", "self.t.replace('a', 'b') == ''"),
    *("self.l.all(self, self == '')", f"self.t != '{'x' * 2_000}'", "self.at > timestamp('2020-01-01T00:00:00Z')"),
)


def evaluated_where_others_wait(rule: str) -> bool:
    fields = {**dict.fromkeys(BODY, TEXT), "l": {"type": "array", "items": TEXT}, "n": {"type": "integer"}}
    fields["at"] = {"type": "string", "format": "date-time"}
    schema = structural_schema(
        {"type": "object", "properties": fields, "x-kubernetes-validations": [{"rule": rule}]}, definitions()
    )
    assert rule_causes(schema, "x") == []
    rules = rules_of(schema)
    assert rules is not None
    body = {"short": "ab", "n": 3, "l": ["ab"], "t": "", "u": "", "link": "", "at": "2021-01-01T00:00:00Z"}
    with light():
        try:
            violations(rules, body, {**body, "n": 4})
        except TooHeavy:
            return False
    return True


def test_only_what_looks_at_what_there_is_is_evaluated_where_others_wait() -> None:
    """What the evaluator's many functions make of hostile values can end the process that it is in."""
    assert {rule: evaluated_where_others_wait(rule) for rule in (*PLAIN, *BESIDE)} == {
        **dict.fromkeys(PLAIN, True),
        **dict.fromkeys(BESIDE, False),
    }


@given(
    st.datetimes().filter(lambda moment: 1 < moment.year < 9999),
    st.sampled_from(
        [
            "UTC",
            "Europe/Berlin",
            "America/New_York",
            "Asia/Kolkata",
            "+02:00",
            "-11:30",
            "02:30",
            "no",
            "",
            "/etc/hosts",
        ]
    ),
    st.sampled_from(sorted(ZONED)),
)
def test_parts_of_a_moment_in_a_zone_are_those_of_the_evaluator(moment: datetime, zone: str, part: str) -> None:
    text = f"{moment.isoformat(timespec='milliseconds')}Z"
    own, plain = (f"timestamp(self.t).{part}{end}(self.z)" for end in ("__", ""))
    assert _evaluated(own, t=text, z=zone) == _evaluated(plain, t=text, z=zone)


@pytest.mark.parametrize("zone", ["/proc/self/fd/0", "../../../dev/stdin", "x" * 3_000, "localtime"])
def test_a_zone_is_not_looked_for_among_the_files(zone: str) -> None:
    causes = violations(ruled(f"timestamp('2020-01-01T00:00:00Z').getHours('{zone}') == 1"), BODY, None)
    assert "unknown time zone" in causes[0].message
