"""Partitions of the API requests: made before they are needed, dropped when they are past their time or too many."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection


def partitions_prepare(*, now: datetime) -> list[str]:
    """Make the partitions of today and the next two days; the names of those that were dropped, the oldest first.

    ``API_REQUESTS_KEEP_DAYS`` days are kept, as far as ``API_REQUESTS_KEEP_BYTES`` hold them; a day goes as a whole once it
    is over, so today's requests are kept whatever their size.
    """
    oldest = now - timedelta(days=settings.API_REQUESTS_KEEP_DAYS)
    with connection.cursor() as cursor:
        for days in range(3):
            cursor.execute("SELECT api_requests_partition(%s)", [now + timedelta(days=days)])
        cursor.execute("SELECT api_requests_forget(%s, %s)", [oldest, settings.API_REQUESTS_KEEP_BYTES])
        return [name for (name,) in cursor.fetchall()]
