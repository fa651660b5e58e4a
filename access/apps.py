"""The access floor as a Django application."""

from django.apps import AppConfig


class AccessConfig(AppConfig):
    """Registers the credential models."""

    name = "access"
    default_auto_field = "django.db.models.BigAutoField"
