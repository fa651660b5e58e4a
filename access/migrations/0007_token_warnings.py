"""People are warned once before an access token ends."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A column that is empty so far, and what finds those that nobody was warned of."""

    dependencies = [
        ('access', '0006_logins'),
    ]

    operations = [
        migrations.AddField(
            model_name='personalaccesstoken',
            name='warned_at',
            field=models.DateTimeField(editable=False, null=True),
        ),
        migrations.AddIndex(
            model_name='personalaccesstoken',
            index=models.Index(
                condition=models.Q(('revoked_at__isnull', True), ('warned_at__isnull', True)),
                fields=['expires_at'],
                name='access_token_to_warn_of',
            ),
        ),
    ]
