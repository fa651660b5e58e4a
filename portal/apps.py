"""The portal floor as a Django application."""

from django.apps import AppConfig


class PortalConfig(AppConfig):
    """Registers templates, commands and the admin's models."""

    name = "portal"
