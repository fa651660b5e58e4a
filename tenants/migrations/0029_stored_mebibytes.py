"""What a tier's tenants may take in the database; NULL is the server's default."""

import django.core.validators
from django.db import migrations, models


class Migration(migrations.Migration):
    """A column that whoever does not know it leaves empty."""

    dependencies = [
        ('tenants', '0028_postponements'),
    ]

    operations = [
        migrations.AddField(
            model_name='tier',
            name='stored_mebibytes',
            field=models.PositiveIntegerField(
                blank=True,
                help_text="what all objects of its tenants may take in the database; 0 is no bound, empty the server's default",
                null=True,
                validators=[django.core.validators.MaxValueValidator(16777216)],
                verbose_name='stored mebibytes',
            ),
        ),
    ]
