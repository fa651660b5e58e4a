"""Ends of workspaces, memberships and suspensions."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Columns that are empty so far."""

    dependencies = [
        ('tenants', '0022_notices'),
    ]

    operations = [
        migrations.AddField(
            model_name='membership',
            name='warned_days',
            field=models.PositiveSmallIntegerField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name='tenant',
            name='suspended_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='workspace',
            name='expires_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='workspace',
            name='suspended_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='workspace',
            name='warned_days',
            field=models.PositiveSmallIntegerField(editable=False, null=True),
        ),
        migrations.AddIndex(
            model_name='workspace',
            index=models.Index(condition=models.Q(('expires_at__isnull', False)), fields=['expires_at'], name='workspace_end'),
        ),
        migrations.AddIndex(
            model_name='workspace',
            index=models.Index(condition=models.Q(('suspended_until__isnull', False)), fields=['suspended_until'], name='workspace_until'),
        ),
    ]
