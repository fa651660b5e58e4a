"""A release's migrations run while processes of the one before go on: whoever adds one that they cannot live with is told."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import models
from django.db.migrations import Migration, operations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ModelState, ProjectState

from tests.upgrades.expansion import after, flaws

FIRST_RELEASE = {"access": "0006", "audit": "0009", "store": "0005", "tenants": "0027"}
"""The last numbers of the first release's migrations: nothing ran before it."""


def test_every_migration_leaves_the_release_before_running() -> None:
    loader = MigrationLoader(None)
    found = [
        flaw
        for (app, name), migration in loader.disk_migrations.items()
        if app in FIRST_RELEASE and after(FIRST_RELEASE, app, name)
        for flaw in flaws(migration, loader.project_state([*migration.dependencies], at_end=True))
    ]
    assert found == []


def house() -> ProjectState:
    """One table, as the release before has it."""
    state = ProjectState()
    fields = [
        ("id", models.BigAutoField(primary_key=True)),
        ("name", models.CharField(max_length=63)),
        ("said", models.TextField(null=True)),
    ]
    state.add_model(ModelState("tenants", "House", fields))
    return state


def of(*steps: Any, **more: Any) -> Migration:
    migration = Migration("0099_step", "tenants")
    migration.operations = list(steps)
    for name, value in more.items():
        setattr(migration, name, value)
    return migration


BREAKING = [
    operations.DeleteModel("House"),
    operations.RemoveField("house", "said"),
    operations.RenameField("house", "said", "told"),
    operations.RenameModel("House", "Home"),
    operations.AlterModelTable("house", "homes"),
    operations.AddField("house", "floor", models.IntegerField()),
    operations.AddField("house", "floor", models.IntegerField(default=1)),
    operations.AlterField("house", "said", models.TextField(default="")),
    operations.AlterField("house", "name", models.CharField(max_length=20)),
    operations.AlterField("house", "name", models.CharField(max_length=63, unique=True)),
    operations.AlterField("house", "name", models.IntegerField()),
    operations.AddConstraint("house", models.UniqueConstraint(fields=["name"], name="one")),
    operations.RunSQL("ALTER TABLE house\n  DROP COLUMN said"),
    operations.RunSQL([("ALTER TABLE house ALTER COLUMN said SET NOT NULL", None)]),
    operations.SeparateDatabaseAndState(database_operations=[operations.RunSQL("ALTER TABLE house RENAME TO home")]),
]
KEEPING = [
    operations.AddField("house", "floor", models.IntegerField(null=True)),
    operations.AddField("house", "floor", models.IntegerField(db_default=1)),
    operations.AlterField("house", "name", models.CharField(max_length=253)),
    operations.AddIndex("house", models.Index(fields=["name"], name="by_name")),
    operations.RunSQL("CREATE TABLE another (id bigint NOT NULL)"),
    operations.SeparateDatabaseAndState(state_operations=[operations.RemoveField("house", "said")]),
]


@pytest.mark.parametrize("step", BREAKING, ids=lambda step: step.describe()[:60])
def test_a_step_that_the_release_before_cannot_live_with_is_found(step: Any) -> None:
    """Unless its migration says since which release nobody needs what it takes away."""
    assert list(flaws(of(step), house()))
    assert list(flaws(of(step, contracts="0.2.0"), house())) == []
    assert list(flaws(of(step, contracts="soon"), house()))


@pytest.mark.parametrize("step", KEEPING, ids=lambda step: step.describe()[:60])
def test_a_step_that_adds_is_none(step: Any) -> None:
    assert list(flaws(of(step), house())) == []


def test_what_a_migration_makes_itself_it_may_shape_as_it_likes() -> None:
    making = operations.CreateModel("Garden", [("id", models.BigAutoField(primary_key=True))])
    shaping = operations.AddConstraint("garden", models.UniqueConstraint(fields=["id"], name="one"))
    assert (
        list(flaws(of(making, operations.AddField("garden", "trees", models.IntegerField()), shaping), house())) == []
    )
