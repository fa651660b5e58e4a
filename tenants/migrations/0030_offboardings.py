"""Tenants that leave."""

import django.db.models.deletion
import django.utils.timezone
from django.db import migrations, models


class Migration(migrations.Migration):
    """A table of its own, and a kind of request."""

    dependencies = [
        ('tenants', '0029_stored_mebibytes'),
    ]

    operations = [
        migrations.AlterField(
            model_name='accessrequest',
            name='kind',
            field=models.CharField(choices=[('tenant', 'A tenant'), ('tier', 'Another tier for a workspace'), ('quota', 'More quota for a tenant'), ('role', 'A role in a tenant'), ('break-glass', 'Break-glass: a role for some hours'), ('leave', 'The end of a tenant')], max_length=11),
        ),
        migrations.CreateModel(
            name='Offboarding',
            fields=[
                ('tenant', models.OneToOneField(on_delete=django.db.models.deletion.CASCADE, primary_key=True, related_name='offboarding', serialize=False, to='tenants.tenant')),
                ('manner', models.CharField(choices=[('freeze', 'Frozen: its people read on and write nothing'), ('suspend', 'Suspended: its space is closed')], default='freeze', max_length=7)),
                ('was_closed', models.BooleanField(default=False)),
                ('reason', models.CharField(max_length=400)),
                ('begun_by', models.CharField(max_length=254)),
                ('begun_at', models.DateTimeField(default=django.utils.timezone.now)),
                ('ends_at', models.DateTimeField()),
                ('warned_days', models.PositiveSmallIntegerField(editable=False, null=True)),
            ],
            options={
                'verbose_name': 'offboarding',
                'verbose_name_plural': 'offboardings',
                'db_table': 'offboardings',
                'indexes': [models.Index(fields=['ends_at'], name='offboarding_end')],
            },
        ),
    ]
