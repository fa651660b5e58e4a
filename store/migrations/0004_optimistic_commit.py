"""The common case of a commit costs one short statement a table.

``store_write`` finds out what is there, and what of it holds. Mostly nobody else has written since the caller last heard
of the counter, and every operation holds: ``store_commit`` tries that first, and undoes it when it was not so.
"""

from importlib import import_module
from typing import ClassVar

from django.db import migrations

CONTINUITY = import_module("store.migrations.0003_continuity")

DROP = "DROP PROCEDURE store_commit;"

# ``a_given`` are the revisions that the operations get if all of them hold behind what the caller knows.
COMMIT = """
CREATE PROCEDURE store_commit(
    known_epoch uuid, known_revision bigint, known_batch bigint, new_batch bigint,
    a_write bigint[], a_type text[], a_space text[], a_group text[], a_resource text[], a_namespace text[],
    a_name text[], a_expected bigint[], a_uid text[], a_head bytea[], a_tail bytea[],
    next_revision bigint, a_given bigint[],
    OUT outcome text, OUT revision bigint, OUT batch bigint, OUT epoch text, OUT compacted bigint,
    OUT before_revision bigint, OUT before_batch bigint,
    OUT given bigint[], OUT met bigint[], OUT met_data bytea[]
) LANGUAGE plpgsql AS $procedure$
#variable_conflict use_column
DECLARE
    operations CONSTANT integer := cardinality(a_write);
    held integer := 0;
    done integer := 0;
    body bytea;
    found_data bytea;
BEGIN
    -- a. The counter, standing where the caller's knowledge ends, with the same epoch and batch, is the proof of
    --    continuity and the lock in one, and shows that this batch was not written before (steps 1, 2 and 4 of
    --    store_write). Whoever had to wait for the row finds it moved, and loses: so no snapshot here is older than
    --    the last write.
    IF next_revision > known_revision THEN
        UPDATE store_revision AS r SET revision = next_revision, batch = new_batch
        WHERE r.revision = known_revision AND r.batch = known_batch AND r.epoch = known_epoch
        RETURNING r.compacted INTO compacted;
        -- b. Each row decides by itself (steps 5 and 6): an INSERT meets the unique key, UPDATE and DELETE the
        --    expected revision. One statement a row is cheaper for a few, one for all of them from there on.
        IF FOUND AND operations <= 3 THEN
            FOR place IN 1 .. operations LOOP
                IF a_type[place] = 'CHECK' THEN
                    IF a_expected[place] = 0 THEN
                        EXIT; -- what is not there cannot be read: store_write compares
                    END IF;
                    PERFORM FROM store_object AS o
                    WHERE o."group" = a_group[place] AND o.resource = a_resource[place] AND o.space = a_space[place]
                        AND o.namespace = a_namespace[place] AND o.name = a_name[place]
                        AND o.revision = a_expected[place];
                    EXIT WHEN NOT FOUND;
                    met_data[place] := NULL;
                ELSE
                    body := a_head[place] || convert_to(a_given[place]::text, 'UTF8') || a_tail[place];
                    IF a_type[place] = 'ADDED' THEN
                        INSERT INTO store_object ("group", resource, space, namespace, name, uid, revision, data)
                        VALUES (a_group[place], a_resource[place], a_space[place], a_namespace[place], a_name[place],
                            a_uid[place], a_given[place], body)
                        ON CONFLICT DO NOTHING;
                        found_data := NULL;
                    ELSIF a_type[place] = 'MODIFIED' THEN
                        SELECT o.data INTO found_data FROM store_object AS o
                        WHERE o."group" = a_group[place] AND o.resource = a_resource[place]
                            AND o.space = a_space[place] AND o.namespace = a_namespace[place]
                            AND o.name = a_name[place];
                        UPDATE store_object AS o SET uid = a_uid[place], revision = a_given[place], data = body
                        WHERE o."group" = a_group[place] AND o.resource = a_resource[place]
                            AND o.space = a_space[place] AND o.namespace = a_namespace[place]
                            AND o.name = a_name[place] AND o.revision = a_expected[place];
                    ELSE
                        DELETE FROM store_object AS o
                        WHERE o."group" = a_group[place] AND o.resource = a_resource[place]
                            AND o.space = a_space[place] AND o.namespace = a_namespace[place]
                            AND o.name = a_name[place] AND o.revision = a_expected[place]
                        RETURNING o.data INTO found_data;
                    END IF;
                    EXIT WHEN NOT FOUND;
                    INSERT INTO store_event
                        (revision, batch, type, space, "group", resource, namespace, name, data, previous)
                    VALUES (a_given[place], new_batch, a_type[place], a_space[place], a_group[place],
                        a_resource[place], a_namespace[place], a_name[place], body, found_data);
                    met_data[place] := found_data;
                END IF;
                held := held + 1;
            END LOOP;
            done := next_revision - known_revision;
        ELSIF FOUND THEN
            WITH op AS MATERIALIZED (
                SELECT i.*, o.ctid AS row, o.data AS now_data, head || convert_to(next::text, 'UTF8') || tail AS data
                FROM unnest(
                    a_type, a_space, a_group, a_resource, a_namespace, a_name, a_expected, a_uid, a_head, a_tail, a_given
                ) WITH ORDINALITY
                    AS i (type, space, "group", resource, namespace, name, expected, uid, head, tail, next, place)
                LEFT JOIN store_object AS o ON o."group" = i."group" AND o.resource = i.resource
                    AND o.space = i.space AND o.namespace = i.namespace AND o.name = i.name
                WHERE coalesce(o.revision, 0) = expected
            ), gone AS (
                DELETE FROM store_object AS o USING op
                WHERE op.type = 'DELETED' AND o.ctid = op.row AND o.revision = op.expected
                RETURNING 1
            ), changed AS (
                UPDATE store_object AS o SET uid = op.uid, revision = op.next, data = op.data FROM op
                WHERE op.type = 'MODIFIED' AND o.ctid = op.row AND o.revision = op.expected
                RETURNING 1
            ), made AS (
                INSERT INTO store_object ("group", resource, space, namespace, name, uid, revision, data)
                SELECT "group", resource, space, namespace, name, uid, next, data FROM op WHERE type = 'ADDED'
                RETURNING 1
            ), logged AS (
                INSERT INTO store_event
                    (revision, batch, type, space, "group", resource, namespace, name, data, previous)
                SELECT next, new_batch, type, space, "group", resource, namespace, name, data, now_data FROM op
                WHERE next IS NOT NULL
            )
            SELECT count(*), array_agg(CASE WHEN type <> 'CHECK' THEN now_data END ORDER BY place),
                (SELECT count(*) FROM gone) + (SELECT count(*) FROM changed) + (SELECT count(*) FROM made)
            INTO held, met_data, done
            FROM op;
        END IF;
    END IF;
    IF held = operations AND done = next_revision - known_revision AND done > 0 THEN
        outcome := 'kept';
        revision := next_revision;
        batch := new_batch;
        epoch := known_epoch::text;
        before_revision := known_revision;
        before_batch := known_batch;
        given := a_given;
        met := a_expected;
    ELSE
        -- c. Nothing of it has been.
        ROLLBACK;
        SELECT * INTO outcome, revision, batch, epoch, compacted, before_revision, before_batch, given, met, met_data
        FROM store_write(
            known_epoch, known_revision, known_batch, new_batch, a_write, a_type, a_space, a_group, a_resource,
            a_namespace, a_name, a_expected, a_uid, a_head, a_tail
        );
    END IF;
    -- 7. The end of the transaction, and of the lock, comes before the answer and before the client's next message: a
    --    client that is frozen while it sends or reads holds nothing.
    COMMIT;
END $procedure$;
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("store", "0003_continuity")]
    operations: ClassVar = [
        migrations.RunSQL(DROP + COMMIT, DROP + CONTINUITY.WRITE[CONTINUITY.WRITE.index("CREATE PROCEDURE") :]),
    ]
