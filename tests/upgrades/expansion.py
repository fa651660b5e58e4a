"""What a migration may do while processes of the release before it still run: add what they need not know.

An operation that takes away, renames or narrows belongs into a later release, once nobody uses what it is about:
its migration then says so, ``contracts = "0.2.0"``, with the first release that does without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from django.db.migrations import Migration, operations
from django.db.migrations.operations.base import Operation
from django.db.migrations.state import ProjectState
from django.db.models.fields import NOT_PROVIDED

TAKES_AWAY = (
    operations.DeleteModel,
    operations.RemoveField,
    operations.RenameField,
    operations.RenameModel,
    operations.AlterModelTable,
)
READ_AS_THEY_ARE = {
    ("accessrequest", "kind"),
    ("delivery", "kind"),
    ("notice", "kind"),
    ("notification", "kind"),
}
"""Choices of which whoever reads them may meet one that it does not know (``tests/portal/test_later_kinds.py``)."""

_NARROWS_SQL = re.compile(
    r"\bDROP\s+(TABLE|COLUMN|TYPE|VIEW|SCHEMA)\b|\bRENAME\s+(TO|COLUMN)\b|\bSET\s+NOT\s+NULL\b"
    r"|\bALTER\s+(COLUMN\s+)?\S+\s+(SET\s+DATA\s+)?TYPE\b",
    re.IGNORECASE,
)


def flaws(migration: Migration, before: ProjectState) -> Iterator[str]:
    """What the release before could not live with; nothing for a migration that says since when nobody has to."""
    if re.fullmatch(r"\d+\.\d+\.\d+", getattr(migration, "contracts", "")):
        return
    state = before.clone()
    made: set[str] = set()
    for operation in migration.operations:
        for why in _flaws(operation, state, migration.app_label, made):
            yield f"{migration.app_label}.{migration.name}: {operation.describe()}: {why}"
        if isinstance(operation, operations.CreateModel):
            made.add(operation.name_lower)
        operation.state_forwards(migration.app_label, state)


def _flaws(operation: Operation, state: ProjectState, app: str, made: set[str]) -> Iterator[str]:
    if isinstance(operation, operations.SeparateDatabaseAndState):
        for each in operation.database_operations:
            yield from _flaws(each, state, app, made)
        return
    # Nobody knows a model that this very migration makes.
    if getattr(operation, "model_name_lower", None) in made:
        return
    if isinstance(operation, TAKES_AWAY):
        yield "the release before still uses it; take it away in a later one, which says contracts"
    elif isinstance(operation, operations.AddField):
        if not _may_be_left_out(operation.field):
            yield "the release before inserts rows without it: null=True, or db_default"
    elif isinstance(operation, operations.AlterField):
        old = state.models[app, operation.model_name_lower].fields[operation.name]
        yield from _narrowed(old, operation.field)
        if (operation.model_name_lower, operation.name) not in READ_AS_THEY_ARE and _added(old, operation.field):
            yield "the release before reads it, and knows no such choice"
    elif isinstance(operation, operations.AddConstraint):
        yield "the release before may write what it forbids; a later one, which says contracts, may add it"
    elif isinstance(operation, operations.RunSQL):
        for statement in _statements(operation.sql):
            if found := _NARROWS_SQL.search(statement):
                yield f"{found[0]!r} is not what the release before can live with"


def _may_be_left_out(field: Any) -> bool:
    return bool(field.null or field.many_to_many or field.generated or field.db_default is not NOT_PROVIDED)


def _narrowed(old: Any, new: Any) -> Iterator[str]:
    if old.null and not new.null:
        yield "the release before writes NULL"
    if type(old) is not type(new):
        yield f"a {type(old).__name__} becomes a {type(new).__name__}"
    if new.max_length is not None and (old.max_length is None or new.max_length < old.max_length):
        yield f"what the release before writes may be longer than {new.max_length}"
    if new.unique and not old.unique:
        yield "the release before may write it twice"


def _added(old: Any, new: Any) -> set[Any]:
    return {value for value, _ in new.flatchoices} - {value for value, _ in old.flatchoices}


def _statements(sql: Any) -> Iterator[str]:
    parts = sql if isinstance(sql, (list, tuple)) else [sql]
    for part in parts:
        yield str(part[0] if isinstance(part, (list, tuple)) else part)


def after(baseline: Mapping[str, str], app: str, name: str) -> bool:
    """Whether a migration came after the release whose last ones the baseline names."""
    return name > baseline.get(app, "")
