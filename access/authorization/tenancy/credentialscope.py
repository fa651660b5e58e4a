"""A credential for one namespace opens nothing else, whatever its owner may do there (D9)."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from access.authorization.base import NO_RULES, RuleSet, deny, passes
from kube.authentication.identity import Principal
from kube.authorization.decisions import Decision
from kube.requests.logicalclusters import ClusterKind, space_of
from kube.requests.requestinfo import RequestInfo

STEP: Final = "credential-scope"
_EVERYWHERE: Final = passes(STEP, "the credential is not for one namespace alone")
_INSIDE: Final = passes(STEP, "the request is for what the credential is for")
_ABOUT_ONESELF: Final = frozenset(
    {
        ("authentication.k8s.io", "selfsubjectreviews"),
        ("authorization.k8s.io", "selfsubjectaccessreviews"),
        ("authorization.k8s.io", "selfsubjectrulesreviews"),
    }
)


class CredentialScope:
    """Denies what is outside of the namespace that the credential is for; discovery and questions about oneself pass.

    The rights are the person's own, given by any binding: it is the credential that reaches no further.
    """

    name = STEP

    def applies_to(self, *, operator: bool, cluster_kind: ClusterKind) -> bool:  # noqa: ARG002
        """Only tenants' users."""
        return not operator

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """DENY outside, otherwise no opinion."""
        return self.decide(principal, request)

    def decide(self, principal: Principal, request: RequestInfo) -> Decision:
        """The same, without waiting."""
        if not principal.namespace:
            return _EVERYWHERE
        if self._at_home(principal, request.cluster) and (
            not request.is_resource
            or request.namespace == principal.namespace
            or (request.group, request.resource) in _ABOUT_ONESELF
        ):
            return _INSIDE
        return deny(self.name, f"this credential is for the namespace {principal.namespace} alone")

    async def rules_for(self, principal: Principal, cluster: str, namespace: str) -> RuleSet:  # noqa: ARG002
        """No rules: this step only refuses."""
        return NO_RULES

    async def filter_rules(self, held: RuleSet, principal: Principal, cluster: str, namespace: str) -> RuleSet:
        """Outside, only what is no resource is left."""
        if not principal.namespace or (self._at_home(principal, cluster) and namespace == principal.namespace):
            return held
        rules = tuple(rule for rule in held.rules if rule.urls) if self._at_home(principal, cluster) else ()
        return replace(held, rules=rules)

    def _at_home(self, principal: Principal, cluster: str) -> bool:
        return principal.tenant is not None and cluster == space_of(principal.tenant)
