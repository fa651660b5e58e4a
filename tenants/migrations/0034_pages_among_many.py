"""What finds the rows of a page among those of very many tenants."""

import django.db.models.functions.text
from django.db import migrations, models

# Strict: hours without a quota have no fullest part, and cost no comparison.
FULLEST = """
CREATE FUNCTION usage_fullest(used jsonb, hard jsonb) RETURNS numeric LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
  SELECT max((used ->> name)::numeric / nullif(amount::numeric, 0)) FROM jsonb_each_text(hard) AS quota(name, amount)
$$;
CREATE INDEX usage_hour_nearly_full ON usage_hours (hour)
  WHERE namespace = '' AND usage_fullest(used, hard) > 0.9;
"""
AGAIN = "DROP INDEX usage_hour_nearly_full; DROP FUNCTION usage_fullest(jsonb, jsonb);"


class Migration(migrations.Migration):
    """Indexes alone, one of them on how full the fullest part of a quota is."""

    dependencies = [
        ('tenants', '0033_operation_traces'),
    ]

    operations = [
        migrations.RunSQL(FULLEST, AGAIN),
        migrations.AddIndex(
            model_name='user', index=models.Index(fields=['-created_at', '-id'], name='user_time')
        ),
        migrations.AddIndex(
            model_name='user',
            index=models.Index(condition=models.Q(('is_staff', True)), fields=['email'], name='user_operator'),
        ),
        migrations.AddIndex(
            model_name='user',
            index=models.Index(django.db.models.functions.text.Upper('email'), name='user_email_upper'),
        ),
        migrations.AddIndex(
            model_name='workspace',
            index=models.Index(
                condition=models.Q(models.Q(('phase', 'deleted'), _negated=True), models.Q(('phase', 'ready'), _negated=True)),
                fields=['status'],
                name='workspace_not_ready',
            ),
        ),
        migrations.AddIndex(
            model_name='operation', index=models.Index(fields=['-created_at', '-id'], name='operation_time')
        ),
    ]
