"""The database itself refuses to change the past (GW13)."""

from django.db import migrations

FORWARD = """
CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only: % is refused', TG_TABLE_NAME, TG_OP USING ERRCODE = 'insufficient_privilege';
END $$;

CREATE FUNCTION audit_chain_grows() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  IF NEW.chain <> OLD.chain OR NEW.sequence < OLD.sequence
     OR (NEW.sequence = OLD.sequence AND NEW.hash <> OLD.hash) THEN
    RAISE EXCEPTION 'audit chain % only grows', OLD.chain USING ERRCODE = 'insufficient_privilege';
  END IF;
  RETURN NEW;
END $$;

CREATE TRIGGER audit_logs_no_change BEFORE UPDATE OR DELETE ON audit_logs
  FOR EACH ROW EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER audit_logs_no_truncate BEFORE TRUNCATE ON audit_logs
  FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER audit_chains_grow BEFORE UPDATE ON audit_chains
  FOR EACH ROW EXECUTE FUNCTION audit_chain_grows();
CREATE TRIGGER audit_chains_no_delete BEFORE DELETE ON audit_chains
  FOR EACH ROW EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER audit_chains_no_truncate BEFORE TRUNCATE ON audit_chains
  FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();
"""

BACKWARD = """
DROP TRIGGER audit_chains_no_truncate ON audit_chains;
DROP TRIGGER audit_chains_no_delete ON audit_chains;
DROP TRIGGER audit_chains_grow ON audit_chains;
DROP TRIGGER audit_logs_no_truncate ON audit_logs;
DROP TRIGGER audit_logs_no_change ON audit_logs;
DROP FUNCTION audit_chain_grows();
DROP FUNCTION audit_refuse();
"""


class Migration(migrations.Migration):
    """Triggers against UPDATE, DELETE and TRUNCATE."""

    dependencies = [("audit", "0001_entries")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
