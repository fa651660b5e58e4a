"""Requests by the day, so that what is forgotten goes in small pieces, and a bound on the bytes of all.

Partitions of months that are there stay until they are past: what takes a moment is asked of the function, and a server of the
version before, which copies into months, finds those that it has prepared.
"""

from importlib import import_module

from django.db import migrations

FORWARD = """
DROP FUNCTION api_requests_partition(timestamptz);
DROP FUNCTION api_requests_forget(timestamptz);

CREATE FUNCTION api_requests_partitions(OUT name text, OUT first timestamptz, OUT beyond timestamptz) RETURNS SETOF record
LANGUAGE sql STABLE SET search_path = public, pg_temp AS $$
  SELECT relname, bounds[1]::timestamptz, bounds[2]::timestamptz
  FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid,
    regexp_match(pg_get_expr(relpartbound, pg_class.oid), 'FROM \\(''(.*)''\\) TO \\(''(.*)''\\)') AS bounds
  WHERE inhparent = 'api_requests'::regclass
$$;

CREATE FUNCTION api_requests_partition(moment timestamptz) RETURNS text LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
  day timestamp := date_trunc('day', moment AT TIME ZONE 'UTC');
  wanted text := 'api_requests_' || to_char(day, 'YYYYMMDD');
  there text;
  writer regrole;
BEGIN
  IF to_regclass(wanted) IS NOT NULL THEN RETURN wanted; END IF;
  PERFORM pg_advisory_xact_lock(hashtext('api_requests_partition'));
  SELECT name INTO there FROM api_requests_partitions() WHERE first <= moment AND moment < beyond;
  IF there IS NOT NULL THEN RETURN there; END IF;
  EXECUTE format('CREATE TABLE %I PARTITION OF api_requests FOR VALUES FROM (%L) TO (%L)',
                 wanted, day AT TIME ZONE 'UTC', (day + interval '1 day') AT TIME ZONE 'UTC');
  -- Rows are copied straight into a partition: COPY knows no row-level security, which stands before their parent.
  FOR writer IN SELECT DISTINCT grantee::regrole FROM pg_class, aclexplode(relacl)
    WHERE pg_class.oid = 'api_requests'::regclass AND privilege_type = 'INSERT' AND grantee <> relowner
  LOOP
    EXECUTE format('GRANT INSERT ON %I TO %s', wanted, writer);
  END LOOP;
  RETURN wanted;
END $$;

-- Drops what ended before a moment, and the oldest while all together have more bytes than they may; nothing that is not
-- over by the database's own clock.
CREATE FUNCTION api_requests_forget(before timestamptz, most bigint DEFAULT NULL) RETURNS SETOF text
LANGUAGE plpgsql SECURITY DEFINER SET search_path = public, pg_temp AS $$
DECLARE
  part record;
  held bigint := (SELECT coalesce(sum(pg_total_relation_size(quote_ident(name))), 0) FROM api_requests_partitions());
  bytes bigint;
BEGIN
  FOR part IN SELECT name, beyond FROM api_requests_partitions() WHERE beyond <= now() ORDER BY beyond
  LOOP
    CONTINUE WHEN part.beyond > before AND (most IS NULL OR held <= most);
    bytes := pg_total_relation_size(quote_ident(part.name));
    EXECUTE format('DROP TABLE %I', part.name);
    held := held - bytes;
    RETURN NEXT part.name;
  END LOOP;
END $$;
"""

WRITERS = import_module("audit.migrations.0007_writers")
BACKWARD = f"""
CREATE TEMPORARY TABLE days AS SELECT name, first FROM api_requests_partitions() WHERE name ~ '^api_requests_[0-9]{{8}}$';
DROP FUNCTION api_requests_forget(timestamptz, bigint);
DROP FUNCTION api_requests_partition(timestamptz);
DROP FUNCTION api_requests_partitions();
{WRITERS.FORWARD[WRITERS.FORWARD.index("CREATE OR REPLACE FUNCTION api_requests_partition") :]}
DO $$
DECLARE
  day record;
BEGIN
  FOR day IN SELECT name FROM days LOOP
    EXECUTE format('ALTER TABLE api_requests DETACH PARTITION %I', day.name);
  END LOOP;
  FOR day IN SELECT name, first FROM days ORDER BY first LOOP
    PERFORM api_requests_partition(day.first);
    EXECUTE format('INSERT INTO api_requests SELECT * FROM %I', day.name);
    EXECUTE format('DROP TABLE %I', day.name);
  END LOOP;
END $$;
DROP TABLE days;
"""


class Migration(migrations.Migration):
    """Functions alone; partitions are made as they are needed."""

    dependencies = [("audit", "0008_refused_ids")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
