"""What the running product may not do to the audit by itself, functions do for it, each only what it is for.

The product's role has INSERT and SELECT on the log and nothing but SELECT on the anchors; it owns neither, so it can
neither change the past nor take the triggers away that refuse it. An anchor moves by the insertion of the row that it
is moved to, and a partition goes once its month is over.
"""

from django.db import migrations

FORWARD = """
CREATE FUNCTION audit_chain_head(wanted text, OUT sequence bigint, OUT hash text, OUT now timestamptz)
LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
AS $$
  INSERT INTO audit_chains AS c (chain, sequence, hash) VALUES (wanted, 0, repeat('0', 64))
  ON CONFLICT (chain) DO UPDATE SET sequence = c.sequence
  RETURNING c.sequence, c.hash, clock_timestamp()
$$;

CREATE FUNCTION audit_chain_extend() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
BEGIN
  UPDATE audit_chains SET sequence = NEW.sequence, hash = NEW.hash
  WHERE chain = NEW.chain AND sequence = NEW.sequence - 1 AND hash = NEW.previous_hash;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'row % does not follow from where the audit chain % ends', NEW.sequence, NEW.chain
      USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NEW;
END $$;
CREATE TRIGGER audit_logs_extend BEFORE INSERT ON audit_logs FOR EACH ROW EXECUTE FUNCTION audit_chain_extend();

CREATE OR REPLACE FUNCTION api_requests_partition(moment timestamptz) RETURNS void LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
  first timestamp := date_trunc('month', moment AT TIME ZONE 'UTC');
  name text := 'api_requests_' || to_char(first, 'YYYYMM');
  writer regrole;
BEGIN
  IF to_regclass(name) IS NOT NULL THEN RETURN; END IF;
  PERFORM pg_advisory_xact_lock(hashtext('api_requests_partition'));
  EXECUTE format('CREATE TABLE IF NOT EXISTS %I PARTITION OF api_requests FOR VALUES FROM (%L) TO (%L)',
                 name, first AT TIME ZONE 'UTC', (first + interval '1 month') AT TIME ZONE 'UTC');
  -- Rows are copied straight into a partition: COPY knows no row-level security, which stands before their parent.
  FOR writer IN SELECT DISTINCT grantee::regrole FROM pg_class, aclexplode(relacl)
    WHERE pg_class.oid = 'api_requests'::regclass AND privilege_type = 'INSERT' AND grantee <> relowner
  LOOP
    EXECUTE format('GRANT INSERT ON %I TO %s', name, writer);
  END LOOP;
END $$;

CREATE FUNCTION api_requests_forget(before timestamptz) RETURNS SETOF text LANGUAGE plpgsql SECURITY DEFINER
SET search_path = public, pg_temp AS $$
DECLARE
  bound text := to_char(least(before, now()) AT TIME ZONE 'UTC', 'YYYYMM');
  name text;
BEGIN
  FOR name IN SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
    WHERE inhparent = 'api_requests'::regclass AND child.relname ~ '^api_requests_[0-9]{6}$'
      AND right(child.relname, 6) < bound ORDER BY 1
  LOOP
    EXECUTE format('DROP TABLE %I', name);
    RETURN NEXT name;
  END LOOP;
END $$;
"""

BACKWARD = """
DROP FUNCTION api_requests_forget(timestamptz);
ALTER FUNCTION api_requests_partition(timestamptz) SECURITY INVOKER RESET search_path;
DROP TRIGGER audit_logs_extend ON audit_logs;
DROP FUNCTION audit_chain_extend();
DROP FUNCTION audit_chain_head(text);
"""


class Migration(migrations.Migration):
    """Functions that run with the rights of whoever owns the tables."""

    dependencies = [("audit", "0006_labels")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
