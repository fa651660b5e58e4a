"""The portal as an ASGI application."""

import os

from django.conf import settings
from django.core.asgi import get_asgi_application
from django.core.exceptions import ImproperlyConfigured

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
if not settings.SECRET_KEY_IS_SET:
    raise ImproperlyConfigured("Set SECRET_KEY: sessions signed with a key that everybody knows are nobody's.")

application = get_asgi_application()
