"""A release's migrations run while processes of the one before go on: whoever adds one that they cannot live with is told."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
from django.db import connection, models
from django.db.migrations import Migration, operations
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.state import ModelState, ProjectState

from tests.databases import ROOT
from tests.upgrades.expansion import after, flaws
from tests.upgrades.releasebefore import MIGRATIONS, NotInHistory, archived


def test_every_migration_leaves_the_release_before_running() -> None:
    loader = MigrationLoader(None)
    found = [
        flaw
        for (app, name), migration in loader.disk_migrations.items()
        if app in MIGRATIONS and after(MIGRATIONS, app, name)
        for flaw in flaws(migration, loader.project_state([*migration.dependencies], at_end=True))
    ]
    assert found == []


def test_what_was_released_is_what_it_was() -> None:
    """Whoever has it runs no migration twice: one that is changed afterwards is two."""
    try:
        archive = archived(*(f"{app}/migrations" for app in MIGRATIONS))
    except NotInHistory as reason:
        pytest.skip(str(reason))
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        released = {
            each.name: reading.read() for each in files if (reading := files.extractfile(each)) and "/0" in each.name
        }
    assert {app: max(name for name in map(Path, released) if name.parts[0] == app).stem for app in MIGRATIONS} == (
        MIGRATIONS
    )
    assert [name for name, text in released.items() if (ROOT / name).read_bytes() != text] == []


_REFERENCES = """
SELECT c.conrelid::regclass::text, a.attname, c.confrelid::regclass::text, c.confdeltype
FROM pg_constraint AS c JOIN pg_attribute AS a ON a.attrelid = c.conrelid AND a.attnum = c.conkey[1]
WHERE c.contype = 'f' AND c.connamespace = 'public'::regnamespace
"""
_HELD = ("a", "r")


@pytest.mark.django_db
def test_what_is_new_goes_with_what_it_is_about() -> None:
    """The release before deletes rows without those that it does not know of: the database itself takes these away."""
    loader = MigrationLoader(None)
    then = columns(loader.project_state([*MIGRATIONS.items()], at_end=True))
    new = columns(loader.project_state()) - then
    tables = {table for table, _ in then}
    with connection.cursor() as cursor:
        cursor.execute(_REFERENCES)
        rows = cursor.fetchall()
    assert [
        f"{table}.{column}"
        for table, column, of, rule in rows
        if (table, column) in new and of in tables and rule in _HELD
    ] == []


def columns(state: ProjectState) -> set[tuple[str, str]]:
    """Of every table of the product, those of relations between its rows included."""
    return {
        (model._meta.db_table, field.column)
        for model in state.apps.get_models(include_auto_created=True)
        if model._meta.app_label in MIGRATIONS
        for field in model._meta.concrete_fields
    }


def house() -> ProjectState:
    """One table, as the release before has it."""
    state = ProjectState()
    fields = [
        ("id", models.BigAutoField(primary_key=True)),
        ("name", models.CharField(max_length=63)),
        ("said", models.TextField(null=True)),
        ("state", models.CharField(max_length=9, choices=[("open", "Open")])),
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
    operations.AlterField("house", "state", models.CharField(max_length=9, choices=[("open", "O"), ("sold", "S")])),
    operations.AddConstraint("house", models.UniqueConstraint(fields=["name"], name="one")),
    operations.RunSQL("ALTER TABLE house\n  DROP COLUMN said"),
    operations.RunSQL([("ALTER TABLE house ALTER COLUMN said SET NOT NULL", None)]),
    operations.SeparateDatabaseAndState(database_operations=[operations.RunSQL("ALTER TABLE house RENAME TO home")]),
]
KEEPING = [
    operations.AddField("house", "floor", models.IntegerField(null=True)),
    operations.AddField("house", "floor", models.IntegerField(db_default=1)),
    operations.AlterField("house", "name", models.CharField(max_length=253)),
    operations.AlterField("house", "state", models.CharField(max_length=9, choices=[("open", "In other words")])),
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
