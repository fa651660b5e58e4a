"""A tenant's offboarding ends with its row, whoever takes that away: the release before knows of no offboardings."""

from django.db import migrations

_AGAIN = """
DO $$
DECLARE
    name text;
BEGIN
    SELECT conname INTO STRICT name FROM pg_constraint WHERE conrelid = 'offboardings'::regclass AND contype = 'f';
    EXECUTE format(
        'ALTER TABLE offboardings DROP CONSTRAINT %I, ADD CONSTRAINT %I FOREIGN KEY (tenant_id) REFERENCES tenants (name)'
        ' {}DEFERRABLE INITIALLY DEFERRED', name, name
    );
END $$;
"""


class Migration(migrations.Migration):
    """The database itself does what Django does where it knows the table."""

    dependencies = [
        ('tenants', '0034_pages_among_many'),
    ]

    operations = [migrations.RunSQL(_AGAIN.format("ON DELETE CASCADE "), _AGAIN.format(""))]
