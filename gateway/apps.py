"""The gateway floor as a Django application: it only brings the ``apiserver`` command."""

from django.apps import AppConfig


class GatewayConfig(AppConfig):
    """Registers the command."""

    name = "gateway"
