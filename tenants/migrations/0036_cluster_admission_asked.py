"""When a cluster has last asked the webhook of admission."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A column, empty until one asks."""

    dependencies = [
        ('tenants', '0035_offboardings_end'),
    ]

    operations = [
        migrations.AddField(
            model_name='cluster', name='admission_asked_at', field=models.DateTimeField(editable=False, null=True)
        ),
    ]
