"""Published objects as data: who gets one, and what is done about what stands in a copy's place (AZ8)."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kube.objects import publications
from kube.objects.publications import (
    NAMED_MAX,
    ORIGIN,
    PUBLISHED,
    REPORT,
    SECRET,
    TENANTS,
    Publication,
    Reason,
    Step,
    publication_of,
)

MAPS = ("", "configmaps")
values = st.text("abc", max_size=3)
marks = st.sampled_from([PUBLISHED, TENANTS, SECRET, REPORT, ORIGIN, "tenantry.io/cluster", "a", "b"])
words = st.dictionaries(marks, values, max_size=4)
contents = st.fixed_dictionaries(
    {},
    optional={
        "data": st.dictionaries(values, values, max_size=2),
        "status": st.dictionaries(values, values, max_size=2),
        "spec": st.dictionaries(values, st.integers(), max_size=2),
    },
)
servers = st.fixed_dictionaries(
    {},
    optional={
        "finalizers": st.just(["x/y"]),
        "ownerReferences": st.just([{"uid": "o"}]),
        "managedFields": st.just([{}]),
        "resourceVersion": st.just("9"),
    },
)


@st.composite
def sources(draw: st.DrawFn, **annotations: str) -> dict[str, Any]:
    said = {**draw(words), **annotations, PUBLISHED: "true"}
    metadata = {**draw(servers), "name": "n", "uid": f"u-{draw(values)}", "labels": draw(words), "annotations": said}
    return {"apiVersion": "v1", "kind": "ConfigMap", **draw(contents), "metadata": metadata}


def copied(publication: Publication) -> dict[str, Any]:
    """A copy, as the worker would make it."""
    form = publication.form
    return {**form, "metadata": {**form["metadata"], "name": "n", "uid": "of-the-copy", "tenant": "t"}}


def published(body: dict[str, Any]) -> Publication:
    found = publication_of(MAPS, body)
    assert found is not None
    return found


@given(sources())
def test_a_copy_says_what_the_source_says_and_nothing_that_is_the_servers(body: dict[str, Any]) -> None:
    form = published(body).form
    assert {k: v for k, v in form.items() if k != "metadata"} == {
        k: v for k, v in body.items() if k not in ("metadata", "status")
    }
    assert form["metadata"].keys() <= {"labels", "annotations"}
    assert form["metadata"]["labels"][ORIGIN] == body["metadata"]["uid"]
    assert form["metadata"].get("annotations", {}).keys() <= {"a", "b"}
    assert form["metadata"]["labels"].keys() <= {"a", "b", ORIGIN}


@given(sources(), sources())
def test_what_is_done_once_needs_not_be_done_again(body: dict[str, Any], other: dict[str, Any]) -> None:
    """A new copy, and one that was brought up to date, are as they must be."""
    publication = published(body)
    if publication.hindrance is not None:
        assert publications.step(publication, None, None) == (Step.NONE, publication.hindrance)
        return
    assert publications.step(publication, None, None) == (Step.CREATE, None)
    copy = copied(publication)
    assert publications.step(publication, copy, None) == (Step.NONE, None)
    changed = published({**other, "metadata": {**other["metadata"], "uid": body["metadata"]["uid"]}})
    if changed.hindrance is None:
        follows = publications.step(changed, copy, None)[0]
        assert follows is (Step.NONE if changed.form == publication.form else Step.REPLACE)
        after = publications.replaced({**copy, "status": {"of": "the copy"}}, changed)
        assert publications.step(changed, after, None) == (Step.NONE, None)
        assert after["metadata"]["uid"] == "of-the-copy"
        assert after["status"] == {"of": "the copy"}


@given(st.one_of(st.none(), sources()), st.sampled_from([None, *Reason]), st.booleans())
def test_what_a_tenant_made_is_never_touched(body: dict[str, Any] | None, obstacle: Reason | None, ends: bool) -> None:
    publication = None if body is None else published(body)
    own: dict[str, Any] = {"metadata": {"name": "n", "labels": {"a": "b"}}}
    if ends:
        own["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    step, reason = publications.step(publication, own, obstacle)
    assert step is Step.NONE
    assert publication is None or reason is not None


@given(sources(), st.sampled_from([None, *Reason]))
def test_a_copy_goes_when_nothing_stands_behind_it(body: dict[str, Any], obstacle: Reason | None) -> None:
    publication = published({**body, "metadata": {**body["metadata"], "uid": "first"}})
    copy = copied(publication)
    assert publications.step(None, copy, obstacle) == (Step.REMOVE, None)
    namesake = published({**body, "metadata": {**body["metadata"], "uid": "second"}})
    assert publications.step(namesake, copy, obstacle)[0] is Step.REMOVE
    assert publications.step(publication, copy, Reason.KIND_NOT_SERVED)[0] is Step.REMOVE


@given(st.dictionaries(st.from_regex("[a-z]{1,63}", fullmatch=True), st.sampled_from([None, *Reason]), max_size=60))
def test_a_report_counts_everybody_and_names_few(outcomes: dict[str, Reason | None]) -> None:
    said = json.loads(publications.report(outcomes))
    assert said["tenants"] == len(outcomes)
    assert said["missing"] == sum(reason is not None for reason in outcomes.values())
    assert sum(each["tenants"] for each in said["reasons"].values()) == said["missing"]
    assert all(len(each["first"]) == min(each["tenants"], NAMED_MAX) for each in said["reasons"].values())
    body: dict[str, Any] = {"metadata": {"name": "n"}}
    told = publications.with_report(body, publications.report(outcomes))
    assert publications.reported(told) == publications.report(outcomes)
    assert publications.with_report(told, None) == body


def test_what_ends_and_definitions_are_not_published() -> None:
    body = {"metadata": {"uid": "u", "annotations": {PUBLISHED: "true"}}}
    assert publication_of(("apiextensions.k8s.io", "customresourcedefinitions"), body) is None
    ending = {"metadata": {**body["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert publication_of(MAPS, ending) is None
    assert publication_of(MAPS, {"metadata": {"annotations": {PUBLISHED: "yes"}}}) is None
    server = publication_of(("tenancy.tenantry.io", "tenantquotas"), body)
    assert server is not None
    assert server.hindrance is Reason.KIND_NOT_PUBLISHED
