"""What ``ephemeralcontainers`` and ``resize`` may change of a Pod, in kube-apiserver's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kube.quota.podresources import quality
from kube.requests.fielderrors import forbidden, invalid
from kube.requests.status import Cause
from kube.validation.pods import MIRROR

Body = Mapping[str, Any]

_KINDS = ("requests", "limits")
_RESIZED = ("cpu", "memory")


def ephemeral_causes(new: Body, old: Body) -> list[Cause]:
    """Ephemeral containers are added, and stay as they were added."""
    if _is_static(old):
        return [forbidden("", "static pods do not support ephemeral containers")]
    path = "spec.ephemeralContainers"
    after = {each.get("name"): each for each in _spec(new).get("ephemeralContainers") or ()}
    causes = []
    for before in _spec(old).get("ephemeralContainers") or ():
        name = before.get("name")
        if name not in after:
            causes.append(forbidden(path, f'existing ephemeral containers "{name}" may not be removed\n'))
        elif after[name] != before:
            causes.append(forbidden(path, f'existing ephemeral containers "{name}" may not be changed\n'))
    return causes


def resize_causes(new: Body, old: Body) -> list[Cause]:
    """Of containers, cpu and memory change; the quality-of-service class does not, and nothing is taken away."""
    before, after = _spec(old), _spec(new)
    if _is_static(old):
        return [forbidden("", "static pods cannot be resized")]
    if (before.get("os") or {}).get("name") == "windows":
        return [forbidden("", "windows pods cannot be resized")]
    status = old.get("status") or {}
    was = status.get("qosClass") or quality(before)
    causes = (
        [] if quality(after) == was else [invalid("spec", was, "Pod QOS Class may not change as a result of resizing")]
    )
    running = [each for each in status.get("containerStatuses") or () if "running" in (each.get("state") or {})]
    if running and "resources" not in running[0]:
        causes.append(forbidden("spec", "Pod running on node without support for resize"))
    causes += _pod_level_causes(after.get("resources"), before.get("resources"))
    if status.get("nodeAllocatableResourceClaimStatuses"):
        causes.append(forbidden("spec", "pods with node allocatable resource claims cannot be resized"))
    orders = [*_order_causes(after, before, "containers"), *_order_causes(after, before, "initContainers")]
    return causes + (orders or [*_container_causes(after, before)])


def _order_causes(after: Body, before: Body, field: str) -> Iterator[Cause]:
    now, then = ([each.get("name") for each in spec.get(field) or ()] for spec in (after, before))
    if len(now) != len(then):
        yield forbidden(f"spec.{field}", f"{field} may not be added or removed on resize")
        return
    for index, (name, was) in enumerate(zip(now, then, strict=True)):
        if name != was:
            yield forbidden(f"spec.{field}[{index}].name", f"{field} may not be renamed or reordered on resize")


def _container_causes(after: Body, before: Body) -> Iterator[Cause]:
    for field in ("initContainers", "containers"):
        for index, (now, was) in enumerate(zip(after.get(field) or (), before.get(field) or (), strict=True)):
            path = f"spec.{field}[{index}].resources"
            yield from _removal_causes(now.get("resources"), was.get("resources"), path, "resource")
    for now, was in zip(after.get("containers") or (), before.get("containers") or (), strict=True):
        if _fixed(now) != _fixed(was):
            yield forbidden("spec", "only cpu and memory resources are mutable")
    for index, (now, was) in enumerate(
        zip(after.get("initContainers") or (), before.get("initContainers") or (), strict=True)
    ):
        path = f"spec.initContainers[{index}]"
        if _fixed(now) != _fixed(was):
            yield forbidden(path, "only cpu and memory resources for init or sidecar containers are mutable")
        restarts = any(each.get("restartPolicy") == "RestartContainer" for each in now.get("resizePolicy") or ())
        if now != was and now.get("restartPolicy") != "Always" and restarts:
            words = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
            yield forbidden(path, words)


def _pod_level_causes(now: Body | None, was: Body | None) -> list[Cause]:
    """The same of what the pod as a whole asks for."""
    if was is not None and now is None:
        return [forbidden("spec.resources", "pod-level resources cannot be removed")]
    causes = _removal_causes(now, was, "spec.resources", "pod-level resource")
    if _unsized(now) != _unsized(was):
        causes.append(forbidden("spec", "only cpu and memory resources are mutable at pod-level"))
    return causes


def _removal_causes(now: Body | None, was: Body | None, path: str, noun: str) -> list[Cause]:
    return [
        forbidden(f"{path}.{kind}", f"{noun} {kind} cannot be removed")
        for kind in _KINDS
        if not set((was or {}).get(kind) or ()) <= set((now or {}).get(kind) or ())
    ]


def _fixed(container: Body) -> Body:
    """A container without what a resize changes."""
    return {**container, "resources": _unsized(container.get("resources"))}


def _unsized(resources: Body | None) -> Body:
    """Resources without amounts of cpu and memory, and without what is empty then."""
    rest = dict(resources or {})
    for kind in _KINDS:
        rest[kind] = {name: amount for name, amount in (rest.get(kind) or {}).items() if name not in _RESIZED}
    return {field: value for field, value in rest.items() if value}


def _spec(body: Body) -> Body:
    return body.get("spec") or {}


def _is_static(body: Body) -> bool:
    return MIRROR in ((body.get("metadata") or {}).get("annotations") or {})
