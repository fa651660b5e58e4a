"""By which authenticator the user of a request was known."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A column of the partitioned table; servers of the version before leave it empty."""

    dependencies = [("audit", "0004_traces")]
    operations = [
        migrations.AddField(
            model_name="apirequest",
            name="authenticator",
            field=models.CharField(blank=True, db_default="", default="", max_length=32),
        )
    ]
