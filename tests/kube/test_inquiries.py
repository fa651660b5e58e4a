"""Who can, what if, what would allow: each against the decisions themselves (AZ11)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kube.authentication.identity import Principal
from kube.authorization import bootstrappolicy, effectivepolicy, escalation, recommendations, whatif, whocan
from kube.authorization.abac import authorize, policy_of
from kube.authorization.decisions import Decision, Verdict
from kube.authorization.effectivepolicy import Policies
from kube.authorization.rbac import NO_OPINION, Attributes, Binding, Role, Rule, Subject, binding_from, role_from
from kube.authorization.rbacindex import PolicyIndex
from kube.requests.labelselectors import parse_labels
from kube.requests.status import BadRequest

VERBS, RESOURCES, USERS, PLACES = (
    ("get", "list", "delete"),
    ("pods", "pods/log", "secrets"),
    ("ann", "ben"),
    ("one", "two"),
)


def some(values: tuple[str, ...]) -> st.SearchStrategy[tuple[str, ...]]:
    return st.lists(st.sampled_from((*values, "*")), min_size=1, max_size=2, unique=True).map(tuple)


RULES = st.lists(
    st.builds(
        Rule, verbs=some(VERBS), groups=st.just(("",)), resources=some(RESOURCES), names=st.sampled_from([(), ("a",)])
    ),
    max_size=2,
).map(tuple)
ROLES = st.builds(Role, name=st.sampled_from(["r", "s"]), rules=RULES)
BINDINGS = st.builds(
    Binding,
    name=st.sampled_from(["b", "c", "d"]),
    namespace=st.sampled_from(["", "one"]),
    role=st.sampled_from(["r", "s", "none"]),
    subjects=st.lists(st.builds(Subject, st.just("User"), st.sampled_from(USERS)), max_size=2).map(tuple),
)
ASKED = st.builds(
    lambda verb, resource, place, name: Attributes(verb, "", resource, resource.partition("/")[2], place, name),
    st.sampled_from(VERBS),
    st.sampled_from(RESOURCES),
    st.sampled_from(("", *PLACES)),
    st.sampled_from(("", "a", "b")),
)


WALL = Decision(Verdict.DENY, recommendations.WALL, "the request is for another tenant's space")
POLICIES = st.builds(
    lambda name, tenant, who, namespace, resource, readonly: {
        "apiVersion": "abac.authorization.kubernetes.io/v1beta1",
        "kind": "Policy",
        "metadata": {"name": name},
        "spec": {"tenant": tenant, **who, "namespace": namespace, "resource": resource, "readonly": readonly},
    },
    st.sampled_from(["x", "y", "z"]),
    st.sampled_from(["o", "p", "*"]),
    st.sampled_from([{"user": "ann"}, {"user": "*"}, {"group": "staff"}, {"user": "ann", "group": "staff"}]),
    st.sampled_from(["*", "", "one"]),
    st.sampled_from(["*", "pods", "secrets"]),
    st.booleans(),
)


def person(name: str, tenant: str = "t", *groups: str) -> Principal:
    return Principal(name=name, tenant=tenant, groups=(*groups, "system:authenticated"), authenticator="test")


def around(index: PolicyIndex, cluster: str = "root:t", system: PolicyIndex | None = None) -> Policies:
    return Policies(cluster, index, system or PolicyIndex.build(), bootstrappolicy.INDEX)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROLES, max_size=3), st.lists(BINDINGS, max_size=4), ASKED)
def test_who_can_names_whoever_a_decision_allows_and_nobody_else(
    roles: list[Role], bindings: list[Binding], asked: Attributes
) -> None:
    """AZ11."""
    policies = around(PolicyIndex.build(roles, bindings))
    named = {holder.name for holder in whocan.who_can(asked, policies) if holder.kind == "User"}
    assert named == {user for user in USERS if effectivepolicy.authorize(person(user), asked, policies).allowed}


@settings(max_examples=60, deadline=None)
@given(st.lists(ROLES, max_size=3), st.lists(BINDINGS, max_size=3), BINDINGS, st.booleans(), ASKED)
def test_what_if_says_what_decisions_will_say(
    roles: list[Role], bindings: list[Binding], change: Binding, delete: bool, asked: Attributes
) -> None:
    """AZ11: gains are what is denied before and allowed after, losses the reverse."""
    before = PolicyIndex.build(roles, bindings)
    manifest = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding" if change.namespace else "ClusterRoleBinding",
        "metadata": {"name": change.name, "namespace": change.namespace},
        "roleRef": {"kind": change.role_kind, "name": change.role},
        "subjects": [{"kind": subject.kind, "name": subject.name} for subject in change.subjects],
    }
    assert binding_from(manifest) == change
    after = before.without_binding(change.namespace, change.name) if delete else before.with_binding(change)
    there = before.bindings.get((change.namespace, change.name))
    if there is not None and there.role != change.role and not delete:
        with pytest.raises(BadRequest, match="roleRef"):
            whatif.effects(manifest, "root:t", before)
        return
    effects = whatif.effects(manifest, "root:t", before, delete=delete)
    for user in USERS:
        was, will = (index.authorize(user, (), asked).allowed for index in (before, after))
        mine = [effect for effect in effects if effect.name == user and effect.namespace in {"", asked.namespace}]
        if was != will:
            found = [rule for effect in mine for rule in (effect.gains if will else effect.losses)]
            assert any(rule.allows(asked) for rule in found)


LABELS = st.sampled_from([{}, {"to": "all"}, {"to": "some"}])
GATHERINGS = st.sampled_from([None, None, (parse_labels("to=all"),), (parse_labels("to"),)])
GATHERED = st.builds(
    lambda role, labels, gathers: replace(role, labels=labels, aggregation=gathers), ROLES, LABELS, GATHERINGS
)
PLACED = ROLES.map(lambda role: replace(role, namespace="one"))
ROLE_BINDINGS = BINDINGS.map(lambda binding: replace(binding, role_kind="Role", namespace="one", name="role"))


@settings(max_examples=120, deadline=None)
@given(
    st.lists(GATHERED | PLACED, max_size=4),
    st.lists(BINDINGS | ROLE_BINDINGS, min_size=1, max_size=4),
    GATHERED | PLACED,
    st.booleans(),
    ASKED,
)
def test_what_if_of_a_role_says_what_decisions_will_say(
    roles: list[Role], bindings: list[Binding], change: Role, delete: bool, asked: Attributes
) -> None:
    """AZ2, AZ11: roles and cluster roles, those that gather others and those that are gathered; never too much."""
    before = PolicyIndex.build(roles, bindings)
    manifest = manifest_of(change)
    assert role_from(manifest) == change
    after = before.without_role(change.namespace, change.name) if delete else before.with_role(change)
    effects = whatif.effects(manifest, "root:t", before, delete=delete)
    for user in USERS:
        was, will = (index.authorize(user, (), asked).allowed for index in (before, after))
        mine = [effect for effect in effects if effect.name == user and effect.namespace in {"", asked.namespace}]
        if was != will:
            found = [rule for effect in mine for rule in (effect.gains if will else effect.losses)]
            assert any(rule.allows(asked) for rule in found)
    for effect in effects:
        for rules, sides in ((effect.gains, (before, after)), (effect.losses, (after, before))):
            held, wanted = (side.rules_for(effect.name, (), effect.namespace) for side in sides)
            assert escalation.covers(held, rules) == escalation.covers((), rules)
            assert escalation.covers(wanted, rules) == []


def manifest_of(role: Role) -> dict[str, Any]:
    metadata = {"name": role.name, "labels": dict(role.labels)}
    rules = [
        {"verbs": rule.verbs, "apiGroups": rule.groups, "resources": rule.resources, "resourceNames": rule.names}
        for rule in role.rules
    ]
    made: dict[str, Any] = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": metadata, "rules": rules}
    if role.namespace:
        return made | {"kind": "Role", "metadata": metadata | {"namespace": role.namespace}}
    if role.aggregation is not None:
        chosen = {"matchLabels": {"to": "all"}}
        if role.aggregation != (parse_labels("to=all"),):
            chosen = {"matchExpressions": [{"key": "to", "operator": "Exists"}]}
        made["aggregationRule"] = {"clusterRoleSelectors": [chosen]}
    return made | {"kind": "ClusterRole"}


@pytest.mark.parametrize("kind", ["Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding"])
def test_what_if_is_about_the_kind_that_is_named(kind: str) -> None:
    """AZ11: a role without its namespace is not taken for one of the whole space."""
    metadata = {"name": "r"} | ({"namespace": "one"} if kind.startswith("Cluster") else {})
    manifest = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": metadata, "rules": []}
    with pytest.raises(BadRequest, match="namespace"):
        whatif.effects(manifest, "root:t", PolicyIndex.build())


@settings(max_examples=120, deadline=None)
@given(st.lists(POLICIES, max_size=3), POLICIES, st.booleans(), ASKED)
def test_what_if_of_a_policy_says_what_decisions_will_say(
    manifests: list[dict[str, Any]], change: dict[str, Any], delete: bool, asked: Attributes
) -> None:
    """AZ7, AZ11: what another policy gives already is no gain, and what one still gives no loss."""
    before = {manifest["metadata"]["name"]: manifest for manifest in manifests}
    after = {**before, change["metadata"]["name"]: change}
    if delete:
        del after[change["metadata"]["name"]]
    was, will = ([policy_of(each, space="t") for each in each_side.values()] for each_side in (before, after))
    effects = whatif.effects(change, "root:t", PolicyIndex.build(), was, delete=delete)
    for effect in effects:
        name, _, group = effect.name.partition(" in ")
        groups = (group,) if group else (name,) if effect.kind == "Group" else ()
        some_one = person(
            name if effect.kind == "User" and name != "*" else "zoe", effect.tenant.replace("*", "q"), *groups
        )
        for rules, sides in ((effect.gains, (was, will)), (effect.losses, (will, was))):
            for rule in rules:
                resource = rule.resources[0].replace("*/", "x/").replace("*", "widgets")
                verb = rule.verbs[0].replace("*", "delete")
                place = effect.namespace.replace("*", "elsewhere")
                of_rule = Attributes(verb, "", resource, resource.partition("/")[2], place)
                without, having = (authorize(some_one, of_rule, "root:t", side).allowed for side in sides)
                assert (without, having) == (False, True)
    # RBAC has no word for all subresources of one resource.
    asked = asked._replace(resource=asked.resource.partition("/")[0], subresource="")
    for name in USERS:
        for tenant in ("o", "p"):
            for groups in ((), ("staff",)):
                who = person(name, tenant, *groups)
                denied, allowed = (authorize(who, asked, "root:t", side).allowed for side in (was, will))
                if denied != allowed:
                    found = [rule for effect in effects for rule in (effect.gains if allowed else effect.losses)]
                    assert any(rule.allows(asked) for rule in found)
    assert whatif.effects(change, "root:t:ws", PolicyIndex.build(), was, delete=delete) == ()


def test_what_if_sees_what_aggregated_roles_become() -> None:
    """AZ2, AZ11: a role that joins another changes what that one's bindings give; what bootstrap gives is no gain."""
    bindings = [Binding("b", "one", "ClusterRole", "view", (Subject("User", "ann"),))]
    index = PolicyIndex.build([], bindings, bootstrap=bootstrappolicy.INDEX)
    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    manifest = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "widgets", "labels": label},
        "rules": [
            {"verbs": ["get"], "apiGroups": ["example.org"], "resources": ["widgets"]},
            {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]},
        ],
    }
    (effect,) = whatif.effects(manifest, "root:t", index)
    assert (effect.kind, effect.name, effect.namespace, effect.losses) == ("User", "ann", "one", ())
    assert [rule.resources for rule in effect.gains] == [("widgets",)]
    (lost,) = whatif.effects(manifest, "root:t", index.with_role(role_from(manifest)), delete=True)
    assert (lost.gains, lost.losses) == ((), effect.gains)
    everybody = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "again"},
        "roleRef": {"kind": "ClusterRole", "name": "system:discovery"},
        "subjects": [{"kind": "Group", "name": "system:authenticated"}],
    }
    assert whatif.effects(everybody, "root:t", index) == ()


def test_what_a_space_closes_of_the_bootstrap_policy_is_a_loss_and_nobody_can_it_any_more() -> None:
    """AZ11, KC7: an own binding or role counts in the place of the one of its name."""
    index = PolicyIndex.build(bootstrap=bootstrappolicy.INDEX)
    asked = Attributes("get", path="/apis", is_resource=False)
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "system:discovery"},
        "roleRef": {"kind": "ClusterRole", "name": "system:discovery"},
        "subjects": [],
    }
    role = {**binding, "kind": "ClusterRole", "rules": []}
    assert "system:authenticated" in {holder.name for holder in whocan.who_can(asked, around(index))}
    changed = index.with_binding(binding_from(binding)), index.with_role(role_from(role))
    for manifest, closed in zip((binding, role), changed, strict=True):
        (effect,) = whatif.effects(manifest, "root:t", index)
        assert (effect.kind, effect.name, effect.gains) == ("Group", "system:authenticated", ())
        assert any(rule.allows(asked) for rule in effect.losses)
        assert not any(rule.allows(Attributes("get", path="/version", is_resource=False)) for rule in effect.losses)
        assert "system:authenticated" not in {holder.name for holder in whocan.who_can(asked, around(closed))}
    with pytest.raises(BadRequest, match="roleRef"):
        whatif.effects({**binding, "roleRef": {"kind": "ClusterRole", "name": "view"}}, "root:t", index)


def test_no_remedy_is_offered_where_a_gate_refuses_what_no_grant_opens() -> None:
    """AZ11."""
    asked = Attributes("get", "", "pods", "", "one", "a")
    for step in ("suspension", "required-groups", "maximal-permission-policy", "initializing-workspaces", "Webhook"):
        assert (
            recommendations.recommend_grants(
                person("ann"), asked, around(PolicyIndex.build()), Decision(Verdict.DENY, step)
            )
            == ()
        )
    nodes = Attributes("get", "", "nodes", "", "", "a")
    assert recommendations.recommend_grants(person("ann"), nodes, around(PolicyIndex.build()), WALL) == ()
    shut = Decision(Verdict.DENY, recommendations.CONTENT)
    index = PolicyIndex.build(bootstrap=bootstrappolicy.INDEX)
    first = recommendations.recommend_grants(person("ann"), asked, around(index, "root:t:ws"), shut)[0]
    assert [each["kind"] for each in first.objects] == ["ClusterRoleBinding", "Role", "RoleBinding"]
    assert first.objects[0]["roleRef"]["name"] == "system:kcp:workspace:access"
    (cross_tenant_target,) = recommendations.recommend_grants(
        person("op", "system"), asked, around(index, "root:t:ws"), shut
    )
    assert {"verbs": ["access"], "nonResourceURLs": ["/"], "tenants": ["t"]} in cross_tenant_target.objects[0]["rules"]


@settings(max_examples=60, deadline=None)
@given(st.lists(ROLES, max_size=3), st.sampled_from(["tenantry:owner", "tenantry:admin", "tenantry:viewer"]), ASKED)
def test_a_remedy_is_for_whoever_may_make_its_objects(roles: list[Role], group: str, asked: Attributes) -> None:
    """AZ2, AZ11: nobody is offered to give away what it does not hold."""
    bindings = [
        Binding(name, "", "ClusterRole", role, (Subject("Group", name),))
        for name, role in (
            ("tenantry:owner", "cluster-admin"),
            ("tenantry:admin", "admin"),
            ("tenantry:viewer", "view"),
        )
    ]
    policies = around(PolicyIndex.build(roles, bindings, bootstrap=bootstrappolicy.INDEX))
    grantor = person("gus", "t", group)
    for remedy in recommendations.recommend_grants(person("ann"), asked, policies, NO_OPINION):
        may = recommendations.may_create(grantor, remedy, policies)
        if group == "tenantry:owner":
            assert may
        if group == "tenantry:viewer" or (group == "tenantry:admin" and not asked.namespace):
            assert not may
        assert recommendations.may_create(person("root", "system", "system:masters"), remedy, policies)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROLES, max_size=3), ASKED)
def test_every_remedy_allows_what_was_refused(roles: list[Role], asked: Attributes) -> None:
    """AZ11."""
    index = PolicyIndex.build(roles)
    offered = recommendations.recommend_grants(person("ann"), asked, around(index), NO_OPINION)
    assert offered
    assert [remedy.permissions for remedy in offered] == sorted(remedy.permissions for remedy in offered)
    for remedy in offered:
        changed = index
        for manifest in remedy.objects:
            if manifest["kind"].endswith("Role"):
                changed = changed.with_role(role_from(manifest))
            else:
                named = {**manifest, "metadata": {**manifest["metadata"], "name": "made"}}
                changed = changed.with_binding(binding_from(named))
        assert effectivepolicy.authorize(person("ann"), asked, around(changed)).allowed


def test_the_remedy_across_the_wall_is_a_policy_and_for_operators_a_role_with_a_reach() -> None:
    """AZ7, AZ9, AZ11."""
    asked = Attributes("get", "", "pods/log", "log", "one", "a")
    (policy,) = recommendations.recommend_grants(person("eve", "other"), asked, around(PolicyIndex.build()), WALL)
    manifest: dict[str, Any] = {**policy.objects[0], "metadata": {"name": "p"}}
    made = policy_of(manifest, space="t")
    assert made.opens("root:t")
    assert made.means(person("eve", "other"))
    assert made.allows(asked)
    assert not made.allows(asked._replace(verb="delete"))
    (role,) = recommendations.recommend_grants(person("op", "system"), asked, around(PolicyIndex.build()), NO_OPINION)
    assert role.cluster == "root"
    system = PolicyIndex.build(
        [role_from(role.objects[0], scoped=True)],
        [binding_from({**role.objects[1], "metadata": {"name": "made"}})],
    )
    op = person("op", "system")
    assert effectivepolicy.authorize(op, asked, around(PolicyIndex.build(), system=system)).allowed
    assert not effectivepolicy.authorize(op, asked, around(PolicyIndex.build(), "root:u", system)).allowed
    assert (
        recommendations.recommend_grants(
            Principal(name="x", tenant=None, authenticator="test"), asked, around(PolicyIndex.build()), NO_OPINION
        )
        == ()
    )
