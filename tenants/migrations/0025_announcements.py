"""What operators say on top of every page."""

import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Tables of their own; nothing else is touched."""

    dependencies = [
        ('tenants', '0024_usage_objects_placed'),
    ]

    operations = [
        migrations.CreateModel(
            name='Announcement',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('text', models.CharField(max_length=500)),
                ('severity', models.CharField(choices=[('info', 'Information'), ('warning', 'Maintenance or warning'), ('critical', 'Outage')], default='info', max_length=8)),
                ('audience', models.CharField(choices=[('everybody', 'Everybody'), ('tenants', 'Members of some tenants'), ('tiers', 'Members of tenants with workspaces of some tiers')], default='everybody', max_length=9)),
                ('dismissible', models.BooleanField(default=True)),
                ('starts_at', models.DateTimeField()),
                ('ends_at', models.DateTimeField(blank=True, null=True)),
                ('created_by', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('dismissed_by', models.ManyToManyField(blank=True, db_table='announcement_dismissals', editable=False, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('tenants', models.ManyToManyField(blank=True, db_table='announcement_tenants', related_name='+', to='tenants.tenant')),
                ('tiers', models.ManyToManyField(blank=True, db_table='announcement_tiers', related_name='+', to='tenants.tier')),
            ],
            options={
                'verbose_name': 'announcement',
                'verbose_name_plural': 'announcements',
                'db_table': 'announcements',
                'constraints': [models.CheckConstraint(condition=models.Q(('severity__in', ['info', 'warning', 'critical'])), name='announcement_severity'), models.CheckConstraint(condition=models.Q(('audience__in', ['everybody', 'tenants', 'tiers'])), name='announcement_audience')],
            },
        ),
    ]
