"""What people ask others for; memberships that end, or give more for a while."""

import django.db.models.deletion
import django.db.models.functions.comparison
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Tables of their own, and columns that are empty so far."""

    dependencies = [
        ('tenants', '0020_accounts'),
    ]

    operations = [
        migrations.CreateModel(
            name='AccessRequest',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('tenant', 'A tenant'), ('tier', 'Another tier for a workspace'), ('quota', 'More quota for a tenant'), ('role', 'A role in a tenant'), ('break-glass', 'Break-glass: a role for some hours')], max_length=11)),
                ('state', models.CharField(choices=[('open', 'Open'), ('approved', 'Approved'), ('denied', 'Denied'), ('withdrawn', 'Withdrawn'), ('expired', 'Expired')], default='open', max_length=9)),
                ('approvers', models.CharField(choices=[('owner', 'An owner of the tenant, or an operator'), ('operator', 'An operator'), ('two', 'Two persons, each of whom may')], max_length=8)),
                ('name', models.CharField(blank=True, max_length=63)),
                ('display_name', models.CharField(blank=True, max_length=128)),
                ('role', models.CharField(blank=True, choices=[('owner', 'Owner'), ('admin', 'Admin'), ('editor', 'Editor'), ('viewer', 'Viewer')], max_length=6)),
                ('hard', models.JSONField(blank=True, default=dict)),
                ('minutes', models.PositiveIntegerField(default=0)),
                ('reason', models.CharField(max_length=1024)),
                ('decided_by', models.CharField(blank=True, max_length=254)),
                ('decided_at', models.DateTimeField(null=True)),
                ('answer', models.CharField(blank=True, max_length=512)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('expires_at', models.DateTimeField()),
            ],
            options={
                'verbose_name': 'request',
                'verbose_name_plural': 'requests',
                'db_table': 'access_requests',
            },
        ),
        migrations.CreateModel(
            name='RequestComment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('author', models.CharField(max_length=254)),
                ('text', models.CharField(max_length=2048)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
            ],
            options={
                'db_table': 'request_comments',
            },
        ),
        migrations.AddField(
            model_name='membership',
            name='break_glass',
            field=models.BooleanField(default=False, editable=False),
        ),
        migrations.AddField(
            model_name='membership',
            name='expires_at',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='membership',
            name='raised_role',
            field=models.CharField(blank=True, choices=[('owner', 'Owner'), ('admin', 'Admin'), ('editor', 'Editor'), ('viewer', 'Viewer')], editable=False, max_length=6),
        ),
        migrations.AddField(
            model_name='membership',
            name='raised_until',
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddField(
            model_name='tier',
            name='approval',
            field=models.CharField(blank=True, choices=[('owner', 'An owner of the tenant, or an operator'), ('operator', 'An operator'), ('two', 'Two persons, each of whom may')], max_length=8, verbose_name='given on request by'),
        ),
        migrations.AddIndex(
            model_name='membership',
            index=models.Index(condition=models.Q(('expires_at__isnull', False)), fields=['expires_at'], name='membership_end'),
        ),
        migrations.AddIndex(
            model_name='membership',
            index=models.Index(condition=models.Q(('raised_until__isnull', False)), fields=['raised_until'], name='membership_raise'),
        ),
        migrations.AddConstraint(
            model_name='membership',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('raised_role', ''), ('raised_until__isnull', True)), models.Q(models.Q(('raised_role', ''), _negated=True), ('raised_until__isnull', False)), _connector='OR'), name='membership_raise_ends'),
        ),
        migrations.AddConstraint(
            model_name='membership',
            constraint=models.CheckConstraint(condition=models.Q(('break_glass', False), ('expires_at__isnull', False), _connector='OR'), name='membership_break_glass_ends'),
        ),
        migrations.AddField(
            model_name='accessrequest',
            name='approved_first',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='requests_approved_first', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='accessrequest',
            name='asked_by',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='requests_made', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='accessrequest',
            name='tenant',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='requests', to='tenants.tenant'),
        ),
        migrations.AddField(
            model_name='accessrequest',
            name='tier',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='requests', to='tenants.tier'),
        ),
        migrations.AddField(
            model_name='accessrequest',
            name='workspace',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='requests', to='tenants.workspace'),
        ),
        migrations.AddField(
            model_name='requestcomment',
            name='request',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='comments', to='tenants.accessrequest'),
        ),
        migrations.AddIndex(
            model_name='accessrequest',
            index=models.Index(fields=['-created_at', '-id'], name='request_time'),
        ),
        migrations.AddIndex(
            model_name='accessrequest',
            index=models.Index(condition=models.Q(('state', 'open')), fields=['expires_at'], name='request_open_end'),
        ),
        migrations.AddConstraint(
            model_name='accessrequest',
            constraint=models.UniqueConstraint(models.F('asked_by'), models.F('kind'), django.db.models.functions.comparison.Coalesce('tenant_id', models.Value('')), models.F('name'), condition=models.Q(('state', 'open'), ('workspace__isnull', True)), name='request_open_once'),
        ),
        migrations.AddConstraint(
            model_name='accessrequest',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'open'), ('workspace__isnull', False)), fields=('asked_by', 'workspace'), name='request_open_once_workspace'),
        ),
        migrations.AddConstraint(
            model_name='accessrequest',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('decided_at__isnull', True), ('state', 'open')), models.Q(models.Q(('state', 'open'), _negated=True), ('decided_at__isnull', False)), _connector='OR'), name='request_decided_has_time'),
        ),
        migrations.AddConstraint(
            model_name='accessrequest',
            constraint=models.CheckConstraint(condition=models.Q(('answer', ''), ('state', 'denied'), _negated=True), name='request_denied_has_reason'),
        ),
        migrations.AddConstraint(
            model_name='accessrequest',
            constraint=models.CheckConstraint(condition=models.Q(('reason__gt', '')), name='request_has_reason'),
        ),
    ]
