"""Pods name classes of priority and of runtimes, which belong to the system space and must exist."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from access.admission.base import CREATE, UPDATE, Attributes, NoopPlugin
from kube.requests.logicalclusters import ROOT
from kube.requests.status import Forbidden
from store.interface import Store
from store.types import Key, Range

_PRIORITIES: Final = ("scheduling.k8s.io", "priorityclasses")
_RUNTIMES: Final = ("node.k8s.io", "runtimeclasses")
_SYSTEM: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}
"""The priorities that are there before anybody makes one."""

_PREEMPTS: Final = "PreemptLowerPriority"


class PriorityAndRuntimeClass(NoopPlugin):
    """A new pod gets the priority of its class and what its runtime costs; it may not say otherwise itself."""

    name = "PodClasses"
    kinds = frozenset({("", "pods")})

    def __init__(self, store: Store) -> None:
        self._store = store

    async def admit(self, attributes: Attributes) -> None:
        """Settle priority and overhead. Raises ``Forbidden`` for classes that are missing or contradicted."""
        body = attributes.object
        if body is None or attributes.subresource:
            return
        spec = body.setdefault("spec", {})
        if attributes.operation == UPDATE:
            _keep_priority(spec, attributes.old or {})
        if attributes.operation != CREATE:
            return
        await self._settle_priority(attributes, spec)
        await self._settle_runtime(attributes, spec)

    async def _settle_priority(self, attributes: Attributes, spec: dict[str, Any]) -> None:
        name = spec.get("priorityClassName") or ""
        chosen = await self._priority(name)
        if chosen is None:
            raise _refused(attributes, f"no PriorityClass with name {name} was found")
        value, policy = chosen.get("value", 0), chosen.get("preemptionPolicy", _PREEMPTS)
        given = "must not be provided in pod spec; priority admission controller computed"
        if spec.get("priority", value) != value:
            detail = f"the integer value of priority ({spec['priority']}) {given} {value}"
            raise _refused(attributes, f"{detail} from the given PriorityClass name")
        if spec.get("preemptionPolicy", policy) != policy:
            detail = f"the string value of PreemptionPolicy ({spec['preemptionPolicy']}) {given} {policy}"
            raise _refused(attributes, f"{detail} from the given PriorityClass name")
        if chosen.get("metadata"):
            spec["priorityClassName"] = chosen["metadata"]["name"]
        spec["priority"], spec["preemptionPolicy"] = value, policy

    async def _priority(self, name: str) -> dict[str, Any] | None:
        """The named class; without a name the default one, or no priority at all."""
        if name:
            stored = await self._named(_PRIORITIES, name)
            return {"value": _SYSTEM[name]} if stored is None and name in _SYSTEM else stored
        listing = await self._store.list(Range(ROOT, *_PRIORITIES, ""), cached=True)
        classes = [orjson.loads(item.data) for item in listing.items]
        defaults = [each for each in classes if each.get("globalDefault")]
        return min(defaults, key=lambda each: int(each.get("value", 0)), default={"value": 0})

    async def _settle_runtime(self, attributes: Attributes, spec: dict[str, Any]) -> None:
        name, overhead = spec.get("runtimeClassName"), spec.get("overhead")
        if name is None:
            if overhead:
                raise _refused(attributes, _WITHOUT)
            return
        found = await self._named(_RUNTIMES, name)
        if found is None:
            raise _refused(attributes, f'pod rejected: RuntimeClass "{name}" not found')
        fixed = found.get("overhead", {}).get("podFixed")
        if overhead and overhead != fixed:
            detail = "Pod's Overhead doesn't match RuntimeClass's defined Overhead"
            raise _refused(attributes, f"pod rejected: {detail}" if fixed else _WITHOUT)
        if fixed:
            spec["overhead"] = fixed
        self._place(attributes, spec, found.get("scheduling", {}))

    @staticmethod
    def _place(attributes: Attributes, spec: dict[str, Any], scheduling: dict[str, Any]) -> None:
        """Send the pod where its runtime is."""
        chosen = dict(spec.get("nodeSelector", {}))
        for key, value in scheduling.get("nodeSelector", {}).items():
            if chosen.setdefault(key, value) != value:
                detail = f"conflict: runtimeClass.scheduling.nodeSelector[{key}] = {value}"
                raise _refused(attributes, f"pod rejected: {detail}; pod.spec.nodeSelector[{key}] = {chosen[key]}")
        if chosen:
            spec["nodeSelector"] = chosen
        tolerated = spec.get("tolerations", [])
        more = [each for each in scheduling.get("tolerations", ()) if each not in tolerated]
        if more:
            spec["tolerations"] = [*tolerated, *more]

    async def _named(self, kind: tuple[str, str], name: str) -> dict[str, Any] | None:
        key = Key(ROOT, *kind, "", name)
        stored = await self._store.get(key, cached=True) or await self._store.get(key)
        found: dict[str, Any] | None = None if stored is None else orjson.loads(stored.data)
        return found


_WITHOUT: Final = "pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"


def _refused(attributes: Attributes, why: str) -> Forbidden:
    return Forbidden(f'pods "{attributes.name}" is forbidden: {why}', kind="pods", name=attributes.name)


def _keep_priority(spec: dict[str, Any], old: Mapping[str, Any]) -> None:
    """A pod that is replaced without what was settled for it keeps that."""
    for field in ("priority", "preemptionPolicy"):
        settled = (old.get("spec") or {}).get(field)
        if spec.get(field) is None and settled is not None:
            spec[field] = settled
