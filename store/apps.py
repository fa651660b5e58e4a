"""The store as a Django application: its models, migrations and commands."""

from django.apps import AppConfig


class StoreConfig(AppConfig):
    """Label ``store``."""

    name = "store"
    default_auto_field = "django.db.models.BigAutoField"
