"""Nobody gives away what they do not hold: the cover of one set of rules by another (AZ2, escalation prevention)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from kube.authorization.rbac import Rule
from kube.requests.status import BadRequest

GRANTS_MAX: Final = 20_000
"""Single permissions that one check takes apart; an object of 1 MiB could otherwise multiply to billions."""


def _within(wanted: Sequence[str], held: Sequence[str]) -> bool:
    return "*" in held or all(item in held for item in wanted)


def _resources_within(wanted: Sequence[str], held: Sequence[str]) -> bool:
    if "*" in held:
        return True
    for resource in wanted:
        _, slash, subresource = resource.partition("/")
        if resource not in held and not (slash and f"*/{subresource}" in held):
            return False
    return True


def _urls_within(wanted: Sequence[str], held: Sequence[str]) -> bool:
    return "*" in held or all(
        any(url == own or (own.endswith("*") and url.startswith(own.rstrip("*"))) for own in held) for url in wanted
    )


def _covers(held: Rule, wanted: Rule) -> bool:
    names = not held.names or (wanted.names and all(name in held.names for name in wanted.names))
    return bool(
        _within(wanted.verbs, held.verbs)
        and _within(wanted.groups, held.groups)
        and _resources_within(wanted.resources, held.resources)
        and names
        and _urls_within(wanted.urls, held.urls)
        and held.scope.covers(wanted.scope)
    )


def _taken_apart(rule: Rule) -> Iterator[Rule]:
    """Every single permission in a rule: one verb, one resource or URL, at most one name."""
    for group in rule.groups:
        for resource in rule.resources:
            for verb in rule.verbs:
                for name in rule.names or ("",):
                    yield Rule((verb,), (group,), (resource,), (name,) if name else (), (), rule.scope)
    for url in rule.urls:
        for verb in rule.verbs:
            yield Rule((verb,), urls=(url,), scope=rule.scope)


def size(rule: Rule) -> int:
    """How many single permissions a rule spells out."""
    per_verb = len(rule.groups) * len(rule.resources) * max(1, len(rule.names)) + len(rule.urls)
    return len(rule.verbs) * per_verb


def covers(held: Sequence[Rule], wanted: Iterable[Rule]) -> list[Rule]:
    """What of ``wanted`` is not in ``held``, as single permissions; empty when everything is.

    A rule may be covered by several held ones together. In the system space the reach of the rules counts as well.
    Raises ``BadRequest`` for rules that multiply to more than ``GRANTS_MAX`` permissions.
    """
    missing: dict[Rule, None] = {}
    budget = GRANTS_MAX
    for rule in wanted:
        if any(_covers(own, rule) for own in held):
            continue
        budget -= size(rule)
        if budget < 0:
            raise BadRequest("the rules are too many to be checked")
        for single in _taken_apart(rule):
            if not any(_covers(own, single) for own in held):
                missing[single] = None
    return list(missing)


def compact(rules: Iterable[Rule]) -> list[Rule]:
    """Join rules on one resource that differ in nothing but their verbs."""
    joined: dict[Rule, list[str]] = {}
    rest = []
    for rule in rules:
        if rule.urls or len(rule.groups) != 1 or len(rule.resources) != 1 or len(rule.names) > 1:
            rest.append(rule)
        else:
            joined.setdefault(replace(rule, verbs=()), []).extend(rule.verbs)
    return rest + [replace(rule, verbs=tuple(verbs)) for rule, verbs in joined.items()]


def _list(values: Sequence[str]) -> str:
    return "[" + " ".join(quoted(value) for value in values) + "]"


def quoted(value: str) -> str:
    """Go's ``%q``, as far as names and groups need it."""
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in escaped) + '"'


def describe(rule: Rule) -> str:
    """A rule as Kubernetes prints it in the refusal."""
    parts = [
        f"{label}:{_list(values)}"
        for label, values in (
            ("APIGroups", rule.groups),
            ("Resources", rule.resources),
            ("NonResourceURLs", rule.urls),
            ("ResourceNames", rule.names),
            ("Verbs", rule.verbs),
        )
        if values
    ]
    return "{" + ", ".join(parts) + "}"


def refusal(user: str, groups: Sequence[str], missing: Iterable[Rule]) -> str:
    """The sentence of the 403, in Kubernetes' words; ``missing`` is what ``covers`` gave."""
    lines = sorted({describe(rule) for rule in compact(missing)})
    return (
        f"user {quoted(user)} (groups={_list(groups)}) is attempting to grant RBAC permissions not currently held:\n"
        + "\n".join(lines)
    )
