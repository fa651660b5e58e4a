"""Who can, what if, what would allow: each against the decisions themselves (AZ11)."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kube import bootstrap, remedies, spacepolicy, whatif, whocan
from kube.abac import policy_of
from kube.identity import Principal
from kube.rbac import Attributes, Binding, Role, Rule, Subject, binding_from, role_from
from kube.rbacindex import PolicyIndex
from kube.spacepolicy import Policies

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


def person(name: str, tenant: str = "t") -> Principal:
    return Principal(name=name, tenant=tenant, authenticator="test")


def around(index: PolicyIndex, cluster: str = "root:t", system: PolicyIndex | None = None) -> Policies:
    return Policies(cluster, index, system or PolicyIndex.build(), bootstrap.INDEX)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROLES, max_size=3), st.lists(BINDINGS, max_size=4), ASKED)
def test_who_can_names_whoever_a_decision_allows_and_nobody_else(
    roles: list[Role], bindings: list[Binding], asked: Attributes
) -> None:
    """AZ11."""
    policies = around(PolicyIndex.build(roles, bindings))
    named = {holder.name for holder in whocan.who_can(asked, policies) if holder.kind == "User"}
    assert named == {user for user in USERS if spacepolicy.authorize(person(user), asked, policies).allowed}


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
    effects = whatif.effects(manifest, "root:t", before, delete=delete)
    for user in USERS:
        was, will = (index.authorize(user, (), asked).allowed for index in (before, after))
        mine = [effect for effect in effects if effect.name == user and effect.namespace in {"", asked.namespace}]
        if was != will:
            found = [rule for effect in mine for rule in (effect.gains if will else effect.losses)]
            assert any(rule.allows(asked) for rule in found)


@settings(max_examples=60, deadline=None)
@given(st.lists(ROLES, max_size=3), ASKED)
def test_every_remedy_allows_what_was_refused(roles: list[Role], asked: Attributes) -> None:
    """AZ11."""
    index = PolicyIndex.build(roles)
    offered = remedies.remedies(person("ann"), asked, around(index))
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
        assert spacepolicy.authorize(person("ann"), asked, around(changed)).allowed


def test_the_remedy_across_the_wall_is_a_policy_and_for_operators_a_role_with_a_reach() -> None:
    """AZ7, AZ9, AZ11."""
    asked = Attributes("get", "", "pods/log", "log", "one", "a")
    (policy,) = remedies.remedies(person("eve", "other"), asked, around(PolicyIndex.build()))
    manifest: dict[str, Any] = {**policy.objects[0], "metadata": {"name": "p"}}
    made = policy_of(manifest, space="t")
    assert made.opens("root:t")
    assert made.means(person("eve", "other"))
    assert made.allows(asked)
    assert not made.allows(asked._replace(verb="delete"))
    (role,) = remedies.remedies(person("op", "system"), asked, around(PolicyIndex.build()))
    assert role.cluster == "root"
    system = PolicyIndex.build(
        [role_from(role.objects[0], scoped=True)],
        [binding_from({**role.objects[1], "metadata": {"name": "made"}})],
    )
    op = person("op", "system")
    assert spacepolicy.authorize(op, asked, around(PolicyIndex.build(), system=system)).allowed
    assert not spacepolicy.authorize(op, asked, around(PolicyIndex.build(), "root:u", system)).allowed
    assert (
        remedies.remedies(Principal(name="x", tenant=None, authenticator="test"), asked, around(PolicyIndex.build()))
        == ()
    )
