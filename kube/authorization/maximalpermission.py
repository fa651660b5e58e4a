"""Rules as far as providers limit them: what is left for SelfSubjectRulesReview to show (KC5, AZ10)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kube.authorization.rbac import Rule

Limits = Mapping[tuple[str, str], Sequence[Rule]]
"""By group and resource, what the provider lets be done with it at most."""


def intersect(rules: Sequence[Rule], limits: Limits) -> tuple[tuple[Rule, ...], bool]:
    """What of the rules lies within the limits, and whether that is exact.

    A rule that names a limited resource is cut down to what both sides allow. One that covers it by ``*`` stays as it
    is, for no rule can say "all but": then the answer is not exact.
    """
    found: dict[Rule, None] = {}
    exact = True
    for rule in rules:
        pairs = [(group, resource) for group in rule.groups for resource in rule.resources]
        limited = [pair for pair in pairs if _of(limits, *pair) is not None]
        exact = exact and not any(_by_star(rule, *place) for place in limits)
        if not limited:
            found[rule] = None
            continue
        if rule.urls:
            found[Rule(rule.verbs, urls=rule.urls)] = None
        for group, resource in pairs:
            alone = Rule(rule.verbs, (group,), (resource,), rule.names)
            limit = _of(limits, group, resource)
            found.update(dict.fromkeys([alone] if limit is None else _common(alone, limit)))
    return tuple(found), exact


def _of(limits: Limits, group: str, resource: str) -> Sequence[Rule] | None:
    return limits.get((group, resource.partition("/")[0]))


def _by_star(rule: Rule, group: str, resource: str) -> bool:
    starred = any(own == "*" or own.startswith("*/") for own in rule.resources)
    named = any(own.partition("/")[0] == resource for own in rule.resources)
    return (starred and (group in rule.groups or "*" in rule.groups)) or (named and "*" in rule.groups)


def _common(rule: Rule, limit: Sequence[Rule]) -> Iterator[Rule]:
    """What a rule on one resource and each rule of its limit both allow."""
    (group,), (resource,) = rule.groups, rule.resources
    part = resource.partition("/")[2]
    for other in limit:
        if not other.covers_resource(other.verbs[0] if other.verbs else "", group, resource, part):
            continue
        if "*" in rule.verbs or "*" in other.verbs:
            verbs = other.verbs if "*" in rule.verbs else rule.verbs
        else:
            verbs = tuple(verb for verb in rule.verbs if verb in other.verbs)
        names = rule.names or other.names
        if rule.names and other.names:
            names = tuple(name for name in rule.names if name in other.names)
        if verbs and (names or not (rule.names or other.names)):
            yield Rule(verbs, (group,), (resource,), names)
