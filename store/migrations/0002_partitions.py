"""The log's partitions are made and dropped by functions: the running product owns no tables."""

from typing import ClassVar

from django.db import migrations

FORWARD = """
CREATE FUNCTION store_event_extend(first bigint, last bigint, size bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  FOR number IN first..least(last, first + 100) LOOP
    EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF store_event FOR VALUES FROM (%s) TO (%s)',
                   'store_event_' || number, number * size, (number + 1) * size);
  END LOOP;
END $$;

CREATE FUNCTION store_event_drop(number bigint, size bigint) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
BEGIN
  IF (number + 1) * size - 1 > (SELECT revision FROM store_revision) THEN
    RAISE EXCEPTION 'partition % of the change log is still written to', number USING ERRCODE = 'insufficient_privilege';
  END IF;
  EXECUTE format('DROP TABLE %I', 'store_event_' || number);
END $$;
"""

BACKWARD = """
DROP FUNCTION store_event_drop(bigint, bigint);
DROP FUNCTION store_event_extend(bigint, bigint, bigint);
"""


class Migration(migrations.Migration):
    """Functions that run with the rights of whoever owns the tables."""

    dependencies: ClassVar = [("store", "0001_initial")]
    operations: ClassVar = [migrations.RunSQL(FORWARD, BACKWARD)]
