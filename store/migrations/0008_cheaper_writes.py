"""What a commit costs besides its writes.

The registry key is for people alone, and took a tenth of what a commit cost: PostgreSQL reads the text of an SQL function
and plans it anew for each statement that makes a row. One in PL/pgSQL it calls.

Statistics of the log are of no use, for whoever reads it asks by revisions that came after them; to gather them took a
core for a tenth of a second, once a minute, beside whoever waits for a commit.
"""

from importlib import import_module
from typing import ClassVar

from django.db import migrations

INITIAL = import_module("store.migrations.0001_initial")
TIMELINES = import_module("store.migrations.0007_timelines")
_with = TIMELINES._with  # noqa: SLF001 - the texts are changed once more

UNREAD = "autovacuum_analyze_threshold = 2147483647"
"""As many rows as no partition has."""

_KEY = _with(INITIAL.REGISTRY_KEY, ("CREATE FUNCTION", "CREATE OR REPLACE FUNCTION"))
KEY = (
    _with(_KEY, ("LANGUAGE sql IMMUTABLE", "LANGUAGE plpgsql IMMUTABLE"), ("\nRETURN ", "\nAS $$ BEGIN RETURN "))
    + "; END $$;"
)
EXTEND = _with(TIMELINES.EXTEND, ("FROM (%s) TO (%s)'", f"FROM (%s) TO (%s) WITH ({UNREAD})'"))

_PARTITIONS = """
DO $$
DECLARE
    partition regclass;
BEGIN
    FOR partition IN SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'store_event'::regclass LOOP
        EXECUTE format('ALTER TABLE %s {}', partition);
    END LOOP;
END $$;
"""


class Migration(migrations.Migration):
    """Both functions, and the partitions that there are."""

    dependencies: ClassVar = [("store", "0007_timelines")]
    operations: ClassVar = [
        migrations.RunSQL(KEY, _KEY),
        migrations.RunSQL(EXTEND, TIMELINES.EXTEND),
        migrations.RunSQL(
            _PARTITIONS.format(f"SET ({UNREAD})"), _PARTITIONS.format("RESET (autovacuum_analyze_threshold)")
        ),
    ]
