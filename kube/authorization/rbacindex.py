"""The RBAC of one logical cluster, compiled: a decision costs a few dictionary look-ups.

A principal in a namespace is resolved once to the roles bound to it; equal lists of roles share one merged rule set
whoever holds them, and a rule set remembers for each verb and resource which role allows it. An index never changes:
``with_role`` and its siblings give a new one, so that a reader always sees one state and a write is one swap.
All memory of earlier questions is bounded, for they are chosen by whoever asks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from sys import intern
from typing import Final, NamedTuple, Self, TypeVar
from weakref import WeakValueDictionary

from immutables import Map

from kube.authorization.choices import Choices
from kube.authorization.decisions import Decision
from kube.authorization.rbac import (
    Attributes,
    Binding,
    Role,
    Rule,
    Subject,
    aggregate,
    allowed,
    choices_of,
    no_opinion,
)
from kube.requests.caches import Cache, CacheBudget, weight_of

K = TypeVar("K")
V = TypeVar("V")

CACHE_BUDGET: Final = CacheBudget(128 * 1024 * 1024)
"""What all rule sets, indexes and logical clusters together remember of what was asked."""

NAMED_MAX: Final = 256
"""Rules with names that one answer may hold and still be remembered: a tenant writes its rules itself."""

GRANTS_MAX: Final = 5_000
"""Bindings that are looked at for one principal in one namespace: a tenant writes them itself, in any number (DOS-03)."""

RULES_MAX: Final = 20_000
"""Rules that are: those of all its roles together."""

_LEFT_OUT: Final = (
    f"more than {GRANTS_MAX} bindings, or {RULES_MAX} rules, are about the user here, and the rest is not looked at: "
    "bind fewer roles"
)

_ENTRY: Final = 256
_DECISION: Final = 640
"""Bytes of an entry beside its texts, and of a decision with them."""


class TargetTenant(NamedTuple):
    """The tenant in whose space a rule is to count, with the labels of its Tenant object: what a rule's scope selects (AZ9)."""

    tenant: str
    labels: tuple[tuple[str, str], ...] = ()


class Grant(NamedTuple):
    """One subject of one binding. ``order`` sorts grants as ``kube.authorization.rbac.applicable`` does."""

    order: tuple[bool, str, int]
    binding: Binding
    subject: Subject


_Found = tuple[int, tuple[tuple[int, frozenset[str]], ...]]
"""The first role that allows it whatever the name; and before it, in order, those that do for some names."""


_name_sets: Final[WeakValueDictionary[tuple[str, ...], frozenset[str]]] = WeakValueDictionary()


def _name_set(names: tuple[str, ...]) -> frozenset[str]:
    found = _name_sets.get(names)
    if found is None:
        found = _name_sets[names] = frozenset(names)
    return found


class RuleSet:
    """The rules of several roles, in order. Answers which of the roles allows a request."""

    __slots__ = ("__weakref__", "_resources", "_urls", "roles")

    def __init__(self, roles: tuple[tuple[Rule, ...], ...]) -> None:
        self.roles = roles
        self._resources: Cache[tuple[str, str, str], _Found] = Cache(CACHE_BUDGET)
        self._urls: Cache[tuple[str, str], int] = Cache(CACHE_BUDGET)

    def find(self, attributes: Attributes) -> int:
        """The position of the first role that allows this, or -1."""
        # 1. The key leaves the object's name out: an answer is remembered for all objects of a resource, so that who
        #    asks about names that are not there fills no memory. Subresource: ``resource`` is ``pods/log`` as a whole.
        # 2. What is remembered depends on ``roles`` alone, and they never change: nothing has to be invalidated.
        # 3. When there is no room all memory goes; the next question compiles its answer anew.
        verb, group, resource, subresource, _, name, path, is_resource = attributes
        if not is_resource:
            return self._find_url(verb, path)
        key = (verb, group, resource)
        found = self._resources.get(key)
        if found is None:
            found = self._compile(verb, group, resource, subresource)
            if len(found[1]) <= NAMED_MAX:
                self._resources.keep(key, found, _ENTRY * (1 + len(found[1])) + weight_of(key))
        # 4. Roles that allow some names come before the one that allows all: the first in order is the one reported.
        anything, named = found
        for position, names in named:
            if name in names:
                return position
        return anything

    def _compile(self, verb: str, group: str, resource: str, subresource: str) -> _Found:
        named: list[tuple[int, frozenset[str]]] = []
        for position, rules in enumerate(self.roles):
            for rule in rules:
                if rule.covers_resource(verb, group, resource, subresource):
                    if not rule.names:
                        return position, tuple(named)
                    named.append((position, _name_set(rule.names)))
        return -1, tuple(named)

    def _find_url(self, verb: str, path: str) -> int:
        key = (verb, path)
        position = self._urls.get(key)
        if position is None:
            position = -1
            for index, rules in enumerate(self.roles):
                if any(rule.covers_url(verb, path) for rule in rules):
                    position = index
                    break
            self._urls.keep(key, position, _ENTRY + weight_of(key))
        return position


class _Rules:
    """The rules of a role, one instance for equal ones, so that lists of roles compare by identity."""

    __slots__ = ("__weakref__", "rules")

    def __init__(self, rules: tuple[Rule, ...]) -> None:
        self.rules = rules


# Equal ones are one as long as anybody holds it, and no longer: what tenants have written and deleted leaves nothing.
_shared_rules: Final[WeakValueDictionary[tuple[Rule, ...], _Rules]] = WeakValueDictionary()
_rule_sets: Final[WeakValueDictionary[tuple[_Rules, ...], RuleSet]] = WeakValueDictionary()


def _shared(rules: tuple[Rule, ...]) -> _Rules:
    found = _shared_rules.get(rules)
    if found is None:
        found = _shared_rules[rules] = _Rules(rules)
    return found


def _rule_set(roles: tuple[_Rules, ...]) -> RuleSet:
    found = _rule_sets.get(roles)
    if found is None:
        found = _rule_sets[roles] = RuleSet(tuple(role.rules for role in roles))
    return found


def rule_set_of(roles: Sequence[tuple[Rule, ...]]) -> RuleSet:
    """The rules of these roles, in order: one instance for equal ones."""
    return _rule_set(tuple(map(_shared, roles)))


# By the roles of the system space alone: operators write them.
@lru_cache(maxsize=4096)
def _rules_about(role: _Rules, target: TargetTenant) -> _Rules:
    labels = dict(target.labels)
    return _shared(tuple(rule for rule in role.rules if rule.scope.includes(target.tenant, labels)))


EffectiveRules = tuple[RuleSet, Decision, *tuple[Decision, ...]]
"""What one principal holds in one namespace: rules, what is said where none allows, for each role the decision that it brings.

Bare, because what a decision costs at ten thousand tenants is how many objects it looks at.
"""


def decide(held: EffectiveRules, attributes: Attributes) -> Decision:
    """ALLOW with the binding that allowed, or no opinion."""
    return held[held[0].find(attributes) + 2]  # type: ignore[return-value]


def rules_in(held: EffectiveRules) -> tuple[Rule, ...]:
    """Every rule, without repetitions."""
    return tuple(dict.fromkeys(rule for rules in held[0].roles for rule in rules))


_interned: Final[Cache[tuple[str, ...], tuple[str, ...]]] = Cache(CACHE_BUDGET)


def intern_all(words: tuple[str, ...]) -> tuple[str, ...]:
    """One copy of equal tuples of words, so that what keys hold is found in the processor's cache."""
    found = _interned.get(words)
    if found is None:
        found = tuple(map(intern, words))
        _interned.keep(found, found, _ENTRY + weight_of(found))
    return found


def weight_of_held(user: str, groups: tuple[str, ...], namespace: str, held: EffectiveRules) -> int:
    """What it takes to remember what a principal holds in a namespace, in bytes."""
    return _ENTRY + weight_of((user, namespace, held[1].reason, *groups)) + _DECISION * len(held)


_Subject = tuple[str, str, str]
"""Kind, name, and the namespace of the binding."""

_Grants = Map[str, Grant]
"""By the binding's name."""


_NO_GRANTS: Final[_Grants] = Map()
_NO_SUBJECTS: Final[Map[_Subject, _Grants]] = Map()
_NO_BINDINGS: Final[Map[tuple[str, str], Binding]] = Map()


def _without(kept: Map[K, V], key: K) -> Map[K, V]:
    return kept.delete(key) if key in kept else kept


def _grants(binding: Binding) -> Iterable[tuple[_Subject, Grant]]:
    """Whom a binding names, with what it grants: whoever is named again is meant by the first."""
    named: set[_Subject] = set()
    for position, subject in enumerate(binding.subjects):
        kind, name = "Group", subject.name
        if subject.kind != "Group":
            kind, name = "User", subject.user_name(binding.namespace)
        key = kind, name, binding.namespace
        if name and key not in named:
            named.add(key)
            yield key, Grant((binding.namespace != "", binding.name, position), binding, subject)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PolicyIndex:
    """Roles and bindings of one logical cluster, ready to answer. Made by ``build``.

    ``bootstrap`` is the bootstrap policy: its bindings count here too, its ClusterRoles can be bound here, and own roles
    add to the aggregated ones by their labels; an own binding or role of the same name counts in the place of one of its
    (KC7, KC8). ``cluster_roles`` hold its roles too, ``in_force`` its bindings.

    Another index shares with this one all that has not changed: what a write costs does not grow with what is there.
    """

    bootstrap: PolicyIndex | None
    roles: Map[tuple[str, str], Role]
    cluster_roles: Map[str, Role]
    bindings: Map[tuple[str, str], Binding]
    subjects: Map[_Subject, _Grants]
    _effective: Cache[tuple[str, str, str], _Rules | None] = field(
        default_factory=lambda: Cache(CACHE_BUDGET), init=False, repr=False
    )
    _choices: list[Choices] = field(default_factory=list, init=False, repr=False)
    _held: Cache[tuple[str, tuple[str, ...], str, TargetTenant | None], EffectiveRules] = field(
        default_factory=lambda: Cache(CACHE_BUDGET), init=False, repr=False
    )

    @classmethod
    def build(
        cls,
        roles: Iterable[Role] = (),
        bindings: Iterable[Binding] = (),
        *,
        bootstrap: PolicyIndex | None = None,
    ) -> Self:
        """Compile a policy."""
        # Most spaces have no ClusterRoles of their own: thousands of them share one mapping.
        shared = bootstrap.cluster_roles if bootstrap is not None else Map()
        empty = cls(bootstrap=bootstrap, roles=Map(), cluster_roles=shared, bindings=Map(), subjects=Map())
        return empty.with_roles(roles).with_bindings(bindings)

    def with_roles(self, roles: Iterable[Role]) -> Self:
        """This index with Roles and ClusterRoles added or replaced."""
        local, cluster = self.roles.mutate(), self.cluster_roles.mutate()
        for role in roles:
            if role.namespace:
                local[role.namespace, role.name] = role
            else:
                cluster[role.name] = role
        return replace(self, roles=local.finish(), cluster_roles=cluster.finish())

    def with_role(self, role: Role) -> Self:
        """This index with a Role or ClusterRole added or replaced."""
        return self.with_roles((role,))

    def without_role(self, namespace: str, name: str) -> Self:
        """This index without a Role, or, with an empty namespace, a ClusterRole. A hidden bootstrap role is back."""
        if namespace:
            return replace(self, roles=_without(self.roles, (namespace, name)))
        shared = self.bootstrap.cluster_roles.get(name) if self.bootstrap is not None else None
        rest = _without(self.cluster_roles, name) if shared is None else self.cluster_roles.set(name, shared)
        return replace(self, cluster_roles=rest)

    def with_bindings(self, bindings: Iterable[Binding]) -> Self:
        """This index with RoleBindings and ClusterRoleBindings added or replaced."""
        return self._rebound({(binding.namespace, binding.name): binding for binding in bindings})

    def with_binding(self, binding: Binding) -> Self:
        """This index with a RoleBinding or ClusterRoleBinding added or replaced."""
        return self.with_bindings((binding,))

    def without_binding(self, namespace: str, name: str) -> Self:
        """This index without a RoleBinding, or, with an empty namespace, a ClusterRoleBinding."""
        return self._rebound({(namespace, name): None})

    def _rebound(self, changed: Mapping[tuple[str, str], Binding | None]) -> Self:
        # Who holds this index goes on reading it. ``replace`` makes an index whose own memories are empty, so no answer of
        # the old one outlives the binding that gave it.
        bindings, subjects = self.bindings.mutate(), self.subjects.mutate()
        for key, binding in changed.items():
            before = bindings.pop(key, None)
            for subject, grant in _grants(before) if before is not None else ():
                rest = subjects[subject].delete(grant.binding.name)
                if rest:
                    subjects[subject] = rest
                else:
                    del subjects[subject]
            if binding is not None:
                bindings[key] = binding
                for subject, grant in _grants(binding):
                    subjects[subject] = subjects.get(subject, _NO_GRANTS).set(binding.name, grant)
        return replace(self, bindings=bindings.finish(), subjects=subjects.finish())

    @property
    def in_force(self) -> Mapping[tuple[str, str], Binding]:
        """The bindings that count here, those of the bootstrap policy included whose names are not taken."""
        brought = self.bootstrap.bindings if self.bootstrap is not None else _NO_BINDINGS
        return self.bindings.update({key: each for key, each in brought.items() if key not in self.bindings})

    def rules_of(self, kind: str, namespace: str, name: str) -> tuple[Rule, ...] | None:
        """The rules of a Role or ClusterRole, aggregation done; ``None`` when there is none (AZ-08)."""
        effective = self._rules(kind, namespace, name)
        return None if effective is None else effective.rules

    def _rules(self, kind: str, namespace: str, name: str) -> _Rules | None:
        # A ClusterRole is the same from every namespace: one entry, aggregated once. Absence is remembered too.
        key = (kind, namespace if kind == "Role" else "", name)
        try:
            return self._effective[key]
        except KeyError:
            if kind == "ClusterRole":
                role = self.cluster_roles.get(name)
                rules = None if role is None else _shared(self._aggregated(role))
            else:
                role = self.roles.get((namespace, name)) if kind == "Role" and namespace else None
                rules = None if role is None else _shared(role.rules)
            size = _ENTRY + weight_of(key) + (8 * len(rules.rules) if rules is not None else 0)
            self._effective.keep(key, rules, size)
            return rules

    def _aggregated(self, role: Role) -> tuple[Rule, ...]:
        if role.aggregation is None:
            return role.rules
        if not self._choices:
            self._choices.append(choices_of(self.cluster_roles))
        return aggregate(role, self.cluster_roles, self._choices[0])

    def _granted(self, user: str, groups: Sequence[str], namespace: str) -> tuple[list[Grant], bool]:
        """The grants that mean this principal, in order, ``GRANTS_MAX`` at most; and whether that is all of them."""
        # 1. Cluster-wide bindings and those of the namespace, by the user's name and by each group: nobody else's are seen.
        # 2. Of one binding only its first subject that means the principal counts, whichever look-up found it.
        # 3. In the order of ``kube.authorization.rbac.applicable``, so that the reason names the same binding.
        # 4. A binding of the bootstrap policy is one of the logical cluster's, as long as none of its own has the name.
        # 5. Where there are too many, all that name the principal in one way there are left out: which of them would have
        #    counted does not depend on what was written last.
        found: dict[tuple[bool, str], Grant] = {}
        keys = [("User", user), *[("Group", group) for group in groups]]
        shared = self.bootstrap.subjects if self.bootstrap is not None else _NO_SUBJECTS
        looked, is_all = 0, True
        for where in ("", namespace) if namespace else ("",):
            for kind, name in keys:
                subject = kind, name, where
                own, brought = self.subjects.get(subject), shared.get(subject)
                looked += len(own or ())
                if looked > GRANTS_MAX:
                    is_all, own, looked = False, None, looked - len(own or ())
                grants = list(own.values()) if own is not None else []
                if brought is not None:
                    grants += [each for each in brought.values() if (where, each.binding.name) not in self.bindings]
                for grant in grants:
                    known = found.get(grant.order[:2])
                    if known is None or grant.order < known.order:
                        found[grant.order[:2]] = grant
        return [grant for _, grant in sorted(found.items())], is_all

    def effective_rules(
        self, user: str, groups: tuple[str, ...], namespace: str, target: TargetTenant | None = None
    ) -> EffectiveRules:
        """What a principal holds in a namespace. With ``target`` only rules whose scope includes it count (AZ9)."""
        held, decisions, missing, looked = [], [], [], 0
        grants, is_all = self._granted(user, groups, namespace)
        for grant in grants:
            binding = grant.binding
            found = self._rules(binding.role_kind, binding.namespace, binding.role)
            if found is None:
                missing.append(binding)
                continue
            looked += len(found.rules)
            if looked > RULES_MAX:
                is_all = False
                break
            rules = found if target is None else _rules_about(found, target)
            if rules.rules:
                held.append(rules)
                decisions.append(allowed(binding, grant.subject))
        return (_rule_set(tuple(held)), no_opinion(missing, "" if is_all else _LEFT_OUT), *decisions)

    def remembered_rules(
        self, user: str, groups: tuple[str, ...], namespace: str, target: TargetTenant | None
    ) -> EffectiveRules:
        """``effective_rules``, worked out once."""
        key = (user, groups, namespace, target)
        held = self._held.get(key)
        if held is None:
            held = self.effective_rules(*key)
            self._held.keep(key, held, weight_of_held(user, groups, namespace, held))
        return held

    def authorize(
        self, user: str, groups: tuple[str, ...], attributes: Attributes, target: TargetTenant | None = None
    ) -> Decision:
        """ALLOW with the binding that allowed, or no opinion (AZ2). With ``target`` only rules whose scope includes it count (AZ9).

        The caller has made sure that the bindings of this space may apply to this principal at all.
        """
        return decide(self.remembered_rules(user, groups, attributes.namespace, target), attributes)

    def rules_for(
        self, user: str, groups: tuple[str, ...], namespace: str = "", target: TargetTenant | None = None
    ) -> tuple[Rule, ...]:
        """Every rule that this principal holds in a namespace, without repetitions (SelfSubjectRulesReview, AZ10)."""
        return rules_in(self.remembered_rules(user, groups, namespace, target))
