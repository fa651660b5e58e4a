"""What an operator opens of a cluster's own objects, line by line (GW20)."""

from __future__ import annotations

import pytest

from kube.kinds.openings import opening_from, openings_from, shown_form
from kube.requests.status import BadRequest

CLASSES = ("storage.k8s.io", "storageclasses")


@pytest.mark.parametrize(
    ("line", "name", "labels", "open_"),
    [
        ("storageclasses.storage.k8s.io", "any", {}, True),
        ("storageclasses.storage.k8s.io/fast", "fast", {}, True),
        ("storageclasses.storage.k8s.io/fast", "faster", {}, False),
        ("storageclasses.storage.k8s.io?team in (a,b)", "any", {"team": "b"}, True),
        ("storageclasses.storage.k8s.io?team in (a,b)", "any", {}, False),
    ],
)
def test_a_line_opens_what_it_says(line: str, name: str, labels: dict[str, str], open_: bool) -> None:
    opening = opening_from(line)
    assert (opening.place, opening.includes(name, labels)) == (CLASSES, open_)


@pytest.mark.parametrize(
    "line",
    [
        "nodes",
        "secrets.",
        "storageclasses",
        "storageclasses.storage.k8s.io/",
        "storageclasses.storage.k8s.io/Fast",
        "storageclasses.storage.k8s.io/a?b=c",
        "storageclasses.storage.k8s.io?a b",
    ],
)
def test_no_other_line_can_be_read(line: str) -> None:
    with pytest.raises(BadRequest):
        openings_from(f"\n{line}\n")


def test_what_the_cluster_keeps_for_itself_is_not_shown() -> None:
    item = {
        "apiVersion": "storage.k8s.io/v1beta1",
        "kind": "Other",
        "metadata": {"name": "fast", "uid": "1", "annotations": {"internal": "x"}, "labels": {"a": "b"}},
        "provisioner": "p",
        "status": {"x": 1},
    }
    assert shown_form(CLASSES, item, {"mark": "m"}) == {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "fast", "labels": {"a": "b", "mark": "m"}},
        "provisioner": "p",
    }
