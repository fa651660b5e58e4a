"""Read leases: who holds one on a space reads it from memory, and nobody else writes there before it has ended.

``store_lease`` says who holds which; ``store.log.leases`` says why neither a paused process nor a clock that jumps makes
a stale read. Both ways of writing look for others' leases behind the lock that leases are taken behind.
"""

from importlib import import_module
from typing import ClassVar

import django.db.models.functions
from django.db import migrations, models

CONTINUITY = import_module("store.migrations.0003_continuity")
OPTIMISTIC = import_module("store.migrations.0004_optimistic_commit")


def _with(text: str, *changes: tuple[str, str]) -> str:
    """The same text with these changes, each of which is made once."""
    for was, becomes in changes:
        if text.count(was) != 1:
            raise ValueError(was)
        text = text.replace(was, becomes)
    return text


_OLD_WRITE = CONTINUITY.WRITE[: CONTINUITY.WRITE.index("CREATE PROCEDURE")]
_WRITER = ("new_batch bigint,\n", "new_batch bigint, writer bigint,\n")

# ``writer`` holds leases of its own, which keep nobody else from reading; 0 holds none.
WRITE = _with(
    _OLD_WRITE,
    _WRITER,
    (
        "    -- 5. Judge and write.",
        """    -- 4b. Leases. They are taken behind the same lock, so whoever holds one on a space that is written here is seen by
    --     this statement, and whoever takes one later waits for the end of this transaction. ``met`` says whose way it
    --     is in; the caller has them ended first (``store_lease_end``), and nobody waits here.
    IF EXISTS (SELECT FROM store_lease AS l WHERE l.space = ANY (a_space) AND l.holder <> writer) THEN
        SELECT array_agg(
            CASE WHEN i.type <> 'CHECK'
                AND EXISTS (SELECT FROM store_lease AS l WHERE l.space = i.space AND l.holder <> writer)
            THEN 1 END ORDER BY i.place
        ) INTO met FROM unnest(a_type, a_space) WITH ORDINALITY AS i (type, space, place);
        IF array_position(met, 1) IS NOT NULL THEN
            outcome := 'leased';
            RETURN;
        END IF;
    END IF;

    -- 5. Judge and write.""",
    ),
)
COMMIT = _with(
    OPTIMISTIC.COMMIT,
    _WRITER,
    ("    held integer := 0;", "    alone boolean;\n    held integer := 0;"),
    (
        "        -- b. Each row decides",
        """        -- Behind the lock as well: nobody else reads these spaces by a lease (step 4b).
        alone := FOUND AND NOT EXISTS (
            SELECT FROM store_lease AS l WHERE l.space = ANY (a_space) AND l.holder <> writer
        );
        -- b. Each row decides""",
    ),
    ("        IF FOUND AND operations <= 3 THEN", "        IF alone AND operations <= 3 THEN"),
    ("        ELSIF FOUND THEN", "        ELSIF alone THEN"),
    (
        "known_epoch, known_revision, known_batch, new_batch, a_write",
        "known_epoch, known_revision, known_batch, new_batch, writer, a_write",
    ),
)

# Each ends its transaction before it answers, as ``store_commit`` does: whoever freezes between two messages holds no lock.
LEASES = """
CREATE PROCEDURE store_lease_renew(
    a_holder bigint, a_number bigint[], a_space text[],
    OUT revision bigint, OUT batch bigint, OUT epoch text, OUT ending bigint[], OUT taken bigint[]
) LANGUAGE plpgsql AS $procedure$
#variable_conflict use_column
BEGIN
    IF cardinality(a_number) > 0 THEN
        -- Behind the counter row: every write of before has ended and is below the revision that is answered, every
        -- later one finds the lease. Where somebody waits to write, nobody begins to read.
        BEGIN
            PERFORM set_config('lock_timeout', '100ms', true);
            PERFORM FROM store_revision FOR UPDATE;
            WITH made AS (
                INSERT INTO store_lease (number, space, holder)
                SELECT i.number, i.space, a_holder FROM unnest(a_number, a_space) AS i (number, space)
                WHERE NOT EXISTS (SELECT FROM store_lease AS l WHERE l.space = i.space AND l.ending)
                RETURNING number
            )
            SELECT array_agg(number) INTO taken FROM made;
        EXCEPTION WHEN lock_not_available THEN
            taken := NULL; -- Others are writing; it is no time to wait, for what is held has to be renewed.
        END;
    END IF;
    SELECT r.revision, r.batch, r.epoch::text INTO revision, batch, epoch FROM store_revision AS r;
    SELECT array_agg(l.number) INTO ending FROM store_lease AS l WHERE l.holder = a_holder AND l.ending;
    COMMIT;
END $procedure$;

CREATE PROCEDURE store_lease_end(a_space text[], writer bigint, OUT numbers bigint[]) LANGUAGE plpgsql AS $procedure$
BEGIN
    -- In the order of their numbers, as whoever drops them: nobody waits for one who waits for him.
    SELECT array_agg(found.number) INTO numbers FROM (
        SELECT l.number FROM store_lease AS l WHERE l.space = ANY (a_space) AND l.holder <> writer
        ORDER BY l.number FOR UPDATE
    ) AS found;
    UPDATE store_lease AS l SET ending = true WHERE l.number = ANY (numbers) AND NOT l.ending;
    IF FOUND THEN
        PERFORM pg_notify('tenantry_leases', space) FROM unnest(a_space) AS space;
    END IF;
    COMMIT;
END $procedure$;

CREATE PROCEDURE store_lease_drop(a_number bigint[]) LANGUAGE plpgsql AS $procedure$
BEGIN
    PERFORM FROM store_lease AS l WHERE l.number = ANY (a_number) ORDER BY l.number FOR UPDATE;
    DELETE FROM store_lease AS l WHERE l.number = ANY (a_number);
    COMMIT;
END $procedure$;
"""

FORWARD = "DROP PROCEDURE store_commit; DROP FUNCTION store_write;" + WRITE + COMMIT + LEASES
BACKWARD = (
    "DROP PROCEDURE store_lease_drop; DROP PROCEDURE store_lease_end; DROP PROCEDURE store_lease_renew;"
    "DROP PROCEDURE store_commit; DROP FUNCTION store_write;" + _OLD_WRITE + OPTIMISTIC.COMMIT
)


class Migration(migrations.Migration):
    dependencies: ClassVar = [("store", "0004_optimistic_commit")]
    operations: ClassVar = [
        migrations.CreateModel(
            name="ReadLease",
            fields=[
                ("number", models.BigIntegerField(primary_key=True, serialize=False)),
                ("space", models.TextField(db_collation="C")),
                ("holder", models.BigIntegerField()),
                ("ending", models.BooleanField(db_default=False)),
                ("taken_at", models.DateTimeField(db_default=django.db.models.functions.Now())),
            ],
            options={
                "db_table": "store_lease",
                "indexes": [
                    models.Index(fields=["space"], name="store_lease_space"),
                    models.Index(fields=["holder"], name="store_lease_holder"),
                ],
            },
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
