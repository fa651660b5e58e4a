"""Everybody who may do a thing, each with the path of objects by which (AZ11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final, NamedTuple

from kube.authentication.identity import MASTERS
from kube.authorization.abac import Policy
from kube.authorization.effectivepolicy import Policies
from kube.authorization.rbac import Attributes, Binding, in_order
from kube.authorization.rbacindex import PolicyIndex, TargetTenant
from kube.requests.logicalclusters import tenant_of
from kube.requests.names import SYSTEM_TENANT

HOLDERS_MAX: Final = 5000
"""Answers of one question; a tenant writes its bindings itself."""


class Holder(NamedTuple):
    """A subject that may, of which tenant (``*``: any), and by what: binding and role, policy, or a built-in step."""

    kind: str
    name: str
    namespace: str
    tenant: str
    path: tuple[str, ...]


def who_can(
    attributes: Attributes,
    policies: Policies,
    grants: Iterable[Policy] = (),
    further: Iterable[Holder] = (),
    *,
    heed: Callable[[], None] = lambda: None,
) -> tuple[Holder, ...]:
    """Every subject that may do this in the cluster of ``policies``, operators included; locks aside.

    ``grants`` are the lines and policies that let others in, ``further`` who may by other modes. Groups are
    named as such: who is in them is the authenticators' to say. ``heed`` is called between any two that are looked at:
    it may give up.
    """
    found: dict[Holder, None] = {}
    for holder in chain(_holders(attributes, policies, grants, heed), further):
        found[holder] = None
        if len(found) >= HOLDERS_MAX:
            break
    return tuple(found)


def _holders(
    attributes: Attributes, policies: Policies, grants: Iterable[Policy], heed: Callable[[], None]
) -> Iterator[Holder]:
    owner = tenant_of(policies.cluster)
    yield Holder("Group", MASTERS, "", SYSTEM_TENANT, ("system-masters",))
    own = TargetTenant(SYSTEM_TENANT) if owner == SYSTEM_TENANT else None
    yield from _bound(attributes, policies.local, owner, own, heed)
    if owner != SYSTEM_TENANT:
        everywhere = attributes._replace(namespace="")
        for index in (policies.system, policies.system.bootstrap):
            # What the operators have put in its place for themselves counts in their space alone.
            if index is not None:
                yield from _bound(everywhere, index, SYSTEM_TENANT, TargetTenant(owner, policies.labels), heed)
    for policy in grants:
        heed()
        if policy.opens(policies.cluster) and policy.allows(attributes):
            yield Holder(*policy.subject, "", policy.tenant, (policy.source,))


def _bound(
    attributes: Attributes, index: PolicyIndex, tenant: str, target: TargetTenant | None, heed: Callable[[], None]
) -> Iterator[Holder]:
    labels = dict(target.labels) if target is not None else {}
    for binding in in_order(index.in_force.values(), attributes.namespace):
        heed()
        rules = index.rules_of(binding.role_kind, binding.namespace, binding.role) or ()
        if not any(
            (target is None or rule.scope.includes(target.tenant, labels)) and rule.allows(attributes) for rule in rules
        ):
            continue
        for subject in binding.subjects:
            if (tenant, subject.kind, subject.name) == (SYSTEM_TENANT, "Group", MASTERS):
                continue  # These need no binding, and are named already.
            if subject.kind == "Group" or subject.user_name(binding.namespace):
                namespace = (subject.namespace or binding.namespace) if subject.kind == "ServiceAccount" else ""
                yield Holder(subject.kind, subject.name, namespace, tenant, _path(binding))


def _path(binding: Binding) -> tuple[str, ...]:
    kind = "RoleBinding" if binding.namespace else "ClusterRoleBinding"
    where = f"{binding.namespace}/" if binding.namespace else ""
    of = f"{binding.namespace}/" if binding.role_kind == "Role" else ""
    return f"{kind} {where}{binding.name}", f"{binding.role_kind} {of}{binding.role}"
