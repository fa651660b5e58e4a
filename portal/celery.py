"""Celery wakes workers and sweeps; PostgreSQL is the queue of record (GW15)."""

import os

from celery import Celery

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "portal.settings")

app = Celery("tenantry")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks(["tenants", "access", "audit", "store"])
