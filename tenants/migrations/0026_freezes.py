"""What is held still."""

import django.db.models.deletion
import django.utils.timezone
import uuid
from django.db import migrations, models


class Migration(migrations.Migration):
    """A table of its own; nothing else is touched."""

    dependencies = [
        ('tenants', '0025_announcements'),
    ]

    operations = [
        migrations.CreateModel(
            name='Freeze',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('space', models.CharField(max_length=512)),
                ('namespace', models.CharField(blank=True, max_length=63)),
                ('reason', models.CharField(max_length=512)),
                ('frozen_by', models.CharField(max_length=254)),
                ('frozen_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('until', models.DateTimeField(blank=True, null=True)),
                ('tenant', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='freezes', to='tenants.tenant')),
                ('workspace', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='freezes', to='tenants.workspace')),
            ],
            options={
                'verbose_name': 'freeze',
                'verbose_name_plural': 'freezes',
                'db_table': 'freezes',
                'indexes': [models.Index(condition=models.Q(('until__isnull', False)), fields=['until'], name='freeze_end')],
                'constraints': [models.UniqueConstraint(fields=('space', 'namespace'), name='freeze_unique')],
            },
        ),
    ]
