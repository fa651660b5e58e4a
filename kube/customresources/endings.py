"""How an object is told to end, whoever tells it: a request, its owners' end, or that of what it is in.

And what is said of a namespace that waits for what is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kube.customresources.definitions import CRDS, terminating, with_condition
from kube.objects.strategies import finished

_NAMESPACES: Final = ("", "namespaces")
PODS: Final = ("", "pods")
NAMED_MAX: Final = 20
"""The kinds, and the finalizers, that a namespace's conditions name."""

_CONDITIONS: Final = {
    "NamespaceDeletionDiscoveryFailure": ("ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": ("ContentHasNoFinalizers", "All content-preserving finalizers finished"),
}
"""Those that Kubernetes' namespace controller keeps, and what they say when nothing is in the way."""


def ending(place: tuple[str, str], body: Mapping[str, Any], *, now: str) -> dict[str, Any]:
    """The object marked, and held by what its kind has to wait for; ``finished`` says whether anything holds it.

    ``place`` is its group and plural. One that is marked already stays as it is.
    """
    if body["metadata"].get("deletionTimestamp"):
        return dict(body)
    metadata = {**body["metadata"], "deletionTimestamp": now}
    marked = {**body, "metadata": metadata}
    if place == _NAMESPACES:
        marked["status"] = {**(body.get("status") or {}), "phase": "Terminating"}
    elif place == CRDS:
        return terminating(marked, now=now)
    else:
        metadata["deletionGracePeriodSeconds"] = 0
    if metadata.get("generation") and (place == PODS or not finished(marked)):
        metadata["generation"] += 1
    return marked


def waiting(
    namespace: Mapping[str, Any], left: Mapping[tuple[str, str], int], held: Mapping[str, int], *, now: str
) -> dict[str, Any]:
    """A namespace that ends, with conditions that say what it waits for.

    ``left``: how many objects of each (group, plural) are in it; ``held``: how many of them each finalizer holds.
    """
    said = dict(_CONDITIONS)
    if left:
        kinds = _listed([f"{plural}.{group} has {count} resource instances" for (group, plural), count in left.items()])
        said["NamespaceContentRemaining"] = "SomeResourcesRemain", f"Some resources are remaining: {kinds}"
    if held:
        words = "Some content in the namespace has finalizers remaining: "
        words += _listed([f"{name} in {count} resource instances" for name, count in held.items()])
        said["NamespaceFinalizersRemaining"] = "SomeFinalizersRemain", words
    status = namespace.get("status") or {}
    conditions = list(status.get("conditions") or ())
    for kind, (reason, words) in said.items():
        value = "False" if said[kind] == _CONDITIONS[kind] else "True"
        conditions = with_condition(conditions, kind, value, reason=reason, message=words, now=now)
    return {**namespace, "status": {**status, "conditions": conditions}}


def _listed(items: list[str]) -> str:
    items = sorted(items)
    more = [f"and {len(items) - NAMED_MAX} more"] if len(items) > NAMED_MAX else []
    return ", ".join(items[:NAMED_MAX] + more)
