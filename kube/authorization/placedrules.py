"""What somebody holds in a placed namespace, as rules: what SelfSubjectRulesReview shows of it (AZ10, GW19).

``kube.authorization.placedrights.needed`` decides about single requests; this is the same of all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from kube.authorization.leastrole import ROLES, WorkspaceRoles
from kube.authorization.placedrights import GIVING, PROXY_ACCOUNT, REQUESTS, REVIEWS
from kube.authorization.rbac import GROUP, Rule

RULES_MAX: Final = 256
"""Rules that are looked at: tenants write them, and each is compared with all that an account holds."""

_CONNECTS: Final = ("pods/attach", "pods/exec", "pods/portforward")
_PROXIED: Final = Rule(("*",), ("",), ("pods/proxy", "services/proxy"))
_REQUESTS: Final = tuple(sorted(REQUESTS))


def held_in_placed(
    roles: WorkspaceRoles, membership: str, rules: Sequence[Rule], bound: Sequence[Rule], *, proxies: bool = False
) -> tuple[tuple[Rule, ...], bool]:
    """What is left of ``rules`` in a placed namespace, and whether that is all that can be said.

    ``rules`` are what somebody holds by the space's RBAC, ``bound`` what of it without the membership;
    ``proxies`` as in ``needed``.
    """
    opened = ROLES.index(PROXY_ACCOUNT)
    sets = roles.rules.roles
    if proxies:
        sets = (*sets[:opened], (*sets[opened], _PROXIED), *sets[opened + 1 :])
    of_membership = sets[: ROLES.index(membership) + 1] if membership else sets
    found: dict[Rule, None] = dict.fromkeys(_outside(rules))
    within = dict.fromkeys(_askable(of_membership, membership))
    found.update(dict.fromkeys(_common(rules, within)))
    if membership and bound:
        found.update(dict.fromkeys(_common(bound, dict.fromkeys(_askable(sets, membership)))))
    starred = any("*" in each for rule in within for each in (rule.groups, rule.resources))
    # All verbs but those that give rights away no rule says.
    starred |= membership != "admin" and any("*" in rule.verbs and GROUP in rule.groups for rule in chain(*sets))
    return tuple(found), not (starred or max(len(rules), len(bound)) > RULES_MAX)


def _outside(rules: Iterable[Rule]) -> Iterator[Rule]:
    """What no cluster is asked for: URLs, questions about rights and the Namespace itself."""
    for rule in rules:
        if rule.urls:
            yield Rule(rule.verbs, urls=rule.urls, scope=rule.scope)
        if not rule.resources:
            continue
        if "*" in rule.groups or REVIEWS in rule.groups:
            yield replace(rule, groups=(REVIEWS,), urls=())
        namespaces = tuple(each for each in rule.resources if each.partition("/")[0] in ("namespaces", "*"))
        if namespaces and ("*" in rule.groups or "" in rule.groups):
            named = tuple("namespaces" if each == "*" else each for each in namespaces)
            yield replace(rule, groups=("",), resources=named, urls=())


def _askable(sets: Iterable[Sequence[Rule]], membership: str) -> Iterator[Rule]:
    """What accounts hold, as it is asked for at the door."""
    for rule in (rule for rules in sets for rule in rules):
        resources = tuple(
            each
            for each in rule.resources
            if each not in _CONNECTS and (rule is _PROXIED or not each.endswith("/proxy"))
        )
        plain = replace(rule, resources=resources, urls=())
        if resources and GROUP in rule.groups and membership != "admin":
            yield replace(plain, groups=tuple(group for group in rule.groups if group != GROUP))
            verbs = _REQUESTS if "*" in rule.verbs else rule.verbs
            yield replace(plain, groups=(GROUP,), verbs=tuple(verb for verb in verbs if verb not in GIVING))
        elif resources:
            yield plain
        connects = tuple(each for each in rule.resources if each in _CONNECTS)
        # Whatever the method, a cluster asks for ``create``.
        verbs = tuple(verb for verb in rule.verbs if verb not in REQUESTS)
        verbs += _REQUESTS if "create" in rule.verbs and "*" not in verbs else ()
        if connects and verbs and "" in rule.groups:
            yield Rule(verbs, ("",), connects, rule.names)


def _common(rules: Sequence[Rule], held: Iterable[Rule]) -> Iterator[Rule]:
    limits = tuple(held)
    for rule in rules[:RULES_MAX]:
        for limit in limits:
            groups = _meet(rule.groups, limit.groups)
            verbs = _meet(rule.verbs, limit.verbs) if groups else ()
            resources = _meet_resources(rule.resources, limit.resources) if verbs else ()
            if not resources:
                continue
            names = rule.names or limit.names
            if rule.names and limit.names:
                names = _meet(rule.names, limit.names)
                if not names:
                    continue
            yield Rule(verbs, groups, resources, names)


def _meet(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    if "*" in ours:
        return theirs
    return ours if "*" in theirs else tuple(each for each in ours if each in theirs)


def _meet_resources(ours: tuple[str, ...], theirs: tuple[str, ...]) -> tuple[str, ...]:
    found = [each for each in ours if _covers(theirs, each)]
    found += [each for each in theirs if _covers(ours, each)]
    return tuple(dict.fromkeys(found))


def _covers(resources: tuple[str, ...], resource: str) -> bool:
    part = resource.partition("/")[2]
    return "*" in resources or resource in resources or (part != "" and f"*/{part}" in resources)
