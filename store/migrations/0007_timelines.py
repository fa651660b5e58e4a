"""A promoted standby, or a database that was recovered to a point in time, is another history, whoever notices first.

PostgreSQL gives each a new timeline. The counter row says on which it was written last: whoever writes or follows finds
that it is another one, and everybody's history is broken before anything else happens. So it does not take a process that
knows more than the database, and that may have died with the old one, to keep lost revisions from being given twice.
"""

from importlib import import_module
from typing import ClassVar

from django.db import migrations, models

LEASES = import_module("store.migrations.0005_read_leases")
_with = LEASES._with  # noqa: SLF001 - the same text is changed once more

TIMELINE = """
CREATE FUNCTION store_timeline() RETURNS text LANGUAGE sql VOLATILE
AS $$ SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8) $$;
"""

# As before, but that its numbers are not PL/pgSQL's own, which end after some hundred histories.
EXTEND = """
CREATE OR REPLACE FUNCTION store_log_extend(partition_revisions bigint, ahead bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $function$
DECLARE
    first bigint;
    number bigint;
BEGIN
    SELECT (r.revision + 1) / partition_revisions INTO first FROM store_revision AS r FOR UPDATE;
    FOR number IN SELECT generate_series(first, first + ahead) LOOP
        EXECUTE format(
            'CREATE TABLE IF NOT EXISTS store_event_%s PARTITION OF store_event FOR VALUES FROM (%s) TO (%s)',
            number, number * partition_revisions, (number + 1) * partition_revisions
        );
    END LOOP;
END $function$;
"""

# 0.9 s are ``store.log.leases.LEASE_SECONDS``; 10 ** 12 is ``store.log.replacement.REVISIONS_AHEAD``; the log's extent is
# ``store.log.compaction.EXTENT``. A test compares them.
WRITE = _with(
    LEASES.WRITE,
    ("CREATE FUNCTION store_write(", "CREATE OR REPLACE FUNCTION store_write("),
    (
        "    IF known_epoch IS NOT NULL THEN",
        """    --    On another timeline than the last write nobody knows what the old one had told: what was committed there and
    --    did not come along is not here, leases that were taken there either. None is read by any more after this time.
    IF counter.timeline <> store_timeline() THEN
        outcome := 'broken';
        PERFORM pg_sleep(0.9);
    ELSIF known_epoch IS NOT NULL THEN""",
    ),
    (
        "The counter goes past all that the caller has ever told a client, and\n    --    nothing before is served",
        "The counter goes past all that the caller, or anybody who is no more,\n"
        "    --    can have told a client, and nothing before is served",
    ),
    (
        """            revision = greatest(r.revision, known_revision) + 1, compacted = greatest(r.revision, known_revision) + 1,
            began = greatest(r.revision, known_revision) + 1
        RETURNING * INTO counter;
""",
        """            revision = n.begins, compacted = n.begins, began = n.begins, timeline = store_timeline()
        FROM (SELECT greatest(counter.revision, known_revision) + 1000000000000 AS begins) AS n
        RETURNING r.* INTO counter;
        PERFORM store_log_extend(50000, 3);
        IF known_epoch IS NULL THEN
            outcome := 'kept'; -- The rows alone decide its writes, in any history.
        END IF;
""",
    ),
)
COMMIT = _with(
    LEASES.COMMIT,
    ("CREATE PROCEDURE store_commit(", "CREATE OR REPLACE PROCEDURE store_commit("),
    ("AND r.epoch = known_epoch\n", "AND r.epoch = known_epoch\n            AND r.timeline = store_timeline()\n"),
)

BACKWARD = (
    _with(LEASES.WRITE, ("CREATE FUNCTION store_write(", "CREATE OR REPLACE FUNCTION store_write("))
    + _with(LEASES.COMMIT, ("CREATE PROCEDURE store_commit(", "CREATE OR REPLACE PROCEDURE store_commit("))
)


class Migration(migrations.Migration):
    """The column, who reads it, and what it is now."""

    dependencies: ClassVar = [("store", "0006_space_sizes")]
    operations: ClassVar = [
        migrations.RunSQL(TIMELINE, "DROP FUNCTION store_timeline();"),
        migrations.AddField(
            "Revision",
            "timeline",
            models.TextField(
                db_collation="C", db_default=models.Func(function="store_timeline", output_field=models.TextField())
            ),
        ),
        migrations.RunSQL(EXTEND + WRITE + COMMIT, BACKWARD),
    ]
