"""Whether a tier opens the API servers' proxy into pods and services."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A column that whoever does not know it leaves at its default: closed."""

    dependencies = [
        ('tenants', '0036_cluster_admission_asked'),
    ]

    operations = [
        migrations.AddField(
            model_name='tier',
            name='proxies',
            field=models.BooleanField(
                db_default=False,
                default=False,
                help_text="kubectl proxy and the API servers' own proxy reach what listens in its workspaces",
                verbose_name='proxy into pods and services',
            ),
        ),
    ]
