"""Usage counts what is on clusters too."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A column that is empty for the hours before."""

    dependencies = [
        ('tenants', '0023_ends'),
    ]

    operations = [
        migrations.AddField(
            model_name='usagehour',
            name='objects_placed',
            field=models.BigIntegerField(null=True, verbose_name='objects on clusters'),
        ),
    ]
