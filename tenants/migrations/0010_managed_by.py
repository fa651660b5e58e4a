from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('tenants', '0009_policies'),
    ]

    operations = [
        migrations.AddField(
            model_name='membership',
            name='managed_by',
            field=models.CharField(blank=True, editable=False, max_length=63),
        ),
        migrations.AddField(
            model_name='tenant',
            name='managed_by',
            field=models.CharField(blank=True, editable=False, max_length=63),
        ),
        migrations.AddField(
            model_name='tier',
            name='managed_by',
            field=models.CharField(blank=True, editable=False, max_length=63),
        ),
        migrations.AddIndex(
            model_name='membership',
            index=models.Index(condition=models.Q(('managed_by', ''), _negated=True), fields=['managed_by'], name='membership_managed_by'),
        ),
        migrations.AddIndex(
            model_name='tenant',
            index=models.Index(condition=models.Q(('managed_by', ''), _negated=True), fields=['managed_by'], name='tenant_managed_by'),
        ),
    ]
