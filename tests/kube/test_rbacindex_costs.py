"""What a tenant's roles and bindings cost everybody else, however many there are: nothing that grows with them (DOS-03)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from kube.authorization.rbac import Attributes, Binding, Role, Rule, Subject, aggregate
from kube.authorization.rbacindex import GRANTS_MAX, RULES_MAX, PolicyIndex
from kube.requests.labelselectors import parse_labels
from kube.validation.listlimits import BOUNDS, MEMBERS_MAX
from tests.effort import effort

READ = Rule(("get",), ("",), ("pods",))
ASKED = Attributes("get", "", "pods", namespace="a")
ONE = 40
"""Pieces of work for one step, which takes about one where nothing grows; with what is there it took hundreds."""


def everybody(name: str, subjects: int = 1, namespace: str = "a", group: str = "g") -> Binding:
    """A binding that names one group, as often as it likes."""
    return Binding(name, namespace, "ClusterRole", "reader", (Subject("Group", group),) * subjects)


def crowded(bindings: Iterable[Binding]) -> PolicyIndex:
    return PolicyIndex.build([Role("reader", rules=(READ,))], bindings)


def test_who_is_named_by_a_binding_again_and_again_is_granted_it_once() -> None:
    index = crowded([everybody("b", MEMBERS_MAX)])
    assert {subject: len(grants) for subject, grants in index.subjects.items()} == {("Group", "g", "a"): 1}
    assert index.authorize("u", ("g",), ASKED).allowed
    assert not index.without_binding("a", "b").subjects


CHANGES: dict[str, Callable[[PolicyIndex], PolicyIndex]] = {
    "another binding": lambda index: index.with_binding(everybody("new")),
    "one that names it often": lambda index: index.with_binding(everybody("new", MEMBERS_MAX)),
    "one is replaced": lambda index: index.with_binding(everybody("b7", 2)),
    "one is gone": lambda index: index.without_binding("a", "b7"),
    "another role": lambda index: index.with_role(Role("new", "a", (READ,))),
    "a role is gone": lambda index: index.without_role("", "reader"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_a_write_costs_does_not_grow_with_what_is_there(change: str) -> None:
    """All that name one group in one namespace: every append copied all of them, in every process, and stopped it for seconds."""
    index = crowded(everybody(f"b{number}") for number in range(30_000))
    assert effort(lambda: [CHANGES[change](index) for _ in range(10)]) < ONE


def test_bindings_that_name_one_group_are_compiled_in_proportion_to_their_number() -> None:
    def compiled(number: int) -> float:
        bindings = [everybody(f"b{each}") for each in range(number)]
        return effort(lambda: crowded(bindings))

    assert compiled(20_000) < 40 * (compiled(2_000) + 1)


def test_so_many_bindings_of_one_group_are_looked_at_and_the_others_count() -> None:
    """AZ2: deny when unsure; what else means the principal, and whoever else is meant, is as before."""
    own = Binding("own", "", "ClusterRole", "writer", (Subject("User", "u"),))
    some = [everybody(f"b{number}") for number in range(GRANTS_MAX - 1)]
    index = crowded([*some, own]).with_role(Role("writer", rules=(Rule(("create",), ("",), ("pods",)),)))
    assert index.authorize("u", ("g",), ASKED).allowed
    more = index.with_binding(everybody("one more"))
    refused = more.authorize("u", ("g",), ASKED)
    assert not refused.allowed
    assert str(GRANTS_MAX) in refused.reason
    assert more.authorize("u", ("g",), ASKED._replace(verb="create")).allowed
    assert not more.authorize("v", ("other",), ASKED).reason
    assert more.without_binding("a", "one more").authorize("u", ("g",), ASKED).allowed
    assert effort(lambda: more.authorize("u", ("g",), ASKED)) < ONE


def test_so_many_rules_of_one_principal_are_looked_at() -> None:
    """A role may have two thousand, and a principal any number of roles: whatever was asked went through all of them."""
    size = BOUNDS["rules"]
    many = RULES_MAX // size
    roles = [
        Role(f"r{number:03}", rules=tuple(Rule(("get",), ("",), (f"k{number}-{each}",)) for each in range(size)))
        for number in range(5 * many)
    ]
    bindings = [Binding(role.name, "", "ClusterRole", role.name, (Subject("User", "u"),)) for role in roles]
    index = PolicyIndex.build(roles, bindings)

    def asked(role: int) -> Attributes:
        return Attributes("get", "", f"k{role}-{size - 1}")

    assert index.authorize("u", (), asked(many - 1)).allowed
    refused = index.authorize("u", (), asked(many))
    assert not refused.allowed
    assert str(RULES_MAX) in refused.reason
    assert effort(lambda: [index.authorize("u", (), Attributes("get", "", f"none{each}")) for each in range(5)]) < ONE


def labelled(labels: int) -> list[Role]:
    """As many ClusterRoles, each with as many labels that nobody asks about."""
    return [Role(f"r{n}", "", (READ,), {f"k{each}": "x" for each in range(labels)}) for n in range(300)]


def test_labels_that_no_role_chooses_by_cost_nothing() -> None:
    """Each write of a ClusterRole had all labels of all of them sorted again, by the next request of anybody."""
    chooses = Role("admin", "", (), {}, (parse_labels("wanted=yes"),))
    wanted = Role("wanted", "", (Rule(("list",), ("",), ("pods",)),), {"wanted": "yes"})
    index = PolicyIndex.build([*labelled(BOUNDS["labels"]), chooses, wanted])

    def asked() -> None:
        for number in range(10):
            after = index.with_role(Role("another", "", (READ,), {"number": str(number)}))
            assert after.rules_of("ClusterRole", "", "admin") == wanted.rules

    assert effort(asked) < ONE


@pytest.mark.parametrize("text", ["k in (a,b)", "k", "!k", "k!=a", "k=a"])
def test_roles_are_chosen_in_order_whatever_the_order_they_came_in(text: str) -> None:
    roles = {f"r{n}": Role(f"r{n}", "", (Rule(("get",), ("",), (f"p{n}",)),), {"k": "ab"[n % 2]}) for n in (3, 1, 2)}
    root = Role("root", "", (), {"z": "z"}, (parse_labels(text),))
    found = [rule.resources[0] for rule in aggregate(root, {**roles, "root": root})]
    assert found == sorted(found)
    assert set(found) == {
        f"p{name[1:]}" for name, role in roles.items() if root.aggregation and root.aggregation[0].matches(role.labels)
    }
