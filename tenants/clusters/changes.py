"""Tells API servers that a cluster's row has changed: another credential, another server, none at all (GW12).

The payload is only a hint, the table is the truth, and a poll stands behind it.
"""

from __future__ import annotations

from typing import Final

from django.db import connection

CHANNEL: Final = "tenantry_clusters"


def cluster_changed(name: str) -> None:
    """Notify, from the commit of the surrounding transaction on."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_notify(%s, %s)", [CHANNEL, name])
