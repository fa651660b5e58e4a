"""Passkeys: public halves of the keys by which people sign in."""

import django.db.models.deletion
import django.utils.timezone
import uuid
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):
    """A table of its own."""

    dependencies = [
        ('tenants', '0026_freezes'),
    ]

    operations = [
        migrations.CreateModel(
            name='Passkey',
            fields=[
                ('id', models.UUIDField(default=uuid.uuid4, editable=False, primary_key=True, serialize=False)),
                ('name', models.CharField(max_length=64)),
                ('credential_id', models.BinaryField(max_length=1023, unique=True)),
                ('public_data', models.BinaryField()),
                ('counter', models.BigIntegerField(default=0, editable=False)),
                ('created_at', models.DateTimeField(default=django.utils.timezone.now, editable=False)),
                ('last_used_at', models.DateTimeField(editable=False, null=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='passkeys', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'verbose_name': 'passkey',
                'verbose_name_plural': 'passkeys',
                'db_table': 'passkeys',
            },
        ),
    ]
