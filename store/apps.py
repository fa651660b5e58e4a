"""The store floor as a Django application."""

from django.apps import AppConfig


class StoreConfig(AppConfig):
    """Registers the store's models, migrations and commands."""

    name = "store"
    default_auto_field = "django.db.models.BigAutoField"
