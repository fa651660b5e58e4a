import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('access', '0003_killswitch'),
        ('tenants', '0006_credential_kinds'),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='credential',
            name='credential_role_known',
        ),
        migrations.RemoveIndex(
            model_name='credential',
            name='credential_anchor_alive',
        ),
        migrations.AddField(
            model_name='credential',
            name='kind',
            field=models.CharField(choices=[('gateway', 'Through Tenantry'), ('direct', 'Straight at the cluster')], default='direct', max_length=7),
        ),
        migrations.AddField(
            model_name='credential',
            name='tenant',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='credentials', to='tenants.tenant'),
        ),
        migrations.RunSQL(
            """
            UPDATE credentials c SET tenant_id = w.tenant_id FROM workspaces w WHERE w.id = c.workspace_id;
            SET CONSTRAINTS ALL IMMEDIATE;
            """,
            migrations.RunSQL.noop,
        ),
        migrations.AlterField(
            model_name='credential',
            name='tenant',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='credentials', to='tenants.tenant'),
        ),
        migrations.AlterField(
            model_name='credential',
            name='anchor',
            field=models.CharField(blank=True, max_length=253),
        ),
        migrations.AlterField(
            model_name='credential',
            name='workspace',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.CASCADE, related_name='credentials', to='tenants.workspace'),
        ),
        migrations.AddIndex(
            model_name='credential',
            index=models.Index(condition=models.Q(('kind', 'direct'), ('revocation_confirmed_at__isnull', True)), fields=['issued_at'], name='credential_anchor_alive'),
        ),
        migrations.AddConstraint(
            model_name='credential',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('kind', 'direct'), _negated=True), ('workspace__isnull', False), _connector='OR'), name='credential_of_a_cluster_has_a_workspace'),
        ),
        migrations.AddConstraint(
            model_name='credential',
            constraint=models.CheckConstraint(condition=models.Q(('role__in', ['owner', 'admin', 'editor', 'viewer'])), name='credential_role_known'),
        ),
    ]
