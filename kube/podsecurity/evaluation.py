"""Whether pods keep to a standard, in the words of kube-apiserver's PodSecurity admission."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from kube.podsecurity.checks import CHECKS, Look, Violation
from kube.podsecurity.levels import Level, Standard

Body = Mapping[str, Any]


def violations(standard: Standard, metadata: Body, spec: Body) -> list[Violation]:
    """What a pod with this metadata and spec, defaults filled in, does that the standard forbids."""
    found = (look(metadata, spec) for look in _looks(standard.level, standard.minor))
    return [violation for violation in found if violation is not None]


def told(found: Sequence[Violation]) -> str:
    """Violations in one line, with their details."""
    return ", ".join(f"{reason} ({detail})" if detail else reason for reason, detail in found)


@lru_cache(maxsize=128)
def _looks(level: Level, minor: int | None) -> tuple[Look, ...]:
    if level is Level.PRIVILEGED:
        return ()
    chosen: dict[str, Look] = {}
    overridden: set[str] = set()
    for check in CHECKS:
        in_force = [look for since, look in check.versions if minor is None or since <= minor]
        if check.level <= level and in_force:
            chosen[check.name] = in_force[-1]
            overridden.add(check.overrides)
    return tuple(look for name, look in chosen.items() if name not in overridden)


def is_significant(new: Body, old: Body) -> bool:
    """Whether an update of a pod is judged: one that adds or removes containers, or changes an image."""
    after, before = new.get("spec") or {}, old.get("spec") or {}
    for field in ("initContainers", "containers"):
        if [each.get("image") for each in after.get(field) or ()] != [
            each.get("image") for each in before.get(field) or ()
        ]:
            return True
    known = {each.get("name"): each for each in before.get("ephemeralContainers") or ()}
    return any(
        each.get("name") not in known or known[each["name"]].get("image") != each.get("image")
        for each in after.get("ephemeralContainers") or ()
    )


def warnings_about(
    judged: Mapping[str, Sequence[Violation]], namespace: str, standard: Standard, *, first: int, of: int
) -> list[str]:
    """What an administrator is told who makes a namespace enforce a standard that its pods do not keep to.

    ``judged`` are the violations of those that were looked at, by their names: the ``first`` ``of`` all that are there.
    """
    names: dict[str, list[str]] = {}
    for name, found in judged.items():
        if found:
            names.setdefault(", ".join(reason for reason, _ in found), []).append(name)
    said = []
    if of > first:
        said.append(f"new PodSecurity enforce level only checked against the first {first} of {of} existing pods")
    if names:
        said.append(f'existing pods in namespace "{namespace}" violate the new PodSecurity enforce level "{standard}"')
    return said + sorted(f"{min(bad)}{_others(len(bad) - 1)}: {reasons}" for reasons, bad in names.items())


def _others(count: int) -> str:
    if not count:
        return ""
    return " (and 1 other pod)" if count == 1 else f" (and {count} other pods)"
