"""What a change of roles, bindings or policies would change: who gains and who loses what, before it is saved (AZ11)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kube.authorization import abac, escalation
from kube.authorization.abac import ANY, Policy
from kube.authorization.rbac import GROUP, Rule, Subject, binding_from, role_from
from kube.authorization.rbacindex import PolicyIndex
from kube.requests.logicalclusters import ROOT, tenant_of
from kube.requests.names import SYSTEM_TENANT
from kube.requests.status import BadRequest

SUBJECTS_MAX: Final = 500
_ROLES: Final = ("Role", "ClusterRole")
_BINDINGS: Final = ("RoleBinding", "ClusterRoleBinding")


class Effect(NamedTuple):
    """What one subject, taken for itself, gains and loses in a namespace (empty: everywhere in the space)."""

    kind: str
    name: str
    tenant: str
    namespace: str
    gains: tuple[Rule, ...]
    losses: tuple[Rule, ...]


def effects(
    manifest: Mapping[str, Any],
    cluster: str,
    index: PolicyIndex,
    policies: Sequence[Policy] = (),
    *,
    delete: bool = False,
    heed: Callable[[], None] = lambda: None,
) -> tuple[Effect, ...]:
    """Who gains and loses what when this Role, ClusterRole, binding or Policy is written, or deleted, in the cluster.

    ``index`` is the cluster's as it is, ``policies`` are all that could open it. Raises ``BadRequest`` for any other
    object, for one without the namespace that its kind has, for a binding with another role than it has, and where too
    many subjects are concerned to be listed. ``heed`` is called between any two of what is looked at: it may give up.
    """
    kind, group = manifest.get("kind"), str(manifest.get("apiVersion") or "").partition("/")[0]
    if kind == "Policy" and group == abac.GROUP:
        return _of_policies(policies, _with_policy(policies, manifest, cluster, delete=delete), cluster, heed)
    if group != GROUP or kind not in (*_ROLES, *_BINDINGS):
        raise BadRequest("a role, a binding or a policy is needed")
    namespace = (manifest.get("metadata") or {}).get("namespace")
    if bool(namespace) is kind.startswith("Cluster"):
        raise BadRequest(f"a {kind} {'has no' if namespace else 'needs a'} namespace")
    return _of_indexes(index, _with(index, manifest, str(kind), cluster, delete=delete), cluster, heed)


def _with(index: PolicyIndex, manifest: Mapping[str, Any], kind: str, cluster: str, *, delete: bool) -> PolicyIndex:
    if kind in _ROLES:
        role = role_from(manifest, scoped=cluster == ROOT)
        return index.without_role(role.namespace, role.name) if delete else index.with_role(role)
    binding = binding_from(manifest)
    if delete:
        return index.without_binding(binding.namespace, binding.name)
    before = index.in_force.get((binding.namespace, binding.name))
    if before is not None and (before.role_kind, before.role) != (binding.role_kind, binding.role):
        raise BadRequest("cannot change roleRef")
    return index.with_binding(binding)


def _of_indexes(before: PolicyIndex, after: PolicyIndex, cluster: str, heed: Callable[[], None]) -> tuple[Effect, ...]:
    concerned: dict[tuple[str, str, str], None] = {}
    in_force = before.in_force, after.in_force
    for key in dict.fromkeys((*in_force[0], *in_force[1])):
        heed()
        sides = []
        for index, bindings in zip((before, after), in_force, strict=True):
            binding = bindings.get(key)
            rules = index.rules_of(binding.role_kind, binding.namespace, binding.role) if binding else None
            sides.append((binding, rules or ()))
        if sides[0] == sides[1]:
            continue
        for binding, _ in sides:
            for subject in binding.subjects if binding is not None else ():
                concerned[*_who(subject, binding.namespace if binding else ""), key[0]] = None
        if len(concerned) > SUBJECTS_MAX:
            raise BadRequest("too many subjects are concerned to be listed")
    found = []
    for kind, name, namespace in concerned:
        heed()
        user, groups = (name, ()) if kind == "User" else ("", (name,))
        held, wanted = (index.rules_for(user, groups, namespace) for index in (before, after))
        effect = Effect(kind, name, tenant_of(cluster), namespace, _compact(held, wanted), _compact(wanted, held))
        if effect.gains or effect.losses:
            found.append(effect)
    return tuple(found)


def _who(subject: Subject, namespace: str) -> tuple[str, str]:
    return ("Group", subject.name) if subject.kind == "Group" else ("User", subject.user_name(namespace))


def _with_policy(
    policies: Sequence[Policy], manifest: Mapping[str, Any], cluster: str, *, delete: bool
) -> tuple[Policy, ...]:
    try:
        policy = abac.policy_of(manifest, space=tenant_of(cluster) if cluster != ROOT else SYSTEM_TENANT)
    except abac.InvalidPolicy as error:
        raise BadRequest(f"the policy is not valid: {error}") from None
    rest = tuple(other for other in policies if other.source != policy.source)
    return rest if delete else (*rest, policy)


def _of_policies(
    before: Sequence[Policy], after: Sequence[Policy], cluster: str, heed: Callable[[], None]
) -> tuple[Effect, ...]:
    """Whom the policies that differ let in, with what all policies together give them before and after."""
    before, after = ([policy for policy in policies if policy.opens(cluster)] for policies in (before, after))
    found = []
    for policy in before + after:
        heed()
        if policy in before and policy in after:
            continue
        held, wanted = (_given(policies, policy) for policies in (before, after))
        effect = Effect(
            *policy.subject, policy.tenant, policy.namespace, _compact(held, wanted), _compact(wanted, held)
        )
        if effect.gains or effect.losses:
            found.append(effect)
    return tuple(dict.fromkeys(found))


def _given(policies: Iterable[Policy], to: Policy) -> list[Rule]:
    """The rules that policies give, in the namespace of ``to``, to everybody whom ``to`` means."""
    return [
        rule
        for policy in policies
        if policy.tenant in {ANY, to.tenant} and _means_all_of(policy, to)
        for rule in policy.rules()
        if rule.urls or policy.namespace in {ANY, to.namespace}
    ]


def _means_all_of(policy: Policy, to: Policy) -> bool:
    return policy.user in {"", ANY, to.user} and policy.group in {"", ANY, to.group}


def _compact(held: Sequence[Rule], wanted: Sequence[Rule]) -> tuple[Rule, ...]:
    return tuple(escalation.compact(escalation.covers(held, wanted)))
