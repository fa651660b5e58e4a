"""Nobody gives away what they do not hold: writes of roles and bindings (AZ2), and of policies (AZ7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from access.admission.base import CREATE, DELETE, UPDATE, Attributes, NoopPlugin
from access.authorization.base import EVERYTHING
from access.authorization.chain import AuthorizationChain
from access.authorization.modes.rbac import PolicyCache
from kube.authentication.identity import is_masters
from kube.authorization import abac, effectivepolicy, escalation
from kube.authorization.rbac import GROUP, TENANTED, binding_from, role_from
from kube.authorization.rbacindex import PolicyIndex
from kube.requests.logicalclusters import ROOT, tenant_of
from kube.requests.status import NotFound
from store.garbagecollection import gains_owners
from store.types import Operation

_UPKEEP: Final = frozenset({"finalizers", "generation", "managedFields", "ownerReferences", "resourceVersion"})
_POLICIES: Final = (abac.GROUP, "policies")
_GIVING: Final = frozenset(
    {_POLICIES} | {(GROUP, plural) for plural in ("roles", "clusterroles", "rolebindings", "clusterrolebindings")}
)
_ANYTHING: Final = EVERYTHING
_ANYTHING_HERE: Final = tuple(replace(rule, scope=TENANTED) for rule in EVERYTHING)


class EscalationPrevention(NoopPlugin):
    """A role holds no rule, and a binding gives no role, that its author does not hold there.

    One in the place of one of the bootstrap policy (KC7) is for whoever may update that: it changes what others hold. Where
    it goes, or is given an owner to go with, that one is back: so only whoever could write or bind that there may do so.

    Exempt is who may ``escalate`` roles, or ``bind`` the role.
    """

    name = "EscalationPrevention"
    kinds = _GIVING

    def __init__(self, policies: PolicyCache, authorization: AuthorizationChain) -> None:
        self._policies = policies
        self._authorization = authorization

    async def validate(self, attributes: Attributes) -> Sequence[Operation]:
        """Raises ``Forbidden``, or ``NotFound`` for a role to bind, in kube-apiserver's words."""
        resource, body, old = attributes.resource, attributes.object, attributes.old
        if attributes.operation == DELETE or (old is not None and gains_owners(old, body)):
            await self._check_what_is_back(attributes)
        if body is None or attributes.operation not in (CREATE, UPDATE):
            return ()
        if attributes.place == _POLICIES:
            await self._check_policy(attributes, body)
            return ()
        principal = attributes.principal
        if is_masters(principal):
            return ()
        is_role = resource.plural in ("roles", "clusterroles")
        # Labels count: they say which aggregated roles a role's rules flow into.
        if old is not None and _without_upkeep(old) == _without_upkeep(body):
            return ()
        policies = await self._policies.policies_for(attributes.cluster)
        scoped = attributes.cluster == ROOT
        hides = old is None and _is_shared(policies.bootstrap, attributes)
        # What is shared would count here no more: to hide it is to change it.
        if hides and not await self._may(attributes, "update", resource.plural, attributes.name):
            raise attributes.forbidden("it would take the place of one of the bootstrap policy, which needs update")
        if is_role:
            # A creation has no name yet, as everywhere in Kubernetes: rules with resourceNames do not mean it.
            verb, kind, name = "escalate", resource.plural, attributes.info.name
            role = role_from(body, scoped=scoped)
            wanted = policies.local.with_role(role).rules_of(resource.kind, attributes.namespace, attributes.name) or ()
        else:
            binding = binding_from(body)
            kind = "clusterroles" if binding.role_kind == "ClusterRole" else "roles"
            verb, name = "bind", binding.role
            found = policies.local.rules_of(binding.role_kind, attributes.namespace, binding.role)
            if found is None:
                # A role that is not there yet could be anything one day: only who may bind it may name it.
                if await self._may(attributes, verb, kind, name):
                    return ()
                raise NotFound(f'{kind}.{GROUP} "{name}" not found', group=GROUP, kind=kind, name=name)
            wanted = found
        held = effectivepolicy.held_rules(principal, attributes.namespace, policies)
        missing = escalation.covers(held, wanted)
        gathers = is_role and any((role or {}).get("aggregationRule") for role in (old, body))
        # Whoever lets a role gather others' rules lets it gather those that are still to come.
        everything = gathers and escalation.covers(held, _ANYTHING if scoped else _ANYTHING_HERE)
        if (missing or everything) and not await self._may(attributes, verb, kind, name):
            if everything:
                raise attributes.forbidden("must have cluster-admin privileges to use the aggregationRule")
            raise attributes.forbidden(escalation.refusal(principal.name, principal.groups, missing))
        return ()

    async def _check_what_is_back(self, attributes: Attributes) -> None:
        """What it hides counts again without it, as if it were written, and is judged as that would be."""
        principal, resource, name = attributes.principal, attributes.resource, attributes.name
        if is_masters(principal) or attributes.place == _POLICIES:
            return
        policies = await self._policies.policies_for(attributes.cluster)
        if not _is_shared(policies.bootstrap, attributes):
            return
        if resource.plural == "clusterroles":
            verb, kind = "escalate", resource.plural
            wanted = policies.local.without_role("", name).rules_of(resource.kind, "", name)
        else:
            binding = policies.bootstrap.bindings[attributes.namespace, name]
            # The policy binds nothing but its ClusterRoles.
            verb, kind, name = "bind", "clusterroles", binding.role
            wanted = policies.local.rules_of(binding.role_kind, "", name)
        held = effectivepolicy.held_rules(principal, attributes.namespace, policies)
        missing = escalation.covers(held, wanted or ())
        if missing and not await self._may(attributes, verb, kind, name):
            raise attributes.forbidden(escalation.refusal(principal.name, principal.groups, missing))

    async def _check_policy(self, attributes: Attributes, body: dict[str, Any]) -> None:
        principal, old = attributes.principal, attributes.old
        if is_masters(principal) or (old is not None and old["spec"] == body["spec"]):
            return
        policy = abac.policy_of(body, space=tenant_of(attributes.cluster))
        namespace = "" if policy.namespace == "*" else policy.namespace
        held = effectivepolicy.held_rules(principal, namespace, await self._policies.policies_for(attributes.cluster))
        missing = escalation.covers(held, policy.rules())
        if missing and not await self._may(attributes, "escalate", attributes.resource.plural, attributes.info.name):
            raise attributes.forbidden(escalation.refusal(principal.name, principal.groups, missing))

    async def _may(self, attributes: Attributes, verb: str, resource: str, name: str) -> bool:
        info = replace(attributes.info, verb=verb, resource=resource, name=name, subresource="")
        return (await self._authorization.authorize(attributes.principal, info)).allowed


def _is_shared(bootstrap: PolicyIndex, attributes: Attributes) -> bool:
    """Whether the bootstrap policy has a role or binding of the kind and name of what is asked about."""
    kind, namespace, name = attributes.resource.kind, attributes.namespace, attributes.name
    return bootstrap.rules_of(kind, namespace, name) is not None or (
        kind.endswith("Binding") and (namespace, name) in bootstrap.bindings
    )


def _without_upkeep(body: dict[str, Any]) -> dict[str, Any]:
    """An object without what garbage collection and bookkeeping change."""
    metadata = {name: value for name, value in body["metadata"].items() if name not in _UPKEEP}
    return {**body, "metadata": metadata}
