"""What operators have put off in the inbox."""

import django.utils.timezone
import uuid
from django.db import migrations, models


class Migration(migrations.Migration):
    """A table of its own."""

    dependencies = [
        ('tenants', '0027_passkeys'),
    ]

    operations = [
        migrations.CreateModel(
            name='Postponement',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(max_length=16)),
                ('name', models.CharField(max_length=320)),
                ('cause', models.CharField(blank=True, max_length=500)),
                ('reason', models.CharField(max_length=512)),
                ('until', models.DateTimeField()),
                ('postponed_by', models.CharField(max_length=254)),
                ('postponed_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'verbose_name': 'postponement',
                'verbose_name_plural': 'postponements',
                'db_table': 'postponements',
                'constraints': [models.UniqueConstraint(fields=('kind', 'name'), name='postponement_unique')],
            },
        ),
    ]
