"""Credentials of all tenants in the order of their issue, without sorting them."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """An index."""

    dependencies = [
        ('access', '0007_token_warnings'),
    ]

    operations = [
        migrations.AddIndex(
            model_name='credential', index=models.Index(fields=['-issued_at', '-id'], name='credential_time')
        ),
    ]
