"""Partitions of the API requests: made before they are needed, dropped when they are past their time."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from django.conf import settings
from django.db import connection
from psycopg import sql

_NAME: Final = re.compile(r"api_requests_(\d{6})")


def partitions_prepare(*, now: datetime) -> list[str]:
    """Make this month's and the next two months' partitions; the names of the dropped ones.

    ``API_REQUESTS_KEEP_DAYS`` days are kept at least.
    """
    oldest = (now - timedelta(days=settings.API_REQUESTS_KEEP_DAYS)).strftime("%Y%m")
    with connection.cursor() as cursor:
        for days in (0, 31, 62):
            cursor.execute("SELECT api_requests_partition(%s)", [now + timedelta(days=days)])
        cursor.execute(
            "SELECT child.relname FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid "
            "WHERE inhparent = 'api_requests'::regclass"
        )
        names = [name for (name,) in cursor.fetchall() if (match := _NAME.fullmatch(name)) and match[1] < oldest]
        for name in names:
            cursor.execute(sql.SQL("DROP TABLE {}").format(sql.Identifier(name)))
    return names
