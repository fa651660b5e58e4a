from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def move(apps: Apps, _: BaseDatabaseSchemaEditor) -> None:
    """The list of priority classes becomes one of the rules."""
    for tier in apps.get_model("tenants", "Tier").objects.exclude(priority_classes=[]):
        tier.policies = {"priority_classes": tier.priority_classes}
        tier.save(update_fields=["policies"])


def move_back(apps: Apps, _: BaseDatabaseSchemaEditor) -> None:
    """The other rules have no place in the version before."""
    for tier in apps.get_model("tenants", "Tier").objects.exclude(policies={}):
        tier.priority_classes = tier.policies.get("priority_classes", [])
        tier.save(update_fields=["priority_classes"])


class Migration(migrations.Migration):
    dependencies = [("tenants", "0008_credential_kinds")]

    operations = [
        migrations.AddField(
            model_name="tier",
            name="policies",
            field=models.JSONField(blank=True, default=dict, help_text="rules about what its workspaces may hold"),
        ),
        migrations.AddField(
            model_name="tenant",
            name="policies",
            field=models.JSONField(blank=True, default=dict),
        ),
        migrations.RunPython(move, move_back),
        migrations.RemoveField(model_name="tier", name="priority_classes"),
    ]
