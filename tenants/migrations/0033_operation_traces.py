"""Work goes on in the trace in which it was asked for."""

from django.db import migrations, models

import audit.tracing


class Migration(migrations.Migration):
    """A column that whoever does not know it leaves empty."""

    dependencies = [
        ('tenants', '0032_notices_of_tokens'),
    ]

    operations = [
        migrations.AddField(
            model_name='operation',
            name='traceparent',
            field=models.CharField(blank=True, db_default='', default=audit.tracing.traceparent, editable=False, max_length=55),
        ),
    ]
