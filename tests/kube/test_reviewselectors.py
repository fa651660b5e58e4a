"""Selectors of access reviews: what is read is what is asked on, or said to be left out (AZ5, AZ10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.requests.fieldselectors import parse_fields
from kube.requests.labelselectors import parse_labels
from kube.requests.reviewselectors import field_requirements, label_requirements, selected_fields, selected_labels
from kube.requests.status import BadRequest
from kube.webhooks.reviews import read_access_review
from tests.kube.test_selectors import KEYS, VALUES

OPERATORS = st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "", "in"])
REQUIREMENTS = st.fixed_dictionaries(
    {"key": KEYS | st.text(max_size=5), "operator": OPERATORS, "values": st.lists(VALUES | st.text(max_size=4), max_size=3)}
)  # fmt: skip


def ordered(requirements: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Requirements as a set of conditions: neither their order nor that of their values says anything."""
    return sorted({(each["key"], each["operator"], *sorted(set(each.get("values") or ()))) for each in requirements})


@given(st.lists(REQUIREMENTS, max_size=4))
def test_every_requirement_is_asked_on_as_it_is_or_said_to_be_left_out(requirements: list[dict[str, Any]]) -> None:
    for read, written in ((selected_fields, field_requirements), (selected_labels, label_requirements)):
        selected = read({"requirements": requirements})
        asked = ordered(written(selected.text))
        assert set(asked) <= set(ordered(requirements))
        assert selected.partial is (len(asked) < len(ordered(requirements)))
        assert bool(selected.error("x")) is selected.partial
        assert ("partially" in selected.error("x")) is (selected.partial and bool(asked))


@given(st.text(alphabet="ab=!(),<> in\\.-1", max_size=20))
def test_a_raw_selector_is_taken_whole_or_not_at_all(text: str) -> None:
    for read, parse in ((selected_fields, parse_fields), (selected_labels, parse_labels)):
        selected = read({"rawSelector": text})
        try:
            parse(text)
        except BadRequest:
            assert selected == ("", True)
        else:
            assert selected == (text, False)


@pytest.mark.parametrize(
    ("text", "requirements"),
    [
        ("a=b,c==d,e!=f", [("a", "In", "b"), ("c", "In", "d"), ("e", "NotIn", "f")]),
        ("a in (c,b),d notin (e)", [("a", "In", "b", "c"), ("d", "NotIn", "e")]),
        ("a,!b", [("a", "Exists"), ("b", "DoesNotExist")]),
        ("a=", [("a", "In", "")]),
        ("a>1,b<2,c", [("c", "Exists")]),
        ("a=b=c", []),
        ("", []),
    ],
)
def test_labels_are_asked_about_in_the_words_of_reviews(text: str, requirements: list[tuple[str, ...]]) -> None:
    assert ordered(label_requirements(text)) == sorted(requirements)


def test_more_than_a_selector_holds_is_said_to_be_left_out() -> None:
    many = [{"key": f"f{number}", "operator": "In", "values": ["x"]} for number in range(200)]
    assert selected_fields({"requirements": many}).error("f") == "f ignored due to parse error"


CONTENT = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(["rawSelector", "requirements", "key", "operator", "values"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)


@given(CONTENT, st.sampled_from(["fieldSelector", "labelSelector"]))
def test_whatever_a_cluster_sends_as_a_selector_is_read_or_refused_in_words(content: Any, field: str) -> None:
    spec = {"user": "u", "resourceAttributes": {"verb": "list", field: content}}
    try:
        review = read_access_review(
            {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        )
    except BadRequest as refusal:
        assert field in refusal.message
        return
    given_ = review.spec["resourceAttributes"][field]
    for read in (selected_fields, selected_labels):
        assert read(given_).text or read(given_).partial or not (given_ or {}).get("rawSelector")
