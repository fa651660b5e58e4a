"""How many bytes of objects each space holds, counted where they are written: by triggers, in the writer's transaction.

One row a space, and no slots, no log of changes that somebody folds later: whoever writes objects holds the counter row
(``store_write``, ``store_commit``) until the transaction ends, so no two writers of the product ever want the same row of
``store_space`` at once, and nobody waits for it who has not waited already. Whoever writes past the product (an operator's
SQL) locks the rows of the spaces in their order, those that he writes to alone. A crash or a rollback takes the count back
with the write.

The product may only read the rows: the triggers run as the owner of the tables, for a release that knows nothing of them
too. A space that holds nothing has no row, so that spaces that come and go leave nothing. A restore brings the rows with
the objects, as the tables of one snapshot.
"""

from typing import ClassVar

from django.db import migrations, models

# ``octet_length`` of bytes that are not compressed reads their length alone, wherever they are kept.
FORWARD = """
ALTER TABLE store_space SET (fillfactor = 10, autovacuum_vacuum_threshold = 1000);

CREATE FUNCTION store_space_count() RETURNS trigger
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF TG_OP = 'INSERT' THEN
    INSERT INTO store_space AS s (space, bytes)
    SELECT n.space, sum(octet_length(n.data)) FROM made AS n GROUP BY n.space ORDER BY n.space
    ON CONFLICT (space) DO UPDATE SET bytes = s.bytes + excluded.bytes;
  ELSIF TG_OP = 'UPDATE' THEN
    INSERT INTO store_space AS s (space, bytes)
    SELECT c.space, sum(c.more) FROM (
      SELECT n.space, octet_length(n.data) AS more FROM made AS n
      UNION ALL SELECT o.space, -octet_length(o.data) FROM gone AS o
    ) AS c GROUP BY c.space HAVING sum(c.more) <> 0 ORDER BY c.space
    ON CONFLICT (space) DO UPDATE SET bytes = s.bytes + excluded.bytes;
  ELSIF TG_OP = 'DELETE' THEN
    INSERT INTO store_space AS s (space, bytes)
    SELECT o.space, -sum(octet_length(o.data)) FROM gone AS o GROUP BY o.space ORDER BY o.space
    ON CONFLICT (space) DO UPDATE SET bytes = s.bytes + excluded.bytes;
    DELETE FROM store_space AS s WHERE s.bytes = 0 AND s.space IN (SELECT o.space FROM gone AS o);
  ELSE
    DELETE FROM store_space;
  END IF;
  RETURN NULL;
END $$;

CREATE TRIGGER store_object_made AFTER INSERT ON store_object
REFERENCING NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION store_space_count();
CREATE TRIGGER store_object_changed AFTER UPDATE ON store_object
REFERENCING OLD TABLE AS gone NEW TABLE AS made FOR EACH STATEMENT EXECUTE FUNCTION store_space_count();
CREATE TRIGGER store_object_gone AFTER DELETE ON store_object
REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION store_space_count();
CREATE TRIGGER store_object_emptied AFTER TRUNCATE ON store_object
FOR EACH STATEMENT EXECUTE FUNCTION store_space_count();

-- The triggers' lock keeps writers out until this transaction ends: nothing is missed, and nothing counted twice.
INSERT INTO store_space (space, bytes) SELECT space, sum(octet_length(data)) FROM store_object GROUP BY space;
"""

BACKWARD = """
DROP TRIGGER store_object_emptied ON store_object;
DROP TRIGGER store_object_gone ON store_object;
DROP TRIGGER store_object_changed ON store_object;
DROP TRIGGER store_object_made ON store_object;
DROP FUNCTION store_space_count();
"""


class Migration(migrations.Migration):
    """The rows, what counts, and what is there already."""

    dependencies: ClassVar = [("store", "0005_read_leases")]
    operations: ClassVar = [
        migrations.CreateModel(
            name="SpaceSize",
            fields=[
                ("space", models.TextField(db_collation="C", primary_key=True, serialize=False)),
                ("bytes", models.BigIntegerField()),
            ],
            options={"db_table": "store_space"},
        ),
        migrations.RunSQL(FORWARD, BACKWARD),
    ]
