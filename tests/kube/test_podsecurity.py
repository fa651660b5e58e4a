"""The Pod Security Standards: which version of which level forbids what, and in which words (AD4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kube.podsecurity.checks import CHECKS
from kube.podsecurity.evaluation import told, violations
from kube.podsecurity.levels import Level, PodPolicy, Standard, parse_version, policy_of
from kube.requests.fielderrors import together
from kube.requests.quoting import quoted
from tests.conformance.script.podsecurity import LABEL, pod
from tests.conformance.script.podstandards import LEVELS, TABLE, Edge, edges

NEWEST = 40
"""A minor version after all in which something changes."""

MINORS = (*range(NEWEST + 1), None)


def reasons(level: str, minor: int | None, body: dict[str, Any]) -> list[str]:
    found = violations(Standard(Level[level.upper()], minor), body["metadata"], body["spec"])
    return [violation.reason for violation in found]


def debugged(made: dict[str, Any], where: str) -> Iterator[dict[str, Any]]:
    """A pod of good containers, once somebody debugs it with one like the bad one."""
    fields = {"c": "containers", "i": "initContainers"}
    if where in fields:
        (bad,) = made["spec"][fields[where]]
        good = {field: pod({})["spec"][field] for field in fields.values()}
        yield {**made, "spec": {**made["spec"], **good, "ephemeralContainers": [{**bad, "name": "e"}]}}


@pytest.mark.parametrize("edge", list(edges()), ids=lambda edge: edge.name)
def test_each_check_begins_and_ends_with_its_versions(edge: Edge) -> None:
    """Whichever of its containers, one that was added to debug it included, does what is forbidden."""
    for where, made in edge.pods():
        for body in (made, *debugged(made, where)):
            for level in LEVELS:
                for minor in MINORS:
                    said = reasons(level, minor, body)
                    forbidden = edge.is_forbidden(level, minor)
                    assert bool({*edge.says} & {*said}) == forbidden, (where, level, minor, said)
                    if not {*LEVELS} & {*edge.row}:
                        assert said == []


def test_a_pod_that_keeps_all_keeps_each() -> None:
    assert [(level, minor) for level in LEVELS for minor in MINORS if reasons(level, minor, pod({}))] == []


def test_the_table_has_every_check_at_every_version_of_it() -> None:
    """Whoever adds a check, or a version of one, adds the pods that tell it from what was before."""
    changes = {
        name: {at for row in TABLE[name]["pods"] for level in LEVELS for at in row.get(level, ())} for name in TABLE
    }
    known = {
        check.name.removesuffix("_restricted") if check.name == "procMount_restricted" else check.name
        for check in CHECKS
    }
    assert known == set(TABLE)
    for check in CHECKS:
        name = "procMount" if check.name == "procMount_restricted" else check.name
        assert {since for since, _ in check.versions} <= changes[name], check.name
    assert all(
        any(not {*LEVELS} & {*row} for row in TABLE[name]["pods"]) for name in TABLE if name != "hostPathVolumes"
    )


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("unconfined", '"unconfined"'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("\a\b\f\n\r\t\v", '"\\a\\b\\f\\n\\r\\t\\v"'),
        ("\x00\x1f\x7f", '"\\x00\\x1f\\x7f"'),
        ("\x80\u00a0\u2028\ufeff", '"\\u0080\\u00a0\\u2028\\ufeff"'),
        ("é世\U0001f600", '"é世\U0001f600"'),
        ("\U000e0001", '"\\U000e0001"'),
    ],
)
def test_values_of_annotations_are_shown_as_go_shows_them(value: str, shown: str) -> None:
    assert quoted(value) == shown
    key = "seccomp.security.alpha.kubernetes.io/pod"
    body = pod({"metadata": {"annotations": {key: f"x{value}"}}})
    found = violations(Standard(Level.BASELINE, 18), body["metadata"], body["spec"])
    assert told(found) == f'seccompProfile (forbidden annotation {key}="x{shown[1:]})'


def test_what_is_wrong_with_labels_is_told_in_one_line() -> None:
    wrong = {f"{LABEL}enforce": "a", f"{LABEL}warn-version": "b"}
    policy, causes = policy_of(wrong, PodPolicy())
    assert (policy.enforce, policy.warn) == (Standard(Level.RESTRICTED), Standard())
    level = f'metadata.labels[{LABEL}enforce]: Invalid value: "a": must be one of privileged, baseline, restricted'
    version = f'metadata.labels[{LABEL}warn-version]: Invalid value: "b": must be "latest" or "v1.x"'
    assert together(causes) == f"[{level}, {version}]"
    assert together(causes[:1]) == level


@pytest.mark.parametrize("text", ["v1.0", "v1.37", f"v1.{2**63 - 1}"])
def test_a_version_is_any_number_that_kubernetes_can_count_to(text: str) -> None:
    assert f"v1.{parse_version(text)}" == text


@pytest.mark.parametrize("text", ["", "v1", "v1.", "v1.01", "v2.0", "1.25", "v1.1.1", "v1.-1", f"v1.{2**63}", "Latest"])
def test_nothing_else_is_one(text: str) -> None:
    with pytest.raises(ValueError, match=r'must be "latest" or "v1\.x"'):
        parse_version(text)


def test_policies_that_ask_for_nothing_mean_the_same_in_every_version() -> None:
    old = Standard(Level.PRIVILEGED, 20)
    assert PodPolicy(warn=old).means(PodPolicy())
    strict = Standard(Level.RESTRICTED)
    assert PodPolicy(enforce=strict, warn=old).means(PodPolicy(enforce=strict))
    assert not PodPolicy(enforce=strict).means(PodPolicy(enforce=Standard(Level.RESTRICTED, 25)))
    assert not PodPolicy(enforce=strict).means(PodPolicy())
