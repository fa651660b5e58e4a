"""Label and field selectors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.requests import fieldselectors, labelselectors
from kube.requests.fieldselectors import FieldSelector, FieldTerm
from kube.requests.labelselectors import Operator, Requirement, Selector
from kube.requests.status import BadRequest
from tests.effort import effort

KEYS = st.from_regex(r"([a-z]{1,3}\.io/)?[A-Za-z][A-Za-z0-9]{0,3}", fullmatch=True)
VALUES = st.from_regex(r"[A-Za-z0-9]{0,3}", fullmatch=True)


@st.composite
def requirements(draw: st.DrawFn) -> Requirement:
    operator = draw(st.sampled_from(list(Operator)))
    if operator in {Operator.EXISTS, Operator.ABSENT}:
        values: list[str] = []
    elif operator in {Operator.GREATER, Operator.LESS}:
        values = [str(draw(st.integers(0, 10**6)))]
    elif operator in {Operator.IN, Operator.NOT_IN}:
        values = draw(st.lists(VALUES, min_size=1, max_size=3))
    else:
        values = [draw(VALUES)]
    return labelselectors.requirement(draw(KEYS), operator, values)


@given(st.lists(requirements(), max_size=5))
def test_a_selector_survives_being_written_and_read(found: list[Requirement]) -> None:
    selector = Selector(tuple(sorted(found, key=lambda each: each.key)))
    assert labelselectors.parse_labels(str(selector)) == selector


@given(st.text(alphabet="ab=!(),<> \tin.-/1é", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        selector = labelselectors.parse_labels(text)
    except BadRequest:
        return
    assert labelselectors.parse_labels(str(selector)) == selector


LABELS = {"app": "web", "tier": "1", "empty": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app", True),
        ("!app", False),
        ("!missing", True),
        ("app=web", True),
        ("app==web", True),
        ("app = web , tier", True),
        ("app!=web", False),
        ("missing!=x", True),
        ("app in (web,db)", True),
        ("app in ( db )", False),
        ("app notin (db)", True),
        ("missing notin (db)", True),
        ("missing in (db)", False),
        ("empty=", True),
        ("empty in (,x)", True),
        ("app=,tier", False),
        ("tier>0", True),
        ("tier>1", False),
        ("tier<2", True),
        ("app>0", False),
        ("in in (in)", False),
        ("!in,notin notin (in, notin)", True),
    ],
)
def test_selectors_match(text: str, matches: bool) -> None:
    assert labelselectors.parse_labels(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("a=(b", "unable to parse requirement: found '(', expected: identifier"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        (
            "a>x",
            (
                'unable to parse requirement: values[0]: Invalid value: "x": '
                "for 'Gt', 'Lt' operators, the value must be an integer"
            ),
        ),
        (
            "a=b@",
            (
                'unable to parse requirement: values[0][a]: Invalid value: "b@": a valid label must '
                "be an empty string or "
                "consist of alphanumeric characters, '-', '_' or '.', and must start and end with "
                "an alphanumeric character "
                "(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
                "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ),
        ),
        (
            "-a",
            (
                'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric '
                "characters, '-', '_' or '.', and must start and end with an alphanumeric character "
                "(e.g. 'MyName',  or "
                "'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
            ),
        ),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
    ],
)
def test_broken_selectors_are_refused_in_kubernetes_words(text: str, message: str) -> None:
    with pytest.raises(BadRequest) as refused:
        labelselectors.parse_labels(text)
    assert refused.value.message == message


def test_ten_thousand_terms_are_refused() -> None:
    """DOS-05."""
    with pytest.raises(BadRequest):
        labelselectors.parse_labels(",".join("a" for _ in range(10_000)))
    with pytest.raises(BadRequest):
        labelselectors.parse_labels("a" * 100_000)
    with pytest.raises(BadRequest):
        fieldselectors.parse_fields(",".join("a=b" for _ in range(10_000)))


def test_selector_objects_combine_labels_and_expressions() -> None:
    selector = labelselectors.from_object(
        {
            "matchLabels": {"app": "web"},
            "matchExpressions": [
                {"key": "tier", "operator": "In", "values": ["1", "2"]},
                {"key": "old", "operator": "DoesNotExist"},
            ],
        }
    )
    assert selector.matches(LABELS)
    assert not selector.matches(LABELS | {"old": ""})
    assert labelselectors.from_object({}).matches({})
    assert not labelselectors.from_object(None).matches(LABELS)


@pytest.mark.parametrize(
    "selector",
    [
        [],
        {"matchLabels": ["a"]},
        {"matchLabels": {"a": 1}},
        {"matchLabels": {"a b": "c"}},
        {"matchExpressions": {"a": 1}},
        {"matchExpressions": "In"},
        {"matchExpressions": [1]},
        {"matchExpressions": [{"key": "a", "operator": "Near"}]},
        {"matchExpressions": [{"key": "a", "operator": "In", "values": "b"}]},
        {"matchExpressions": [{"key": "a", "operator": "In"}]},
        {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
        {"matchExpressions": [{"operator": "Exists"}]},
        {"matchExpressions": [{"key": "a", "operator": ["In"]}]},
    ],
)
def test_broken_selector_objects_are_refused(selector: object) -> None:
    with pytest.raises(BadRequest):
        labelselectors.from_object(selector)  # type: ignore[arg-type]


@given(st.lists(st.builds(FieldTerm, KEYS, st.text(max_size=6), st.booleans()), max_size=4))
def test_a_field_selector_survives_being_written_and_read(terms: list[FieldTerm]) -> None:
    selector = FieldSelector(tuple(terms))
    assert fieldselectors.parse_fields(str(selector)) == selector


@given(st.text(alphabet="ab=!,\\. ", max_size=30))
def test_any_field_selector_is_read_or_refused(text: str) -> None:
    try:
        selector = fieldselectors.parse_fields(text)
    except BadRequest:
        assert fieldselectors.exact_match(text, "a") is None
        return
    assert fieldselectors.parse_fields(str(selector)) == selector


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("metadata.name=x", True),
        ("metadata.name==x,status.phase!=Running", True),
        ("metadata.name=x,,", True),
        ("metadata.name=y", False),
        ("status.phase=", True),
        ("metadata.name!=x", False),
        (r"metadata.name=x\,y", False),
    ],
)
def test_field_selectors_match(text: str, matches: bool) -> None:
    assert fieldselectors.parse_fields(text).matches({"metadata.name": "x"}) is matches


def test_broken_and_unsupported_fields_are_refused_in_kubernetes_words() -> None:
    with pytest.raises(BadRequest, match="invalid selector: 'abc'; can't understand 'abc'"):
        fieldselectors.parse_fields("abc")
    with pytest.raises(BadRequest, match=r"field label not supported: spec\.x"):
        fieldselectors.parse_fields("spec.x=1").check({"metadata.name"})
    with pytest.raises(BadRequest):
        fieldselectors.parse_fields("a=b\\")
    with pytest.raises(BadRequest):
        fieldselectors.parse_fields("a=b=c")


def test_a_demanded_name_is_found() -> None:
    assert fieldselectors.exact_match("metadata.namespace=a,metadata.name=b", "metadata.name") == "b"
    assert fieldselectors.exact_match("metadata.name!=b", "metadata.name") is None


@pytest.mark.parametrize(
    "text",
    [
        f"app in (web,{','.join(f'v{number}' for number in range(10_000))})",
        f"app notin ({','.join(f'v{number}' for number in range(10_000))})",
        ",".join(f"app!=v{number}" for number in range(500)),
        ",".join(f"!gone{number}" for number in range(500)),
    ],
)
def test_an_object_is_selected_as_fast_whatever_it_is_selected_by(text: str) -> None:
    """DOS-03: each event is held against each watch."""
    short, long = labelselectors.parse_labels("app=web"), labelselectors.parse_labels(text)
    assert long.matches(LABELS)
    few = effort(lambda: [short.matches(LABELS) for _ in range(5_000)])
    assert effort(lambda: [long.matches(LABELS) for _ in range(5_000)]) < 10 * few


def test_an_object_is_looked_at_once_for_each_field() -> None:
    """DOS-03."""
    long = fieldselectors.parse_fields(",".join(f"metadata.name!=n{number}" for number in range(100)))
    assert list(long.asked) == ["metadata.name"]
    assert long.matches({"metadata.name": "x"})
    assert not long.matches({"metadata.name": "n99"})
    assert not fieldselectors.parse_fields("metadata.name=a,metadata.name=b").matches({"metadata.name": "a"})


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("app in (web,db),app!=db", True),
        ("app in (web,db),app in (db,x)", False),
        ("app,!app", False),
        ("tier>0,tier<2", True),
        ("tier>0,tier>1", False),
        ("tier<2,tier<1,tier", False),
        ("!missing,missing!=x", True),
    ],
)
def test_all_that_is_asked_of_one_label_counts(text: str, matches: bool) -> None:
    assert labelselectors.parse_labels(text).matches(LABELS) is matches


@given(st.text(alphabet="ab,() ", max_size=12))
def test_a_list_of_values_is_read_word_by_word(inside: str) -> None:
    """As a reader would that takes one word after the other."""
    words = [part.split() for part in inside.split(",")]
    try:
        read = labelselectors.parse_labels(f"k in ({inside})").requirements[0].values
    except BadRequest:
        assert {*"()"} & {*inside} or any(len(each) > 1 for each in words)
        return
    assert read == {each[0] if each else "" for each in words}


def test_of_many_wrong_values_the_first_are_named() -> None:
    with pytest.raises(BadRequest) as refused:
        labelselectors.requirement("a", Operator.IN, ["good,", *["-"] * 10_000])
    assert refused.value.message.startswith('[values[0][a]: Invalid value: "good,": ')
    assert refused.value.message.count("Invalid value") == 100
