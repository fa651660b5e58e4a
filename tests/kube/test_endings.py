"""What a namespace that ends says of what it waits for, in Kubernetes' words (TS15)."""

from __future__ import annotations

from typing import Any

from kube.customresources.endings import NAMED_MAX, waiting

NOW, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
NAMESPACE: dict[str, Any] = {"metadata": {"name": "ns"}, "status": {"phase": "Terminating"}}


def said(namespace: dict[str, Any]) -> dict[str, tuple[str, str, str, str]]:
    return {
        each["type"]: (each["status"], each["reason"], each["message"], each["lastTransitionTime"])
        for each in namespace["status"]["conditions"]
    }


def test_what_is_left_and_what_holds_it_is_counted() -> None:
    left = {("example.com", "widgets"): 1, ("", "pods"): 3}
    told = waiting(NAMESPACE, left, {"example.com/y": 3, "example.com/x": 1}, now=NOW)
    assert told["status"]["phase"] == "Terminating"
    assert said(told) == {
        "NamespaceDeletionDiscoveryFailure": (
            "False",
            "ResourcesDiscovered",
            "All resources successfully discovered",
            NOW,
        ),
        "NamespaceDeletionGroupVersionParsingFailure": (
            "False",
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
            NOW,
        ),
        "NamespaceDeletionContentFailure": (
            "False",
            "ContentDeleted",
            "All content successfully deleted, may be waiting on finalization",
            NOW,
        ),
        "NamespaceContentRemaining": (
            "True",
            "SomeResourcesRemain",
            "Some resources are remaining: pods. has 3 resource instances, widgets.example.com has 1 resource instances",
            NOW,
        ),
        "NamespaceFinalizersRemaining": (
            "True",
            "SomeFinalizersRemain",
            "Some content in the namespace has finalizers remaining: "
            "example.com/x in 1 resource instances, example.com/y in 3 resource instances",
            NOW,
        ),
    }


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    told = waiting(NAMESPACE, {("", "pods"): 2}, {}, now=NOW)
    assert waiting(told, {("", "pods"): 2}, {}, now=LATER) == told
    fewer = said(waiting(told, {("", "pods"): 1}, {}, now=LATER))
    assert fewer["NamespaceContentRemaining"][2:] == (
        "Some resources are remaining: pods. has 1 resource instances",
        NOW,
    )
    empty = said(waiting(told, {}, {}, now=LATER))
    assert empty["NamespaceContentRemaining"] == ("False", "ContentRemoved", "All content successfully removed", LATER)
    assert {status for status, *_ in empty.values()} == {"False"}


def test_however_many_finalizers_there_are_few_are_named() -> None:
    held = {f"example.com/{number:04}": 1 for number in range(1000)}
    (words,) = [each[2] for kind, each in said(waiting(NAMESPACE, {}, held, now=NOW)).items() if "Finalizers" in kind]
    assert words.count("example.com/") == NAMED_MAX
    assert words.endswith(f"and {1000 - NAMED_MAX} more")
