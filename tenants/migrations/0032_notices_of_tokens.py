"""The warning of an end is also of access tokens."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Words of a choice alone."""

    dependencies = [
        ('tenants', '0031_account_notices'),
    ]

    operations = [
        migrations.AlterField(
            model_name='delivery',
            name='kind',
            field=models.CharField(choices=[('request.opened', 'Somebody asks for what I decide'), ('request.decided', 'What I asked for is decided'), ('request.commented', 'Somebody talks about a request of mine'), ('workspace.suspended', 'A workspace or a tenant is suspended'), ('workspace.resumed', 'A workspace or a tenant is open again'), ('workspace.failed', 'Something fails for a workspace'), ('credential.issued', 'Somebody else has a credential issued for me'), ('membership.changed', 'My role in a tenant changes'), ('expiry.ahead', 'A workspace, a membership or an access token of mine ends soon'), ('account.changed', 'What opens my account changes')], max_length=20),
        ),
        migrations.AlterField(
            model_name='notice',
            name='kind',
            field=models.CharField(choices=[('request.opened', 'Somebody asks for what I decide'), ('request.decided', 'What I asked for is decided'), ('request.commented', 'Somebody talks about a request of mine'), ('workspace.suspended', 'A workspace or a tenant is suspended'), ('workspace.resumed', 'A workspace or a tenant is open again'), ('workspace.failed', 'Something fails for a workspace'), ('credential.issued', 'Somebody else has a credential issued for me'), ('membership.changed', 'My role in a tenant changes'), ('expiry.ahead', 'A workspace, a membership or an access token of mine ends soon'), ('account.changed', 'What opens my account changes')], max_length=20),
        ),
        migrations.AlterField(
            model_name='notification',
            name='kind',
            field=models.CharField(choices=[('request.opened', 'Somebody asks for what I decide'), ('request.decided', 'What I asked for is decided'), ('request.commented', 'Somebody talks about a request of mine'), ('workspace.suspended', 'A workspace or a tenant is suspended'), ('workspace.resumed', 'A workspace or a tenant is open again'), ('workspace.failed', 'Something fails for a workspace'), ('credential.issued', 'Somebody else has a credential issued for me'), ('membership.changed', 'My role in a tenant changes'), ('expiry.ahead', 'A workspace, a membership or an access token of mine ends soon'), ('account.changed', 'What opens my account changes')], max_length=20),
        ),
    ]
