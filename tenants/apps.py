"""The tenants floor as a Django application."""

from django.apps import AppConfig


class TenantsConfig(AppConfig):
    """Registers the tenant models."""

    name = "tenants"
    default_auto_field = "django.db.models.BigAutoField"
