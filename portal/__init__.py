"""What people see: pages, REST API, admin, sign-in, and the quickstart."""

# Tasks that are sent from web processes must find this application, not Celery's default one.
from portal.celery import app as celery_app

__all__ = ["celery_app"]
