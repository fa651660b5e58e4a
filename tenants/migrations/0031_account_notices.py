"""People are told what changes about how their accounts are opened; links say what goes with a password."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """Columns that are false so far, and one more kind of notice."""

    dependencies = [
        ('tenants', '0030_offboardings'),
    ]

    operations = [
        migrations.AddField(
            model_name='user',
            name='address_unproven',
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.AddField(
            model_name='passwordreset',
            name='removes_factors',
            field=models.BooleanField(db_default=False, default=False, editable=False),
        ),
        migrations.AlterField(
            model_name='delivery',
            name='kind',
            field=models.CharField(choices=[('request.opened', 'Somebody asks for what I decide'), ('request.decided', 'What I asked for is decided'), ('request.commented', 'Somebody talks about a request of mine'), ('workspace.suspended', 'A workspace or a tenant is suspended'), ('workspace.resumed', 'A workspace or a tenant is open again'), ('workspace.failed', 'Something fails for a workspace'), ('credential.issued', 'Somebody else has a credential issued for me'), ('membership.changed', 'My role in a tenant changes'), ('expiry.ahead', 'A workspace or a membership of mine ends soon'), ('account.changed', 'What opens my account changes')], max_length=20),
        ),
        migrations.AlterField(
            model_name='notice',
            name='kind',
            field=models.CharField(choices=[('request.opened', 'Somebody asks for what I decide'), ('request.decided', 'What I asked for is decided'), ('request.commented', 'Somebody talks about a request of mine'), ('workspace.suspended', 'A workspace or a tenant is suspended'), ('workspace.resumed', 'A workspace or a tenant is open again'), ('workspace.failed', 'Something fails for a workspace'), ('credential.issued', 'Somebody else has a credential issued for me'), ('membership.changed', 'My role in a tenant changes'), ('expiry.ahead', 'A workspace or a membership of mine ends soon'), ('account.changed', 'What opens my account changes')], max_length=20),
        ),
        migrations.AlterField(
            model_name='notification',
            name='kind',
            field=models.CharField(choices=[('request.opened', 'Somebody asks for what I decide'), ('request.decided', 'What I asked for is decided'), ('request.commented', 'Somebody talks about a request of mine'), ('workspace.suspended', 'A workspace or a tenant is suspended'), ('workspace.resumed', 'A workspace or a tenant is open again'), ('workspace.failed', 'Something fails for a workspace'), ('credential.issued', 'Somebody else has a credential issued for me'), ('membership.changed', 'My role in a tenant changes'), ('expiry.ahead', 'A workspace or a membership of mine ends soon'), ('account.changed', 'What opens my account changes')], max_length=20),
        ),
    ]
