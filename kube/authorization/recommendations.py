"""The smallest grants that would allow a refused request (AZ11): for those who may grant them, to choose from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kube.authentication.identity import ACCESS_GROUPS, SERVICE_ACCOUNT_PREFIX, Principal, is_masters
from kube.authorization import abac, effectivepolicy, escalation
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.effectivepolicy import Policies
from kube.authorization.rbac import GROUP, Attributes, role_from
from kube.requests.logicalclusters import ROOT, space_of
from kube.requests.names import SYSTEM_TENANT

EXISTING_MAX: Final = 2
"""Existing roles that are offered: those with the fewest permissions beside the wanted one."""

_READ: Final = ("get", "list", "watch")
WALL: Final = "tenant-isolation"
CONTENT: Final = "workspace-content"
"""The steps whose refusal a grant can lift."""


@dataclass(frozen=True, slots=True)
class Recommendation:
    """Objects to create in a logical cluster; ``permissions`` is how many single permissions that hands out."""

    text: str
    cluster: str
    objects: tuple[Mapping[str, Any], ...]
    permissions: int


def recommend_grants(
    principal: Principal, attributes: Attributes, policies: Policies, decision: Decision
) -> tuple[Recommendation, ...]:
    """What would allow this, smallest first; ``decision`` is the refusal.

    Nothing for whoever belongs to no tenant, whom no grant means; and nothing where a gate refuses what no grant opens:
    a lock, an operators' resource, required groups, a provider's limit.
    """
    owner = policies.owner
    foreign = principal.tenant not in {owner, SYSTEM_TENANT}
    enters = decision.step == CONTENT
    if principal.tenant is None or (
        decision.verdict is Verdict.DENY and not enters and not (foreign and decision.step == WALL)
    ):
        return ()
    if principal.tenant == owner:
        if not effectivepolicy.may_be_bound_in(principal, policies.cluster):
            # A binding here would mean the account of the same name that lives here.
            return ()
        found = sorted(_bindings(principal, attributes, policies), key=lambda remedy: remedy.permissions)
        return tuple(_entering(principal, remedy) for remedy in found) if enters else tuple(found)
    if principal.tenant == SYSTEM_TENANT:
        return (_from_afar(principal, attributes, owner, enters=enters),)
    return (_policy(principal, attributes, policies.cluster),) if policies.cluster == space_of(owner) else ()


def may_create(grantor: Principal, remedy: Recommendation, policies: Policies) -> bool:
    """Whether the rules around ``remedy.cluster`` let somebody make these objects: create them, and give that away.

    The same questions as admission asks (AZ2, AZ7); what other modes than RBAC would allow does not count.
    """
    if is_masters(grantor):
        return True
    local = policies.local
    for manifest in remedy.objects:
        kind, metadata = manifest["kind"], manifest["metadata"]
        namespace = metadata.get("namespace", "")
        group, plural = (abac.GROUP, "policies") if kind == "Policy" else (GROUP, f"{kind.lower()}s")
        verb, where = "escalate", plural
        if kind == "Policy":
            policy = abac.policy_of(manifest, space=policies.owner)
            wanted, within = policy.rules(), policy.namespace.removeprefix(abac.ANY)
        elif kind.endswith("Role"):
            role = role_from(manifest, scoped=policies.cluster == ROOT)
            local = local.with_role(role)
            wanted, within = role.rules, namespace
        else:
            reference = manifest["roleRef"]
            verb, where = "bind", f"{reference['kind'].lower()}s"
            wanted, within = local.rules_of(reference["kind"], namespace, reference["name"]) or (), namespace
        # What is yet to be made has no name to escalate by.
        name = manifest["roleRef"]["name"] if verb == "bind" else ""
        create, give = (
            Attributes("create", group, plural, namespace=namespace),
            Attributes(verb, group, where, namespace=namespace, name=name),
        )
        if not effectivepolicy.authorize(grantor, create, policies).allowed:
            return False
        held = effectivepolicy.held_rules(grantor, within, policies)
        if escalation.covers(held, wanted) and not effectivepolicy.authorize(grantor, give, policies).allowed:
            return False
    return True


def _entering(principal: Principal, remedy: Recommendation) -> Recommendation:
    """The same for whoever has to be let into the workspace first."""
    access = _binding(principal, "ClusterRole", ACCESS_GROUPS[0], "")
    return replace(
        remedy,
        text=f"Let the user into the workspace. {remedy.text}",
        objects=(access, *remedy.objects),
        permissions=remedy.permissions + 1,
    )


def _bindings(principal: Principal, attributes: Attributes, policies: Policies) -> Iterator[Recommendation]:
    namespace = attributes.namespace if attributes.is_resource else ""
    named = [("ClusterRole", "", name) for name in policies.local.cluster_roles]
    named += [("Role", where, name) for where, name in policies.local.roles if where == namespace and namespace]
    sized = []
    for kind, where, name in named:
        rules = policies.local.rules_of(kind, where, name) or ()
        reaching = [rule for rule in rules if policies.cluster != ROOT or rule.scope.includes(SYSTEM_TENANT, {})]
        if any(rule.allows(attributes) for rule in reaching):
            sized.append((sum(map(escalation.size, reaching)) + _wildcards(reaching), kind, name))
    place = f"in namespace {namespace}" if namespace else "in the whole space"
    for size, kind, name in sorted(sized)[:EXISTING_MAX]:
        text = f"Bind the {kind} “{name}” {place}."
        yield Recommendation(text, policies.cluster, (_binding(principal, kind, name, namespace),), size)
    role = _role(attributes, namespace)
    text = f"Make a role for exactly this, and bind it {place}."
    made = _binding(principal, role["kind"], role["metadata"]["name"], namespace)
    yield Recommendation(text, policies.cluster, (role, made), 1)


def _wildcards(rules: Any) -> int:
    """A star counts as many: it covers what nobody has thought of yet."""
    return 1000 * sum("*" in part for rule in rules for part in (rule.verbs, rule.groups, rule.resources, rule.urls))


def _rule(attributes: Attributes) -> dict[str, Any]:
    if not attributes.is_resource:
        return {"verbs": [attributes.verb], "nonResourceURLs": [attributes.path]}
    rule: dict[str, Any] = {
        "verbs": [attributes.verb],
        "apiGroups": [attributes.group],
        "resources": [attributes.resource],
    }
    if attributes.name and attributes.verb not in ("create", "deletecollection"):
        rule["resourceNames"] = [attributes.name]
    return rule


def _role(attributes: Attributes, namespace: str, **scope: Any) -> dict[str, Any]:
    what = attributes.resource.replace("/", "-") if attributes.is_resource else "url"
    metadata = {"name": f"{attributes.verb}-{what}"} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "Role" if namespace else "ClusterRole",
        "metadata": metadata,
        "rules": [_rule(attributes) | scope],
    }


def _binding(principal: Principal, kind: str, role: str, namespace: str) -> dict[str, Any]:
    metadata = {"generateName": f"{role}-"} | ({"namespace": namespace} if namespace else {})
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": {"apiGroup": GROUP, "kind": kind, "name": role},
        "subjects": [_subject(principal)],
    }


def _subject(principal: Principal) -> dict[str, str]:
    if principal.name.startswith(SERVICE_ACCOUNT_PREFIX):
        namespace, _, name = principal.name[len(SERVICE_ACCOUNT_PREFIX) :].partition(":")
        return {"kind": "ServiceAccount", "namespace": namespace, "name": name}
    return {"apiGroup": GROUP, "kind": "User", "name": principal.name}


def _from_afar(principal: Principal, attributes: Attributes, owner: str, *, enters: bool) -> Recommendation:
    role = _role(attributes, "", tenants=[owner])
    if enters:
        role["rules"].append({"verbs": ["access"], "nonResourceURLs": ["/"], "tenants": [owner]})
    made = _binding(principal, "ClusterRole", role["metadata"]["name"], "")
    text = f"Make a role of the system space that reaches {owner}, and bind it."
    return Recommendation(text, ROOT, (role, made), len(role["rules"]))


def _policy(principal: Principal, attributes: Attributes, cluster: str) -> Recommendation:
    spec: dict[str, Any] = {"tenant": principal.tenant, "user": principal.name}
    if attributes.is_resource:
        spec |= {"apiGroup": attributes.group, "resource": attributes.resource.partition("/")[0]}
        if attributes.namespace:
            spec["namespace"] = attributes.namespace
    else:
        spec["nonResourcePath"] = attributes.path
    if attributes.verb in _READ and attributes.subresource not in abac.STREAMS:
        spec["readonly"] = True
    manifest = {
        "apiVersion": abac.API_VERSION,
        "kind": "Policy",
        "metadata": {"generateName": f"{principal.tenant}-"},
        "spec": spec,
    }
    permissions = 3 if spec.get("readonly") else 1000
    return Recommendation("Let the user in by a policy of this tenant.", cluster, (manifest,), permissions)
