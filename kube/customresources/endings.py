"""How an object is told to end, whoever tells it: a request, its owners' end, or that of what it is in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kube.customresources.definitions import CRDS, terminating
from kube.objects.strategies import finished

_NAMESPACES: Final = ("", "namespaces")
_PODS: Final = ("", "pods")


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
    if metadata.get("generation") and (place == _PODS or not finished(marked)):
        metadata["generation"] += 1
    return marked
