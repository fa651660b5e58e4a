from django.db import migrations, models

import tenants.models.clusters


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0005_placed_namespaces'),
    ]

    operations = [
        migrations.AddField(
            model_name='cluster',
            name='credential_kinds',
            field=models.JSONField(blank=True, default=tenants.models.clusters.direct_only, verbose_name='credentials for people'),
        ),
    ]
