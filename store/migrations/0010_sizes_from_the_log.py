"""The bytes of each space are summed up from the change log, a thousand changes at a time, and not with every write.

Triggers took a sixth of what a commit costs. The log tells of every write how many bytes were there before and after it, in
the writer's own transaction: ``store_space`` is what was there at the revision ``counted`` of the counter row, and the log
behind it says the rest (``statements.SIZES``), as exactly as before. Whoever moves the counter by a thousand beyond
``counted`` adds up what came since, behind the lock that he holds anyway; so does whoever drops old parts of the log, first.
So nobody ever reads more than some thousand entries, and a crash or a rollback takes the sums back with the writes.

Whatever writes objects past the log, for every process unseen, is not counted either; a restore, which begins a new log, counts
anew (``store.log.replacement``).
"""

from importlib import import_module
from typing import ClassVar

from django.db import migrations, models

SPACES = import_module("store.migrations.0006_space_sizes")
TIMELINES = import_module("store.migrations.0007_timelines")
CHEAPER = import_module("store.migrations.0008_cheaper_writes")
LOOKING_BACK = import_module("store.migrations.0009_no_look_back")
_with = TIMELINES._with  # noqa: SLF001 - the texts are changed once more

COUNT = """
CREATE FUNCTION store_space_count_on() RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $function$
DECLARE
    since bigint;
    emptied text[];
BEGIN
    -- Behind the counter row no event comes that is not there already, and nobody else counts.
    SELECT r.counted INTO since FROM store_revision AS r FOR UPDATE;
    WITH summed AS (
        INSERT INTO store_space AS s (space, bytes)
        SELECT e.space, sum(e.more) FROM (
            SELECT space, CASE type WHEN 'DELETED' THEN 0 ELSE octet_length(data) END
                - coalesce(octet_length(previous), 0) AS more
            FROM store_event WHERE revision > since
        ) AS e GROUP BY e.space HAVING sum(e.more) <> 0 ORDER BY e.space
        ON CONFLICT (space) DO UPDATE SET bytes = s.bytes + excluded.bytes
        RETURNING s.space, s.bytes
    )
    SELECT array_agg(space) FILTER (WHERE bytes = 0) INTO emptied FROM summed;
    DELETE FROM store_space AS s WHERE s.space = ANY (emptied);
    UPDATE store_revision AS r SET counted = r.revision;
END $function$;
"""

WRITE = _with(
    LOOKING_BACK.WRITE,
    (
        """        revision := revision + wanted;
        batch := new_batch;
""",
        """        revision := revision + wanted;
        batch := new_batch;
        IF revision - counter.counted >= 1000 THEN
            PERFORM store_space_count_on();
        END IF;
""",
    ),
)
COMMIT = _with(
    TIMELINES.COMMIT,
    ("    done integer := 0;\n", "    done integer := 0;\n    counted_to bigint;\n"),
    ("RETURNING r.compacted INTO compacted;", "RETURNING r.compacted, r.counted INTO compacted, counted_to;"),
    (
        "        met := a_expected;\n",
        """        met := a_expected;
        IF next_revision - counted_to >= 1000 THEN
            PERFORM store_space_count_on();
        END IF;
""",
    ),
)

# Whoever drops partitions (``store_log_compact``) makes those ahead first.
EXTEND = _with(CHEAPER.EXTEND, ("    END LOOP;\n", "    END LOOP;\n    PERFORM store_space_count_on();\n"))

# Every writer holds the counter's table until its transaction ends, and the objects' as well: who asks for both here
# waits for one that waits for him. So the triggers stay for now, and do nothing (``0011_no_triggers`` takes them away).
_LOCK = "LOCK TABLE store_revision IN ACCESS EXCLUSIVE MODE;"
_COUNTING = SPACES.FORWARD[SPACES.FORWARD.index("CREATE FUNCTION") : SPACES.FORWARD.index("CREATE TRIGGER")]
FORWARD = f"""
{_LOCK}
CREATE OR REPLACE FUNCTION store_space_count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
UPDATE store_revision SET counted = revision;
"""
BACKWARD = f"""
{_LOCK}
SELECT store_space_count_on();
DROP FUNCTION store_space_count_on();
{_with(_COUNTING, ("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))}
"""


class Migration(migrations.Migration):
    """Up to where the sums are, and whoever adds to them."""

    dependencies: ClassVar = [("store", "0009_no_look_back")]
    operations: ClassVar = [
        migrations.AddField("Revision", "counted", models.BigIntegerField(db_default=0)),
        migrations.RunSQL(FORWARD + COUNT, BACKWARD),
        migrations.RunSQL(WRITE + COMMIT + EXTEND, LOOKING_BACK.WRITE + TIMELINES.COMMIT + CHEAPER.EXTEND),
    ]
