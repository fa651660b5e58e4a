"""Whose RBAC counts for whom: the policies of a space, of the system space and of the bootstrap cluster together.

Bindings of a logical cluster mean principals of its own tenant, service accounts only those that live in it (KC9,
AZ-05). Operators, users of the system tenant, are judged in other spaces by the ClusterRoleBindings of the system
space, as far as the scope of each rule reaches (AZ1, AZ9): its RoleBindings end at its own namespaces. The bootstrap
policy is everybody's fallback (KC7).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.rbac import CLUSTER, NO_OPINION, STEP, TENANTED, Attributes, Rule, Scope
from kube.authorization.rbacindex import EffectiveRules, PolicyIndex, TargetTenant, rule_set_of, rules_in
from kube.requests.logicalclusters import tenant_of
from kube.requests.names import SYSTEM_TENANT

_OWN: Final = TargetTenant(SYSTEM_TENANT)
_NOTHING: Final[EffectiveRules] = (rule_set_of(()), NO_OPINION)


@dataclass(frozen=True, slots=True)
class Policies:
    """The compiled RBAC that a decision in one logical cluster looks at.

    ``local`` is that of ``cluster`` itself, ``system`` that of ``root``, ``bootstrap`` that of ``system:admin``.
    ``labels`` are those of the Tenant object that owns the cluster, sorted by key, for rules with a selector. Derived are
    ``owner``, the tenant, and whom a rule's scope must include to count here: ``target`` for rules of ``local``,
    ``cross_tenant_target`` for those of ``system``.
    """

    cluster: str
    local: PolicyIndex
    system: PolicyIndex
    bootstrap: PolicyIndex
    labels: tuple[tuple[str, str], ...] = ()
    owner: str = field(init=False)
    target: TargetTenant | None = field(init=False)
    cross_tenant_target: TargetTenant = field(init=False)

    def __post_init__(self) -> None:
        """Work out what every decision needs."""
        owner = tenant_of(self.cluster)
        object.__setattr__(self, "owner", owner)
        object.__setattr__(self, "target", _OWN if owner == SYSTEM_TENANT else None)
        object.__setattr__(self, "cross_tenant_target", TargetTenant(owner, self.labels))


def authorize(principal: Principal, attributes: Attributes, policies: Policies) -> Decision:
    """RBAC's answer (AZ2): DENY across tenants, ALLOW by the first binding that allows, else no opinion.

    A principal of no tenant has what the bootstrap policy gives to its groups and nothing more; one that counts in
    another logical cluster alone has nothing.
    """
    if principal.scope is not None and principal.scope != policies.cluster:
        return NO_OPINION
    user, groups, tenant = principal.name, principal.groups, principal.tenant
    if tenant == policies.owner:
        if not may_be_bound_in(principal, policies.cluster):
            return NO_OPINION
        return policies.local.authorize(user, groups, attributes, policies.target)
    if tenant is None:
        return policies.bootstrap.authorize(user, groups, attributes)
    if tenant != SYSTEM_TENANT:
        reason = f'a user of tenant "{tenant}" may not reach tenant "{policies.owner}"'
        return Decision(Verdict.DENY, STEP, reason=reason)
    asked, target = attributes._replace(namespace=""), policies.cross_tenant_target
    found = policies.system.authorize(user, groups, asked, target)
    if found.verdict is Verdict.ALLOW or policies.system.bootstrap is None:
        return found
    # What the operators have put in its place for themselves counts in their space alone.
    shared = policies.system.bootstrap.authorize(user, groups, asked, target)
    return shared if shared.verdict is Verdict.ALLOW else found


def may_be_bound_in(principal: Principal, cluster: str) -> bool:
    """Whether bindings of a logical cluster of the principal's tenant can mean it: service accounts live in one.

    Whoever acts as another does so in one.
    """
    home, scope = principal.cluster, principal.scope
    return (home is None or home == cluster) and (scope is None or scope == cluster)


def home_rules(principal: Principal, namespace: str, policies: Policies) -> EffectiveRules:
    """What ``authorize`` goes by for a principal of the cluster's own tenant that lives there; to be remembered."""
    return policies.local.effective_rules(principal.name, principal.groups, namespace, policies.target)


def _held(principal: Principal, namespace: str, policies: Policies, *, target: TargetTenant | None) -> EffectiveRules:
    user, groups = principal.name, principal.groups
    if principal.scope is not None and principal.scope != policies.cluster:
        return _NOTHING
    if principal.tenant is None:
        return policies.bootstrap.remembered_rules(user, groups, "", None)
    if principal.tenant == policies.owner:
        if not may_be_bound_in(principal, policies.cluster):
            return _NOTHING
        return policies.local.remembered_rules(user, groups, namespace, target)
    if principal.tenant == SYSTEM_TENANT:
        held = policies.system.remembered_rules(user, groups, "", policies.cross_tenant_target)
        if policies.system.bootstrap is None:
            return held
        shared = policies.system.bootstrap.remembered_rules(user, groups, "", policies.cross_tenant_target)
        brought: tuple[Decision, ...] = (*held[2:], *shared[2:])
        return (rule_set_of((*held[0].roles, *shared[0].roles)), held[1], *brought)
    return _NOTHING


def _rules(held: EffectiveRules, policies: Policies, scope: Scope) -> tuple[Rule, ...]:
    """The rules, in a tenant's space all with this scope: there it means nothing."""
    found = rules_in(held)
    if policies.owner != SYSTEM_TENANT:
        found = tuple(dict.fromkeys(replace(rule, scope=scope) for rule in found))
    return found


def rules_for(principal: Principal, namespace: str, policies: Policies) -> tuple[tuple[Rule, ...], str]:
    """What this principal may do in a namespace, and which of its roles are not there (SelfSubjectRulesReview, AZ10)."""
    held = _held(principal, namespace, policies, target=policies.target)
    return _rules(held, policies, TENANTED), held[1].reason.removeprefix(f"{STEP}: ")


def held_rules(principal: Principal, namespace: str, policies: Policies) -> tuple[Rule, ...]:
    """What this principal can give away there: the first argument of ``kube.authorization.escalation.covers``.

    In the system space that includes rules whose scope does not reach it, for they can be handed on with their scope; in
    a tenant's any scope is covered, such as those that roles of the bootstrap policy have.
    """
    return _rules(_held(principal, namespace, policies, target=None), policies, CLUSTER)
