"""Which of a workspace's three accounts a request needs: the least whose role on the cluster covers it (GW4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kube.authorization.rbac import Attributes, Rule
from kube.authorization.rbacindex import RuleSet, rule_set_of

ROLES: Final = ("viewer", "editor", "admin")
"""From least to most."""


@dataclass(frozen=True, slots=True)
class WorkspaceRoles:
    """The rules of the three roles on one cluster, as it says them; ``names`` gives the role of a ClusterRole's name."""

    rules: RuleSet
    names: Mapping[str, str]

    @classmethod
    def of(cls, rules: Mapping[str, Sequence[Rule]], names: Mapping[str, str]) -> WorkspaceRoles:
        """From the rules by role; one that is missing covers nothing."""
        return cls(rule_set_of([tuple(rules.get(role, ())) for role in ROLES]), names)

    def least(self, attributes: Attributes) -> str | None:
        """The least role that covers a request in the namespace, ``None`` when none does."""
        position = self.rules.find(attributes)
        return None if position < 0 else ROLES[position]


def at_most(role: str, highest: str) -> bool:
    """Whether ``role`` is ``highest`` or less."""
    return ROLES.index(role) <= ROLES.index(highest)
