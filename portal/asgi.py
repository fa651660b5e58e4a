"""The portal as an ASGI application."""

import os

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
if not settings.SECRET_KEY_IS_SET:
    raise ImproperlyConfigured("Set SECRET_KEY: sessions signed with a key that everybody knows are nobody's.")

django.setup(set_prefix=False)

from portal.http.handler import PortalHandler  # noqa: E402 (it counts by what the models say)
from portal.signin.refusals import Noted  # noqa: E402

application = PortalHandler(Noted().note)
