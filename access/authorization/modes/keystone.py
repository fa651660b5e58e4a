"""Keystone's role assignments as role bindings, decided per request (AN7, AN10; ACCESS, integration with Keystone).

A token does not say which roles its user has, and they differ by scope. So nothing about roles is part of the identity:
the request's scope decides which scope Keystone is asked about, and the roles it names there act as if they were bound
to the user in that place, for that request.

==================================  ==========================  ======================================
the request is about                Keystone is asked about     a role ``r`` acts as if bound by
==================================  ==========================  ======================================
the system space                    the system                  a ClusterRoleBinding of the system space
a tenant's space                    the tenant's domain         a ClusterRoleBinding of that space
namespace ``n`` of a space          project ``n`` of the domain  a RoleBinding in ``n``
==================================  ==========================  ======================================

The role is the Role ``r`` of the namespace, or else the ClusterRole ``r`` of the space. Keystone's own ``member`` and
``reader`` are Kubernetes' ``edit`` and ``view``. Keystone only ever adds: where it gives no role, or no answer, the
other authorizers still have their say; and the wall between tenants stands before this step like before any other.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Final

from access.authentication.keystone import CREDENTIAL_PREFIX, KeystoneAuthenticator
from access.authentication.keystoneclient import Domains, Keystone
from access.authorization.base import allow, no_opinion, passes
from access.outsidebudget import Unreachable
from kube.authentication.identity import Principal
from kube.authentication.keystone import scope_of
from kube.authorization.decisions import Decision
from kube.authorization.rbac import Attributes
from kube.authorization.rbacindex import PolicyIndex
from kube.requests.logicalclusters import ROOT
from kube.requests.names import SYSTEM_TENANT
from kube.requests.requestinfo import RequestInfo

ROLE_NAMES: Final[Mapping[str, str]] = MappingProxyType({"member": "edit", "reader": "view"})
"""Keystone's default roles, and what Kubernetes calls them; any other name is the same on both sides."""

STEP: Final = "Keystone"
_NOT_BY_KEYSTONE: Final = passes(STEP, "the user did not come by Keystone")


class KeystoneAuthorizer:
    """ALLOW by a role that Keystone assigns to the caller in the request's scope; otherwise no opinion.

    ``policy_of`` gives the compiled RBAC of a logical cluster, where the roles' rules are.
    """

    name = STEP

    def __init__(
        self,
        keystone: Keystone,
        domains: Domains,
        policy_of: Callable[[str], Awaitable[PolicyIndex]],
        *,
        role_names: Mapping[str, str] = ROLE_NAMES,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._keystone = keystone
        self._domains = domains
        self._policy_of = policy_of
        self._role_names = role_names
        self._clock = clock

    def decide(self, principal: Principal, request: RequestInfo) -> Decision | None:  # noqa: ARG002
        """No opinion on whoever did not come by Keystone, without waiting."""
        return _NOT_BY_KEYSTONE if principal.authenticator != KeystoneAuthenticator.name else None

    async def authorize(self, principal: Principal, request: RequestInfo) -> Decision:
        """ALLOW with the Keystone role and the rule, or no opinion."""
        if principal.authenticator != KeystoneAuthenticator.name:
            return _NOT_BY_KEYSTONE
        scope = scope_of(request, self._domains.domain_of(request.tenant))
        if scope is None:
            return passes(self.name, "Keystone has no say in this scope")
        audit_id = principal.credential_id.removeprefix(CREDENTIAL_PREFIX)
        try:
            roles = await self._keystone.roles(audit_id, principal.uid, scope, self._clock())
        except Unreachable:
            return no_opinion(self.name, "Keystone does not answer")
        for role in roles:
            rule = _allowing(await self._policy_of(request.cluster), request, self._role_names.get(role, role))
            if rule is not None:
                return allow(self.name, f'Keystone role "{role}" in {scope}', rule)
        return no_opinion(self.name, f"no Keystone role in {scope} allows this")


def _allowing(policy: PolicyIndex, request: RequestInfo, name: str) -> str | None:
    """The role of this name where the request is, when one of its rules allows the request."""
    kind = "Role"
    rules = policy.rules_of(kind, request.namespace, name) if request.namespace else None
    if rules is None:
        kind = "ClusterRole"
        rules = policy.rules_of(kind, "", name) or ()
    attributes = Attributes.of(request)
    for rule in rules:
        if rule.allows(attributes) and (request.cluster != ROOT or rule.scope.includes(SYSTEM_TENANT, {})):
            return f'{kind} "{name}"'
    return None
