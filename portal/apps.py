"""The portal floor as a Django application."""

from django.apps import AppConfig
from django.conf import settings
from django.contrib.auth.signals import user_logged_in
from django.core.exceptions import ImproperlyConfigured

from access.reloading import UnusableFile, report_exposed


class PortalConfig(AppConfig):
    """Registers templates, commands and the admin's models."""

    name = "portal"

    def ready(self) -> None:
        """Refuse to start with a provider that nobody could sign in by; name secrets that everybody may read.

        And note each sign-in, whichever way it came.
        """
        from portal.signin.proofs import note_sign_in

        user_logged_in.connect(note_sign_in)
        for file in settings.SECRET_FILES:
            if file.is_file():
                report_exposed(file, file.stat().st_mode)
        if not settings.OIDC_OP_ISSUER:
            return
        from portal.signin.oidc import provider

        try:
            provider.configured()
        except (ValueError, OSError, UnusableFile) as error:
            raise ImproperlyConfigured(f"OIDC_*: {error}") from None
