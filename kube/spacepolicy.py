"""Whose RBAC counts for whom: the policies of a space, of the system space and of the bootstrap cluster together.

Bindings of a logical cluster mean principals of its own tenant, service accounts only those that live in it (KC9,
AZ-05). Operators, users of the system tenant, are judged in other spaces by the ClusterRoleBindings of the system
space, as far as the scope of each rule reaches (AZ1, AZ9): its RoleBindings end at its own namespaces. The bootstrap
policy is everybody's fallback (KC7).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from kube.identity import SYSTEM_TENANT, Principal
from kube.logicalclusters import tenant_of
from kube.rbac import NO_OPINION, STEP, TENANTED, Attributes, Rule
from kube.rbacindex import PolicyIndex, Reach
from kube.verdicts import Decision, Verdict

_OWN: Final = Reach(SYSTEM_TENANT)


class Policies(NamedTuple):
    """The compiled RBAC that a decision in one logical cluster looks at.

    ``local`` is that of ``cluster`` itself, ``system`` that of ``root``, ``bootstrap`` that of ``system:admin``.
    ``labels`` are those of the Tenant object that owns the cluster, sorted by key, for rules with a selector.
    """

    cluster: str
    local: PolicyIndex
    system: PolicyIndex
    bootstrap: PolicyIndex
    labels: tuple[tuple[str, str], ...] = ()


def authorize(principal: Principal, attributes: Attributes, policies: Policies) -> Decision:
    """RBAC's answer (AZ2): DENY across tenants, ALLOW by the first binding that allows, else no opinion.

    A principal of no tenant has what the bootstrap policy gives to its groups and nothing more.
    """
    user, groups = principal.name, principal.groups
    owner = tenant_of(policies.cluster)
    if principal.tenant is None:
        return policies.bootstrap.authorize(user, groups, attributes)
    if principal.tenant == owner:
        if principal.cluster is not None and principal.cluster != policies.cluster:
            return NO_OPINION
        reach = _OWN if owner == SYSTEM_TENANT else None
        decision = policies.local.authorize(user, groups, attributes, reach)
        return decision if decision.allowed else policies.bootstrap.authorize(user, groups, attributes)
    if principal.tenant != SYSTEM_TENANT:
        return Decision(
            Verdict.DENY, STEP, reason=f'a user of tenant "{principal.tenant}" may not reach tenant "{owner}"'
        )
    reach = Reach(owner, policies.labels)
    everywhere = attributes._replace(namespace="")
    decision = policies.system.authorize(user, groups, everywhere, reach)
    return decision if decision.allowed else policies.bootstrap.authorize(user, groups, everywhere, reach)


def _rules(principal: Principal, namespace: str, policies: Policies, *, reach: Reach | None) -> tuple[Rule, ...]:
    user, groups = principal.name, principal.groups
    owner = tenant_of(policies.cluster)
    if principal.tenant is None:
        found = policies.bootstrap.rules_for(user, groups)
    elif principal.tenant == owner:
        if principal.cluster is not None and principal.cluster != policies.cluster:
            return ()
        local = policies.local.rules_for(user, groups, namespace, reach)
        found = local + policies.bootstrap.rules_for(user, groups)
    elif principal.tenant == SYSTEM_TENANT:
        afar = Reach(owner, policies.labels)
        found = policies.system.rules_for(user, groups, "", afar) + policies.bootstrap.rules_for(user, groups, "", afar)
    else:
        return ()
    if owner != SYSTEM_TENANT:
        found = tuple(replace(rule, scope=TENANTED) for rule in found)
    return tuple(dict.fromkeys(found))


def rules_for(principal: Principal, namespace: str, policies: Policies) -> tuple[Rule, ...]:
    """What this principal may do in a namespace, for SelfSubjectRulesReview (AZ10)."""
    reach = _OWN if tenant_of(policies.cluster) == SYSTEM_TENANT else None
    return _rules(principal, namespace, policies, reach=reach)


def held_rules(principal: Principal, namespace: str, policies: Policies) -> tuple[Rule, ...]:
    """What this principal can give away there: the first argument of ``kube.escalation.covers``.

    In the system space that includes rules whose scope does not reach it, for they can be handed on with their scope.
    """
    return _rules(principal, namespace, policies, reach=None)
