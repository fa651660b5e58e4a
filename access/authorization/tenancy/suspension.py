"""Suspension comes first: a suspended tenant or namespace is closed, whatever its RBAC says (GW5).

What is frozen is open to those who read, and to nobody who writes (GW28).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, Protocol

from access.authorization.base import DENY_ALL, NO_RULES, RuleSet, deny, passes
from access.authorization.tenancy.isolation import is_probe
from kube.authentication.identity import SERVICE_ACCOUNT_PREFIX, Principal
from kube.authorization.decisions import Decision
from kube.authorization.rbac import Rule
from kube.requests.logicalclusters import ClusterKind, is_valid, space_of, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.requestinfo import RequestInfo


class Suspensions(Protocol):
    """Which tenants and namespaces are suspended, answered from memory, without waiting."""

    @property
    def tenants(self) -> frozenset[str]:
        """The tenants behind locked doors: no lock concerns any other."""
        ...

    def reason(self, cluster: str, namespace: str) -> str | None:
        """Why this namespace of this logical cluster is closed, or ``None``. An empty namespace asks for the whole."""
        ...

    @property
    def frozen_tenants(self) -> frozenset[str]:
        """The tenants of which something is frozen."""
        ...

    def freeze(self, cluster: str, namespace: str, *, inside: bool = False) -> str | None:
        """Why nothing is written in this namespace of this logical cluster, or ``None``; ``inside`` as ``freeze_reason``."""
        ...


def suspension_reason(locks: Mapping[tuple[str, str], str], cluster: str, namespace: str) -> str | None:
    """The reason of the lock that closes a namespace of a logical cluster, or ``None``.

    ``locks`` are reasons by (cluster, namespace). A lock of a logical cluster closes everything below it as well.
    """
    if not locks:
        return None
    if namespace and (reason := locks.get((cluster, namespace))) is not None:
        return reason
    path = cluster
    while path:
        if (reason := locks.get((path, ""))) is not None:
            return reason
        path = path.rpartition(":")[0]
    return None


def freeze_reason(
    freezes: Mapping[tuple[str, str], str], cluster: str, namespace: str, *, inside: bool = False
) -> str | None:
    """The same of what is frozen; with ``inside`` any frozen namespace of the logical cluster counts."""
    reason = suspension_reason(freezes, cluster, namespace)
    if reason is None and inside:
        return next((reason for (space, _), reason in freezes.items() if space == cluster), None)
    return reason


def suspended_tenants(locks: Iterable[tuple[str, str]]) -> frozenset[str]:
    """The tenants that locks of (cluster, namespace) concern; ``system`` stands for all, whom a locked root closes."""
    return frozenset(tenant_of(cluster) if is_valid(cluster) else SYSTEM_TENANT for cluster, _ in locks)


def is_write(request: RequestInfo) -> bool:
    """Whether a request may change something: whatever does not read, and what opens a way into a pod.

    Questions about rights are asked by ``create`` and keep nothing.
    """
    if not request.is_resource:
        return False
    if request.verb == "create" and request.resource in _QUESTIONS.get(request.group, ()):
        return False
    return request.verb not in _READS or request.connects


def reaches_inside(request: RequestInfo) -> bool:
    """Whether a write that names no namespace ends what is in namespaces: collections of all, and whole kinds."""
    if request.namespace or not request.verb.startswith("delete"):
        return False
    return request.verb == "deletecollection" or request.resource in _KINDS


STEP: Final = "suspension"
_KINDS: Final = ("customresourcedefinitions", "apibindings")
_READS: Final = ("get", "list", "watch")
_QUESTIONS: Final = {
    "authorization.k8s.io": frozenset(
        {"subjectaccessreviews", "selfsubjectaccessreviews", "localsubjectaccessreviews", "selfsubjectrulesreviews"}
    ),
    "authentication.k8s.io": frozenset({"tokenreviews", "selfsubjectreviews"}),
}
"""By resources: tenants may define kinds of their own in these groups, and keep objects in them."""
# Made once: these are on the way of every request.
_NOT_BOUND: Final = passes(STEP, "locks do not bind the system tenant")
_OPEN: Final = passes(STEP, "nothing is locked here")


def _is_its_own_look(request: RequestInfo) -> bool:
    """Whether the Namespace object itself is read: that it is closed, or ending, is what its people are to see."""
    return (
        request.resource == "namespaces"
        and not request.group
        and not request.subresource
        and request.verb in ("get", "list", "watch")
    )


class SuspensionAuthorizer:
    """Denies what is behind a lock. Locks bind tenants' users, never the system tenant, who must be able to open."""

    name = STEP

    def __init__(self, locks: Suspensions) -> None:
        self._locks = locks

    def applies_to(self, *, operator: bool, cluster_kind: ClusterKind) -> bool:  # noqa: ARG002
        """Only tenants' users."""
        return not operator

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY behind a lock, otherwise no opinion."""
        return self.decide(principal, request)

    def decide(self, principal: Principal, request: RequestInfo) -> Decision:
        """The same, without waiting."""
        if principal.tenant == SYSTEM_TENANT:
            return _NOT_BOUND
        frozen = self._locks.frozen_tenants
        if frozen and request.tenant in frozen and is_write(request):
            refusal = self._frozen(principal, request)
            if refusal is not None:
                return refusal
        behind = self._locks.tenants
        if not behind or behind.isdisjoint((principal.tenant, request.tenant, SYSTEM_TENANT)):
            return _OPEN
        if is_probe(request):
            # An installation that is closed is well: whoever looks after its servers must not end them for it.
            return _OPEN
        inside = "" if _is_its_own_look(request) else request.namespace
        reason = self._reason(principal, request.cluster, inside, request.tenant)
        if reason is None:
            return _OPEN
        if principal.tenant != request.tenant:
            # Why another tenant is closed is not for its neighbours to read.
            return deny(self.name, "the request is for another tenant's space")
        return deny(self.name, f"locked: {reason}" if reason else "locked")

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """Nothing, and behind a lock the end of it."""
        if principal.is_system or self._reason(principal, cluster, namespace, tenant_of(cluster)) is None:
            return NO_RULES
        return DENY_ALL

    async def filter_rules(self, held: RuleSet, principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """Of what is frozen, only reading is left."""
        if principal.is_system or self._locks.freeze(cluster, namespace) is None:
            return held
        left = (rule if _reads_only(rule) else replace(rule, verbs=_reads_of(rule)) for rule in held.rules)
        return replace(held, rules=tuple(rule for rule in left if rule.verbs))

    def _frozen(self, principal: Principal, request: RequestInfo) -> Decision | None:
        """The refusal of a write; a door that is closed as well says so itself."""
        if self._reason(principal, request.cluster, request.namespace, request.tenant) is not None:
            return None
        reason = self._locks.freeze(request.cluster, request.namespace, inside=reaches_inside(request))
        if reason is None:
            return None
        # As with locks: why is not for neighbours to read.
        return deny(self.name, f"frozen: {reason}" if principal.tenant == request.tenant else "frozen")

    def _reason(self, principal: Principal, cluster: str, namespace: str, owner: str) -> str | None:
        reason = self._locks.reason(cluster, namespace)
        if reason is None and principal.tenant is not None and principal.tenant != owner:
            # Whoever belongs to a locked tenant is locked in: what others opened to it counts no more (AZ-23).
            reason = self._locks.reason(space_of(principal.tenant), "")
        if reason is None and principal.cluster is not None and principal.name.startswith(SERVICE_ACCOUNT_PREFIX):
            # An account of a locked namespace likewise: its bindings elsewhere do not help it out.
            home = principal.name[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")[0]
            reason = self._locks.reason(principal.cluster, home)
        return reason


def _reads_only(rule: Rule) -> bool:
    if rule.urls:
        return True
    asked = {kind for group in rule.groups for kind in _QUESTIONS.get(group, ())}
    return bool(rule.groups) and set(rule.groups) <= set(_QUESTIONS) and set(rule.resources) <= {"*", *asked}


def _reads_of(rule: Rule) -> tuple[str, ...]:
    return _READS if "*" in rule.verbs else tuple(verb for verb in rule.verbs if verb in _READS)
