"""Finds what was refused by the audit ID that its sender was told."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """An index of the partitioned table, of the rows of errors alone; present partitions get it as well."""

    dependencies = [("audit", "0007_writers")]
    operations = [
        migrations.AddIndex(
            model_name="apirequest",
            index=models.Index(
                fields=["request_id"], condition=models.Q(code__gte=400), name="api_request_refused_id"
            ),
        )
    ]
