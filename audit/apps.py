"""The audit floor as a Django application."""

from django.apps import AppConfig


class AuditConfig(AppConfig):
    """Registers the audit models."""

    name = "audit"
    default_auto_field = "django.db.models.BigAutoField"
