"""Import this before a floor whose modules need Django's models: for benchmarks that keep nothing by them."""

from __future__ import annotations

import os

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")
django.setup()
