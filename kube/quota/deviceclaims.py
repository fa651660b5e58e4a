"""What a claim of devices takes of a quota, by their class, as kube-apiserver counts it (AD2, AD3)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kube.quota.podresources import add, larger
from kube.quota.quantities import Quantity

DEVICE_CLAIMS: Final = ("resource.k8s.io", "resourceclaims")
OF_CLASS: Final = ".deviceclass.resource.k8s.io/devices"
"""How the name ends that bounds the devices of a class: ``gpu.deviceclass.resource.k8s.io/devices``."""

REQUESTED: Final = "deviceclass.resource.kubernetes.io/"
"""How the name begins by which a pod asks for devices of a class without a claim."""

BY_PODS_TOO: Final = f"requests.{REQUESTED}"
"""How the name begins that bounds the devices of a class, whichever way they are asked for."""

_NANO: Final = 10**9
_ALL: Final = 32
"""As many devices as one claim is given at most: what a request for all that there are is counted as."""


def devices(claim: Mapping[str, Any]) -> dict[str, Quantity]:
    """The devices that a claim may come to hold, by both names of each class; of alternatives the most."""
    taken: dict[str, Quantity] = {}
    for request in ((claim.get("spec") or {}).get("devices") or {}).get("requests") or ():
        alternatives = request.get("firstAvailable")
        # Before v1beta2, a request that has no alternatives said itself what it is for.
        taken = add(taken, _most(alternatives) if alternatives else _of(request.get("exactly") or request))
    named = {f"{class_}{OF_CLASS}": amount for class_, amount in taken.items()}
    return named | {f"{BY_PODS_TOO}{class_}": amount for class_, amount in taken.items()}


def _most(alternatives: Iterable[Mapping[str, Any]]) -> dict[str, Quantity]:
    most: dict[str, Quantity] = {}
    for each in alternatives:
        most = larger(most, _of(each))
    return most


def _of(asked: Mapping[str, Any]) -> dict[str, Quantity]:
    mode = asked.get("allocationMode") or "ExactCount"
    if mode not in ("ExactCount", "All"):
        return {}
    count = _ALL if mode == "All" else int(asked.get("count", 1))
    return {str(asked.get("deviceClassName", "")): Quantity(count * _NANO)}
