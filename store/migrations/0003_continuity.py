"""One statement commits: lock, proof of continuity, preconditions and write happen in the database, without waiting.

``store_write`` holds the counter row from its first step; whoever calls it in a transaction of its own does so by the
procedure ``store_commit``, which ends the transaction before it answers.
"""

from importlib import import_module
from typing import ClassVar

from django.db import migrations, models

PARTITIONS = import_module("store.migrations.0002_partitions")

# Every number says why the step is safe when any process is frozen or killed at that moment.
WRITE = """
CREATE FUNCTION store_write(
    known_epoch uuid, known_revision bigint, known_batch bigint, new_batch bigint,
    a_write bigint[], a_type text[], a_space text[], a_group text[], a_resource text[], a_namespace text[],
    a_name text[], a_expected bigint[], a_uid text[], a_head bytea[], a_tail bytea[],
    OUT outcome text, OUT revision bigint, OUT batch bigint, OUT epoch text, OUT compacted bigint,
    OUT before_revision bigint, OUT before_batch bigint,
    OUT given bigint[], OUT met bigint[], OUT met_data bytea[]
) LANGUAGE plpgsql AS $function$
#variable_conflict use_column
DECLARE
    counter store_revision%ROWTYPE;
    link bigint;
    wanted bigint;
    done bigint;
BEGIN
    -- 1. Lock. Every writer of every process stands in line here, and each later statement of this function reads a
    --    snapshot that was taken behind the lock: nothing it sees can change before it ends. Nobody holds the lock
    --    while it waits for a client: everything a writer has to say came with the call.
    SELECT * INTO counter FROM store_revision FOR UPDATE;
    IF NOT FOUND THEN
        outcome := 'missing';
        RETURN;
    END IF;
    outcome := 'kept';

    -- 2. Continuity. The last event that the caller knows is in this history if the event of that revision carries
    --    the batch that the caller has seen there: batches are random, so the same pair is the same transaction, and
    --    everything before it is the same too. An epoch is as random, and proves the history up to where it began.
    IF known_epoch IS NOT NULL THEN
        IF known_epoch <> counter.epoch THEN
            outcome := CASE WHEN counter.revision < known_revision THEN 'broken' ELSE 'replaced' END;
        ELSIF counter.revision < known_revision THEN
            outcome := 'broken';
        ELSIF counter.revision = known_revision THEN
            IF known_batch IS DISTINCT FROM counter.batch THEN
                outcome := 'broken';
            END IF;
        ELSIF counter.compacted > known_revision THEN
            outcome := 'behind';
        ELSIF counter.began <> known_revision THEN
            SELECT e.batch INTO link FROM store_event AS e WHERE e.revision = known_revision;
            IF NOT FOUND THEN
                outcome := CASE WHEN counter.compacted = known_revision THEN 'behind' ELSE 'broken' END;
            ELSIF link <> known_batch THEN
                outcome := 'broken';
            END IF;
        END IF;
    END IF;

    -- 3. A break becomes a new epoch, under the lock and before anything else: every other process will find that its
    --    epoch is over, whichever side it was on. The counter goes past all that the caller has ever told a client, and
    --    nothing before is served: no revision means one thing in the old history and another in the new one.
    IF outcome = 'broken' THEN
        UPDATE store_revision AS r SET epoch = gen_random_uuid(), batch = new_batch,
            revision = greatest(r.revision, known_revision) + 1, compacted = greatest(r.revision, known_revision) + 1,
            began = greatest(r.revision, known_revision) + 1
        RETURNING * INTO counter;
        PERFORM pg_notify('tenantry_store', 'broken');
    END IF;
    revision := counter.revision;
    batch := counter.batch;
    epoch := counter.epoch::text;
    compacted := counter.compacted;
    before_revision := counter.revision;
    before_batch := counter.batch;
    IF outcome <> 'kept' OR cardinality(a_write) = 0 THEN
        RETURN;
    END IF;

    -- 4. Once. A batch that is sent again, because its answer was lost, finds itself: first and second may arrive in
    --    either order and as late as they like, one of them writes.
    IF known_revision < counter.revision
        AND EXISTS (SELECT FROM store_event AS e WHERE e.revision > known_revision AND e.batch = new_batch)
    THEN
        outcome := 'again';
        before_batch := NULL;
        SELECT array_agg(e.revision ORDER BY i.place), array_agg(coalesce(o.revision, 0) ORDER BY i.place),
            array_agg(CASE WHEN e.revision IS NULL THEN o.data ELSE e.previous END ORDER BY i.place)
        INTO given, met, met_data
        FROM unnest(a_type, a_space, a_group, a_resource, a_namespace, a_name) WITH ORDINALITY
            AS i (type, space, "group", resource, namespace, name, place)
        LEFT JOIN store_event AS e ON i.type <> 'CHECK' AND e.revision > known_revision AND e.batch = new_batch
            AND (e.space, e."group", e.resource, e.namespace, e.name)
                = (i.space, i."group", i.resource, i.namespace, i.name)
        LEFT JOIN store_object AS o ON (o."group", o.resource, o.space, o.namespace, o.name)
            = (i."group", i.resource, i.space, i.namespace, i.name);
        RETURN;
    END IF;

    -- 5. Judge and write. Each operation meets the row that is there, not what its caller remembers; a write of which
    --    one operation does not hold is left out whole. What is left gets the next revisions without a gap.
    -- 6. The rows are matched once more by the writing itself: an INSERT meets the unique key, UPDATE and DELETE the
    --    expected revision. The counter moves in the same statement, so nothing is ever there without the other.
    WITH op AS (
        SELECT i.*, coalesce(o.revision, 0) AS now, o.data AS now_data
        FROM unnest(
            a_write, a_type, a_space, a_group, a_resource, a_namespace, a_name, a_expected, a_uid, a_head, a_tail
        ) WITH ORDINALITY
            AS i (write, type, space, "group", resource, namespace, name, expected, uid, head, tail, place)
        LEFT JOIN store_object AS o ON (o."group", o.resource, o.space, o.namespace, o.name)
            = (i."group", i.resource, i.space, i.namespace, i.name)
    ), judged AS (
        SELECT op.*, type <> 'CHECK' AND NOT bool_or(
            now <> expected OR (expected = 0 AND type IN ('MODIFIED', 'DELETED'))
        ) OVER (PARTITION BY write) AS kept FROM op
    ), numbered AS (
        SELECT judged.*, CASE WHEN kept THEN
            counter.revision + count(*) FILTER (WHERE kept) OVER (ORDER BY place ROWS UNBOUNDED PRECEDING)
        END AS next FROM judged
    ), ready AS MATERIALIZED (
        SELECT numbered.*, head || convert_to(next::text, 'UTF8') || tail AS data FROM numbered
        ), gone AS (
        DELETE FROM store_object AS o USING ready AS k
        WHERE k.kept AND k.type = 'DELETED' AND o.revision = k.expected
            AND (o."group", o.resource, o.space, o.namespace, o.name)
                = (k."group", k.resource, k.space, k.namespace, k.name)
        RETURNING 1
    ), changed AS (
        UPDATE store_object AS o SET uid = k.uid, revision = k.next, data = k.data FROM ready AS k
        WHERE k.kept AND k.type = 'MODIFIED' AND o.revision = k.expected
            AND (o."group", o.resource, o.space, o.namespace, o.name)
                = (k."group", k.resource, k.space, k.namespace, k.name)
        RETURNING 1
    ), made AS (
        INSERT INTO store_object ("group", resource, space, namespace, name, uid, revision, data)
        SELECT "group", resource, space, namespace, name, uid, next, data FROM ready
        WHERE kept AND type = 'ADDED'
        RETURNING 1
    ), logged AS (
        INSERT INTO store_event
            (revision, batch, type, space, "group", resource, namespace, name, data, previous)
        SELECT next, new_batch, type, space, "group", resource, namespace, name, data, now_data FROM ready WHERE kept
    ), moved AS (
        UPDATE store_revision AS r SET revision = r.revision + n.events, batch = new_batch
        FROM (SELECT count(next) AS events FROM ready) AS n WHERE n.events > 0
    )
    SELECT array_agg(next ORDER BY place), array_agg(now ORDER BY place),
        array_agg(CASE WHEN type <> 'CHECK' OR now <> expected THEN now_data END ORDER BY place), count(next),
        (SELECT count(*) FROM gone) + (SELECT count(*) FROM changed) + (SELECT count(*) FROM made)
    INTO given, met, met_data, wanted, done
    FROM ready;
    IF wanted <> done THEN
        RAISE EXCEPTION 'the store wrote % rows of %', done, wanted;
    END IF;
    IF wanted > 0 THEN
        revision := revision + wanted;
        batch := new_batch;
    END IF;
END $function$;

CREATE PROCEDURE store_commit(
    known_epoch uuid, known_revision bigint, known_batch bigint, new_batch bigint,
    a_write bigint[], a_type text[], a_space text[], a_group text[], a_resource text[], a_namespace text[],
    a_name text[], a_expected bigint[], a_uid text[], a_head bytea[], a_tail bytea[],
    OUT outcome text, OUT revision bigint, OUT batch bigint, OUT epoch text, OUT compacted bigint,
    OUT before_revision bigint, OUT before_batch bigint,
    OUT given bigint[], OUT met bigint[], OUT met_data bytea[]
) LANGUAGE plpgsql AS $procedure$
BEGIN
    SELECT * INTO outcome, revision, batch, epoch, compacted, before_revision, before_batch, given, met, met_data
    FROM store_write(
        known_epoch, known_revision, known_batch, new_batch, a_write, a_type, a_space, a_group, a_resource,
        a_namespace, a_name, a_expected, a_uid, a_head, a_tail
    );
    -- 7. The end of the transaction, and of the lock, comes before the answer and before the client's next message: a
    --    client that is frozen while it sends or reads holds nothing.
    COMMIT;
END $procedure$;
"""

# Both lock the counter row and do all of their work in one call. The log's own locks are waited for shortly: a reader
# that is frozen in the middle of an answer makes a round fail, not the writers behind it wait.
LOG = """
DROP FUNCTION store_event_drop(bigint, bigint);
DROP FUNCTION store_event_extend(bigint, bigint, bigint);

CREATE FUNCTION store_log_extend(partition_revisions bigint, ahead bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $function$
DECLARE
    first bigint;
BEGIN
    SELECT (r.revision + 1) / partition_revisions INTO first FROM store_revision AS r FOR UPDATE;
    FOR number IN first .. first + ahead LOOP
        EXECUTE format(
            'CREATE TABLE IF NOT EXISTS store_event_%s PARTITION OF store_event FOR VALUES FROM (%s) TO (%s)',
            number, number * partition_revisions, (number + 1) * partition_revisions
        );
    END LOOP;
END $function$;

CREATE FUNCTION store_log_compact(
    partition_revisions bigint, ahead bigint, before timestamptz, most bigint,
    OUT mark bigint, OUT dropped bigint
) LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp SET lock_timeout = '500ms' AS $function$
DECLARE
    counter store_revision%ROWTYPE;
    number bigint;
    last bigint;
BEGIN
    dropped := 0;
    SELECT * INTO counter FROM store_revision FOR UPDATE;
    mark := counter.compacted;
    PERFORM store_log_extend(partition_revisions, ahead);
    FOR number IN
        SELECT substr(c.relname, length('store_event_') + 1)::bigint FROM pg_inherits
        JOIN pg_class AS c ON c.oid = inhrelid WHERE inhparent = 'store_event'::regclass ORDER BY 1
    LOOP
        last := (number + 1) * partition_revisions - 1;
        EXIT WHEN last > counter.revision;
        EXIT WHEN counter.revision - last < most AND EXISTS (
            SELECT FROM store_event AS e
            WHERE e.revision BETWEEN number * partition_revisions AND last AND e.written_at > before
        );
        EXECUTE format('DROP TABLE store_event_%s', number);
        mark := greatest(mark, last);
        dropped := dropped + 1;
    END LOOP;
    UPDATE store_revision AS r SET compacted = mark WHERE r.compacted < mark;
END $function$;
"""

UNDO = """
DROP PROCEDURE store_commit;
DROP FUNCTION store_write;
DROP FUNCTION store_log_compact;
DROP FUNCTION store_log_extend;
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("store", "0002_partitions")]
    operations: ClassVar = [
        migrations.AddField("Revision", "batch", models.BigIntegerField(db_default=0)),
        migrations.AddField("Revision", "began", models.BigIntegerField(db_default=0)),
        migrations.RunSQL(WRITE + LOG, UNDO + PARTITIONS.FORWARD),
    ]
