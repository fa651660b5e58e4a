"""The tables of the store; the log is partitioned by revision so that compaction is a DROP."""

from typing import ClassVar

from django.db import migrations, models
from django.db.models import F, Func, Q, Value

REGISTRY_KEY = """
CREATE FUNCTION store_registry_key("group" text, resource text, space text, namespace text, name text)
RETURNS text LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN '/registry/' || CASE WHEN "group" LIKE '%.%' THEN "group" || '/' ELSE '' END || resource
    || CASE WHEN space = 'root' THEN '' WHEN space LIKE 'root:%' THEN '/' || substr(space, 6) ELSE '/' || space END
    || CASE WHEN namespace = '' THEN '' ELSE '/' || namespace END || '/' || name
"""

EVENTS = """
CREATE TABLE store_event (
    revision bigint NOT NULL PRIMARY KEY CHECK (revision > 0),
    batch bigint NOT NULL,
    type text COLLATE "C" NOT NULL CHECK (type IN ('ADDED', 'MODIFIED', 'DELETED')),
    space text COLLATE "C" NOT NULL CHECK (space <> ''),
    "group" text COLLATE "C" NOT NULL,
    resource text COLLATE "C" NOT NULL CHECK (resource <> ''),
    namespace text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL CHECK (name <> ''),
    data bytea STORAGE EXTERNAL NOT NULL,
    previous bytea STORAGE EXTERNAL CHECK ((previous IS NULL) = (type = 'ADDED')),
    written_at timestamptz NOT NULL DEFAULT now()
) PARTITION BY RANGE (revision);
CREATE TABLE store_event_0 PARTITION OF store_event FOR VALUES FROM (0) TO (50000);
CREATE TABLE store_event_1 PARTITION OF store_event FOR VALUES FROM (50000) TO (100000);
CREATE TABLE store_event_2 PARTITION OF store_event FOR VALUES FROM (100000) TO (150000);
CREATE TABLE store_event_3 PARTITION OF store_event FOR VALUES FROM (150000) TO (200000)
"""

# Free space on the pages keeps updates off the indexes; nothing is compressed, so reading is copying.
TUNING = """
ALTER TABLE store_object ALTER COLUMN data SET STORAGE EXTERNAL;
ALTER TABLE store_object SET (fillfactor = 85, toast_tuple_target = 8160, autovacuum_vacuum_scale_factor = 0.05);
ALTER TABLE store_revision SET (fillfactor = 10, autovacuum_vacuum_threshold = 1000);
INSERT INTO store_revision (id, revision, compacted, epoch) VALUES (1, 0, 0, gen_random_uuid());
"""


def _identity() -> "models.TextField[str, str]":
    return models.TextField(db_collation="C")


class Migration(migrations.Migration):
    initial = True
    dependencies: ClassVar = []
    operations: ClassVar = [
        migrations.RunSQL(REGISTRY_KEY, "DROP FUNCTION store_registry_key(text, text, text, text, text)"),
        migrations.CreateModel(
            name="StoredObject",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "group",
                        "resource",
                        "space",
                        "namespace",
                        "name",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("group", _identity()),
                ("resource", _identity()),
                ("space", _identity()),
                ("namespace", _identity()),
                ("name", _identity()),
                ("uid", models.TextField(db_collation="C")),
                ("revision", models.BigIntegerField()),
                ("data", models.BinaryField()),
                (
                    "registry_key",
                    models.GeneratedField(
                        db_persist=True,
                        expression=Func(
                            F("group"),
                            F("resource"),
                            F("space"),
                            F("namespace"),
                            F("name"),
                            function="store_registry_key",
                        ),
                        output_field=models.TextField(db_collation="C"),
                    ),
                ),
            ],
            options={
                "db_table": "store_object",
                "constraints": [
                    models.CheckConstraint(
                        condition=Q(("revision__gt", 0)), name="store_object_revision_positive"
                    ),
                    models.CheckConstraint(
                        condition=~Q(space=Value("")) & ~Q(resource=Value("")) & ~Q(name=Value("")),
                        name="store_object_identity_complete",
                    ),
                ],
                "indexes": [models.Index(fields=["registry_key"], name="store_object_registry_key")],
            },
        ),
        migrations.CreateModel(
            name="Revision",
            fields=[
                ("id", models.SmallIntegerField(default=1, primary_key=True, serialize=False)),
                ("revision", models.BigIntegerField()),
                ("compacted", models.BigIntegerField()),
                ("epoch", models.UUIDField()),
            ],
            options={
                "db_table": "store_revision",
                "constraints": [
                    models.CheckConstraint(condition=Q(("id", 1)), name="store_revision_one_row"),
                    models.CheckConstraint(
                        condition=Q(compacted__gte=0) & Q(revision__gte=F("compacted")),
                        name="store_revision_order",
                    ),
                ],
            },
        ),
        migrations.SeparateDatabaseAndState(
            database_operations=[migrations.RunSQL(EVENTS, "DROP TABLE store_event")],
            state_operations=[
                migrations.CreateModel(
                    name="ChangeEvent",
                    fields=[
                        ("revision", models.BigIntegerField(primary_key=True, serialize=False)),
                        ("batch", models.BigIntegerField()),
                        ("type", models.TextField(db_collation="C")),
                        ("space", _identity()),
                        ("group", _identity()),
                        ("resource", _identity()),
                        ("namespace", _identity()),
                        ("name", _identity()),
                        ("data", models.BinaryField()),
                        ("previous", models.BinaryField(null=True)),
                        ("written_at", models.DateTimeField()),
                    ],
                    options={"db_table": "store_event"},
                ),
            ],
        ),
        migrations.RunSQL(TUNING, migrations.RunSQL.noop),
    ]
