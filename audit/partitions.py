"""Partitions of the API requests: made before they are needed, dropped when they are past their time."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection


def partitions_prepare(*, now: datetime) -> list[str]:
    """Make this month's and the next two months' partitions; the names of the dropped ones.

    ``API_REQUESTS_KEEP_DAYS`` days are kept at least.
    """
    oldest = now - timedelta(days=settings.API_REQUESTS_KEEP_DAYS)
    with connection.cursor() as cursor:
        for days in (0, 31, 62):
            cursor.execute("SELECT api_requests_partition(%s)", [now + timedelta(days=days)])
        cursor.execute("SELECT api_requests_forget(%s)", [oldest])
        return [name for (name,) in cursor.fetchall()]
