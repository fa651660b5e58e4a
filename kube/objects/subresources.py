"""What a write through a subresource takes from the new object, as Kubernetes' strategies have it (TS15).

All else stays as it is, whatever the body says: who may write a part of an object writes that part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from kube.kinds.builtins import OWN
from kube.kinds.resources import Resource, Scale
from kube.kinds.reststrategies import StorageKey, empty_status
from kube.objects.fieldpaths import STATUS, Fields
from kube.objects.patches import deep_copy

Body = dict[str, Any]
Path = tuple[str, ...]

_EACH: Final = "*"
_OF_CONTAINERS: Final = ("resources", "resizePolicy")

BUILT_IN_SCALE: Final = Scale(("spec", "replicas"), ("status", "replicas"))
"""Where built-in kinds keep what ``/scale`` shows."""

WHOLE: Final = frozenset({"status", "approval", "finalize", "ephemeralcontainers", "resize"})
"""Subresources whose body is the object itself."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a subresource writes: ``fields``, paths in which ``*`` is every item of a list, and metadata.

    ``kept`` are names of metadata that stay; ``None``: all of it does.
    """

    fields: tuple[Path, ...]
    kept: frozenset[str] | None = None
    marks: tuple[str, ...] = ()
    """Names of metadata that are written although all else of it stays."""

    def taken(self, old: Body, new: Body) -> Body:
        """The current object with what the part writes from the new one. Neither is changed, nor shared."""
        body = old
        for path in self.fields:
            body = _taken(path, body, new)
        copied: Body = deep_copy({**body, "metadata": self._metadata(old["metadata"], new["metadata"])})
        return copied

    def _metadata(self, old: Body, new: Body) -> Body:
        if self.kept is not None:
            written = {name: value for name, value in new.items() if name not in self.kept}
            return written | {name: old[name] for name in self.kept if name in old}
        # Which object is meant, and who owns its fields.
        names = ("resourceVersion", "managedFields", *self.marks)
        return old | {name: new[name] for name in names if new.get(name) is not None}


def reset_of(resource: Resource, name: str) -> Fields:
    """What nobody owns who writes through a subresource, or, without a name, through the object (``GetResetFields``).

    What kube-apiserver lists of it is not all that it drops: so it is here too.
    """
    if name in ("", "finalize"):
        return _ASKED_AND_STATUS if resource.storage_key == _REQUESTS else STATUS
    if name not in ("status", "approval"):
        return _NO_FIELDS
    if resource.custom or resource.storage_key in _OWN:
        return _ALL_BUT_STATUS
    return _RESET.get((resource.storage_key, name), _SPEC)


def written(resource: Resource, name: str, scale: Scale | None, old: Body, new: Body) -> Body:
    """The object after a write through a subresource. A built-in kind always has a status."""
    body = part_of(resource, name, scale).taken(old, new)
    if name in ("status", "approval") and not resource.custom:
        if body.get("status") is None:
            body["status"] = empty_status(resource.group, resource.kind) or {}
        before = old.get("status") or {}
        if resource.storage_key == ("", "pods") and "qosClass" in before:
            body["status"].setdefault("qosClass", before["qosClass"])
    return body


def part_of(resource: Resource, name: str, scale: Scale | None) -> Part:
    """What the subresource of a kind writes; ``scale`` is where a custom kind's is. Raises ``KeyError`` for others."""
    if name == "scale":
        return Part(((scale or BUILT_IN_SCALE).replicas,))
    if name == "status" and resource.custom:
        return _STATUS_ALONE
    return _BESIDE.get((resource.storage_key, name)) or _PARTS[name]


def _taken(path: Path, old: Any, new: Any) -> Any:
    """The old value, and in it at the path what the new one has there."""
    if not path or (old is None and new is None):
        return new
    name, rest = path[0], path[1:]
    if name == _EACH:
        if _names(old) != _names(new):
            # Which validation refuses.
            return new
        return [_taken(rest, before, after) for before, after in zip(old, new, strict=True)]
    before = old if isinstance(old, dict) else {}
    value = _taken(rest, before.get(name), new.get(name) if isinstance(new, dict) else None)
    others = {key: held for key, held in before.items() if key != name}
    return others if value is None else {**others, name: value}


def _names(items: Any) -> list[Any]:
    return [item.get("name") for item in items or ()]


_STATUS: Final[tuple[Path, ...]] = (("status",),)
_STATUS_ALONE: Final = Part(_STATUS)
_OWNED: Final = frozenset({"labels", "annotations", "finalizers", "ownerReferences"})

_OWN: Final = frozenset(own.storage_key for own in OWN)
_NO_FIELDS: Final[Fields] = {}
_SPEC: Final[Fields] = {"f:spec": {}}
_ALL_BUT_STATUS: Final[Fields] = {**_SPEC, "f:metadata": {}}
_ASKED_AND_STATUS: Final[Fields] = {**_SPEC, **STATUS}
_REQUESTS: Final[StorageKey] = ("certificates.k8s.io", "certificatesigningrequests")
_RESET: Final[dict[tuple[StorageKey, str], Fields]] = {
    (_REQUESTS, "status"): {**_SPEC, "f:status": {"f:conditions": {}}},
    (_REQUESTS, "approval"): {**_SPEC, "f:status": {"f:certificate": {}}},
    (("", "pods"), "status"): {**_SPEC, "f:metadata": {"f:deletionTimestamp": {}, "f:ownerReferences": {}}},
    (("apps", "deployments"), "status"): {**_SPEC, "f:metadata": {"f:labels": {}}},
    **{
        (place, "status"): _ALL_BUT_STATUS
        for place in (
            ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
            ("apiregistration.k8s.io", "apiservices"),
            ("networking.k8s.io", "servicecidrs"),
            ("resource.k8s.io", "resourceclaims"),
            ("storage.k8s.io", "volumeattachments"),
        )
    },
}
"""Where a write to the status may not own more than the ``spec``, or a decision anything but itself."""

_PARTS: Final[dict[str, Part]] = {
    "status": Part(_STATUS, kept=frozenset()),
    "approval": Part((("status", "conditions"),), kept=frozenset()),
    "finalize": Part((("spec", "finalizers"),), kept=frozenset()),
    "binding": Part(
        (("spec", "nodeName"), ("status", "conditions"), ("status", "nominatedNodeName")),
        marks=("labels", "annotations"),
    ),
    "ephemeralcontainers": Part((("spec", "ephemeralContainers"),)),
    "resize": Part(
        (
            ("spec", "resources"),
            *(("spec", held, _EACH, field) for held in ("containers", "initContainers") for field in _OF_CONTAINERS),
        )
    ),
}

_BESIDE: Final[dict[tuple[StorageKey, str], Part]] = {
    (("", "pods"), "status"): Part(_STATUS, kept=frozenset({"ownerReferences"})),
    (("apps", "deployments"), "status"): Part(_STATUS, kept=frozenset({"labels"})),
    **{(place, "status"): _STATUS_ALONE for place in _OWN},
    **{
        (place, "status"): Part(_STATUS, kept=_OWNED)
        for place in (
            ("admissionregistration.k8s.io", "validatingadmissionpolicies"),
            ("apiextensions.k8s.io", "customresourcedefinitions"),
            ("apiregistration.k8s.io", "apiservices"),
            ("networking.k8s.io", "servicecidrs"),
            ("resource.k8s.io", "resourceclaims"),
            ("storage.k8s.io", "volumeattachments"),
        )
    },
}
"""Where it differs from kind to kind: what of the metadata a write to the status leaves alone."""
