"""What each authorizer said about a refused request."""

from django.db import migrations, models


class Migration(migrations.Migration):
    """A column of the partitioned table, empty for what was allowed."""

    dependencies = [("audit", "0003_api_requests")]
    operations = [migrations.AddField(model_name="apirequest", name="trace", field=models.JSONField(null=True))]
