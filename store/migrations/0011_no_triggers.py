"""The triggers that counted the bytes of each space go: they do nothing since the change log tells of these."""

from importlib import import_module
from typing import ClassVar

from django.db import migrations

SPACES = import_module("store.migrations.0006_space_sizes")

FORWARD = """
DROP TRIGGER store_object_emptied ON store_object;
DROP TRIGGER store_object_gone ON store_object;
DROP TRIGGER store_object_changed ON store_object;
DROP TRIGGER store_object_made ON store_object;
DROP FUNCTION store_space_count();
"""

_TRIGGERS = SPACES.FORWARD[SPACES.FORWARD.index("CREATE TRIGGER") : SPACES.FORWARD.index("-- The triggers' lock")]
BACKWARD = f"""
CREATE FUNCTION store_space_count() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
{_TRIGGERS}
"""


class Migration(migrations.Migration):
    """One table alone is locked for it."""

    dependencies: ClassVar = [("store", "0010_sizes_from_the_log")]
    operations: ClassVar = [migrations.RunSQL(FORWARD, BACKWARD)]
