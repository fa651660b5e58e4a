"""What must change so that things are as they are declared. Nothing here asks or tells the portal."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tenantry_cli.declarations.documents import Fields, Item, Kind
from tenantry_cli.failures import Failure, Status

_NEEDED = {Kind.TIER: ("display_name", "quota")}
"""What a new one must say."""


class Action(StrEnum):
    """What is done to a thing."""

    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Change:
    """One thing made, changed or deleted; ``after`` are the fields that are to be set, ``before`` what they were."""

    action: Action
    item: Item
    before: Fields
    after: Fields

    @property
    def fields(self) -> dict[str, tuple[Any, Any]]:
        """What differs, before and after, ``None`` for nothing; what is in maps by itself."""
        before, after = _flat(self.before), _flat(self.after)
        names = [*after, *(name for name in before if name not in after)]
        return {name: (before.get(name), after.get(name)) for name in names if before.get(name) != after.get(name)}

    def as_dict(self) -> dict[str, Any]:
        """The change as JSON, for programs: what is done to which object, and each field before and after."""
        fields = {name: {"before": before, "after": after} for name, (before, after) in self.fields.items()}
        place = {"tenant": self.item.tenant} if self.item.tenant else {}
        return {
            "action": self.action.value,
            "kind": self.item.kind.value,
            **place,
            "name": self.item.name,
            "fields": fields,
        }


def plan(
    declared: Mapping[Item, Fields], current: Mapping[Item, Fields | None], managed: Collection[Item]
) -> list[Change]:
    """The changes from what is ``current`` (``None``: not there) to what is ``declared``, in an order that can be done.

    Fields that are not declared stay as they are. Of ``managed``, what is not declared is deleted, last and from the
    inside out; what goes with its tenant is not deleted by itself. Raises ``Failure`` for a new thing that says too
    little.
    """
    changes = []
    for item, fields in declared.items():
        there = current[item]
        if there is None:
            missing = [name for name in _NEEDED.get(item.kind, ()) if name not in fields]
            if missing:
                raise Failure(f"{item} is new and needs {' and '.join(missing)}.", Status.INVALID)
            changes.append(Change(Action.CREATE, item, {}, fields))
        else:
            differing = {name: value for name, value in fields.items() if there.get(name) != value}
            if differing:
                before = {name: there.get(name) for name in differing}
                changes.append(Change(Action.CHANGE, item, before, differing))
    gone = set(managed) - set(declared)
    ending = {item.name for item in gone if item.kind is Kind.TENANT}
    deletions = [Change(Action.DELETE, item, {}, {}) for item in gone if item.tenant not in ending]
    return sorted(changes, key=_making) + sorted(deletions, key=_deleting)


def _making(change: Change) -> tuple[int, bool, str, str]:
    # Owners first: a tenant is never without one.
    return (_rank(change.item), change.after.get("role") != "owner", change.item.tenant, change.item.name)


def _deleting(change: Change) -> tuple[int, str, str]:
    return (-_rank(change.item), change.item.tenant, change.item.name)


def _rank(item: Item) -> int:
    return list(Kind).index(item.kind)


def _flat(fields: Fields) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, dict) and value:
            flat |= {f"{name}.{key}": inner for key, inner in value.items()}
        else:
            flat[name] = value
    return flat
