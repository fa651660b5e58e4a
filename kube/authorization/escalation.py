"""Nobody gives away what they do not hold: the cover of one set of rules by another (AZ2, escalation prevention)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from kube.authorization.rbac import Rule, Scope
from kube.requests.quoting import quoted
from kube.requests.status import BadRequest

GRANTS_MAX: Final = 20_000
"""Single permissions that one check takes apart; an object of 1 MiB could otherwise multiply to billions."""

_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Of what was worked out for a list of items, within one question."""


class _Where:
    """Which rules name an item, as the bits of a number: the first rule's is the lowest."""

    def __init__(self, lists: Iterable[Iterable[str]]) -> None:
        self._places: dict[str, list[int]] = {}
        self._kept: dict[str, int] = {}
        self._bytes = 0
        for place, items in enumerate(lists):
            for item in items:
                self._places.setdefault(item, []).append(place)

    def __call__(self, item: str) -> int:
        kept = self._kept.get(item)
        if kept is None:
            kept = _bits(self._places.get(item, ()))
            self._bytes += kept.bit_length() // 8
            if self._bytes > _KEPT_BYTES:
                self._kept.clear()
                self._bytes = 0
            self._kept[item] = kept
        return kept


class _Held:
    """Rules that somebody holds, asked which of them cover something without going through them again and again.

    Whoever holds thousands of rules and hands out thousands of permissions asks millions of questions otherwise, in one
    turn of the server's loop (DOS-03): sets of rules are numbers here, and what covers is their intersection.
    """

    def __init__(self, held: Sequence[Rule]) -> None:
        self._all = (1 << len(held)) - 1
        self._verbs = _Where(rule.verbs for rule in held)
        self._groups = _Where(rule.groups for rule in held)
        self._resources = _Where(rule.resources for rule in held)
        self._names = _Where(rule.names for rule in held)
        self._urls = _Where(rule.urls for rule in held)
        self._prefixes = _Where([url.rstrip("*") for url in rule.urls if url.endswith("*")] for rule in held)
        self._lengths = {len(url.rstrip("*")) for rule in held for url in rule.urls if url.endswith("*")}
        self._unnamed = _bits(place for place, rule in enumerate(held) if not rule.names)
        scopes: dict[Scope, list[int]] = {}
        for place, rule in enumerate(held):
            scopes.setdefault(rule.scope, []).append(place)
        self._scopes = {scope: _bits(places) for scope, places in scopes.items()}
        self._reaching: dict[Scope, int] = {}

    def covers(self, wanted: Rule) -> bool:
        """Whether one of them covers all of ``wanted``."""
        within = self._reach(wanted.scope)
        within &= self._each(wanted.verbs, self._verb) & self._each(wanted.groups, self._group)
        within &= self._each(wanted.resources, self._resource) & self._each(wanted.urls, self._url)
        return bool(within & (self._unnamed | (self._each(wanted.names, self._names) if wanted.names else 0)))

    def missing(self, wanted: Rule) -> Iterator[Rule]:
        """Every single permission in ``wanted`` that none of them covers: one verb, one resource or URL, one name at most."""
        reach, scope = self._reach(wanted.scope), wanted.scope
        for group in wanted.groups:
            of_group = reach & self._group(group)
            for resource in wanted.resources:
                of_resource = of_group & self._resource(resource)
                for verb in wanted.verbs:
                    of_verb = of_resource & self._verb(verb)
                    for name in wanted.names or ("",):
                        if not of_verb & (self._unnamed | (self._names(name) if name else 0)):
                            yield Rule((verb,), (group,), (resource,), (name,) if name else (), (), scope)
        for url in wanted.urls:
            of_url = reach & self._unnamed & self._url(url)
            for verb in wanted.verbs:
                if not of_url & self._verb(verb):
                    yield Rule((verb,), urls=(url,), scope=scope)

    def _verb(self, verb: str) -> int:
        return self._verbs("*") | self._verbs(verb)

    def _group(self, group: str) -> int:
        return self._groups("*") | self._groups(group)

    def _resource(self, resource: str) -> int:
        _, slash, subresource = resource.partition("/")
        found = self._resources("*") | self._resources(resource)
        return found | self._resources(f"*/{subresource}") if slash else found

    def _url(self, url: str) -> int:
        found = self._urls("*") | self._urls(url)
        for length in self._lengths:
            if length <= len(url):
                found |= self._prefixes(url[:length])
        return found

    def _each(self, items: Iterable[str], places: Callable[[str], int]) -> int:
        found = self._all
        for item in items:
            if not found:
                break
            found &= places(item)
        return found

    def _reach(self, scope: Scope) -> int:
        if scope not in self._reaching:
            found = 0
            for own, places in self._scopes.items():
                found |= places if own.covers(scope) else 0
            self._reaching[scope] = found
        return self._reaching[scope]


def _bits(places: Iterable[int]) -> int:
    """A number with these bits; put together at once, for each step of adding one by one would copy it."""
    listed = list(places)
    found = bytearray(max(listed, default=0) // 8 + 1)
    for place in listed:
        found[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(found, "little")


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
    budget, own = GRANTS_MAX, _Held(held)
    for rule in wanted:
        if own.covers(rule):
            continue
        budget -= size(rule)
        if budget < 0:
            raise BadRequest("the rules are too many to be checked")
        missing.update(dict.fromkeys(own.missing(rule)))
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
