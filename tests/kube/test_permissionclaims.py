"""What a claim and its answer reach together (KC6)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kube.workspaces.apiexports import CLAIMS_MAX, VALUES_MAX, Selected, claim_causes, claimed, selected

WORDS = st.sampled_from(["a", "b"])
VERBS = st.lists(st.sampled_from(["get", "list", "*"]), max_size=2)
PAIRS = st.lists(
    st.fixed_dictionaries({}, optional={"namespace": WORDS, "name": WORDS}).filter(bool), min_size=1, max_size=2
)
LABELS = st.builds(lambda labels: {"matchLabels": labels}, st.dictionaries(WORDS, WORDS, min_size=1, max_size=2))
CHOICES = st.one_of(
    st.just({"all": True}),
    st.builds(lambda pairs: {"resourceSelector": pairs}, PAIRS),
    st.builds(lambda labels: {"selector": labels}, LABELS),
    st.builds(lambda pairs, labels: {"resourceSelector": pairs, "selector": labels}, PAIRS, LABELS),
    st.just({}),
)


@st.composite
def claims(draw: st.DrawFn, *, answered: bool) -> list[dict[str, Any]]:
    found = []
    for _ in range(draw(st.integers(0, 3))):
        claim = {"group": "", "resource": draw(st.sampled_from(["secrets", "pods"])), "verbs": draw(VERBS)}
        claim |= draw(CHOICES)
        if answered:
            claim |= draw(st.sampled_from([{"state": "Accepted"}, {"state": "Rejected"}, {}]))
        found.append(claim)
    return found


def reaches(claim: dict[str, Any], namespace: str, name: str, labels: dict[str, str]) -> bool:
    """In plain words: the resource, the verb, and the object by all that is said of it."""
    if claim["resource"] != "secrets" or not {"*", "get"} & set(claim["verbs"] or ["*"]):
        return False
    pairs, wanted = claim.get("resourceSelector"), claim.get("selector")
    if not claim.get("all") and pairs is None and wanted is None:
        return False
    fits = pairs is None or any(
        pair.get("namespace", namespace) == namespace and pair.get("name", name) == name for pair in pairs
    )
    return fits and (wanted is None or wanted["matchLabels"].items() <= labels.items())


@given(claims(answered=False), claims(answered=True), WORDS, WORDS, st.dictionaries(WORDS, WORDS))
def test_an_object_is_reached_where_a_claim_and_an_answer_select_it(
    asked: list[dict[str, Any]], answers: list[dict[str, Any]], namespace: str, name: str, labels: dict[str, str]
) -> None:
    question: dict[str, Any] = {"group": "", "resource": "secrets", "verb": "get", "identity": ""}
    mine = claimed({"spec": {"permissionClaims": asked}}, **question)
    theirs = claimed({"spec": {"permissionClaims": answers}}, **question, answered=True)
    accepted = [answer for answer in answers if answer.get("state") == "Accepted"]
    for said, found in ((asked, mine), (accepted, theirs)):
        assert found.includes(namespace, name, labels) == any(reaches(one, namespace, name, labels) for one in said)
        assert found.places(namespace, name) or not found.includes(namespace, name, labels)
        assert bool(found) or not found.places(namespace, name)
    assert (mine | theirs).includes(namespace, name, labels) == any(
        each.includes(namespace, name, labels) for each in (mine, theirs)
    )


def test_claims_are_few_and_short_for_each_object_is_held_against_all_of_them() -> None:
    """DOS-03."""
    anything = {"resource": "secrets", "all": True}
    assert not claim_causes([anything] * CLAIMS_MAX, answered=False)
    (cause,) = claim_causes([anything] * (CLAIMS_MAX + 1), answered=False)
    assert (cause.field, str(CLAIMS_MAX) in cause.message) == ("spec.permissionClaims", True)
    for values in (VALUES_MAX - 1, VALUES_MAX):
        expression = {"key": "a", "operator": "In", "values": [f"v{number}" for number in range(values)]}
        claim = {"resource": "secrets", "selector": {"matchExpressions": [expression]}}
        assert len(claim_causes([claim], answered=False)) == (values == VALUES_MAX)
    assert selected(anything) == Selected(frozenset({("", "")}))
