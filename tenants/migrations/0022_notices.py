"""What people and machines are told."""

import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """Tables of their own, and a column that is empty so far."""

    dependencies = [
        ('tenants', '0021_requests'),
    ]

    operations = [
        migrations.AddField(
            model_name='user',
            name='notices_off',
            field=models.JSONField(blank=True, default=list, editable=False),
        ),
        migrations.CreateModel(
            name='Notification',
            fields=[
                ('kind', models.CharField(choices=[('request.opened', 'Somebody asks for what I decide'), ('request.decided', 'What I asked for is decided'), ('request.commented', 'Somebody talks about a request of mine'), ('workspace.suspended', 'A workspace or a tenant is suspended'), ('workspace.resumed', 'A workspace or a tenant is open again'), ('workspace.failed', 'Something fails for a workspace'), ('credential.issued', 'Somebody else has a credential issued for me'), ('membership.changed', 'My role in a tenant changes'), ('expiry.ahead', 'A workspace or a membership of mine ends soon')], max_length=20)),
                ('text', models.CharField(max_length=512)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('read_at', models.DateTimeField(null=True)),
                ('request', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.accessrequest')),
                ('tenant', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='notifications', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.workspace')),
            ],
            options={
                'verbose_name': 'notification',
                'verbose_name_plural': 'notifications',
                'db_table': 'notifications',
            },
        ),
        migrations.CreateModel(
            name='Webhook',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('url', models.CharField(max_length=512)),
                ('sealed_secret', models.BinaryField()),
                ('kinds', models.JSONField(blank=True, default=list)),
                ('created_by', models.CharField(max_length=254)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('tenant', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='webhooks', to='tenants.tenant')),
            ],
            options={
                'verbose_name': 'webhook',
                'verbose_name_plural': 'webhooks',
                'db_table': 'webhooks',
            },
        ),
        migrations.CreateModel(
            name='Delivery',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('kind', models.CharField(choices=[('request.opened', 'Somebody asks for what I decide'), ('request.decided', 'What I asked for is decided'), ('request.commented', 'Somebody talks about a request of mine'), ('workspace.suspended', 'A workspace or a tenant is suspended'), ('workspace.resumed', 'A workspace or a tenant is open again'), ('workspace.failed', 'Something fails for a workspace'), ('credential.issued', 'Somebody else has a credential issued for me'), ('membership.changed', 'My role in a tenant changes'), ('expiry.ahead', 'A workspace or a membership of mine ends soon')], max_length=20)),
                ('body', models.TextField(blank=True)),
                ('state', models.CharField(choices=[('waiting', 'Waiting'), ('sent', 'Sent'), ('failed', 'Failed')], default='waiting', max_length=7)),
                ('attempts', models.PositiveIntegerField(default=0)),
                ('not_before', models.DateTimeField(default=django.utils.timezone.now)),
                ('answer', models.CharField(blank=True, max_length=200)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('finished_at', models.DateTimeField(null=True)),
                ('notification', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='tenants.notification')),
                ('webhook', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='deliveries', to='tenants.webhook')),
            ],
            options={
                'db_table': 'deliveries',
            },
        ),
        migrations.CreateModel(
            name='Notice',
            fields=[
                ('kind', models.CharField(choices=[('request.opened', 'Somebody asks for what I decide'), ('request.decided', 'What I asked for is decided'), ('request.commented', 'Somebody talks about a request of mine'), ('workspace.suspended', 'A workspace or a tenant is suspended'), ('workspace.resumed', 'A workspace or a tenant is open again'), ('workspace.failed', 'Something fails for a workspace'), ('credential.issued', 'Somebody else has a credential issued for me'), ('membership.changed', 'My role in a tenant changes'), ('expiry.ahead', 'A workspace or a membership of mine ends soon')], max_length=20)),
                ('text', models.CharField(max_length=512)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('actor_id', models.UUIDField(null=True)),
                ('request', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.accessrequest')),
                ('tenant', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.tenant')),
                ('user', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('workspace', models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='tenants.workspace')),
            ],
            options={
                'db_table': 'notices',
                'indexes': [models.Index(fields=['created_at'], name='notice_time')],
            },
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(fields=['user', '-created_at', '-id'], name='notification_time'),
        ),
        migrations.AddIndex(
            model_name='notification',
            index=models.Index(condition=models.Q(('read_at__isnull', True)), fields=['user'], name='notification_unread'),
        ),
        migrations.AddConstraint(
            model_name='webhook',
            constraint=models.CheckConstraint(condition=models.Q(('url__startswith', 'https://')), name='webhook_https'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(condition=models.Q(('state', 'waiting')), fields=['not_before'], name='delivery_due'),
        ),
        migrations.AddIndex(
            model_name='delivery',
            index=models.Index(fields=['webhook', '-created_at'], name='delivery_log'),
        ),
        migrations.AddConstraint(
            model_name='delivery',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('notification__isnull', False), ('webhook__isnull', True)), models.Q(('notification__isnull', True), ('webhook__isnull', False)), _connector='OR'), name='delivery_to_one'),
        ),
    ]
